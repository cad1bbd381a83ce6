"""Widgets for JupyterLab: each takes plain data and works without a language model.

``base`` holds what all share: colours, styles, the line under which a message appears.
"""

from __future__ import annotations

from ragbench._lazy import lazy

HOMES = {
    "claims": ["ClaimInspector"],
    "base": ["Panel", "mark", "tag"],
    "explorer": ["RetrievalExplorer"],
    "labelling": ["LabellingTool"],
}
__getattr__, __dir__ = lazy(__name__, HOMES)
