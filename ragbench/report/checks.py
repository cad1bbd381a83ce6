"""One check after the other: which rows of a data frame show a fault, and of how many that can be said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from ragbench.experiment.rows import NOT_TOLD
from ragbench.llm.context import SHORTENED
from ragbench.llm.reply import CUT_SHORT


@dataclass(frozen=True)
class Fault:
    """A fault that rows can show.

    Attributes
    ----------
    name : as it stands in the audit.
    columns : those it reads; without one of them it cannot be made.
    flagged : frame -> bool Series: the fault is there.
    detail : what a flagged row means.
    looked_at : frame -> bool Series: the row can show it. Default: it has a value in the first column.
    """

    name: str
    columns: tuple[str, ...]
    flagged: Callable[[pd.DataFrame], pd.Series]
    detail: str
    looked_at: Callable[[pd.DataFrame], pd.Series] | None = None

    def of(self, rows: pd.DataFrame) -> int:
        """Count the rows that can show the fault."""
        return int((self.looked_at(rows) if self.looked_at else rows[self.columns[0]].notna()).sum())


def failed(rows: pd.DataFrame) -> pd.Series:
    """Mark the rows that failed: ``status`` says so, or without that column there is an ``error``."""
    if "status" in rows:
        return rows["status"].eq("failed")
    if "error" in rows:
        return rows["error"].fillna("").astype(str).str.strip().ne("")
    return _none(rows)


def reasons(rows: pd.DataFrame) -> pd.Series:
    """Say of each row why it failed or is unscored, in a few words; "" where no column says it."""
    reason = _text(rows, "error_kind")
    if "error_step" in rows:
        reason = (_text(rows, "error_step") + ": " + reason).str.strip(": ")
    for name in ("reason", "error", "note"):
        # Of a long message its kind, which stands before the colon, is what can be counted.
        reason = reason.where(reason.ne(""), _text(rows, name).str.split(":").str[0].str.slice(0, 60))
    return reason


def _none(rows: pd.DataFrame) -> pd.Series:
    return pd.Series(False, index=rows.index)


def _text(rows: pd.DataFrame, name: str) -> pd.Series:
    """Return a column as stripped texts: objects, since strings of pyarrow hold no half of a surrogate pair."""
    values = rows[name].astype(object).where(rows[name].notna(), "") if name in rows else [""] * len(rows)
    return pd.Series([str(value).strip() for value in values], rows.index, dtype=object)


def _number(rows: pd.DataFrame, name: str) -> pd.Series:
    return pd.to_numeric(rows[name], errors="coerce").astype(float)


def _true(rows: pd.DataFrame, name: str) -> pd.Series:
    return rows[name].map(lambda value: value is True or value == 1).fillna(False).astype(bool)


def _answered(rows: pd.DataFrame) -> pd.Series:
    return rows["answer"].notna() & ~failed(rows) if "answer" in rows else _none(rows)


def _abstained(rows: pd.DataFrame) -> pd.Series:
    from ragbench.text.stance import abstains

    if "abstained" in rows:
        known, said = rows["abstained"].notna(), _true(rows, "abstained")
    else:
        known = said = _none(rows)
    if "answer" not in rows:
        return said

    texts = rows.loc[~known, "answer"].unique()  # reading one takes a quarter of a millisecond
    declined = {text: abstains(text, "audit") for text in texts if isinstance(text, str)}
    return said.where(known, rows["answer"].map(lambda text: declined.get(text, False)).astype(bool))


def _truncated(rows: pd.DataFrame, prefix: str = "") -> pd.Series:
    return _text(rows, "error_kind").eq("truncated") & _by_step(rows, prefix)


def _by_step(rows: pd.DataFrame, prefix: str) -> pd.Series:
    return _text(rows, "error_step").isin(["grade"] if prefix else ["generate", ""])


def _asked(prefix: str) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda rows: _number(rows, f"{prefix}prompt_estimate").notna()


def _of_calls(prefix: str, whose: str) -> tuple[Fault, Fault, Fault]:
    """Return the checks of the model that answered, or of the one that graded."""
    digest, repairs = f"{prefix}digest", f"{prefix}repairs"
    columns = tokens, estimate = f"{prefix}prompt_tokens", f"{prefix}prompt_estimate"
    asked = _asked(prefix)
    unnamed = "the server says nothing of its model: another one under this name would not be noticed"
    cut = f"refused as too long, or the server counted less than {SHORTENED:.0%} of our estimate"

    def short(rows: pd.DataFrame) -> pd.Series:
        counted = _number(rows, tokens)
        if repairs in rows:  # the count is a sum over the calls
            counted = counted / (1 + _number(rows, repairs).fillna(0))
        refused = _text(rows, "error_kind").eq("context") & _by_step(rows, prefix)
        return refused | (counted > 0) & (counted < SHORTENED * _number(rows, estimate))

    def uncounted(rows: pd.DataFrame) -> pd.Series:
        return asked(rows) & ~failed(rows) & ~(_number(rows, tokens) > 0)

    return (
        Fault(f"{whose}weights not known", (digest,), lambda r: r[digest].isin(["", NOT_TOLD]), unnamed),
        Fault(f"{whose}prompts cut", columns, short, cut, asked),
        Fault(f"{whose}prompts not counted", columns, uncounted, "a cut would not show", asked),
    )


def _retrieved(rows: pd.DataFrame) -> pd.Series:
    return (_number(rows, "N") > 0) & ~(failed(rows) & _text(rows, "error_step").eq("retrieve"))


def _has_list(rows: pd.DataFrame) -> pd.Series:
    return rows["hits"].map(lambda value: isinstance(value, list | tuple)).astype(bool) & _retrieved(rows)


def _list_lengths(rows: pd.DataFrame) -> pd.Series:
    return rows["hits"].map(lambda value: len(value) if isinstance(value, list | tuple) else 0)


RETRIEVAL = (
    Fault(
        "empty contexts",
        ("N", "context_tokens"),
        lambda r: _retrieved(r) & _number(r, "context_tokens").eq(0),
        "a budget above 0, and no token of context",
        _retrieved,
    ),
    Fault(
        "zero-score hits",
        ("zero_hits",),
        lambda r: _number(r, "zero_hits") > 0,
        "chunks that share nothing with the question count as found",
    ),
    Fault(
        "fewer hits than k",
        ("hits", "N", "k"),
        lambda r: _has_list(r) & (_list_lengths(r) < _number(r, "k")),
        "the retriever had no more, or keeps fewer",
        _has_list,
    ),
)
ANSWERS = (
    *_of_calls("", ""),
    Fault(
        "replies cut",
        ("finish",),
        lambda r: _text(r, "finish").isin(CUT_SHORT) | _truncated(r),
        "the model ran into its limit of tokens",
        lambda r: _text(r, "finish").ne("") | _truncated(r),
    ),
    Fault(
        "empty answers",
        ("answer",),
        lambda r: _answered(r) & _text(r, "answer").eq(""),
        "no text, and no failure either",
        _answered,
    ),
    Fault(
        "answers without their tags",
        ("tagged",),
        lambda r: r["tagged"].notna() & ~_true(r, "tagged"),
        "the prompt asks for tags; the whole reply counts as the answer",
    ),
    Fault(
        "abstentions",
        ("answer",),
        lambda r: _answered(r) & _abstained(r),
        "the answer says that it cannot answer",
        _answered,
    ),
)
GRADES = (
    *_of_calls("judge_", "judge's "),
    Fault(
        "judge's replies cut",
        ("judge_prompt_estimate", "error_kind"),
        lambda r: _truncated(r, "judge_"),
        "the judge repeated itself, or ran into its limit of tokens",
        _asked("judge_"),
    ),
    Fault(
        "schema in a weaker form",
        ("judge_form",),
        lambda r: r["judge_form"].eq("json_object"),
        "the server refuses json_schema; what it writes is validated as strictly",
        lambda r: _text(r, "judge_form").ne(""),
    ),
    Fault(
        "JSON repaired",
        ("judge_repairs",),
        lambda r: _number(r, "judge_repairs") > 0,
        "the judge's first reply did not fit; it was asked once more",
    ),
    Fault(
        "label counts wrong",
        ("judge_grades_got", "judge_shown"),
        lambda r: r["judge_grades_got"].notna() & _number(r, "judge_grades_got").ne(_number(r, "judge_shown")),
        "the reply held another number of grades than answers",
    ),
    Fault(
        "answers cut for the judge",
        ("judge_answer_cut",),
        lambda r: _true(r, "judge_answer_cut"),
        "longer than max_chars: graded by their beginning",
    ),
)


def counted(values: pd.Series, most: int = 5) -> str:
    """Write the values of a Series with how often each occurs: ``"context 2, no references 1"``."""
    sizes = values.where(values.ne(""), "no reason given").value_counts(sort=True)
    shown = [f"{name} {count}" for name, count in list(sizes.items())[:most]]
    return ", ".join([*shown, *([f"and {len(sizes) - most} more"] if len(sizes) > most else [])])
