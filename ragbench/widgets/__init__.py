"""Widgets for JupyterLab: each takes plain data and works without a language model.

``base`` holds what all share: colours, styles, the line under which a message appears.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME: dict[str, list[str]] = {
    "claims": ["ClaimInspector"],
    "base": ["Message", "Panel", "escape", "figure", "mark", "tag"],
    "explorer": ["RetrievalExplorer"],
    "thresholds": ["ThresholdExplorer"],
    "labelling": ["LabellingTool"],
    "monitor": ["RunMonitor"],
}
_WHERE = {name: module for module, names in _HOME.items() for name in names}
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
