"""What leaves the workbench, and what it rests on.

Reading order: ``audit`` (what could have gone wrong in silence, of any rows, a run, the ledger) ->
``tables`` (a data frame as CSV, Markdown, LaTeX) -> ``factors`` (a run factor by factor, as in
notebook 91) -> ``methods`` (a run in words, with references) -> ``scores`` -> ``export`` (a run as
a folder).
"""

from ragbench.report import audit as audit
from ragbench.report import export as export
from ragbench.report import factors as factors
from ragbench.report import methods as methods
from ragbench.report import scores as scores
from ragbench.report import tables as tables
