"""What notebooks say holds for other parameters too, and their printed tables are whole."""

from __future__ import annotations

import html
import json
import re

import pytest
from notebook_parts import run_up_to

from ragbench import data
from ragbench.errors import ConfigError
from ragbench.notebooks import find


def shown(path):
    """Return the tables and sentences that a committed notebook shows."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = (output.get("data", {}) for cell in cells for output in cell.get("outputs", []))
    kinds = ("text/html", "text/markdown")
    return "\n".join("".join(data[kind]) for data in outputs for kind in kinds if kind in data)


@pytest.fixture
def home(monkeypatch, tmp_path):
    """A student without the recorded data sets, and folders for what is written."""
    monkeypatch.delenv("RAGBENCH_DATA", raising=False)
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path))
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))


@pytest.mark.parametrize("path", find(), ids=lambda path: path.stem)
def test_a_cell_of_a_table_closes_the_brackets_that_it_opens(path):
    cells = re.findall(r"<td[^>]*>(.*?)</td>", shown(path), re.S)
    for text in map(html.unescape, cells):
        if not text.rstrip().endswith("..."):  # cut by pandas
            assert text.count("(") == text.count(")"), text
            assert text.count("[") == text.count("]"), text


def test_no_share_of_claims_lies_below_zero():
    (path,) = (path for path in find() if path.stem.startswith("22"))
    assert not re.search(r"\[-0?\.\d", shown(path))  # differences, in points, may


def test_a_question_that_was_not_asked_is_named(home):
    with pytest.raises(ConfigError, match=r"question that Qwen was asked.*nobody-001"):
        run_up_to("00", "answer_claims = ", QUESTION="nobody-001")


@pytest.mark.slow
def test_h_marks_a_risk_only_where_grade_1_is_more_frequent_below_it(home, monkeypatch):
    names = run_up_to("14", "beside_never", DATA="minihop", RESAMPLES=20)
    assert names["silent"]["below h"] > names["silent"]["between"]
    assert names["frequency"] == "more"
    readings = data.load_figure_3_1()
    higher = readings.assign(ir_score=1 - readings["ir_score"])  # grade 1 where the score is high
    monkeypatch.setattr(data, "load_figure_3_1", lambda: higher)
    names = run_up_to("14", "beside_never", DATA="minihop", RESAMPLES=20)
    assert names["silent"]["below h"] < names["silent"]["between"]
    assert names["frequency"] == "no more"


@pytest.mark.slow
def test_more_labels_than_there_are_leave_one_answer_to_estimate(home):
    names = run_up_to("15", "estimates = ", LABELLED=1000, RESAMPLES=20)
    assert len(names["rest"]) == 1


@pytest.mark.slow
def test_the_share_of_stems_that_is_named_is_the_one_that_was_set(home):
    names = run_up_to("51", "balanced accuracy; a constant", FOUND_FROM=0.5, DRAWS=2)
    assert "50% of its stems" in names["found"]


@pytest.mark.slow
def test_where_nothing_is_decided_there_is_no_mean_at_the_stop(home):
    names = run_up_to("98", "at_the_stop = ", RUNS=4, GROUPS=5)
    assert names["small"]["decided"] == 0
    assert names["at_the_stop"] == ""


@pytest.mark.slow
def test_a_few_questions_are_searched_in_the_documents_that_e5_was_recorded_on(home):
    names = run_up_to("44", "own = pd.read_csv", LIMIT=3)
    assert len(names["minihop"].documents) == 270
    assert names["rows"].groupby("retriever")["question_id"].nunique().eq(3).all()


@pytest.mark.slow
def test_questions_of_minihop_that_share_a_document_are_drawn_together(home):
    names = run_up_to("11", "update_display(found", DATA="minihop", LIMIT=12)
    clusters = names["rows"].groupby("question_id")["cluster"].first()
    assert 1 < clusters.nunique() < len(clusters) == 12
    assert names["table"]["clusters"].eq(clusters.nunique()).all()
