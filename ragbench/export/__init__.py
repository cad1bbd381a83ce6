"""What leaves the workbench: a run or the ledger as a folder for print, and any table as CSV, Markdown and LaTeX.

Reading order: ``latex`` (escaping, booktabs) -> ``tables`` (any data frame) -> ``folder`` (whose folder it is, no
secrets) -> ``references`` and ``methods`` (from the manifest) -> ``cells`` and ``figures`` (of a run) -> ``run`` and
``ledger``.
"""

from __future__ import annotations

from ragbench.export.folder import Exported
from ragbench.export.ledger import export_ledger
from ragbench.export.run import export
from ragbench.export.tables import table, with_interval

__all__ = ["Exported", "export", "export_ledger", "table", "with_interval"]
