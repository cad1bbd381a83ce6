"""Run a grid: data x chunker x retriever x k x token budget x generator x judge, one row per
question and cell.

Reading order: ``axes`` (a name becomes an object) -> ``grid`` (settings and cells) -> ``plan``
(what a run will take)
-> ``run`` (search, cut, score, answer, grade) with ``rows`` and ``manifest``.
"""

from ragbench.experiment.axes import make_generator, make_judge
from ragbench.experiment.grid import Cell
from ragbench.experiment.manifest import load_manifest
from ragbench.experiment.rows import TIMING, load_rows
from ragbench.experiment.run import Experiment
