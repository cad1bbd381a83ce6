"""Metrics: labels or texts in, numbers out. No metric calls a model."""

from ragbench._lazy import lazy

__getattr__, __dir__ = lazy(__name__, path=__path__)
