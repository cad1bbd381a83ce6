"""What the run monitor shows, without widgets: the rows of a run as they come, by step and by failure, and HTML."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragbench.experiment.rows import newly_used, read_rows
from ragbench.widgets.base import escape

STEPS = ("retrieve", "generate", "grade")
AGAIN = "mend what the message names, tick “Try failed rows again”, and resume"


@dataclass
class RowsSeen:
    """The rows of a growing file, read on from where the last reading ended.

    Parameters
    ----------
    path : the file of rows; it need not be there yet.
    begin : first byte to read, 0 for the whole file.

    Attributes
    ----------
    rows : key -> (step at which it failed or "", kind, message) of the last try, never a failure over a success.
    prompt_tokens, output_tokens, seconds : of the answers read, each answer once, without replies from a cassette.
    next : where the next reading begins.
    """

    path: Path
    begin: int = 0
    rows: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    prompt_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.next = self.begin
        self._answers: dict[Any, tuple] = {}

    def read(self) -> int:
        """Take in the whole lines that are new, and return how many; DataError naming a line that is no row."""
        if not self.path.exists():
            return 0
        if os.path.getsize(self.path) < self.next:  # another file took its place
            self.__init__(self.path)
        with open(self.path, "rb") as file:
            file.seek(self.next)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        try:
            rows = [json.loads(line) for line in whole.splitlines()]
            for row in rows:
                self._count(row)
        except (ValueError, KeyError, TypeError):
            for _ in read_rows(self.path):  # says which line it is
                pass
            raise
        self.next += len(whole)
        return len(rows)

    def _count(self, row: Mapping[str, Any]) -> None:
        failed = row["status"] != "ok"
        if not failed or self.rows.get(row["key"], ("?",))[0]:
            failure = (row.get("error_step"), row.get("error_kind"), row.get("error")) if failed else ("", "", "")
            self.rows[row["key"]] = tuple(str(part or "") for part in failure)
        prompt_tokens, output_tokens, seconds = newly_used(row, self._answers)
        self.prompt_tokens += prompt_tokens
        self.output_tokens += output_tokens
        self.seconds += seconds

    @property
    def failed(self) -> int:
        """Rows whose last try failed."""
        return sum(bool(step) for step, _, _ in self.rows.values())

    def passed(self, steps: Iterable[str] = STEPS) -> dict[str, tuple[int, int]]:
        """Count by step the rows that passed it and those that failed at it."""
        failed = Counter(step for step, _, _ in self.rows.values() if step)
        left, by_step = len(self.rows), {}
        for step in steps:
            left -= failed[step]
            by_step[step] = (left, failed[step])
        return by_step

    def failures(self) -> list[tuple[str, str, int, str, str]]:
        """List (step, kind, rows, message, remedy), most frequent first; the message is that of the last such row."""
        groups = Counter((step, kind) for step, kind, _ in self.rows.values() if step)
        last = {(step, kind): message for step, kind, message in self.rows.values() if step}
        return [
            (*place, count, last[place].split("\n")[0], remedy(place[1], last[place]))
            for place, count in groups.most_common()
        ]


def remedy(kind: str, message: str) -> str:
    """Say what to do about a failure: what its error said, else what its kind calls for."""
    from ragbench.llm.failures import KINDS, failure

    _, divider, advice = message.rpartition("\n  do: ")
    if divider:
        return advice
    return failure(kind, "").do if kind in KINDS and not message.count("do: ") else AGAIN


def duration(seconds: float) -> str:
    """Write seconds as a person would: 42 s, 3 min 20 s, 2 h 5 min. Less than none (a clock was set back) is 0 s."""
    if math.isnan(seconds):
        return "unknown"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def bar(name: str, done: int, failed: int, total: int | None) -> str:
    """One step as HTML: a bar, and in words how many rows passed it and how many failed at it."""
    words = f"{done:,} of {total:,}" if total is not None else f"{done:,}"
    words += f", {failed:,} failed here" if failed else ""
    whole = max(total or 0, done + failed, 1)
    return (
        f"<tr><td>{escape(name)}</td><td style='width:320px'><div class='rb-bar' role='progressbar' "
        f"aria-label='{escape(name)}' aria-valuemin='0' aria-valuemax='{whole}' aria-valuenow='{done}'>"
        f"<div class='rb-bar-done' style='width:{100 * done / whole:.2f}%'></div>"
        f"<div class='rb-bar-failed' style='width:{100 * failed / whole:.2f}%'></div></div></td>"
        f"<td>{words}</td></tr>"
    )


def failure_table(failures: Iterable[tuple[str, str, int, str, str]]) -> str:
    """The failures by kind as an HTML table; nothing without any."""
    rows = [
        f"<tr><td>{escape(step)}</td><td><b>{escape(kind)}</b></td><td class='rb-number'>{count:,}</td>"
        f"<td>{escape(message[:300])}</td><td>{escape(advice)}</td></tr>"
        for step, kind, count, message, advice in failures
    ]
    head = "<tr><th>step</th><th>failure</th><th class='rb-number'>rows</th><th>last one said</th><th>do</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>" if rows else ""
