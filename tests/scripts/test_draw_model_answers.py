"""scripts/draw_model_answers.py: all answers have their label, and a grader does not see where one
is from.
"""

from dataclasses import replace

import pandas as pd
import pytest
from checks import load_script

from ragbench.data import load_minihop
from ragbench.data.ragchecker import RagResult, RetrievedText, read_ragchecker
from ragbench.metrics.claims import CHECKS
from ragbench.paths import packaged_data, project_root


@pytest.fixture(scope="module")
def script():
    return load_script("draw_model_answers")


@pytest.fixture(scope="module")
def rows():
    ids = [q.id for q in load_minihop().questions[:120]]
    cells = [
        ("BM25", 300),
        ("SIM", 300),
        ("REO", 300),
        ("BM25", 1000),
        ("LLM only", 0),
        ("gold documents", 1000),
    ]
    made = []
    for place, question in enumerate(ids):
        for retriever, n in cells:
            same = retriever == "SIM" and place % 2  # half of SIM's answers read like BM25's
            answer = f"answer {place} of {'BM25' if same else retriever} at {n}"
            made.append((question, retriever, n, answer, 1 + place % 5, "ok"))
    return pd.DataFrame(
        made, columns=["question_id", "retriever", "N", "answer", "grade", "status"]
    )


def test_a_grader_sees_question_truth_facts_and_answer_and_nothing_else(script, rows):
    chosen = script.census(rows)
    assert (
        len(chosen)
        == len(script.distinct_answers(rows))
        == rows.drop_duplicates(["question_id", "answer"]).shape[0]
    )
    assert chosen["question_id"].tolist() != sorted(chosen["question_id"])
    shown = script.blind(chosen)
    assert {tuple(item) for item in shown} == {
        ("id", "question", "true_answer", "supporting_facts", "answer")
    }
    questions = {q.id: q for q in load_minihop().questions}
    first = chosen.iloc[0]
    assert shown[0]["true_answer"] == questions[first["question_id"]].answer
    assert shown[0]["answer"] == first["answer"]


def test_every_answer_of_qwen_with_a_retriever_is_labelled_and_smollm2s_draw_keeps_its_probabilities():
    import recorded

    path = packaged_data("minihop", "labels", "answers", "model_answers.jsonl")
    every = pd.read_json(path, lines=True)
    assert every["grade"].isin(range(1, 6)).all()
    assert every.groupby("question_id")["split"].nunique().eq(1).all()
    assert every["id"].is_unique
    pairs = {
        model: {*zip(part["question_id"], part["answer"], strict=True)}
        for model, part in every.groupby("model")
    }
    for name in ("qwen", "smollm2"):
        rows = recorded.rows(name, "retrievers")
        written = {
            *zip(*(rows.loc[rows["N"].eq(300), c] for c in ("question_id", "answer")), strict=True)
        }
        labelled = pairs[recorded.manifest(name)["model"]]
        assert written <= labelled if name == "qwen" else len(written & labelled) > 150
    drawn = every[every["model"].str.contains("SmolLM2")]
    # the items of the frame
    assert (1 / drawn["inclusion_probability"]).sum() == pytest.approx(328)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("evidence", "evidence"),
        ("probes", "probe"),
        ("alone", "alone"),
        ("thesis", "thesis"),
        ("budgets", "budget"),
    ],
)
def test_every_answer_of_a_census_has_its_label_and_no_other_answer_has(script, name, file):
    import recorded

    chosen = script.census(script.rows_of(name), name)
    labelled, *others = (
        pd.read_json(
            packaged_data("minihop", "labels", "answers", f"{each}_answers.jsonl"), lines=True
        )
        for each in (file, "evidence", "model")
    )
    if name == "thesis":  # its answers with MLQ were labelled too, and are asked anew
        assert set(chosen["answer"]) <= set(labelled["answer"])
        return
    assert labelled["id"].tolist() == chosen["id"].tolist()
    assert labelled[["question_id", "answer"]].equals(chosen[["question_id", "answer"]])
    assert set(labelled["grade"]) <= {1, 2, 3, 4, 5}
    if name == "alone":  # labels of earlier files are repeated
        grades = pd.concat(others).drop_duplicates(["question_id", "answer"])[
            ["question_id", "answer", "grade"]
        ]
        before = labelled[["question_id", "answer"]].merge(grades, how="left")["grade"]
        assert before.notna().sum() == 29
        assert labelled["second_grade"].fillna(0).tolist() == before.fillna(0).tolist()
        return
    assert labelled["second_grade"].notna().tolist() == chosen["second_pass"].notna().tolist()
    # of a false premise: what is true instead
    assert all(item["supporting_facts"] for item in script.blind(chosen))
    plan = (project_root() / "docs/preregistration/minihop.md").read_text(encoding="utf-8")
    assert all(recorded.manifest(each)["file"]["sha256"] in plan for each in recorded.RECORDINGS)


