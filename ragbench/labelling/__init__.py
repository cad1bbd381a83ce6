"""Labels that people give: grades, preferences, rubric scores, ranks and keypoint verdicts, in one plain CSV.

Reading order: ``kinds`` (what is asked and which answers there are) -> ``items`` (answers as things to label) ->
``store`` (the append-only file) -> ``session`` (one person's way through the items, without a screen) -> ``agreement``
(of two people) -> ``calibration`` (of a judge with people). The form in JupyterLab is `ragbench.widgets.LabellingTool`.
"""

from ragbench.labelling.agreement import agreement, partners
from ragbench.labelling.calibration import Calibration, calibrate_judge
from ragbench.labelling.items import grade_items, preference_items
from ragbench.labelling.kinds import KINDS, Kind, LabelItem, kind_of, rank_label, ranks_of
from ragbench.labelling.session import Session
from ragbench.labelling.store import COLUMNS, Label, append_labels, by_annotator, current, is_label_file, load_labels

__all__ = [
    "COLUMNS",
    "KINDS",
    "Calibration",
    "Kind",
    "Label",
    "LabelItem",
    "Session",
    "agreement",
    "append_labels",
    "by_annotator",
    "calibrate_judge",
    "current",
    "grade_items",
    "is_label_file",
    "kind_of",
    "load_labels",
    "partners",
    "preference_items",
    "rank_label",
    "ranks_of",
]
