"""One check after the other: which rows of a data frame show a fault, and of how many that can be said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from ragbench.experiment.rows import NOT_TOLD
from ragbench.llm.context import SHORTENED
from ragbench.llm.reply import CUT_SHORT

Marks = Callable[[pd.DataFrame], pd.Series]


@dataclass(frozen=True)
class Fault:
    """A fault that rows can show; without one of its columns the check cannot be made."""

    name: str
    columns: tuple[str, ...]
    flagged: Marks
    detail: str  # what a flagged row means
    looked_at: Marks | None = None  # the row can show it; default: it has a value in the first column

    def of(self, rows: pd.DataFrame) -> int:
        """Count the rows that can show the fault."""
        return int((self.looked_at(rows) if self.looked_at else rows[self.columns[0]].notna()).sum())


def failed(rows: pd.DataFrame) -> pd.Series:
    """Mark the rows that failed: ``status`` says so, or without that column there is an ``error``."""
    return rows["status"].eq("failed") if "status" in rows else _text(rows, "error").ne("")


def reasons(rows: pd.DataFrame) -> pd.Series:
    """Say of each row why it failed or is unscored, in a few words; "" where no column says it."""
    reason = (_text(rows, "error_step") + ": " + _text(rows, "error_kind")).str.strip(": ")
    for name in ("reason", "error", "note"):
        # Of a long message its kind, which stands before the colon, is what can be counted.
        reason = reason.where(reason.ne(""), _text(rows, name).str.split(":").str[0].str.slice(0, 60))
    return reason


def counted(values: pd.Series, most: int = 5) -> str:
    """Write the values of a Series with how often each occurs: ``"context 2, no references 1"``."""
    sizes = values.where(values.ne(""), "no reason given").value_counts(sort=True)
    shown = [f"{name} {count}" for name, count in list(sizes.items())[:most]]
    return ", ".join([*shown, *([f"and {len(sizes) - most} more"] if len(sizes) > most else [])])


def _column(rows: pd.DataFrame, name: str) -> pd.Series:
    return rows[name] if name in rows else pd.Series(None, index=rows.index, dtype=object)


def _text(rows: pd.DataFrame, name: str) -> pd.Series:
    """Return a column as stripped texts: objects, since strings of pyarrow hold no half of a surrogate pair."""
    values = _column(rows, name)
    return pd.Series(
        [str(v).strip() if known else "" for v, known in zip(values, values.notna(), strict=True)],
        rows.index,
        dtype=object,
    )


def _number(rows: pd.DataFrame, name: str) -> pd.Series:
    return pd.to_numeric(_column(rows, name), errors="coerce").astype(float)


def _true(rows: pd.DataFrame, name: str) -> pd.Series:
    return _column(rows, name).map(lambda value: value is True or value == 1).fillna(False).astype(bool)


def _answered(rows: pd.DataFrame) -> pd.Series:
    return rows["answer"].notna() & ~failed(rows)


def _abstained(rows: pd.DataFrame) -> pd.Series:
    from ragbench.text.negation import abstains

    known = _column(rows, "abstained").notna()
    texts = rows.loc[~known, "answer"].unique()  # reading one takes a quarter of a millisecond
    declined = {text: abstains(text, "audit") for text in texts if isinstance(text, str)}
    return _true(rows, "abstained").where(known, rows["answer"].map(lambda t: declined.get(t, False)).astype(bool))


def _error(rows: pd.DataFrame, kind: str, prefix: str) -> pd.Series:
    """Mark errors of one kind of the model that answered (prefix ""), or of the one that graded."""
    step = _text(rows, "error_step").isin(["grade"] if prefix else ["generate", ""])
    return _text(rows, "error_kind").eq(kind) & step


def _asked(prefix: str) -> Marks:
    return lambda rows: _number(rows, f"{prefix}prompt_estimate").notna()


def _of_calls(prefix: str, whose: str) -> tuple[Fault, Fault, Fault]:
    """Return the checks of the model that answered, or of the one that graded."""
    digest, tokens, estimate = f"{prefix}digest", f"{prefix}prompt_tokens", f"{prefix}prompt_estimate"
    unnamed = "the server says nothing of its model: another one under this name would not be noticed"
    cut = f"refused as too long, or the server counted less than {SHORTENED:.0%} of our estimate"
    asked = _asked(prefix)

    def short(rows: pd.DataFrame) -> pd.Series:
        calls = 1 + _number(rows, f"{prefix}repairs").fillna(0)  # the count is a sum over the calls
        each = _number(rows, tokens) / calls
        return _error(rows, "context", prefix) | (each > 0) & (each < SHORTENED * _number(rows, estimate))

    def uncounted(rows: pd.DataFrame) -> pd.Series:
        return asked(rows) & ~failed(rows) & ~(_number(rows, tokens) > 0)

    return (
        Fault(f"{whose}weights not known", (digest,), lambda r: r[digest].isin(["", NOT_TOLD]), unnamed),
        Fault(f"{whose}prompts cut", (tokens, estimate), short, cut, asked),
        Fault(f"{whose}prompts not counted", (tokens, estimate), uncounted, "a cut would not show", asked),
    )


def _retrieved(rows: pd.DataFrame) -> pd.Series:
    return (_number(rows, "N") > 0) & ~(failed(rows) & _text(rows, "error_step").eq("retrieve"))


def _hits(rows: pd.DataFrame) -> pd.Series:
    """Count the hits; NaN where none were kept."""
    return rows["hits"].map(lambda hits: len(hits) if isinstance(hits, list | tuple) else None).astype(float)


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
        lambda r: _retrieved(r) & (_hits(r) < _number(r, "k")),
        "the retriever had no more, or keeps fewer",
        lambda r: _retrieved(r) & _hits(r).notna(),
    ),
)
ANSWERS = (
    *_of_calls("", ""),
    Fault(
        "replies cut",
        ("finish",),
        lambda r: _text(r, "finish").isin(CUT_SHORT) | _error(r, "truncated", ""),
        "the model ran into its limit of tokens",
        lambda r: _text(r, "finish").ne("") | _error(r, "truncated", ""),
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
        lambda r: _error(r, "truncated", "judge_"),
        "the judge repeated itself, or ran into its limit of tokens",
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
