"""What leaves the workbench, and what it rests on.

Reading order: ``audit`` (what could have gone wrong in silence, of any rows, a run, the ledger) ->
``tables`` (a data frame as CSV, Markdown, LaTeX) -> ``factors`` (a run factor by factor, as in
notebook 91) -> ``methods`` (a run in words, with references) -> ``scores`` -> ``export`` (a run as
a folder).
"""

from ragbench._lazy import lazy

__getattr__, __dir__ = lazy(__name__, path=__path__)
