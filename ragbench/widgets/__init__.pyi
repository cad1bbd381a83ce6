"""Widgets for JupyterLab: each takes plain data and works without a language model.

``base`` holds what all share: colours, styles, the line under which a message appears.
"""

from ragbench.widgets.claims import ClaimInspector as ClaimInspector
from ragbench.widgets.labelling import LabellingTool as LabellingTool
from ragbench.widgets.base import Panel as Panel
from ragbench.widgets.explorer import RetrievalExplorer as RetrievalExplorer
from ragbench.widgets.base import mark as mark
from ragbench.widgets.base import tag as tag
