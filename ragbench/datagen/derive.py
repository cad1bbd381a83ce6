"""Values that follow from stated ones: days between dates, differences, sums, what is larger, what came first.

They are computed from the *wording* of the values, so that the validator can redo them from a document's sentences.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence

from ragbench.errors import DataError

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_EN_DATE = re.compile(rf"(\d{{1,2}}) ({'|'.join(MONTHS)}) (\d{{4}})")
_ZH_DATE = re.compile(r"(\d{4})年(\d{1,2})月(\d{1,2})日")
NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?")


def parse_date(text: str) -> dt.date:
    """Read a date as documents write it, in either language.

    Raises
    ------
    DataError for anything else.
    """
    english, chinese = _EN_DATE.fullmatch(text), _ZH_DATE.fullmatch(text)
    if english:
        return dt.date(int(english[3]), MONTHS.index(english[2]) + 1, int(english[1]))
    if chinese:
        return dt.date(*map(int, chinese.groups()))
    raise DataError(f"{text!r} is no date", "a date such as 14 March 2021 or 2021年3月14日", "mend the value")


def parse_number(text: str) -> tuple[float, str]:
    """Read an amount as documents write it: the number, and its unit as written (with the blank before it).

    Raises
    ------
    DataError for a text that does not start with a number.
    """
    match = NUMBER.match(text)
    if match is None:
        raise DataError(f"{text!r} is no amount", "a number and a unit", "mend the value")
    return float(match[0].replace(",", "")), text[match.end() :]


def derive(rule: str, texts: Sequence[str], names: Sequence[str] = (), language: str = "en") -> str | None:
    """Derive a value.

    Parameters
    ----------
    rule : "days" (between two dates), "difference" (of two amounts, without sign), "sum", "larger", "smaller" (of
        amounts), "earlier", "later" (of dates).
    texts : the wordings of the values.
    names : for larger, smaller, earlier, later: what to call each of them.
    language : of the result.

    Returns
    -------
    the wording of the result; None when two values are equal, so that neither is larger or earlier.
    """
    if rule in ("days", "earlier", "later"):
        dates = [parse_date(t) for t in texts]
        if len(set(dates)) < len(dates):
            return None
        if rule == "days":
            gap = abs((dates[1] - dates[0]).days)
            return f"{gap}天" if language == "zh" else f"{gap:,} day{'s' if gap != 1 else ''}"
        return names[dates.index(min(dates) if rule == "earlier" else max(dates))]
    parsed = [parse_number(t) for t in texts]
    numbers, unit = [n for n, _ in parsed], parsed[0][1]
    if rule == "sum":
        return _amount(sum(numbers), unit, language)
    if len(set(numbers)) < len(numbers):
        return None
    if rule == "difference":
        return _amount(abs(numbers[0] - numbers[1]), unit, language)
    return names[numbers.index(max(numbers) if rule == "larger" else min(numbers))]


def _amount(number: float, unit: str, language: str) -> str:
    if unit.startswith("%"):
        return f"{number:.1f}个百分点" if language == "zh" else f"{number:.1f} percentage points"
    return f"{number:.0f}{unit}" if language == "zh" else f"{number:,.0f}{unit}"
