"""Run a grid: data x chunker x retriever x k x token budget x generator x judge, one row per question and cell.

Reading order: ``spec`` (axes, cells, Experiment) -> ``identity`` (what makes a row's key) -> ``stage`` (what is built
once: load, chunk, retrieve) -> ``work`` (cut at N, answer, grade) -> ``run`` and ``plan``, with ``rows`` (the journal),
``manifest`` and ``config`` (names and YAML).
"""

from ragbench.experiment.manifest import Difference, diff, load_manifest
from ragbench.experiment.rows import TIMING, load_rows
from ragbench.experiment.spec import Experiment
