"""The embedded grader: a grade from the true answer and the facts, without a language model."""

from __future__ import annotations

import functools
import json
import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragbench.errors import ConfigError, DataError
from ragbench.records import Answer, Grade, Question, facts_of, questions_of
from ragbench.text.negation import abstains, guesses
from ragbench.text.words import MONTHS, STOP_WORDS, TENS, UNITS, everyday, stem

# An answer's words, comparable: accents, number words, months and possessives made equal, names and numbers marked.
# Words of other scripts are kept; they share none with an English reference.

_UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff"
_GRADED_WORD = re.compile(rf"\d+(?:[.,]\d+)*|[{_UNSPACED}]|[^\W\d_{_UNSPACED}]+(?:['’][^\W\d_{_UNSPACED}]+)?|[^\W_]")
_OPENS_AFTER = re.compile(r"[.!?:;\n]")
_SHORTENED = {m[:3].lower(): m.lower() for m in MONTHS if m != "May"}
_SHORTENED |= {"sept": "september", "st": "saint", "mt": "mount"}
_SMALL = UNITS | TENS
_LARGE = {"hundred": 100, "thousand": 1000, "million": 10**6}


@dataclass(frozen=True, slots=True)
class _Token:
    """One word. ``word`` is its comparable form, ``stem`` that of its family; ``start`` its place in the text."""

    word: str
    stem: str
    start: int
    capital: bool
    name: bool  # a capitalised word, save everyday ones where a sentence opens
    number: bool
    plain: bool  # a function word, or nothing but everyday language

    @property
    def content(self) -> bool:
        """Whether it is more than a function word."""
        return self.word not in _FUNCTION_WORDS


_FUNCTION_WORDS = STOP_WORDS | {"s", "t", "not", "yes", "no", "ca", "wo", "one"}
# Signs that change what a formula or a name says (x+1, C++, -5). A hyphen inside a word and a bullet are none.
_SIGN = re.compile(r"([+=<>^±×÷√∑∏∫∞≤≥≠]|(?<![\w)\]])-(?=[\d(]|[a-z]\b))")


def _folded_line(text: str) -> str:
    """Return a text with characters of one meaning made equal (NFKC, one minus, lower case), white space as one blank.

    Signs stay, unlike in `_tokens`.
    """
    return " ".join(unicodedata.normalize("NFKC", text).replace("\u2212", "-").casefold().split())


def _holds(text: str, wanted: str) -> bool:
    """Say whether a text holds another one to the sign, as a whole: "x + 1" holds "x+1", "2x+10" does not."""
    parts = r"\s*".join(map(re.escape, "".join(_folded_line(wanted).split())))
    return bool(re.search(rf"(?<![\w+*/^=<>-]){parts}(?!\w|\s*[+*/^=<>-])", _folded_line(text)))


def _comparable(raw: str) -> str:
    folded = unicodedata.normalize("NFKD", raw.replace("’", "'")).casefold()
    word = "".join(c for c in folded if not unicodedata.combining(c))
    word = word.removesuffix("'s").removesuffix("n't").removesuffix("'")
    word = re.sub(r"'(?:m|re|ve|ll|d)$", "", word)
    if word[:1].isdigit():
        return word.replace(",", "")
    return _SHORTENED.get(word, word)


