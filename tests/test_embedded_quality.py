"""How often the embedded tools are right, beside the best constant: the table of docs/models.md, and what follows."""

import inspect
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ragbench as rb
from ragbench.data.ragchecker import read_ragchecker
from ragbench.labelling.claims import embedded_checker_quality
from ragbench.labelling.graded_answers import load_graded_answers
from ragbench.labelling.grades import grade
from ragbench.metrics.claims import CHECKS
from ragbench.paths import packaged_data
from ragbench.records import Answer

ROOT = Path(__file__).parents[1]


def real_answers_accuracy():
    """Right grades of two models' labelled answers (weighted as drawn), and the commonest label's share: by frame."""
    model, thesis, budget = (
        pd.read_json(packaged_data("minihop", f"{file}_answers.jsonl"), lines=True)
        for file in ("model", "thesis", "budget")
    )
    qwen, smollm2 = sorted(model["model"].unique())
    frames = [model, thesis.assign(model=f"{qwen}, N = 1000"), budget.assign(model=f"{smollm2}, eleven N")]
    labels = pd.concat(frames, ignore_index=True).fillna({"inclusion_probability": 1.0})
    answers = [Answer(*pair, "") for pair in zip(labels["question_id"], labels["answer"], strict=True)]
    questions = [q for q in rb.data.load_minihop().questions if q.id in set(labels["question_id"])]
    labels["given"] = [graded.value for graded in grade("embedded", questions, answers)]
    labels["weight"] = 1 / labels["inclusion_probability"]
    right = labels["weight"].where(labels["given"] == labels["grade"], 0.0).groupby(labels["model"]).sum()
    commonest = labels.groupby(["model", "grade"])["weight"].sum().groupby("model").max()
    both = pd.DataFrame({"right": right, "constant": commonest}).div(labels.groupby("model")["weight"].sum(), axis=0)
    return both.sort_index()  # Qwen before SmolLM2, the first frame before the second


def real_claims_accuracy(file):
    """Right labels (entailed or not) of real answers' claims, and the better constant's: by table of labels."""
    reference = read_ragchecker(packaged_data("minihop", f"{file}.json")).results
    given = rb.embedded_labels([replace(r, **dict.fromkeys(CHECKS)) for r in reference]).results.results

    def entailed(results, check):
        flat = np.concatenate([np.ravel(getattr(result, check)) for result in results])
        return flat[flat != None] == "Entailment"  # noqa: E711

    tables = {check: (entailed(reference, check), entailed(given, check)) for check in CHECKS}
    rows = {check: ((true == said).mean(), max(true.mean(), 1 - true.mean())) for check, (true, said) in tables.items()}
    order = ["response_in_reference", "response_in_chunks", "reference_in_response", "reference_in_chunks"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=["right", "constant"]).loc[order]


def test_the_docs_give_each_embedded_tools_quality_beside_a_constant_and_none_that_loses_is_a_default():
    lines = (ROOT / "docs" / "models.md").read_text(encoding="utf-8").splitlines()
    rows = {line.split("*")[1]: line for line in lines if line.startswith("| *embedded")}
    grader = rb.measure_judge(split="test").loc[0, ["accuracy", "accuracy_low", "accuracy_high"]].tolist()
    judge = [value / 100 for value in rb.EmbeddedJudge().card["numbers_x100"]["overall, judge"]["pearson"]]
    checker, never = embedded_checker_quality("test")[["accuracy", "low", "high"]].to_numpy().tolist()
    commonest = pd.Series([g.grade for g in load_graded_answers(split="test")]).value_counts(normalize=True).max()
    answers, claims = real_answers_accuracy(), pd.concat(map(real_claims_accuracy, ("answer_claims", "claims_1000")))
    measured = {
        "embedded grader": [*grader, commonest, *answers.T.to_numpy().ravel()],
        "embedded judge": judge,
        "embedded checker": [*checker, never[0], *claims.T.to_numpy().ravel()],
    }
    assert set(rows) == set(measured)
    for name, values in measured.items():
        shown = [float(number) for number in re.findall(r"0\.\d+", rows[name])]
        assert shown == pytest.approx(values, abs=0.0051), name
    loses = pd.concat([answers, claims]).eval("right < constant")
    assert loses.tolist() == [False, False, True, False] + 2 * [True, True, True, False]  # as the text below says
    assert inspect.signature(rb.score).parameters["labels"].default is None
    assert rb.Experiment.model_fields["labels"].default is None
