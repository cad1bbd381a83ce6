"""Text -> comparable words: accents, number words, months and possessives made equal, names and numbers marked.

Made for English. Words of other scripts are kept (those written without spaces one character at a time), so a text in
any script has words; it just shares none with an English reference.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from ragbench.retrieval.stopwords import STOP_WORDS

_UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff"
_TOKEN = re.compile(rf"\d+(?:[.,]\d+)*|[{_UNSPACED}]|[^\W\d_{_UNSPACED}]+(?:['’][^\W\d_{_UNSPACED}]+)?|[^\W_]")
_SENTENCE_END = re.compile(r"[.!?:;\n]")
_MONTH_NAMES = "january february march april may june july august september october november december"
_SHORT = {m[:3]: m for m in _MONTH_NAMES.split() if m != "may"} | {"sept": "september", "st": "saint", "mt": "mount"}
_UP_TO_NINETEEN = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TEN_NAMES = "twenty thirty forty fifty sixty seventy eighty ninety"
_TENS = dict(zip(_TEN_NAMES.split(), range(20, 100, 10), strict=True))
_SMALL = {word: value for value, word in enumerate(_UP_TO_NINETEEN.split())} | _TENS
_LARGE = {"hundred": 100, "thousand": 1000, "million": 10**6}
_MOST_FREQUENT = 4000  # rank in the embedded model's vocabulary up to which a word is everyday language
_FIRST_WORD = 1996  # id of "the" in that vocabulary; later ids are words by falling frequency


@dataclass(frozen=True, slots=True)
class Token:
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
        return self.word not in FUNCTION_WORDS


FUNCTION_WORDS = frozenset(STOP_WORDS) | {"s", "t", "not", "yes", "no", "ca", "wo", "one"}


# Signs that change what a formula or a name says (x+1, C++, -5). A hyphen inside a word and a bullet are none.
_SIGN = re.compile(r"([+=<>^±×÷√∑∏∫∞≤≥≠]|(?<![\w)\]])-(?=[\d(]|[a-z]\b))")


def signs(text: str) -> list[str]:
    """Return the mathematical signs of a text in order; none in ordinary prose."""
    return _SIGN.findall(one_line(text))


def one_line(text: str) -> str:
    """Return a text with characters of one meaning made equal (NFKC, one minus, lower case), white space as one blank.

    Signs stay, unlike in `tokens`: for answers whose words do not say it all.
    """
    return " ".join(unicodedata.normalize("NFKC", text).replace("\u2212", "-").casefold().split())


def holds(text: str, wanted: str) -> bool:
    """Say whether a text holds another one to the sign, as a whole: "x + 1" holds "x+1", "2x+10" does not."""
    parts = r"\s*".join(map(re.escape, "".join(one_line(wanted).split())))
    return bool(re.search(rf"(?<![\w+*/^=<>-]){parts}(?!\w|\s*[+*/^=<>-])", one_line(text)))


def plain_form(text: str) -> str:
    """Lower-case a text and take the accents off its Latin letters; same length is not kept."""
    folded = unicodedata.normalize("NFKD", text.replace("’", "'")).casefold()
    return "".join(c for c in folded if not unicodedata.combining(c))


@functools.cache
def _stemmer() -> Any:
    import Stemmer

    return Stemmer.Stemmer("english")


@functools.lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    """Return the Snowball stem of a word in comparable form."""
    return _stemmer().stemWord(word)


@functools.lru_cache(maxsize=100_000)
def everyday(word: str) -> bool:
    """Say whether a lower-case word is among the 4,000 most frequent of the embedded model's vocabulary."""
    from ragbench.embedding import default_tokenizer

    number = default_tokenizer().token_to_id(word)
    return number is not None and number < _FIRST_WORD + _MOST_FREQUENT


def _comparable(raw: str) -> str:
    word = plain_form(raw)
    word = word.removesuffix("'s").removesuffix("n't").removesuffix("'")
    word = re.sub(r"'(?:m|re|ve|ll|d)$", "", word)
    if word[:1].isdigit():
        return word.replace(",", "")
    return _SHORT.get(word, word)


def _merge_numbers(words: list[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """Join number words: "forty two" 42, "sixteen hundred" 1600, "nineteen seventy-eight" 1978, "third" stays."""
    merged: list[tuple[str, str, int]] = []
    i = 0
    while i < len(words):
        raw, word, start = words[i]
        large = words[i + 1][1] if i + 1 < len(words) else ""
        if word not in _SMALL or (word == "one" and large not in _LARGE):  # "the Siberian one" counts nothing
            merged.append(words[i])
            i += 1
            continue
        value, i = _SMALL[word], i + 1
        if word in _TENS and i < len(words) and 0 < _SMALL.get(words[i][1], 99) < 10:
            value, i = value + _SMALL[words[i][1]], i + 1
        elif 10 < value < 20 and i < len(words) and words[i][1] in _TENS:
            value, i = value * 100 + _TENS[words[i][1]], i + 1
            if i < len(words) and 0 < _SMALL.get(words[i][1], 99) < 10:
                value, i = value + _SMALL[words[i][1]], i + 1
        while i < len(words) and words[i][1] in _LARGE:
            value, i = value * _LARGE[words[i][1]], i + 1
        merged.append((raw, str(value), start))
    return merged


@functools.lru_cache(maxsize=20_000)
def tokens(text: str) -> tuple[Token, ...]:
    """Cut a text into tokens; remembered, since questions and facts come back for many answers."""
    found = [(m[0], _comparable(m[0]), m.start()) for m in _TOKEN.finditer(text)]
    result, end_of_last = [], 0
    for raw, word, start in _merge_numbers(found):
        opens = not result or bool(_SENTENCE_END.search(text, end_of_last, start))
        number = word[:1].isdigit()
        is_name = raw[:1].isupper() and word not in FUNCTION_WORDS and not (opens and everyday(word))
        is_plain = word in FUNCTION_WORDS or (not is_name and not number and everyday(word))
        result.append(Token(word, stem(word), start, raw[:1].isupper(), is_name, number, is_plain))
        end_of_last = start + len(raw)
    return tuple(result)


def stems(text: str) -> frozenset[str]:
    """Return the stems of all words of a text."""
    return frozenset(t.stem for t in tokens(text))


def content_stems(text: str) -> frozenset[str]:
    """Return the stems of the words that are more than function words; all words when there are no others."""
    every = tokens(text)
    return frozenset(t.stem for t in every if t.content) or frozenset(t.stem for t in every)
