"""From a questions file to paired tests: topics as clusters, six systems, abstentions, answers
without documents.
"""

import json
import re
from functools import partial

import pandas as pd
import pytest
from experiment_parts import Copier, JudgeDouble

import ragbench as rb
from ragbench.cli import main
from ragbench.errors import ConfigError, DataError
from ragbench.experiment.axes import GENERATORS, JUDGES
from ragbench.notebooks import create_project

TOPICS = ["towers", "ships", "bridges", "mills"]


def answer(question, context):
    """Read the year from the context; without it guess, or say so, by the question's last digit."""
    found = context.partition("in 18")[2][:2]
    return (
        f"In 18{found}." if found else "I do not know." if question[-2] in "13579" else "In 1700."
    )


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    texts = [
        f"Work {i} was built in 18{i + 10}. It is old and it is well known to all."
        for i in range(12)
    ]
    questions = [
        {"question": f"When was work {i}?", "answer": f"In 18{i + 10}.", "references": [texts[i].split(" It")[0]],
         "Topic": TOPICS[i % 4], "type": "single hop" if i < 8 else "unanswerable"}
        for i in range(12)
    ]  # fmt: skip
    for name, lines in (
        ("questions", questions),
        ("documents", [{"title": f"Work {i}", "text": t} for i, t in enumerate(texts[:8])]),
    ):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    data = rb.data.load_questions(folder / "questions.jsonl", folder / "documents.jsonl")
    chunker = {str(size): {"use": "token_chunks", "size": size} for size in (12, 30)}
    grid = rb.Experiment(
        "study", data=data, chunker=chunker, retriever=["BM25", "SIM", "Hybrid"], N=[0, 12, 30], k=3,
        generator={"g": answer}, folder=folder / "out",
    )  # fmt: skip
    return grid.run(progress=False)


def test_every_block_of_the_studys_page_runs_from_top_to_bottom_in_a_new_folder(
    tmp_path, monkeypatch
):
    folder = create_project(tmp_path / "mine")
    monkeypatch.chdir(folder)
    monkeypatch.setitem(GENERATORS, "copier", Copier)
    monkeypatch.setitem(JUDGES, "double", JudgeDouble)
    experiment = folder / "experiment.yaml"
    text = experiment.read_text(encoding="utf-8")
    experiment.write_text(text + "generator: copier\njudge: double\n", encoding="utf-8")
    page = (folder / "help" / "study.md").read_text(encoding="utf-8")
    commands = re.findall(r"`(ragbench (?:plan|run|export)[^`]*)`", page.replace("```sh\n", "`"))
    assert main(["plan", "experiment.yaml"]) == 0
    assert main(["run", "experiment.yaml"]) == 0
    names = {}
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    assert len(blocks) == 6
    for block in blocks:
        exec(compile(block, "study.md", "exec"), names)
    assert names["labels"].notna().all(axis=None)
    assert main(["export", "results/first-look", "--to", "report"]) == 0
    assert "What may be claimed" in (folder / "report" / "methods.md").read_text()
    assert commands


def test_a_topic_of_the_questions_file_is_a_cluster_of_the_paired_tests(rows):
    assert rows.drop_duplicates("question_id")["topic"].tolist() == TOPICS * 3
    compare = partial(
        rb.compare, rows, "retriever", "ir_score", by=["chunker", "N"], pairs=[("BM25", "SIM")]
    )
    table = compare(cluster="topic")
    cells = table[["chunker", "N", "clusters"]].to_numpy().tolist()
    assert cells == [["12", 12, 4], ["12", 30, 4], ["30", 12, 4], ["30", 30, 4]]
    assert {*compare()} <= {*table}
    scored = rb.score(rows, ["token_f1"])
    systems = [name for name in scored["system"].unique() if re.search("BM25.*@30$", name)]
    pairs = [(name, "LLM only@0") for name in systems]
    assert rb.compare_scores(scored, pairs=pairs, cluster="topic")["clusters"].tolist() == [4, 4]


def test_two_chunkers_and_three_retrievers_are_six_systems_and_the_advice_can_be_followed(rows):
    compare = partial(rb.compare, system=["chunker", "retriever"], measure="ir_score")
    with pytest.raises(DataError) as caught:
        compare(rows)
    # not what follows from N, such as the tokens in the context
    assert "by=['N']" in caught.value.do
    assert len(compare(rows, by=["N"])) == 2 * 15
    with pytest.raises(DataError) as caught:
        rb.compare(rows, "retriever", "ir_score")
    assert "tell them apart" in caught.value.do
    one = compare(rows, by=["N"], pairs=[("12, BM25", "30, SIM")])[["N", "a", "b"]]
    assert one.to_numpy().tolist() == [[n, "12, BM25", "30, SIM"] for n in (12, 30)]
    with pytest.raises(ConfigError, match="did you mean '12, BM25'"):
        compare(rows, by=["N"], pairs=[("12,BM25", "30, SIM")])
    both = compare(rows, by=["N"], measure=["ir_score", "context_tokens"])
    of_one = compare(rows, by=["N"])
    shown = both[both["measure"] == "ir_score"].reset_index(drop=True)[["N", "a", "b", "p"]]
    pd.testing.assert_frame_equal(shown, of_one[["N", "a", "b", "p"]])
    assert both["p_holm"][0] >= of_one["p_holm"][0]  # corrected for both measures
    with pytest.raises(DataError, match="keep one of them"):
        compare(pd.concat([rows, rows]), by="N")


def test_abstentions_are_right_on_questions_without_an_answer_and_wrong_on_others(rows):
    alone = rows[rows["N"] == 0].copy()
    # a judge's, or a person's
    alone["grade"] = alone["answer"].eq("I do not know.").map({True: 1, False: 5})
    table = rb.score(alone, ["abstention"])
    # Questions 1, 3, 5, 7 of the eight with an answer, 9 and 11 of the four without.
    names = ["any_abstention", "right_abstention", "wrong_abstention"]
    means = table[names].agg(["mean", "count"]).to_numpy().tolist()
    assert means == [[6 / 12, 2 / 4, 4 / 8], [12, 4, 8]]
    assert table["labelled_by"].unique().tolist() == ["given"]
    given = pd.DataFrame({"kind": ["unanswerable", ""], "abstained": ["True", False]})
    scored = rb.score(given.assign(answer="?"), ["wrong_abstention", "right_abstention"])
    assert scored["right_abstention"][0] == 1.0
    with pytest.raises(DataError, match="no column 'kind', needed by 'abstention'"):
        rb.score([{"answer": "?", "grade": 1}], ["abstention"])
