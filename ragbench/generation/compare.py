"""Comparison and yes/no questions for the extractive reader: two options, a value for each, a verdict.

"Which was launched first, X or Y?" looks up a date for X and one for Y; "Were X and Y both born in Z?" looks whether
the words of the rest stand with each. English question forms; anything else is left to the pair of sentences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from ragbench.text.parse import ParsedSentence, opening_name, sentence
from ragbench.text.words import ANY_MONTH, MONTHS, stem, stems

_YES_NO = re.compile(r"^(?:did|do|does|was|were|is|are|has|have|had)\b", re.IGNORECASE)
_LEAST = "first earlier earliest sooner older oldest before shorter shortest fewer less lower smaller smallest lighter"
_MOST = "later latest last younger youngest recent longer longest larger largest bigger higher highest deeper deepest"
_MOST += " more greater wider taller heavier after farther further outlived"
_TIMES = {"first", "earlier", "earliest", "sooner", "older", "oldest", "before", "later", "latest", "last", "younger"}
_TIMES |= {"youngest", "recent", "after", "outlived"}
_WORD = re.compile(r"\b(?:" + "|".join((_LEAST + " " + _MOST).split()) + r")\b", re.IGNORECASE)
_DATE = re.compile(rf"(?:\b(\d{{1,2}}) )?(?:\b({ANY_MONTH}) )?\b(\d{{4}})\b")
_BACK = 8
_OPTION_SHARE = 0.5
_REST_SHARE = 0.4  # of the other words of a yes/no question, which must stand with each option for a yes
_ABOUT = 0.4  # for evidence within eight sentences of one that opens with the option's name

Rarity = Callable[[str], float]


def name_stems(names: Iterable[str]) -> set[str]:
    """Return the stems of the words in some names."""
    return {stem(word, "reader") for name in names for word in name.lower().split()}


def _options(question: str) -> tuple[str, str, str] | None:
    """Split a comparison into its two options and the rest of what is asked.

    >>> _options("Which is deeper, Lake Baikal or Lake Tanganyika?")
    ('Lake Baikal', 'Lake Tanganyika', 'Which is deeper')
    """
    text = question.strip().rstrip("?").strip()
    last = re.split(r"(?<=[.?!])\s+", text)[-1]
    for pattern in (
        r"(?P<rest>[^:]+):\s*(?P<a>.+?),? or (?P<b>.+)",
        r"(?P<rest>.*(?:which|who|what)\b.*?),\s*(?P<a>.+?),? or (?P<b>.+)",
        r"(?:of|between) (?P<a>.+?) and (?P<b>.+?),\s*(?P<rest>.+)",
    ):
        m = re.fullmatch(pattern, last, re.IGNORECASE)
        if m and stems(m["a"], "reader") and stems(m["b"], "reader"):
            return m["a"].strip(), m["b"].strip(" ,"), m["rest"].strip()
    if not _YES_NO.match(last):
        return None
    if m := re.fullmatch(r"\w+ (?P<a>.+?) and (?P<b>.+?) (?P<rest>(?:both|each) .+)", last):
        return m["a"], m["b"], m["rest"]
    names = sentence(last.partition(" ")[2]).names
    if len(names) < 2:
        return None
    a, b = names[:2]
    return a, b, last.replace(a, " ", 1).replace(b, " ", 1)


def answer_comparison(question: str, sentences: Sequence[ParsedSentence], rarity: Rarity) -> str | None:
    """Decide a comparison or yes/no question by the sentences of the context, in order.

    "NAME: evidence; evidence." or "Yes: ..." or "No: ...", or None when the question is no comparison or the context
    holds no evidence for one of its options.
    """
    split = _options(question)
    if split is None:
        return None
    a, b, rest = split
    yes_no = bool(_YES_NO.match(rest) or _YES_NO.match(re.split(r"(?<=[.?!])\s+", question.strip())[-1]))
    word = _WORD.search(rest)
    limit = re.search(r"\b(before|after|by) (\d{3,4})\b", rest)
    timed = bool(word and word[0].lower() in _TIMES)
    wants = "any" if word is None else "date" if timed else "number"
    i, j = (_evidence(option, rest, sentences, rarity, wants) for option in (a, b))
    if i is None or j is None:
        return None
    evidence = "; ".join(dict.fromkeys(sentences[k].text.rstrip(".") for k in (i, j))) + "."
    if yes_no:
        if i == j and re.search(r"\bsame\b", rest):
            return None  # one sentence shares its names with itself
        return f"{'Yes' if _holds(sentences[i], sentences[j], rest, word, limit, rarity) else 'No'}: {evidence}"
    if word is None:
        return None
    x, y = (_date(sentences[k].text, rest) if timed else max(sentences[k].numbers) for k in (i, j))
    if x == y:
        return None
    least = word[0].lower() in _LEAST.split()
    return f"{_shown(a, sentences, i) if (x < y) == least else _shown(b, sentences, j)}: {evidence}"


def _evidence(option: str, rest: str, sentences: Sequence[ParsedSentence], rarity: Rarity, wants: str) -> int | None:
    """The sentence that says most about the option; names may stand up to eight sentences before it."""
    named, asked = set(stems(option, "reader")), set(stems(rest, "reader")) - set(stems(option, "reader"))
    total = sum(map(rarity, named))
    if not total:
        return None  # a name of function words only ("The Who") cannot be found by its words
    best, place = 0.0, None
    seen: dict[str, int] = {}
    about = -_BACK
    for k, s in enumerate(sentences):
        seen.update(dict.fromkeys(s.terms & named, k))
        opening = name_stems([opening_name(s)])
        if opening and len(opening & named) >= _OPTION_SHARE * len(opening):
            about = k
        if (wants == "date" and not s.years) or (wants == "number" and not s.numbers):
            continue
        near = sum(rarity(t) * (1 - (k - at) / (2 * _BACK)) for t, at in seen.items() if k - at <= _BACK) / total
        if near < _OPTION_SHARE:
            continue
        score = near + sum(rarity(t) for t in asked & s.terms) / (sum(map(rarity, asked)) or 1.0)
        score += _ABOUT * (k - about < _BACK)
        if score > best:
            best, place = score, k
    return place


def _date(text: str, rest: str) -> tuple[int, int, int]:
    """The date that stands nearest to a word of the question ("born in 1820 and died in 1865"): year, month, day."""
    dates = list(_DATE.finditer(text))
    if not dates:
        return sentence(text).years[0], 0, 0
    asked = set(stems(rest, "reader"))
    places = [m.start() for m in re.finditer(r"\w+", text) if stem(m[0].lower(), "reader") in asked]
    m = min(dates, key=lambda d: min((abs(d.start() - p) for p in places), default=0))
    return int(m[3]), MONTHS.index(m[2]) + 1 if m[2] else 0, int(m[1] or 0)


def _holds(
    x: ParsedSentence, y: ParsedSentence, rest: str, word: re.Match | None, limit: re.Match | None, rarity: Rarity
) -> bool:
    if limit is not None:
        least = limit[1] != "after"
        return all(bool(s.years) and (_date(s.text, rest)[0] < int(limit[2])) == least for s in (x, y))
    if word is not None and word[0].lower() in _TIMES:
        return (_date(x.text, rest) < _date(y.text, rest)) == (word[0].lower() in _LEAST.split())
    if re.search(r"\bsame\b", rest):
        asked = {stem(w, "reader") for w in re.findall(r"\w+", rest.lower())}
        return bool((name_stems(x.names) & name_stems(y.names)) - asked)
    asked = set(stems(rest, "reader"))
    total = sum(map(rarity, asked)) or 1.0
    return all(sum(rarity(t) for t in asked & s.terms) / total >= _REST_SHARE for s in (x, y))


def _shown(option: str, sentences: Sequence[ParsedSentence], k: int) -> str:
    """The option's name: as the question gives it, or for a description the last subject before the evidence."""
    if re.match(r"(?:the|a|an) [a-z]", option):
        for s in reversed(sentences[max(0, k - _BACK) : k + 1]):
            if opening_name(s):
                return opening_name(s)
    return option[:1].upper() + option[1:]
