"""What leaves the workbench, and what it rests on.

Reading order: ``checks`` (one function per fault) -> ``audit`` (of any rows, a run, the ledger) -> ``tables`` (a data
frame as CSV, Markdown, LaTeX) -> ``methods`` (a run in words, with references) -> ``export`` (a run or the ledger as a
folder for print).
"""

from ragbench._lazy import lazy, modules

__getattr__, __dir__ = lazy(__name__, {}, modules(__path__))
