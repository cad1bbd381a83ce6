"""Metrics: labels or texts in, numbers out. No metric calls a model."""

from ragbench._lazy import lazy, modules

__getattr__, __dir__ = lazy(__name__, {}, modules(__path__))
