"""Sentences of a text. Published numbers depend on the rule, so each use has its own row.

``as_run``  after ``.?!`` and white space, as the thesis's published run cut its documents.
``chunks``  so too; after 。！？, a Japanese ．, and the full stops of Hindi and Urdu; not in
            "fig. 3", "Art. 5", "3. Mai".
``claims``  at line ends, after ``.!?`` before a capital or a digit, not after abbreviations, and
            after the full stops of scripts without capitals; without a word it is no sentence.
``en``      RAGEval, section 3.5.1, which names no rules; these are ours. They agree with pySBD on
            all 5,340 English references of DRAGONBall, and on 99.5% of the lines of its documents.
``zh``      the same for Chinese: after 。！？ or at a line break.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ragbench.errors import check_known
from ragbench.text.layout import BREAKS

Span = tuple[int, int]
LANGUAGES = ("en", "zh")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Not the end of a sentence, whatever follows: titles before a name, and words that lead to a number
# or an example.
_NEVER = _set(
    "mr mrs ms dr prof rev hon gen col capt lt sgt st mt messrs sen rep gov pres vs v viz cf e.g "
    "i.e no nos art arts "
    "fig figs eq eqs sec sect vol pp approx ca al"
)
# The end of a sentence only before a word that usually opens one.
_SELDOM = _set(
    "inc ltd co corp bros llc plc dept univ assn jr sr esq etc u.s u.k u.n e.u a.m p.m ph.d m.d"
)
_OPENERS = _set(
    "a an the this that these those it its he she they we you i his her their our your in on at "
    "by for from with "
    "after before during since when while as if although though however moreover furthermore "
    "additionally meanwhile "
    "finally first firstly second secondly third thirdly next then there what who how why both "
    "all each some "
    "many"
)
_CLOSERS = "\"'”’)]"
_BEFORE = re.compile(r"[^\s(\[\"'“‘]+$")
_ABBREVIATION = re.compile(
    r"\b(?:[A-Z]|Mr|Mrs|Ms|Dr|St|Prof|Sr|Jr|vs|No|Fig|Eq|e\.g|i\.e|approx|ca|c)\.$"
)


# Words and days of a month whose full stop ends no chunk. The recorded data have none of them, so
# that published numbers stay: "No. 5" is not among them.
_INSIDE = re.compile(
    r"\b(?:[Ff]igs?|Art|Abb|Abs)\.\s+(?=\d)"
    r"|\b\d{1,2}\.\s+(?=(?:Januar|Februar|März|Mai|Juni|Juli|Oktober|Dezember)\b)"  # German alone
)
_ENOUGH = 200  # characters that tell whether a sentence ends: more than the last word has
_FULL_STOPS = "。！？｡।॥۔؟"
_CHUNK_GAP = (
    r"(?<=[.?!])\s+|(?<=[。！？।॥۔؟])\s*|(?<=[\u3040-\u30ff]．)\s*(?=[\u3040-\u30ff\u4e00-\u9fff])"
)


def _ending(text: str, start: int, gap: re.Match) -> str:
    """Return the last characters before a gap: a sentence without an end is not read again and
    again.
    """
    return text[max(start, gap.start() - _ENOUGH) : gap.start()]


def _english_end(text: str, start: int, gap: re.Match) -> bool:
    word = gap["next"]
    if word is None:  # a line break
        return True
    sentence = _ending(text, start, gap).rstrip(_CLOSERS)
    body = sentence.rstrip(".!?")
    marks = sentence[len(body) :]
    begins_small = word[0].islower()
    if not marks:
        return False
    if marks[0] != ".":
        return not begins_small
    before = _BEFORE.search(body)
    last = before[0].lower() if before else ""
    is_initial = len(last) == 1 and last.isalpha()
    if is_initial or last in _NEVER:
        return False
    if last in _SELDOM:
        return word[0].isupper() and word.lower() in _OPENERS
    # "3." at the head of a list
    is_number = last.isdigit() and not body.strip().removesuffix(last)
    return not begins_small and not is_number


def _chunk_end(text: str, start: int, gap: re.Match) -> bool:
    around = (max(start, gap.start() - 5), gap.end() + 10)
    inside = {word.end() for word in _INSIDE.finditer(text, *around)}
    return gap.end() not in inside


@dataclass(frozen=True, slots=True)
class _SentenceRule:
    """Where sentences end."""

    gap: re.Pattern[str]  # what may stand between two sentences; it belongs to neither
    # (text, start of the sentence, gap) -> does it end there?
    ends: Callable[[str, int, re.Match], bool] = lambda text, start, gap: True
    holds: re.Pattern[str] = re.compile(r"\S")  # what a piece must hold to be a sentence


SENTENCES: dict[str, _SentenceRule] = {
    "as_run": _SentenceRule(re.compile(r"(?<=[.?!])\s+")),
    "chunks": _SentenceRule(re.compile(_CHUNK_GAP), _chunk_end),
    "claims": _SentenceRule(
        re.compile(
            r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[*]?[A-Z0-9])|\s*\n\s*"
            rf"|(?<=[{_FULL_STOPS}])[{_FULL_STOPS}」』”’）)\"']*\s*(?=\S)"
            r"|(?<=[\u3040-\u30ff]．)\s*(?=\S)"
        ),
        lambda text, start, gap: (
            "\n" in gap[0] or not _ABBREVIATION.search(_ending(text, start, gap).strip())
        ),
        re.compile(r"[^\W_]"),
    ),
    "en": _SentenceRule(
        re.compile(
            rf"(?<=[.!?{re.escape(_CLOSERS)}])[^\S{BREAKS}]+(?=[\"'“‘(\[]*(?P<next>[^\s.,;:!?\"'”’)\]]+))|[{BREAKS}]"
        ),
        _english_end,
    ),
    "zh": _SentenceRule(re.compile(r"(?<=[。！？])|\n")),
}


def sentence_spans(text: str, profile: str, min_chars: int = 0) -> list[Span]:
    """Find the sentences of a text by a row of `SENTENCES`: (start, end) positions, without what is
    between.

    A sentence is merged with the following ones until it has at least ``min_chars`` characters;
    what remains at the end joins the last one. With ``as_run`` it stays alone, and each sentence
    counts with one blank before it.
    """
    check_known("sentence profile", [profile], SENTENCES)
    rule = SENTENCES[profile]
    spans = []
    start = 0
    for gap in rule.gap.finditer(text):
        if rule.ends(text, start, gap):
            spans.append((start, gap.start()))
            start = gap.end()
    spans.append((start, len(text)))
    sentences = [span for span in spans if rule.holds.search(text, *span)]
    return (
        _merged_as_run(sentences, min_chars)
        if profile == "as_run"
        else _merged(sentences, min_chars)
    )


def _merged_as_run(spans: Sequence[Span], min_chars: int) -> list[Span]:
    merged: list[Span] = []
    length = min_chars
    for start, end in spans:
        if length < min_chars:
            first, _ = merged.pop()
            merged.append((first, end))
        else:
            length = 0
            merged.append((start, end))
        length += 1 + end - start
    return merged


def _merged(spans: Sequence[Span], min_chars: int) -> list[Span]:
    merged: list[Span] = []
    for start, end in spans:
        if merged and _is_short(merged[-1], min_chars):
            start, _ = merged.pop()
        merged.append((start, end))
    if len(merged) > 1 and _is_short(merged[-1], min_chars):
        _, end = merged.pop()
        start, _ = merged.pop()
        merged.append((start, end))
    return merged


def _is_short(span: Span, min_chars: int) -> bool:
    return span[1] - span[0] < min_chars


@lru_cache(maxsize=65536)
def split_sentences(text: str, profile: str) -> tuple[str, ...]:
    """Return the sentences of a text, without the white space around them.

    >>> split_sentences("Dr. Moll came. He left.", "claims")
    ('Dr. Moll came.', 'He left.')
    """
    spans = sentence_spans(text, profile)
    return tuple(text[start:end].strip() for start, end in spans)
