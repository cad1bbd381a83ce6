"""What the extractive reader sees in a sentence: stems, names, years, numbers, places. English rules, any script."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from ragbench.retrieval.stopwords import STOP_WORDS

_CJK = "\u3040-\u30ff\u3400-\u9fff"
# Scripts without spaces are matched character by character, everything else word by word.
_TOKEN = re.compile(f"[{_CJK}]|[^\\W_{_CJK}]+")
_NOT_AN_END = r"(?<!\b[A-Z]\.)(?<!\bSt\.)(?<!\bMr\.)(?<!\bMrs\.)(?<!\bDr\.)(?<!\bNo\.)(?<!\bc\.)"
_SPLIT = re.compile(rf"(?:(?<=[.?!])|(?<=[.?!][\"'”’)])){_NOT_AN_END}\s+|(?<=[。！？])|\n\s*")
_CAPITAL = r"[A-ZÀ-ÖØ-ÞČŁŚŠŽΑ-ΩА-Я][\w'’]*"
# "Bay of Bengal", "Pont de Normandie", "Ludwig van Beethoven": small words inside a name.
_NAME = re.compile(
    rf"(?<!\w){_CAPITAL}(?:(?:[ -]|, (?=Queen|King))(?:(?:of|the|de|la|du|von|van|d')[ ]?){{0,2}}{_CAPITAL})*"
)
MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DAY = re.compile(rf"\b\d{{1,2}} (?={MONTHS})|\b(?:{MONTHS}) \d{{1,2}}\b")
YEAR = re.compile(r"(?<![\d.,])\b(?:1\d{3}|20\d{2}|[3-9]\d{2}(?! (?:metres|km|kilometres|miles|men|square)))\b(?!,\d)")
_PLACE = re.compile(rf"\b(?:in|at|near|on|to|from|of|off|into) (?:the )?{_CAPITAL}")
_UNITS = """one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen"""
_WORDS = _UNITS.split()
_DECADES = "twenty thirty forty fifty sixty seventy eighty ninety"
_TENS = dict(zip(_DECADES.split(), range(20, 100, 10), strict=True))
_NUMBER_WORDS = (
    {w: i for i, w in enumerate(_WORDS, 1)}
    | _TENS
    | {f"{t}-{w}": v + i for t, v in _TENS.items() for i, w in enumerate(_WORDS[:9], 1)}
)
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?|\b(?:" + "|".join(sorted(_NUMBER_WORDS, key=len, reverse=True)) + r")\b")

# Everyday words for the events questions ask about; each group counts as one word.
_GROUPS = (
    "die died dies dying death dead perish perished killed drowned murdered",
    "born birth birthplace native",
    "bury buried burial grave tomb remains interred",
    "marry married marriage wed wedding wife husband bride spouse",
    "found founded founder establish established founding",
    "write wrote written writer author authored",
    "name named called christened namesake",
    "discover discovered discoverer discovery detected",
    "brother sister sibling siblings",
    "son daughter child children",
    "publish published printed issued",
    "win won winner awarded prize",
    "paint painted painter painting",
    "compose composed composer",
)


@functools.cache
def _stemmer() -> Any:
    import Stemmer

    return Stemmer.Stemmer("english", 0)


@functools.cache
def _same() -> dict[str, str]:
    stem = _stemmer().stemWord
    return {stem(word): stem(group.split()[0]) for group in _GROUPS for word in group.split()}


@functools.lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return the stem of a lower-case word, one stem for all words of a group of near-synonyms."""
    stemmed = _stemmer().stemWord(word)
    return _same().get(stemmed, stemmed)


def stems(text: str) -> list[str]:
    """Return the stems of the content words of a text, in order, stop words left out."""
    return [stem(w) for w in _TOKEN.findall(text.lower()) if w not in STOP_WORDS and w != "s"]


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence and what was found in it.

    ``names`` are capitalised spans (the first word only when it is no function word), ``terms`` all stems,
    ``numbers`` quantities that are not years.
    """

    text: str
    terms: frozenset[str]
    names: tuple[str, ...]
    years: tuple[int, ...]
    numbers: tuple[float, ...]
    dated: bool
    placed: bool


def _trim_name(name: str) -> str:
    words = name.split(" ")
    while words and words[0].lower() in STOP_WORDS:
        words.pop(0)
    return " ".join(words).removesuffix("'s").removesuffix("’s")


@functools.lru_cache(maxsize=32768)
def sentence(text: str) -> Sentence:
    """Analyse one sentence; remembered, since the same sentences come back in many contexts."""
    names = tuple(n for n in (_trim_name(m[0]) for m in _NAME.finditer(text)) if n)
    years = tuple(int(y) for y in YEAR.findall(text))
    numbers = tuple(value for value in map(_value, _NUMBER.findall(_DAY.sub("", text))) if value not in years)
    dated = bool(years) or bool(re.search(rf"\b(?:{MONTHS})\b", text))
    return Sentence(text, frozenset(stems(text)), names, years, numbers, dated, bool(_PLACE.search(text)))


def opening_name(s: Sentence) -> str:
    """Return the name a sentence begins with, which the next sentences are likely about; empty when there is none."""
    return s.names[0] if s.names and s.text.removeprefix("The ").startswith(s.names[0]) else ""


def _value(word: str) -> float:
    return float(_NUMBER_WORDS[word]) if word in _NUMBER_WORDS else float(word.replace(",", ""))


@functools.lru_cache(maxsize=4096)
def sentences(text: str) -> tuple[Sentence, ...]:
    """Split a text into analysed sentences; a piece cut off at the end counts as one."""
    return tuple(sentence(piece.strip()) for piece in _SPLIT.split(text) if piece.strip())


def trim(text: str) -> str:
    """Drop what a sentence says in brackets and the connective it opens with; end it with a full stop."""
    text = re.sub(r"\s*\([^()]*\)", "", text)
    text = re.sub(r"^(?:However|Moreover|Therefore|Thus|Instead|Meanwhile),\s+", "", text)
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", "。", "！", "？", '"', "”")) else text.rstrip(" ,;:") + "."
