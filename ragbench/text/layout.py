"""Text made comparable: one rule for the metric, the checks and the marks, with the way back to the
original text.

A supporting sentence and its document often differ in layout only: the document is wrapped at 72
columns, was copied from a PDF, or writes é as two characters. `_Normalised.of` removes such
differences and keeps an offset map, so that what is found can be shown in the text as it is. It
changes, in this order:

1. what is not seen is left out: soft hyphens (with a line break after them), zero-width spaces and
  joiners, byte order marks, marks of direction;
2. the ligatures of PDFs (ﬁ, ﬄ ...) are the letters they stand for;
3. characters are composed: Unicode NFC;
4. a run of white space (tabs, line breaks, no-break spaces ...) is one space, with two exceptions
  where it holds a line
   break: between two Chinese or Japanese characters nothing is left of it; and after a hyphen
   between two letters or digits it goes, with the hyphen when a letter stands before it and a
   lower-case letter after it (``exam-\\nple`` is ``example``, ``Anglo-\\nSaxon`` is
   ``Anglo-Saxon``). That hyphen stays where one of the facts compared writes the word with it
   (``well-\\nknown`` beside the fact "a well-known man").

Case, punctuation and words are left as they are.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

_Edit = tuple[int, int, str]

BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_BLANKS = (
    f"{BREAKS}\t\x1f\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u202f\u205f\u3000"
)
_ASCII_BLANKS = "".join(c for c in _BLANKS if c.isascii())
# Soft hyphen, zero-width blanks and joiners, marks of direction, selectors of a picture.
_HIDDEN = (
    "\u00ad\u034f\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\ufeff"
    + "".join(map(chr, (*range(0x2060, 0x2070), *range(0xFE00, 0xFE10))))
)
_LIGATURES = "".join(map(chr, range(0xFB00, 0xFB07)))  # of PDFs: ff, fi, fl, ffi, ffl, st
UNSEEN = re.compile(rf"\u00ad(?:\s*[{BREAKS}]\s*)?|[{_HIDDEN}]")
_UNSEEN_OR_LIGATURE = re.compile(f"{UNSEEN.pattern}|[{_LIGATURES}]")
# The character before goes along: a composing mark changes it.
_FOREIGN = re.compile(r"[\x00-\x7f]?[^\x00-\x7f]+")
_DIVIDED = re.compile(r"[-\u2010](\s+)(?=([^\W_]+))")
_COMPOUND = re.compile(r"([^\W_]+)[-\u2010](?=([^\W_]+))")
_WORD_BEFORE = re.compile(r"[^\W_]+\Z")
# Symbols, kana, ideographs, full-width forms; not Hangul, which is written with spaces; not the two
# kana marks.
_WIDE = (
    r"\u3001-\u3098\u309b-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\uff00-\uff9f\uffe0-\uffe6\U00020000-\U0003ffff"
)
# The blank comes first in the pattern: it is looked for quickly.
_BETWEEN_WIDE = re.compile(rf"\s(?<=[{_WIDE}]\s)\s*(?=[{_WIDE}])")


@dataclass(frozen=True, slots=True)
class _Normalised:
    """A normalised text and where it comes from.

    ``starts`` and ``stops``, int64 arrays of shape (len(text),), ascending, are the characters of
    the original that each character stands for; None when the text did not change.
    """

    text: str
    starts: np.ndarray | None = None
    stops: np.ndarray | None = None

    @classmethod
    def of(cls, text: str, facts: Iterable[str] = ()) -> _Normalised:
        """Remove differences of layout from a text, by the rule at the head of this module.

        Parameters
        ----------
        facts : the texts it will be compared with: a hyphen at a line end stays where one of them
            writes it.

        >>> _Normalised.of("the  quick\\nbrown fox jum-\\nped").text
        'the quick brown fox jumped'
        """
        normalised = cls(text)
        if not _may_change(text):
            return normalised
        for edits in (_unseen_and_ligatures, _compositions):
            normalised = _edited(normalised, edits(normalised.text))
        if _any(BREAKS, normalised.text):
            normalised = _edited(normalised, _divisions(normalised.text, facts))
            normalised = _edited(normalised, _unspaced(normalised.text))
        return _single_spaced(normalised)

    def cut(self, positions: np.ndarray) -> np.ndarray:
        """Cut positions of the original (int array, any shape) in the normalised text: what ends
        before them.
        """
        if self.stops is None:
            return positions
        return np.searchsorted(self.stops, positions, side="right")

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Start and end in the original of ``text[start:stop]``, which is not empty."""
        if self.starts is None or self.stops is None:
            return start, stop
        return int(self.starts[start]), int(self.stops[stop - 1])


def comparable(
    facts: Sequence[str], text: str, is_normalised: bool = True
) -> tuple[list[str], _Normalised]:
    """Normalise facts and the text they are looked for in; facts lose the white space around them.

    With ``is_normalised=False`` all is left as it is.
    """
    if not is_normalised:
        return list(facts), _Normalised(text)
    comparable_facts = [_Normalised.of(fact, facts).text.strip() for fact in facts]
    return comparable_facts, _Normalised.of(text, facts)


def holders(facts: Iterable[str], texts: Sequence[str]) -> dict[str, list[int]]:
    """Return the places of the texts in which each fact occurs, both made comparable."""
    plain = [_Normalised.of(text).text for text in texts]
    places_of = {}
    for fact in dict.fromkeys(facts):
        wanted = _Normalised.of(fact, [fact]).text.strip()
        places = [place for place, text in enumerate(plain) if wanted in text]
        if not places and "-" in fact:  # a hyphen at a line end stays beside a fact that has it
            beside_fact = enumerate(_Normalised.of(text, [fact]).text for text in texts)
            places = [place for place, text in beside_fact if wanted in text]
        places_of[fact] = places
    return places_of