def _merge_numbers(words: list[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """Join number words: "forty two" 42, "sixteen hundred" 1600, "nineteen seventy-eight" 1978, "third" stays."""
    merged: list[tuple[str, str, int]] = []
    read, i = [*(word for _, word, _ in words), "", ""], 0
    while i < len(words):
        raw, word, start = words[i]
        i += 1
        if word in _SMALL and (word != "one" or read[i] in _LARGE):  # "the Siberian one" counts nothing
            value = _SMALL[word]
            if 10 < value < 20 and read[i] in TENS:
                value, word, i = value * 100 + TENS[read[i]], read[i], i + 1
            if word in TENS and 0 < _SMALL.get(read[i], 99) < 10:
                value, i = value + _SMALL[read[i]], i + 1
            while read[i] in _LARGE:
                value, i = value * _LARGE[read[i]], i + 1
            word = str(value)
        merged.append((raw, word, start))
    return merged


@functools.lru_cache(maxsize=20_000)
def _tokens(text: str) -> tuple[_Token, ...]:
    """Cut a text into words; remembered, since questions and facts come back for many answers."""
    words = [(m[0], _comparable(m[0]), m.start()) for m in _GRADED_WORD.finditer(text)]
    result, end_of_last = [], 0
    for raw, word, start in _merge_numbers(words):
        opens = not result or bool(_OPENS_AFTER.search(text, end_of_last, start))
        number = word[:1].isdigit()
        is_name = raw[:1].isupper() and word not in _FUNCTION_WORDS and not (opens and everyday(word))
        is_plain = word in _FUNCTION_WORDS or (not is_name and not number and everyday(word))
        result.append(_Token(word, stem(word, "claims"), start, raw[:1].isupper(), is_name, number, is_plain))
        end_of_last = start + len(raw)
    return tuple(result)


def _token_stems(text: str) -> frozenset[str]:
    """Return the stems of all of a text's `_tokens`."""
    return frozenset(t.stem for t in _tokens(text))


def _content_stems(text: str) -> frozenset[str]:
    """Return the stems of the `_tokens` that are more than function words; of all when there are no others."""
    every = _tokens(text)
    return frozenset(t.stem for t in every if t.content) or frozenset(t.stem for t in every)


FEATURES = (
    "hit", "hit_clean", "hit_part", "part_last", "missed", "contradicts", "no_stance", "turned", "declines",
    "declines_bare", "guesses", "bare", "wrong_names", "wrong_numbers", "rare_words", "wrong_share", "bridge_names",
    "from_bridges", "from_answer_fact", "asked_again", "off_topic", "short_hit", "short_miss", "length",
)  # fmt: skip
_MOST = 20_000  # characters of an answer that are compared; an answer to one question that is longer is judged by these
_SHORT = 4  # words up to which an answer is the bare thing asked for
_LONG = 40  # words from which an answer is long; the graded ones have 47 at most, and a weight must not run away
_COMPARES = re.compile(r"\b(?:than|before|after|followed|follows|preceded|preceding|behind|instead of|rather than)\b")
_LOOKED = 400  # characters after the one picked in which the sentence may turn it round
_BRACKETS = re.compile(r"\s*\([^()]*\)")


class _QuestionParts(NamedTuple):
    """Stems of one question with its true answer and facts, parsed once for all answers to it."""

    question: frozenset[str]
    asked: frozenset[str]
    reference: frozenset[str]
    reference_last: str
    reference_is_name: bool
    polar: int
    options: tuple[frozenset[str], frozenset[str]] | None
    bridges: frozenset[str]
    answer_facts: frozenset[str]
    known: frozenset[str]


def _offered(question: str, reference: str) -> tuple[frozenset[str], frozenset[str]] | None:
    """Return the stems that tell apart the true one of two options and the other; None without such a choice."""
    head, divider, tail = question.rpartition(" or ")
    if not divider:
        return None
    left = re.split(r"[,:;]", head.rstrip(" ,"))[-1]
    true, sides = _content_stems(reference), (_content_stems(left), _content_stems(tail))
    overlaps = [len(true & side) for side in sides]
    if overlaps[0] == overlaps[1]:
        return None
    right = 0 if overlaps[0] > overlaps[1] else 1
    chosen, other = true - sides[1 - right], sides[1 - right] - true - sides[right]
    return (chosen, other) if chosen and chosen <= sides[right] and other else None


def _choice(text: str, right: frozenset[str], other: frozenset[str]) -> int:
    """Return 1 when an answer picks ``right``, -1 when it picks ``other``, 0 when it names neither, or declines.

    The one named first is picked, unless the sentence turns it round ("Titan was not the first").
    """
    if abstains(text, "grader"):
        return 0
    said = _tokens(text)
    first = next((t for t in said if t.stem in right or t.stem in other), None)
    if first is None:
        return 0
    picked = 1 if first.stem in right else -1
    place = 0
    for part in re.split(r"[.,;:!?\n]", text[: first.start + _LOOKED].casefold().replace("’", "'")):
        if place <= first.start <= place + len(part):
            return -picked if re.search(r"\bnot\b|n't\b", part) else picked
        place += len(part) + 1
    return picked


_YES = re.compile(
    r"^\W*(?:yes|yeah|correct|indeed|right|true|certainly|both"
    r"|they (?:did|do|were|are|have|had)(?! ?n[o']t)|(?:he|she|it) (?:did|does|was|is|has|had)(?! ?n[o']t))\b"
)
_NO = re.compile(r"^\W*(?:no|nope|not|never|neither|incorrect|false|wrong|only)\b")
_NEGATES = re.compile(r"\b(?:not|never|neither|nor|no|only|different|differ\w*|another|unlike)\b|n't\b")
_CLAUSE_END = re.compile(r"[.,;:!?\n]|\b(?:because|since|but|although|while|whereas)\b")


def _polarity(text: str) -> int:
    """Return 1 for yes, -1 for no, 0 for neither, from the first clause of the answer to a yes/no question."""
    text = text.casefold().replace("’", "'")[:_LOOKED]
    if abstains(text, "grader") and not re.match(r"\W*(?:yes|no)\b(?=[,.;:!—–-])", text):
        return 0
    if _NO.match(text):
        return -1
    clause = _CLAUSE_END.split(text.lstrip(" \"'([").removeprefix("the answer is "), maxsplit=1)[0]
    if re.match(r"\W*(?:yes|yeah|correct|indeed|true|right)\b", clause):
        return 1
    if re.match(r"\W*no\b", clause) or _NEGATES.search(clause):
        return -1
    return 1 if _YES.match(text) or re.search(r"\b(?:both|same|either|each|too|also)\b", clause) else 0


def _after_comparison(text: str, place: int) -> bool:
    """Say whether ``place`` comes after "than", "before", "followed": the other term of a comparison."""
    start = max(text.rfind(mark, 0, place) for mark in ",.;!?\n") + 1
    return bool(_COMPARES.search(text[start:place].casefold()))


@functools.lru_cache(maxsize=4096)
def _question_parts(question: str, reference: str, facts: tuple[str, ...]) -> _QuestionParts:
    asked, core = _content_stems(question), _BRACKETS.sub("", reference).strip()
    core = core if _tokens(core) else reference  # "-(x+1)" is all in brackets
    true = _tokens(core)
    distinct = frozenset(t.stem for t in true if t.content and t.stem not in asked)
    names = [t for t in true if t.capital]
    said = reference.casefold().strip(" .!")
    polar = {"yes": 1, "no": -1}.get(said, 0)
    holding = [f for f in facts if distinct and distinct <= _token_stems(f)]
    choice_of = None if polar else _offered(question, core)
    if polar or choice_of:
        holding = list(facts)  # a comparison needs them all
    rest = [f for f in facts if f not in holding]
    return _QuestionParts(
        question=_token_stems(question),
        asked=_content_stems(re.split(r"(?<=[.!?]) ", question)[-1]),
        reference=distinct or _content_stems(core),
        reference_last=(names[-1] if names else true[-1]).stem,
        reference_is_name=len(names) > 1 and all(t.capital or not t.content for t in true),
        polar=polar,
        options=choice_of,
        bridges=frozenset().union(*(_content_stems(f) for f in rest)) - asked - distinct,
        answer_facts=frozenset().union(*(_content_stems(f) for f in holding)) - asked,
        known=frozenset().union(*map(_token_stems, (*facts, question, reference))),
    )


def _outcome(given: _QuestionParts, text: str, said: Sequence[_Token]) -> dict[str, float]:
    """Say how the answer stands to the true one: hit, part of it, missed, or the opposite."""
    if given.polar or given.options:
        way = _polarity(text) * given.polar if given.polar else _choice(text, *given.options)
        # Paraphrases ("the Siberian one") name neither option: no hit, and no contradiction.
        return {"hit": way > 0, "contradicts": way < 0, "no_stance": way == 0, "missed": way <= 0}
    places = {t.stem: t.start for t in reversed(said)}
    hit = given.reference & places.keys()
    share = len(hit) / len(given.reference)
    if share < 1 and given.reference_is_name and given.reference_last in hit:
        share = 1.0  # "Grant" for "James Augustus Grant"
    first = min((places[s] for s in hit), default=0)
    turned = share == 1 and (
        _after_comparison(text, first) or bool(re.search(r"\b(?:not|never)\W+(?:\w+\W+)?$", text[:first].casefold()))
    )
    return {
        "hit": share == 1,
        "hit_part": share if share < 1 else 0.0,
        "part_last": 0 < share < 1 and given.reference_last in hit,
        "missed": share == 0,
        "turned": turned,
    }


def evidence(question: str, answer: str, reference: str, facts: tuple[str, ...]) -> list[float]:
    """Compute the features of one answer: ``len(FEATURES)`` numbers, all finite."""
    given = _question_parts(question, reference, facts)
    text = answer[:_MOST]
    said = _tokens(text)
    content = [t for t in said if t.content]
    f: dict[str, float] = _outcome(given, text, said)
    f["declines"], f["guesses"] = abstains(text, "grader"), guesses(text)
    fresh = {t.stem: t for t in content if t.stem not in given.known}
    f["wrong_names"] = math.log1p(sum(t.name for t in fresh.values()))
    f["wrong_numbers"] = math.log1p(sum(t.number and len(t.word) > 1 for t in fresh.values()))
    f["rare_words"] = math.log1p(sum(not (t.name or t.number or t.plain) for t in fresh.values()))
    f["hit_clean"] = f["hit"] and not fresh
    distinct = {t.stem for t in content}
    f["wrong_share"] = len(fresh) / len(distinct) if distinct else 0.0
    new = {t.stem: t for t in content if t.stem not in given.question}
    f["bridge_names"] = math.log1p(sum((t.name or t.number) and s in given.bridges for s, t in new.items()))
    f["from_bridges"] = math.log1p(len(new.keys() & given.bridges))
    f["from_answer_fact"] = math.log1p(len((new.keys() & given.answer_facts) - given.reference))
    f["asked_again"] = len(distinct & given.asked) / max(len(given.asked), 1)
    f["off_topic"] = len(distinct) > 3 and len(distinct & given.known) <= 0.34 * len(distinct)
    f["bare"] = not new and not f["declines"]
    f["declines_bare"] = f["declines"] and f["bridge_names"] == 0
    short = len(said) <= _SHORT
    f["short_hit"], f["short_miss"] = short and f["hit"], short and f["missed"]
    f["length"] = math.log1p(min(len(said), _LONG))
    return [float(f.get(name, 0)) for name in FEATURES]


MODEL_FILE = Path(__file__).with_name("embedded_grader.json")


class _Ungradable(DataError):
    """An answer that the rules cannot grade; in `EmbeddedGrader.grade_all` it is unscored, with this reason."""

    kind = "unscored"


class EmbeddedGrader:
    """Grade short answers 1..5 by rules and a small linear model; named 'embedded grader' in every table.

    The `FEATURES` say whether the true answer is in the answer, whether the answer declines, guesses, says the opposite
    of a yes/no or an either/or, and which of its names, numbers and rare words neither question nor true answer nor
    facts back. A multinomial logistic regression turns them into a grade; ``scripts/fit_embedded_grader.py`` fitted it
    on the dev split of the graded answers (``card``). Cosines of MiniLM did not help.

    What it cannot do: paraphrases that share no word with true answer and facts ("the Siberian one" for Lake Baikal)
    are mostly graded 4; true details that the facts do not contain count as wrong details; known words put together
    wrongly ("born at Streator in Kansas", where both occur in the facts) pass as right; English only.

    Defined values: the true answer itself is 5; an answer without a letter or digit is 1 (no information), and so is
    one that declines in German, French, Spanish, Italian or Chinese, or in another script than the question's. Any
    other answer of which no word is written in the script of question, true answer or facts is 4.

    Unscored: an answer that holds the words of a true answer but not its signs ("x-1" for "x+1", "C" for
    "C++"), since words are all that is compared; and what is not graded by a defined value where the true answer has
    no letter or digit.

    Source: the categories of thesis §2.4; the method is ours.
    """

    name = "embedded grader"

    def __init__(self) -> None:
        fitted = json.loads(MODEL_FILE.read_text(encoding="utf-8"))
        if tuple(fitted["features"]) != FEATURES:
            do = "run scripts/fit_embedded_grader.py"
            raise DataError(f"{MODEL_FILE} was fitted on other features", "those of FEATURES, in their order", do)
        self.card: dict[str, Any] = fitted["card"]
        self._weights, self._offsets = (np.array(fitted[name], float) for name in ("weights", "offsets"))

    def __repr__(self) -> str:
        return "EmbeddedGrader()"

    def probabilities(self, question: str, answer: str, reference: str, facts: Sequence[str]) -> np.ndarray:
        """Return the model's probabilities of the grades 1..5 (shape (5,), sum 1), one-hot for defined values.

        ``facts`` as of `ragbench.records.facts_of`. DataError for what the rules cannot grade.
        """
        _check(question, answer, reference, facts)
        defined = _defined(question, answer, reference, facts)
        if defined:
            return np.eye(5)[defined - 1]
        return odds_of(np.array(evidence(question, answer, reference, tuple(facts))), self._weights, self._offsets)

    def grade(self, question: str, answer: str, reference: str, facts: Sequence[str]) -> int:
        """Return the most probable grade, 1 to 5, as `probabilities` gives them."""
        return int(self.probabilities(question, answer, reference, facts).argmax()) + 1

    def grade_all(self, questions: Sequence[Question], answers: Sequence[Answer]) -> list[Grade]:
        """Grade many answers as `grade` does; ``meta["probabilities"]`` has those of 1..5."""
        grades = []
        for answer, question in zip(answers, questions_of(answers, questions), strict=True):
            meta = {**answer.meta, "generator": answer.generator}
            try:
                odds = self.probabilities(question.text, answer.text, question.answer, facts_of(question))
            except _Ungradable as error:
                value, details = None, {"error": error.kind, "detail": str(error)}
            else:
                value, details = int(odds.argmax()) + 1, {"probabilities": tuple(odds.tolist())}
            grades.append(Grade(answer.question_id, value, self.name, "", meta | details))
        return grades


def odds_of(features: np.ndarray, weights: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the probabilities of the grades 1..5 (shape (5,)) for one answer's features.

    An answer that holds the true answer and no word that is not backed cannot have grade 2.
    """
    scores = weights @ features + offsets
    odds = np.exp(scores - scores.max())
    if features[FEATURES.index("hit_clean")]:
        odds[1] = 0.0
    return odds / odds.sum()


def _check(question: str, answer: str, reference: str, facts: Sequence[str]) -> None:
    for name, text in (("question", question), ("answer", answer), ("reference", reference)):
        if not isinstance(text, str):
            raise ConfigError(f"{name} is {type(text).__name__}", "a text", "pass '' for an empty answer")
    if isinstance(facts, str) or not all(isinstance(fact, str) for fact in facts):
        raise ConfigError("facts is not a list of texts", "the supporting sentences", "pass facts_of(question)")
    if not reference.strip():
        raise _Ungradable("the true answer is empty", "a true answer", "leave the question out, or write its answer")


def _defined(question: str, answer: str, reference: str, facts: Sequence[str]) -> int | None:
    if _folded_line(answer) == _folded_line(reference):
        return 5
    if not any(c.isalnum() for c in answer):
        return 1
    true, said = _tokens(reference), _tokens(answer[:1000])
    if not true:
        if abstains(answer, "grader"):
            return 1
        got = f"the true answer {reference!r} has no letter or digit, and the answer says more or something else"
        raise _Ungradable(got, "words to compare", "grade it with a model, or write the true answer in words")
    same = [t.word for t in said] == [t.word for t in true]
    wanted, signs = (_SIGN.findall(_folded_line(text)) for text in (reference, answer[:1000]))
    # Words are compared without their signs: where a sign tells two answers apart, these rules cannot.
    if (same and signs != wanted) or (wanted and _content_stems(reference) <= _token_stems(answer)):
        if not _holds(answer, reference):
            got = f"the answer has the words of the true answer {reference[:80]!r}, but other signs"
            raise _Ungradable(got, "the same formula, code or name to the sign", "grade it by hand or with a model")
    elif same:
        return 5
    scripts = {_script(c) for c in answer[:1000] if c.isalpha()}
    foreign = {_script(c) for text in (question, reference, *facts) for c in text if c.isalpha()}.isdisjoint(scripts)
    if scripts and foreign:
        return 1 if abstains(answer, "grader") else 4
    if abstains(answer, "other_languages") and not _content_stems(reference) & _token_stems(answer[:1000]):
        return 1
    return None


@functools.lru_cache(maxsize=8192)
def _script(character: str) -> str:
    return unicodedata.name(character, "?").split(" ", 1)[0]
