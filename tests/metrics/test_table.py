"""Names of numbers in the table of metrics."""

from ragbench.metrics.table import METRICS, Metric


def test_a_metric_of_ones_own_keeps_its_name_beside_a_number_of_another(monkeypatch):
    monkeypatch.setitem(METRICS, "precision", Metric(("answer",), len, "mine"))
    assert Metric.find("precision") == {"precision": ("precision", "precision")}
    assert Metric.find("ragchecker")["ragchecker_precision"] == ("ragchecker", "precision")
