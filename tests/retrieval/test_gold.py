"""A ceiling: the evidence that a data set names, whatever is searched."""

from __future__ import annotations

import pytest

import ragbench as rb
from ragbench.errors import ConfigError
from ragbench.report.export import export
from ragbench.report.factors import measured, run_tables
from ragbench.retrieval import Gold

PAGES = (
    rb.Document("Mill", "Mill", "The mill is old. Ada built it."),
    rb.Document("Ada", "Ada", "Ada was born in Ely. She died in 1841."),
    rb.Document("Ely", "Ely", "Ely is a town."),
)
MARKS = (("Mill", 1), ("Ada", 0))
ASKED = rb.Question(
    "q1",
    "Where was the builder of the mill born?",
    "Ely",
    ("Ada built it.", "Ada was born in Ely."),
    meta={"supporting_facts": MARKS, "doc_ids": ("Mill", "Ada")},
)
OTHER = rb.Question("q2", "Why?", "So.")
DATA = rb.Dataset("mills", (ASKED, OTHER), PAGES)


def rows(use="Gold", **options):
    made = {"BM25": "BM25", "gold": {"use": use, **options}}
    grid = rb.Experiment("ceiling", data=DATA, chunker="sentences", retriever=made, N=(6, 100))
    return (
        grid.run(progress=False).query("retriever == 'gold' and N == 100").set_index("question_id")
    )


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))


def test_it_finds_the_supporting_sentences_with_their_titles_in_their_order():
    found = rows()
    assert found.loc["q1", "chunks"] == ["Mill: Ada built it.", "Ada: Ada was born in Ely."]
    assert found.loc["q1", "retrieved"] == ["Mill", "Ada"]
    assert found.loc["q1", "ir_score"] == 1
    assert found.loc["q2", "retrieved"] == []  # a question without evidence has none


def test_it_finds_the_whole_documents_that_hold_them():
    found = rows(unit="documents")
    assert found.loc["q1", "chunks"] == [PAGES[0].text, PAGES[1].text]
    assert found.loc["q1", "hits"] == ["Mill", "Ada"]


def test_a_retriever_that_holds_it_is_told_the_data_set_too():
    def by_words(pairs):
        return [len({*query.split()} & {*text.split()}) for query, text in pairs]

    found = rows("Rerank", over="Gold", scorer=by_words)
    assert set(found.loc["q1", "retrieved"]) == {"Mill", "Ada"}


def test_k_bounds_what_is_found():
    known = Gold(unit="documents").of(DATA)
    ((hit,),) = known.search([ASKED.text], 1)
    assert (hit.chunk.doc_id, hit.rank) == ("Mill", 1)


def test_it_needs_a_data_set_that_names_its_evidence_and_is_told_it():
    with pytest.raises(
        ConfigError, match=r"Gold knows nothing of 'Why\?'(.|\n)*Gold\(\)\.of\(data\)"
    ):
        Gold().search(["Why?"], 1)
    with pytest.raises(ConfigError, match="no question of 'mills' names its documents"):
        Gold(unit="documents").of(rb.Dataset("mills", (OTHER,), PAGES))
    with pytest.raises(ConfigError, match="unit='pages'"):
        Gold(unit="pages")


class Repeats:
    """Answers with what it reads; alone, with the answer to everything: Ely."""

    name = "repeats"

    def answer(self, question, context):
        return context or "Ely"


def test_a_runs_figure_has_floor_and_ceiling_as_horizontal_lines(tmp_path):
    """``retriever: [BM25, Gold]``: heights are the means of the rows, at Gold's largest N."""
    grid = rb.Experiment(
        "bounded",
        data=DATA,
        chunker="sentences",
        retriever=["BM25", "Gold"],
        N=(0, 6, 12, 100),
        generator={"repeats": Repeats()},
        folder=tmp_path / "run",
    )
    rows = grid.run(progress=False)
    made = measured(rows)
    (overview,) = [table for table in run_tables(made, "r") if table.stem == "overview"]
    ir_score, right = overview.figure.axes

    def line_of(axis, name):
        (line,) = [line for line in axis.lines if line.get_label() == name]
        return line.get_ydata()

    def mean_of(retriever, N, measure):
        values = made[made["retriever"].eq(retriever) & made["N"].eq(N)][measure]
        return pytest.approx(sum(values.dropna()) / values.notna().sum())

    assert [line.get_label() for line in ir_score.lines] == ["BM25", "Gold"]  # no text, no score
    assert line_of(ir_score, "Gold") == [mean_of("Gold", 100, "ir_score")] * 2
    assert line_of(right, "Gold") == [mean_of("Gold", 100, "contained")] * 2
    assert line_of(right, "no documents") == [mean_of("no documents", 0, "contained")] * 2
    assert [*line_of(right, "BM25")] == [mean_of("BM25", N, "contained") for N in (6, 12, 100)]
    assert made.query("retriever == 'Gold' and N == 6")["contained"].mean() == 0  # cut: no ceiling
    export(tmp_path / "run", tmp_path / "out")
    assert (tmp_path / "out" / "figures" / "overview.png").stat().st_size
