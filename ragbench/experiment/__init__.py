"""Run a grid: data x chunker x retriever x k x token budget x generator x judge, one row per question and cell.

Reading order: ``axes`` (a name becomes an object) -> ``experiment`` (the grid) -> ``run`` (search, cut, score, answer,
grade) with ``rows`` and ``manifest``; ``plan`` counts what a run will take.
"""

from ragbench.experiment.axes import make_generator, make_judge
from ragbench.experiment.experiment import Cell, Experiment
from ragbench.experiment.manifest import Difference, diff, load_manifest
from ragbench.experiment.rows import TIMING, load_rows
