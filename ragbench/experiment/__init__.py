"""Run a grid: data x chunker x retriever x k x token budget x generator x judge, one row per question and cell.

Reading order: ``axes`` (a name becomes an object) -> ``grid`` (settings and cells) -> ``run`` (search, cut, score,
answer, grade) with ``rows`` and ``manifest`` -> ``plan`` (what a run will take) -> ``experiment`` (the three together).
"""

from ragbench.experiment.axes import make_generator, make_judge
from ragbench.experiment.experiment import Experiment
from ragbench.experiment.grid import Cell
from ragbench.experiment.manifest import Difference, diff, load_manifest
from ragbench.experiment.rows import TIMING, load_rows
