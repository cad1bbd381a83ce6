"""Metrics: labels or texts in, numbers out. No metric calls a model."""