def bare(result):
    """Return a result without its labels."""
    extra = {
        name: value for name, value in result.extra.items() if not name.endswith("_in_retrieved")
    }
    return replace(result, extra=extra, **dict.fromkeys(CHECKS))


@pytest.mark.parametrize(
    ("name", "file", "systems"),
    [
        ("claims", "answer_claims", 3),
        ("claims_1000", "claims_1000", 3),
        ("claims_prompts", "claims_prompts", 2),
    ],
)
def test_the_labelled_claims_are_those_of_the_recorded_answers_and_the_chunks_that_were_read(
    script, name, file, systems
):
    seed = script.CLAIMS[name][3]
    results = script.to_check(name)
    labelled = {
        r.id: r
        for r in read_ragchecker(
            packaged_data("minihop", "labels", "claims", f"{file}.json")
        ).results
    }
    assert list(labelled) == [result.id for result in results]
    assert len(results) == 50 * systems
    for result in results:
        assert bare(labelled[result.id]) == result
        assert not labelled[result.id].missing()
    again = read_ragchecker(
        packaged_data("minihop", "labels", "claims", f"{file}_second.json")
    ).results
    assert {r.extra["question_id"] for r in again} == {
        sheet["question_id"]
        for sheet in script.second_sheets(script.claim_sheets(results, seed), seed)
    }
    assert all(bare(r) == bare(labelled[r.id]) for r in again)


def test_two_systems_with_the_same_text_or_answer_have_the_same_labels():
    for name in (
        "answer_claims.json",
        "answer_claims_second.json",
        "claims_1000.json",
        "claims_1000_second.json",
        "claims_prompts.json",
        "claims_prompts_second.json",
    ):
        seen = {}
        for result in read_ragchecker(packaged_data("minihop", "labels", "claims", name)).results:
            for column, chunk in enumerate(result.chunks):
                labels = tuple(row[column] for row in result.reference_in_chunks)
                assert seen.setdefault((result.extra["question_id"], chunk.text), labels) == labels
            labels = (result.response_in_reference, result.reference_in_response)
            assert seen.setdefault((result.extra["question_id"], result.response), labels) == labels


def test_a_sheet_of_claims_names_each_text_once_and_tells_nothing_of_where_it_is_from(script):
    one = RagResult(
        "q BM25",
        "Where?",
        "x",
        "In Ely.",
        (RetrievedText(text="Ely lies on a river.", doc_id="Ely"),),
        ("In Ely.",),
        ("It is Ely.",),
        extra={"question_id": "q", "retriever": "BM25"},
    )
    two = replace(
        one,
        id="q SIM",
        response="No.",
        response_claims=("No.",),
        chunks=(RetrievedText(text="Ulm."),),
    )
    (sheet,) = script.claim_sheets([one, two], 0)
    assert set(sheet) == {"id", "question_id", "question", "claims", "texts"}
    assert sorted(sheet["texts"].values()) == ["Ely lies on a river.", "In Ely.", "No.", "Ulm."]
    assert sorted(sheet["claims"].values()) == ["In Ely.", "It is Ely.", "No."]
    for name, text in sheet["texts"].items():
        if name[0] == "A":
            assert sheet["claims"][f"{name}.1"] == text