def undivided(text: str) -> str:
    """Join words that a hyphen divides at a line end, as `_Normalised.of` does, and leave the rest
    of the text as it is.

    >>> undivided("The qual-\\nity of well-known flour")
    'The quality of well-known flour'
    """
    if not _any(BREAKS, text):
        return text
    if "\u00ad" in text:
        text = UNSEEN.sub("", text)
    return _edited(_Normalised(text), _divisions(text, ())).text


def _any(characters: str, text: str) -> bool:
    return any(c in text for c in characters)


def _may_change(text: str) -> bool:
    if "  " in text or _any(_ASCII_BLANKS, text):
        return True
    if text.isascii():
        return False
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), np.uint16)
    return bool(_is_odd().take(units).any())


@functools.cache
def _is_odd() -> np.ndarray:
    """Say of each unit of UTF-16 whether a text that holds it may change: one beyond the first
    plane may.
    """
    odd = np.zeros(0x10000, bool)
    for code in range(0x80, 0x10000):
        character = chr(code)
        odd[code] = _attaches(character) or not unicodedata.is_normalized("NFC", character)
    odd[[ord(c) for c in _BLANKS + _HIDDEN + _LIGATURES]] = True
    odd[0xD800:0xE000] = True
    return odd


def _single_spaced(normalised: _Normalised) -> _Normalised:
    """Make each run of white space one space, which stands for the first character of the run."""
    text = normalised.text
    for blank in _BLANKS:
        text = text.replace(blank, " ")
    if "  " not in text:
        return _Normalised(text, normalised.starts, normalised.stops)
    is_blank = np.array([text]).view(np.uint32) == ord(" ")
    is_after_blank = np.append(False, is_blank[:-1])
    kept = np.flatnonzero(~(is_blank & is_after_blank))
    starts, stops = _offsets(normalised)
    return _Normalised(re.sub("  +", " ", text), starts[kept], stops[kept])


def _offsets(normalised: _Normalised) -> tuple[np.ndarray, np.ndarray]:
    """Return ``starts`` and ``stops``; of a text that did not change each character's own."""
    if normalised.starts is None or normalised.stops is None:
        length = len(normalised.text)
        return np.arange(length), np.arange(1, length + 1)
    return normalised.starts, normalised.stops


def _edited(normalised: _Normalised, edits: Iterable[_Edit]) -> _Normalised:
    """Replace pieces of a text, given in order as (start, stop, new); each new character stands for
    the whole piece.
    """
    edits = list(edits)
    if not edits:
        return normalised
    text = normalised.text
    starts, stops = _offsets(normalised)
    pieces = []
    firsts = []
    lasts = []
    kept = 0  # from here on the text stays as it is
    for start, stop, new in [*edits, (len(text), len(text), "")]:
        first = starts[start : start + 1]  # of the piece; none at the text's end
        last = stops[stop - 1 : stop]
        pieces += [text[kept:start], new]
        firsts += [starts[kept:start], np.repeat(first, len(new))]
        lasts += [stops[kept:start], np.repeat(last, len(new))]
        kept = stop
    return _Normalised("".join(pieces), np.concatenate(firsts), np.concatenate(lasts))


def _unseen_and_ligatures(text: str) -> Iterator[_Edit]:
    """Leave out what is not seen, and write the letters of each ligature."""
    for match in _UNSEEN_OR_LIGATURE.finditer(text):
        letters = ""
        if match[0] in _LIGATURES:
            letters = unicodedata.normalize("NFKC", match[0])
        yield *match.span(), letters


def _compositions(text: str) -> Iterator[_Edit]:
    """Compose each character with the marks that follow it, where that changes anything."""
    if unicodedata.is_normalized("NFC", text):
        return
    for run in _FOREIGN.finditer(text):
        if unicodedata.is_normalized("NFC", run[0]):
            continue
        start = run.start()
        for at in range(start + 1, run.end() + 1):
            if at == run.end() or not _attaches(text[at]):
                written = text[start:at]
                composed = unicodedata.normalize("NFC", written)
                if composed != written:
                    yield start, at, composed
                start = at


@functools.lru_cache(maxsize=65536)
def _attaches(character: str) -> bool:
    """Tell whether a character may change together with the one before it: a mark, or a Korean
    vowel or final.
    """
    first = unicodedata.normalize("NFD", character)[0]
    is_mark = unicodedata.category(first).startswith("M")
    return is_mark or "\u1160" <= first <= "\u11ff"


def _divisions(text: str, facts: Iterable[str]) -> Iterator[_Edit]:
    """Join words that a hyphen at a line end divides."""
    compounds = {pair for fact in facts for pair in _COMPOUND.findall(fact)}
    for run in _DIVIDED.finditer(text):
        blank, after = run.groups()
        start = run.start()
        before = _WORD_BEFORE.search(text, max(0, start - 60), start)
        if before and _any(BREAKS, blank):
            word = before[0]
            is_divided = word[-1].isalpha() and after[0].islower()
            if not is_divided or (word, after) in compounds:
                start += 1  # the hyphen stays
            yield start, run.end(), ""


def _unspaced(text: str) -> Iterator[_Edit]:
    """Leave out line breaks between two Chinese or Japanese characters."""
    for run in _BETWEEN_WIDE.finditer(text):
        if _any(BREAKS, run[0]):
            yield *run.span(), ""
