"""Run a grid: data x chunker x retriever x k x token budget x generator x judge, one row per
question and cell.

Reading order: ``axes`` (a name becomes an object) -> ``grid`` (settings and cells) -> ``build``
(data, chunks, retrievers, models) -> ``run`` (search, cut, score, answer, grade) with ``manifest``
-> ``plan`` (what a run will take) -> ``experiment``. Rows are those of `ragbench.rows`.
"""

from ragbench.experiment.experiment import Experiment
from ragbench.experiment.grid import Cell
from ragbench.rows import load_manifest, load_rows
