"""Which language a text is in: English, German, French by their most frequent function words,
Chinese by its script.

A table, not a model: good enough to choose a stemmer or the language of a stock sentence, wrong for
a text of a few words. Other languages are not named. Mixed texts count as the language that
most of their words are in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

# Words that a running text of that language is full of, question words included.
FUNCTION_WORDS = {
    "english": "the of and to in is was for that with as by on are from it this which be at who "
    "what when where how or "
    "a an did does do were had has have whose why his her its their than not but also into both "
    "are s",
    "german": "der die das und den dem des ist war mit sich auf für im nicht ein eine einer von "
    "zu als auch wird wurde "
    "was an wer wo wann wie welche welchem welchen welcher welches nach bei aus durch am einem "
    "einen "
    "eines dass vom zum zur "
    "es sie sind hat haben über bis oder aber kein keine worden werden wenn noch nur",
    "french": "le la les des et est une un dans du que qui pour sur par avec au aux ce cette il "
    "elle sont été quel "
    "quelle où quand comment pas ne se ou d l à fut était depuis plus leur ses cet mais dont",
}
# Scripts without blanks between words, and Korean, whose words change with the particles on them.
UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    # Han, Kana
    r"\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    r"\u1100-\u11ff\uac00-\ud7a3"  # Hangul
)
# Share of the words that must be function words of the language; running text has 0.25 to 0.5. Of
# German and French more, since Spanish has up to 0.25 of the French ones.
_LEAST_SHARE = {"english": 0.08, "german": 0.3, "french": 0.3}
_LEAST_WORDS = 2  # different ones

_KNOWN = {language: frozenset(words.split()) for language, words in FUNCTION_WORDS.items()}
_WORD = re.compile(rf"[{UNSPACED}]|[^\W\d_{UNSPACED}]+")
ANY_UNSPACED = re.compile(f"[{UNSPACED}]")
HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]")
KANA = re.compile("[\u3040-\u30ff]")
_LEAST_KANA = 0.05  # of the characters of a Japanese text; a Chinese one may quote a Japanese name


def language_of(texts: Iterable[str]) -> str | None:
    """Name the language most of some texts, read as one, is written in, of `FUNCTION_WORDS` or
    "chinese"; None when nothing tells.

    >>> language_of(["Wer gründete die Mühle?"])
    'german'
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(_WORD.findall(text.casefold()))
    unspaced = _total(counts, ANY_UNSPACED)
    words = counts.total() - unspaced
    if unspaced <= 2 * words:  # a word of these scripts has about two characters
        return _by_function_words(counts, words)
    han = _total(counts, HAN)
    kana = _total(counts, KANA)
    if 2 * han > unspaced and kana < _LEAST_KANA * unspaced:
        return "chinese"
    return None


def _total(counts: Counter[str], pattern: re.Pattern[str]) -> int:
    return sum(count for word, count in counts.items() if pattern.match(word))


def _by_function_words(counts: Counter[str], words: int) -> str | None:
    """Name the one language that has the most function words among so many words."""
    totals = {}
    for language, function_words in _KNOWN.items():
        hits = [counts[word] for word in function_words if word in counts]
        total = sum(hits)
        is_enough = total > _LEAST_SHARE[language] * words
        if is_enough and len(hits) >= _LEAST_WORDS:
            totals[language] = total
    largest = max(totals.values(), default=0)
    best = [language for language, total in totals.items() if total == largest]
    return best[0] if len(best) == 1 else None


def other_languages(groups: Iterable[Iterable[str]]) -> dict[str, int]:
    """Count the groups of texts (a question with its answers, say) that are in a known language but
    English.
    """
    counts = Counter(map(language_of, groups))
    return {
        language: n for language, n in counts.most_common() if language not in (None, "english")
    }
