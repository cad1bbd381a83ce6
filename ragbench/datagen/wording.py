"""How texts word values: patterns, whole mentions, dates, amounts, and what follows from them.

A pattern's ``{field}`` takes a value, ``[a|b|c]`` one of its alternatives. Derived values (days between dates, sums,
what is larger) are computed from the *wording* of the values, so that the validator can redo them from a document.
"""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ragbench.errors import ConfigError, DataError
from ragbench.text.words import ANY_MONTH, MONTHS

FIELD = re.compile(r"\{([A-Za-z_][\w.]*)\}")
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_EN_DATE = re.compile(rf"(\d{{1,2}}) ({ANY_MONTH}) (\d{{4}})")
_ZH_DATE = re.compile(r"(\d{4})年(\d{1,2})月(\d{1,2})日")
NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?")


def fields_of(pattern: str) -> frozenset[str]:
    """Return the names of the fields a pattern mentions."""
    return frozenset(FIELD.findall(pattern))


def choose(pattern: str, rng: random.Random | None = None) -> str:
    """Choose an alternative for every ``[a|b]`` of a pattern, the first one without ``rng``; fields stay open."""

    def pick(match: re.Match) -> str:
        options = match.group(1).split("|")
        return options[rng.randrange(len(options)) if rng else 0]

    return _CHOICE.sub(pick, pattern)


def fill_pattern(pattern: str, values: Mapping[str, str], *, sentence: bool = True) -> str:
    """Put values into the fields of a pattern; a sentence begins with a capital letter."""
    if missing := sorted(fields_of(pattern) - set(values)):
        do = "add the field, or mend the pattern"
        raise ConfigError(f"the pattern {pattern[:60]!r} needs {missing[0]!r}", "a field of the schema", do)
    text = FIELD.sub(lambda match: values[match[1]], pattern)
    return text[:1].upper() + text[1:] if sentence else text


def worded(patterns: str | Sequence[str], values: Mapping[str, str], rng: random.Random | None = None) -> str:
    """Word a sentence: a pattern, or one of several, with its alternatives chosen and its fields filled."""
    pattern = patterns if isinstance(patterns, str) else rng.choice(patterns)
    return fill_pattern(choose(pattern, rng), values)


def mentions(text: str, value: str) -> bool:
    """Tell whether a text holds a value as a whole, not as part of a longer number or word; case does not count."""
    # Most texts do not hold most values, and a generated set asks four million times.
    return bool(value) and _lower(value) in _lower(text) and _whole(value).search(text) is not None


def without(text: str, *values: str) -> str:
    """Take values out of a text wherever the text `mentions` them; longer numbers that hold one stay."""
    for value in filter(None, values):
        text = _whole(value).sub("", text)
    return text


_lower = lru_cache(maxsize=8192)(str.lower)


@lru_cache(maxsize=8192)
def _whole(value: str) -> re.Pattern[str]:
    """Find a value that goes on neither before nor after it.

    Chinese writes numbers and Latin letters without blanks: 3月14日, but a digit next to a digit goes on.
    """
    before = after = ""
    if re.match(r"[A-Za-z0-9]", value):
        before = r"(?<![A-Za-z0-9])" + r"(?<![0-9][.,])" * value[0].isdigit()
    if re.search(r"[A-Za-z0-9]\Z", value):
        after = r"(?![A-Za-z0-9])" + r"(?![.,][0-9])" * value[-1].isdigit()
    return re.compile(before + re.escape(value) + after, re.IGNORECASE)


def _parse_date(text: str) -> dt.date:
    if english := _EN_DATE.fullmatch(text):
        return dt.date(int(english[3]), MONTHS.index(english[2]) + 1, int(english[1]))
    if chinese := _ZH_DATE.fullmatch(text):
        return dt.date(*map(int, chinese.groups()))
    raise DataError(f"{text!r} is no date", "a date such as 14 March 2021 or 2021年3月14日", "mend the value")


def _parse_number(text: str) -> tuple[float, str]:
    """Read an amount as documents write it: the number, and its unit as written (with the blank before it)."""
    match = NUMBER.match(text)
    if match is None:
        raise DataError(f"{text!r} is no amount", "a number and a unit", "mend the value")
    return float(match[0].replace(",", "")), text[match.end() :]


def derive(rule: str, texts: Sequence[str], names: Sequence[str] = (), language: str = "en") -> str | None:
    """Derive a value from the wordings of others; None when two are equal, so that neither is larger or earlier.

    Parameters
    ----------
    rule : "days" (between two dates), "difference" (of two amounts, without sign), "sum", "larger", "smaller" (of
        amounts), "earlier", "later" (of dates).
    names : for larger, smaller, earlier, later: what to call each of them.
    """
    dated = rule in ("days", "earlier", "later")
    values: list[Any] = [_parse_date(t) for t in texts] if dated else [_parse_number(t)[0] for t in texts]
    if rule != "sum" and len(set(values)) < len(values):
        return None
    if rule in ("earlier", "smaller", "later", "larger"):
        return names[values.index(min(values) if rule in ("earlier", "smaller") else max(values))]
    if rule == "days":
        gap = abs((values[1] - values[0]).days)
        return f"{gap}天" if language == "zh" else f"{gap:,} day{'s' if gap != 1 else ''}"
    number, unit = sum(values) if rule == "sum" else abs(values[0] - values[1]), _parse_number(texts[0])[1]
    if unit.startswith("%"):
        return f"{number:.1f}个百分点" if language == "zh" else f"{number:.1f} percentage points"
    return f"{number:.0f}{unit}" if language == "zh" else f"{number:,.0f}{unit}"
