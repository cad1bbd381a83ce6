"""What leaves the workbench, and what it rests on.

Reading order: ``audit`` (what could have gone wrong in silence, of any rows, a run, the ledger) ->
``escape`` (one function per medium) -> ``tables`` (a data frame as CSV, Markdown, LaTeX) ->
``methods`` (a run in words, with references) -> ``export`` (a run as a folder, and on an HTML
page).
"""

from ragbench._lazy import lazy, modules

__getattr__, __dir__ = lazy(__name__, {}, modules(__path__))
