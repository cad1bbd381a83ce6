"""Metrics by name: from rows to numbers, and a metric of one's own by one entry."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pandas as pd
import pytest

import ragbench as rb
from ragbench.errors import ConfigError, DataError
from ragbench.labelling.embedded_checker import EmbeddedChecker
from ragbench.metrics.table import METRICS
from ragbench.scoring import LABELS, score

README = Path(__file__).parents[1] / "README.md"
ROWS = [
    {
        "question": "How high is the tower?",
        "answer": "The tower is 330 metres high.",
        "reference": "The tower is 330 metres high.",
        "chunks": ["The tower is 330 metres high.", "Ships pass the lighthouse at night."],
        "facts": ["The tower is 330 metres high."],
        "keypoints": ["The tower is 330 metres high."],
    },
    {
        "question": "How high is the tower?",
        "answer": "The tower is 120 metres high.",
        "reference": "The tower is 330 metres high.",
        "chunks": ["The tower is 330 metres high."],
        "facts": ["The tower is 330 metres high."],
        "keypoints": ["The tower is 330 metres high."],
    },
]


def test_every_metric_has_a_source_a_range_and_needs():
    texts = {"question", "answer", "reference", "context", "chunks", "facts", "keypoints", "references"}
    for name, metric in METRICS.items():
        assert metric.source, name
        assert metric.range[0] < metric.range[1], name
        assert set(metric.needs) <= texts | {"retrieved", "relevant"} | set(LABELS), name


def test_metrics_of_texts_equal_their_functions():
    table = rb.score(ROWS, ["ir_score", "token_f1", "rouge_l"])
    assert table["ir_score"].tolist() == [rb.ir_score(r["facts"], " ".join(r["chunks"])) for r in ROWS]
    assert table["token_f1"].tolist() == [rb.token_f1(r["answer"], r["reference"]) for r in ROWS]
    assert table["rouge_l"].tolist() == [rb.rouge_l(r["answer"], r["reference"]) for r in ROWS]
    assert table["unscored"].tolist() == [0, 0]
    assert table["question"].tolist() == [r["question"] for r in ROWS]


def test_embedded_labels_are_made_where_rows_lack_them(minilm):
    table = score(ROWS, ["ragchecker", "keypoints", "ragas", "fully_right"])
    assert table["precision"].tolist() == [1.0, 0.0]
    assert table["claim_recall"].tolist() == [1.0, 1.0]
    verdicts = [EmbeddedChecker(minilm).check(r["keypoints"], r["answer"])[0] for r in ROWS]
    assert verdicts == ["Entailment", "Contradiction"]
    assert table["completeness"].tolist() == [1.0, 0.0]
    assert table["keypoints_hallucination"].tolist() == [0.0, 1.0]  # RAGChecker's has the name already
    assert table["fully_right"].tolist() == [1.0, 0.0]
    assert table["faithfulness"].between(0, 1).all()


def test_labels_that_are_there_are_used_and_what_is_missing_is_counted():
    rows = pd.DataFrame({"marks": [["covered", "neither"], ["covered", None], None]})
    table = score(rows, ["keypoints"], columns={"keypoint_verdicts": "marks"})
    assert table["completeness"].tolist()[0] == 0.5
    assert math.isnan(table["completeness"][1])
    assert table["unscored"].tolist() == [0, 3, 3]


def test_an_unknown_metric_and_a_missing_column_are_named():
    with pytest.raises(ConfigError, match=r"unknown metric 'rouge'(.|\n)*rouge_l"):
        score(ROWS, ["rouge"])
    with pytest.raises(DataError, match=r"no column 'references', which metric 'eir' needs"):
        score(ROWS, ["eir"])
    with pytest.raises(DataError, match=r"no column 'chunks', which label 'claim_labels' needs"):
        score([{"question": "q", "answer": "a", "reference": "r"}], ["ragchecker"])


def test_the_readmes_metric_of_ones_own_works_by_name(monkeypatch, minilm):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    code = next(block for block in blocks if "METRICS[" in block)
    assert len([line for line in code.splitlines() if line.strip()]) < 10
    for name in re.findall(r'METRICS\["(\w+)"\]', code):
        monkeypatch.setitem(METRICS, name, None)
    told = {"rows": ROWS}
    exec(code, told)
    assert told["table"]["reference_words"].round(4).tolist() == [1.0, round(5 / 6, 4)]
    assert told["table"]["precision"].tolist() == [1.0, 0.0]
