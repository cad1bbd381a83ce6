"""Two roads to one number: what is printed, computed and exported of a run is the same, with the
same interval, n and clusters.
"""

import re
from dataclasses import replace

import pandas as pd
import pytest
from experiment_parts import QUICK, Copier, Named, experiment, graded, people
from fake_ollama import FakeOllama

import ragbench as rb
from ragbench.cli import _run_summary, main
from ragbench.notebooks import execute
from ragbench.paths import packaged_data
from ragbench.report.export import export, export_scores
from ragbench.report.factors import measured

METRICS = ["ir_score", "contained", "fully_right"]
INTERVAL = ["low", "high", "n", "clusters"]
SCALE = """---
scale:
  0: wrong
  1: partly right
  2: right
---
Question: {question} True: {reference} {facts}
Grade {count} answers: {answers}"""


def verdict(body):
    """Call every second person's answer right; give no grade for one person."""
    person = int(re.search(r"Person(\d+)", body["messages"][-1]["content"])[1])
    if person == 17:
        return "no grade"
    return graded(body, 2 * (person % 2)) or "no grade"


@pytest.fixture(scope="module")
def roads(tmp_path_factory):
    """Every table of one run, by road: the means of its cells, and the comparisons of its
    retrievers.
    """
    folder = tmp_path_factory.mktemp("roads")
    (folder / "mine.txt").write_text(SCALE, encoding="utf-8")
    data = people(36)
    questions = [
        replace(q, meta={"topic": i // 3, "doc_ids": [f"d{i - i % 2}"]})
        for i, q in enumerate(data.questions)
    ]
    with FakeOllama(reply=verdict) as server:
        grid = experiment(
            folder / "run",
            data={"people": replace(data, questions=tuple(questions))},
            retriever={"a": Named, "b": lambda chunks: Named(chunks[::2], broken="Person4")},
            N=(4, 20),
            match="exact_subsequence",
            generator={"copier": Copier(broken="Person23")},
            judge={"two": server.model(seed=3, num_ctx=4096)},
            options=QUICK,
            prompts={"two": str(folder / "mine.txt")},
        )
        rows = grid.run(progress=False)
    scores = rb.score(rows, METRICS)
    scores.save_beside(grid.home)
    export(grid.home, folder / "report")
    export_scores(scores, folder / "scores", "made")
    command = ["score", str(folder / "report/rows.csv"), "--to", str(folder / "again")]
    assert main([*command, "--metrics", ",".join(METRICS)]) == 0
    return folder, rows, scores


def cells(table):
    """The means of a table by system ("a@4") and metric."""
    if "system" not in table:
        table = table.assign(system=table["retriever"] + "@" + table["N"].astype(str))
    table = table[table["metric"].isin(METRICS)]
    return table.set_index(["system", "metric"])[["mean", *INTERVAL, "unscored"]].sort_index()


def test_the_run_has_failed_and_missing_rows_and_a_scale_of_its_own(roads):
    _, rows, _ = roads
    assert rows["status"].eq("failed").any()
    assert rows["grade"].isna().any()
    assert set(rows["grade"].dropna()) == {0, 2}
    assert rows["judge_scale"].iloc[0] == {0: "wrong", 1: "partly right", 2: "right"}


def test_means_are_one_number_with_one_interval_on_every_road(roads):
    folder, rows, scores = roads
    by_hand = measured(rows)
    every = {
        "means": rb.means(by_hand, ["retriever", "N"], METRICS),
        "means of scores": rb.means(scores, "system", METRICS),
    }
    for name in (
        "report/tables/overview",
        "report/tables/means",
        "scores/tables/means",
        "again/tables/means",
    ):
        every[name] = pd.read_csv(folder / f"{name}.csv")
        assert "Clusters: 12 by topic." in (folder / f"{name}.md").read_text()
    first = cells(every["means"])
    assert first["clusters"].eq(12).all()
    assert first["unscored"].gt(0).any()
    for name, table in every.items():
        pd.testing.assert_frame_equal(cells(table), first, rtol=1e-5, check_dtype=False, obj=name)
    for system, part in by_hand.groupby("system"):
        for metric in METRICS:
            mean = part[metric].astype(float).mean()
            assert first.loc[(system, metric), "mean"] == pytest.approx(mean)
    printed = [float(number) for number in re.findall(r"\b\d\.\d{3}\b", _run_summary(rows))]
    shown = first["mean"].unstack()[["ir_score", "fully_right"]]
    assert sorted(printed) == pytest.approx(sorted(shown.to_numpy().ravel()), abs=6e-4)


def test_differences_are_one_number_with_one_interval_on_every_road(roads):
    folder, rows, scores = roads
    columns = ["difference", "p", "mean a", "mean b", *INTERVAL, "missing"]
    pairs = [("a@4", "b@4"), ("a@20", "b@20")]
    files = [folder / name / "tables/comparison.csv" for name in ("report", "scores", "again")]
    tables = [rb.compare_scores(scores, METRICS, pairs), *map(pd.read_csv, files)]
    tables = [table.set_index(["measure", "a", "b"])[columns] for table in tables]
    for metric in METRICS:
        by_n = rb.compare(measured(rows), "retriever", metric, by="N").set_index("N")[columns]
        exported = pd.read_csv(folder / "report/tables" / f"retriever_{metric}.csv")
        pd.testing.assert_frame_equal(
            exported.set_index("N")[columns], by_n, rtol=1e-5, check_dtype=False
        )
        assert by_n["clusters"].eq(12).all()
        assert by_n["difference"].gt(0).any() == (metric != "fully_right")
        for a, b in pairs:
            for table in tables:
                expected = by_n.loc[int(a.partition("@")[2])].to_numpy(float)
                assert table.loc[(metric, a, b)].to_numpy(float) == pytest.approx(
                    expected, rel=1e-5, nan_ok=True
                )


def test_the_methods_say_the_clusters_and_intervals_of_the_tables(roads):
    folder, _, _ = roads
    for name in ("report", "scores", "again"):
        methods = (folder / name / "methods.md").read_text()
        assert "Clusters of questions: 12 by topic." in methods
        assert "exact binomial for the effective number of values" in methods


CODE = """
from ragbench.experiment.axes import GENERATORS
from ragbench.retrieval import RETRIEVERS, Index


class Reader:
    name = "reader"

    def answer(self, question, context):
        if "Person3 " in question:
            raise ValueError("cannot answer this")
        return context


class HalfRight(Index):  # counts shared words, and turns the order round for questions with a 1
    def _search(self, queries, k):
        scores = []
        for query in queries:
            words = set(query.split())
            sign = -1 if "1" in query else 1
            scores.append([sign * len(words & set(chunk.text.split())) for chunk in self.chunks])
        return self.best(scores, k)


GENERATORS["reader"] = Reader
RETRIEVERS["HalfRight"] = HalfRight
"""
YAML = """
name: noted
folder: run
code: mine.py
data: {people: {questions: q.csv, documents: docs}}
chunker: {use: token_chunks, size: 12, overlap: 0}
retriever: {a: BM25, b: HalfRight}
k: 2
N: [6, 12]
match: exact_subsequence
generator: reader
"""


@pytest.mark.slow
def test_notebook_91_shows_what_the_export_has(tmp_path):
    (tmp_path / "docs").mkdir()
    data = people(24)
    for document in data.documents:
        (tmp_path / "docs" / f"{document.id}.txt").write_text(document.text)
    questions = pd.DataFrame([(q.text, q.answer, *q.references) for q in data.questions])
    questions.columns = ["question", "answer", "references"]
    questions.assign(topic=questions.index // 2).to_csv(tmp_path / "q.csv", index=False)
    (tmp_path / "mine.py").write_text(CODE)
    (tmp_path / "experiment.yaml").write_text(YAML)
    parameters = {"EXPERIMENT": str(tmp_path / "experiment.yaml"), "EXPORT": True}
    source = packaged_data("notebooks", "91_your_experiment.ipynb")
    done = execute(source, parameters, out=tmp_path / "done.ipynb").read_text(encoding="utf-8")
    tables = tmp_path / "run" / "export" / "tables"
    shown = pd.read_csv(tables / "retriever_contained.csv")
    assert shown["clusters"].eq(12).all()
    noted = pd.read_csv(tmp_path / "run" / "figures" / "91_retriever.csv")
    drawn = pd.read_csv(tmp_path / "run" / "export" / "figures" / "retriever_contained.csv")
    for frame in (noted, drawn):
        columns = ["difference", "low", "high", "p_holm", "n", "clusters", "missing"]
        pd.testing.assert_frame_equal(frame[columns], shown[columns], rtol=1e-5, check_dtype=False)
    lines = (tables / "overview.md").read_text().splitlines()
    heads, _, *body = [line.split("|") for line in lines if line.startswith("|")]
    cells = [
        row[place].strip()
        for place, head in enumerate(heads)
        if head.strip().startswith(("ir score", "contained"))
        for row in body
    ]
    assert len(cells) == 2 * 2 * 2  # measures, retrievers, N
    assert all(cell in done for cell in cells)
