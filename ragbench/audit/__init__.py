"""What could have gone wrong in silence behind a table: counted, and with what it could have done to the mean.

Rows that failed or were never scored, prompts that were cut, JSON that was repaired, labels that are too few, hits
without a score, abstentions, empty answers, duplicates, cells that rest on different questions. An audit never mends
anything and never calls a model: it reads what the rows say of themselves.

Reading order: ``ranges`` (the mean if the unscored rows had all been worst or best) -> ``checks`` (one function per
check) -> ``rows`` (any data frame) -> ``runs`` (an experiment) -> ``ledger`` (cells beside the papers').
"""

from __future__ import annotations

from ragbench.audit.ledger import audit_ledger
from ragbench.audit.ranges import ranges
from ragbench.audit.rows import COLUMNS, audit_rows, render
from ragbench.audit.runs import audit, current_rows

__all__ = ["COLUMNS", "audit", "audit_ledger", "audit_rows", "current_rows", "ranges", "render"]
