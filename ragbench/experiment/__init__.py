"""Run a grid: data x chunker x retriever x k x token budget x generator x judge, one row per question and cell.

Reading order: ``spec`` (axes, cells, Experiment) -> ``identity`` (what makes a row's key) -> ``stage`` (what is built
once, what is left to do) -> ``work`` (what computes, a task of an executor) -> ``live`` (calls to model servers) ->
``running`` and ``planning``, with ``rows`` (the journal), ``answers`` (rows with their texts, for metrics),
``manifest``, ``models`` (by name) and ``config`` (YAML).
"""

from ragbench.experiment.manifest import Difference, diff, load_manifest
from ragbench.experiment.rows import TIMING, load_rows
from ragbench.experiment.spec import Experiment
