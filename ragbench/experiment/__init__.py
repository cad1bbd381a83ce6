"""Run a grid: data x chunker x retriever x k x token budget x generator x judge, one row per question and cell.

Reading order: ``grid`` (axes and cells) -> ``identity`` (what makes a row's key) -> ``stage`` (everything built once,
what is left to do) -> ``work`` (what computes, a task of an executor) -> ``live`` (calls to model servers) ->
``running`` and ``planning``, with ``rows`` (the journal), ``manifest`` and ``config`` (YAML). ``core`` has Experiment.
"""

from __future__ import annotations

from ragbench.experiment.core import Experiment
from ragbench.experiment.manifest import Difference, diff, load_manifest
from ragbench.experiment.rows import TIMING, load_rows

__all__ = ["TIMING", "Difference", "Experiment", "diff", "load_manifest", "load_rows"]
