"""Notebook 90: one set of answers by four papers' metrics, through `ragbench.score`; how far they agree."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from fake_ollama import FakeOllama
from hypothesis import given, settings
from hypothesis import strategies as st
from notebook_parts import parts
from scipy import stats as reference
from sklearn.metrics import roc_auc_score

from ragbench.metrics.claims import METRICS as CLAIM_METRICS
from ragbench.metrics.claims import ClaimLabels, claim_metrics
from ragbench.records import Question

NAN = float("nan")
BOOK = parts("90")
METRICS = BOOK.METRICS
NAMES = [*METRICS.index]


def question(name="q1", references=("Ann Lee was born in Ely.",), **meta):
    return Question(name, "Where was Ann Lee born?", "Ely", references, "bridge", "easy", meta)


def frame(*cases, asked=None):
    """Cases: (name, answer, chunks)."""
    asked = asked or question()
    rows = [
        {"question_id": asked.id, "system": name, "question": asked.text, "reference": asked.answer,
         "references": list(asked.references), "chunks": list(chunks), "context": " ".join(chunks), "answer": answer}
        for name, answer, chunks in cases
    ]  # fmt: skip
    return pd.DataFrame(rows)


def scored(cases, *questions, **options):
    return BOOK.score_cases(cases, {q.id: q for q in questions or [question()]}, **options)


ELY = ("a1", "Ann Lee was born in Ely.", ("Ann Lee was born in Ely in 1840.",))


def test_the_true_answer_is_the_data_sets_own_long_one_or_the_short_one_with_its_evidence():
    short = question(references=("Ann Lee was born in Ely.", "She sang. She danced."))
    labels = BOOK.with_true_answers(frame(ELY, asked=short), {short.id: short})
    assert labels["long_reference"][0] == "Ely\nAnn Lee was born in Ely.\nShe sang. She danced."
    assert labels["reference_claims"][0] == ["Ann Lee was born in Ely.", "She sang.", "She danced."]
    claims = [{"text": "Ann Lee came from Ely.", "support": []}]
    full = question(long_answer="She came from Ely.", claims=claims)
    labels = BOOK.with_true_answers(frame(ELY, asked=full), {full.id: full})
    assert labels["long_reference"][0] == "She came from Ely."
    assert labels["reference_claims"][0] == ["Ann Lee came from Ely."]


def test_a_row_by_hand(minilm):
    labels = [True, False], [True, False, False], [[1, 0], [0, 1]], [[1, 0], [1, 0], [0, 0]]
    verdicts = [["covered", "neither", "contradicted", "neither"]]
    ragas = [{"faithfulness": 0.5, "answer_relevance": 0.6, "context_relevance": 0.7}]
    cases = frame(("a1", "Ely, I think.", ("Ann Lee was born in Ely.", "It rains.")))
    cases = cases.assign(claim_labels=[ClaimLabels(*labels)], keypoint_verdicts=verdicts, ragas=ragas, grade=5)
    row = scored(cases).iloc[0]
    by_hand = claim_metrics(*labels)
    for name in CLAIM_METRICS:
        assert row[f"RAGChecker {name.replace('_', ' ')}"] == pytest.approx(by_hand[name], nan_ok=True), name
    assert row["IR score"] == 1.0
    shares = ["RAGEval completeness", "RAGEval hallucination", "RAGEval irrelevance"]
    assert row[shares].tolist() == [0.25, 0.25, 0.5]
    # One reference of six words, found whole, among the eight words of the context.
    assert (row["RAGEval recall"], row["RAGEval EIR"]) == (1.0, pytest.approx(6 / 8))
    assert row["exact match"] == 0
    assert row["token F1"] == pytest.approx(2 * (1 / 3) / (1 / 3 + 1))
    assert row[["RAGAS faithfulness", "RAGAS answer relevance", "RAGAS context relevance"]].tolist() == [0.5, 0.6, 0.7]
    assert row["IDF overlap"] == pytest.approx(0.5)  # "ely" of "ely", "think"; all as rare: one question alone
    assert (row["question_id"], row["system"], row["grade"]) == ("q1", "a1", 5)


def test_every_metric_is_a_column_with_its_paper_and_direction(minilm):
    assert len(NAMES) == len(set(NAMES)) == 27
    assert set(METRICS.index[~METRICS["higher"]]) == {
        "RAGChecker relevant noise sensitivity", "RAGChecker irrelevant noise sensitivity", "RAGChecker hallucination",
        "RAGChecker self knowledge", "RAGEval hallucination", "RAGEval irrelevance",
    }  # fmt: skip
    assert set(NAMES) <= set(scored(frame(ELY)))
    reads = METRICS["reads"]
    assert (reads["RAGChecker recall"], reads["RAGChecker claim recall"]) == ("answer", "context")
    assert reads["RAGChecker faithfulness"] == "answer and context"


def test_empty_answers_and_contexts_are_undefined_not_wrong(minilm):
    bare = question("q2", references=())
    cases = pd.concat([frame(("a", None, ELY[2]), ("b", ELY[1], ())), frame(ELY, asked=bare)], ignore_index=True)
    table = scored(cases, question(), bare)
    for row, name in enumerate(("RAGChecker precision", "RAGChecker faithfulness", "IR score")):
        assert math.isnan(table[name][row])
    assert math.isnan(table["RAGAS faithfulness"][0])
    assert math.isnan(table["RAGAS context relevance"][1])
    # "Ann Lee was born in Ely" of "Ann Lee was born in Ely.": 23 of 24 characters.
    assert table["IR score"].tolist()[:2] == [pytest.approx(23 / 24), 0]
    assert table["token F1"][0] == 0  # an answer that failed counts as empty


def filled(schema, root):
    """The least value that a JSON schema allows, with the first word of every choice."""
    if "$ref" in schema:
        return filled(root["$defs"][schema["$ref"].split("/")[-1]], root)
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    if schema.get("type") == "object":
        return {name: filled(part, root) for name, part in schema["properties"].items()}
    if schema.get("type") == "array":
        return [filled(schema["items"], root) for _ in range(max(1, schema.get("minItems", 1)))]
    return 5 if schema.get("type") == "integer" else "Ann Lee was born in Ely."


def reply(request):
    schema = request.get("format")
    return json.dumps(filled(schema, schema)) if schema else "Ely."


def test_a_model_labels_in_the_same_form(minilm):
    cases = frame(("a", *ELY[1:]), ("b", "She was born in York.", ELY[2]))
    with FakeOllama(reply=reply) as server:
        model = server.model(seed=0)
        table = scored(cases, labels=model)
    assert table["RAGChecker precision"].tolist() == [1, 1]  # the made model says Entailment to everything
    assert table["RAGEval completeness"].tolist() == [1, 1]
    assert table["RAGAS answer relevance"].between(-1, 1).all()
    assert table["grader: fully right"].isin([0, 1]).all()
    assert table["judge: preference"].notna().all()  # always the embedded judge's


def made_table(n=40, seed=0, systems=("",)):
    """A table of random scores: token F1 follows the grade, hallucination goes against it, EIR is noise."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        for s, system in enumerate(systems):
            good = rng.random() < 0.4
            row = dict.fromkeys(NAMES, 0.5)
            row |= {"question_id": f"q{i // 2 if systems == ('',) else i}", "system": system,
                    "grade": 5 if good else 1, "token F1": 0.3 * good + rng.random() + 0.1 * s,
                    "RAGChecker hallucination": -0.3 * good + rng.random() - 0.1 * s,
                    "RAGEval EIR": rng.random()}  # fmt: skip
            rows.append(row)
    return pd.DataFrame(rows).astype({"grade": "Int64"})


THREE = ["token F1", "RAGChecker hallucination", "RAGEval EIR"]
SYSTEMS = ("A@1", "B@1", "C@1", "D@1")


def test_correlations_are_scipys_on_metrics_turned_so_that_more_is_better():
    table = made_table()
    table.loc[3, "token F1"] = NAN
    asked = [(THREE[0], THREE[1]), (THREE[0], THREE[2]), ("token F1", "BLEU")]
    pairs = BOOK.correlations(table, asked, resamples=50)
    found = pairs.set_index(["a", "b", "method"])
    both = table.drop(index=3)
    row = found.loc[("token F1", "RAGChecker hallucination", "spearman")]
    expected = reference.spearmanr(both["token F1"], -both["RAGChecker hallucination"]).statistic
    assert row["estimate"] == pytest.approx(expected)
    assert (row["n"], row["missing"]) == (39, 1)
    assert row["low"] < row["estimate"] < row["high"]
    tau = reference.kendalltau(both["token F1"], both["RAGEval EIR"]).statistic
    assert found.loc[("token F1", "RAGEval EIR", "kendall")]["estimate"] == pytest.approx(tau)
    assert math.isnan(found.loc[("token F1", "BLEU", "kendall")]["estimate"])  # BLEU has one value
    matrix = BOOK.as_matrix(pairs[pairs["method"] == "kendall"])
    assert matrix.loc["token F1", "RAGEval EIR"] == matrix.loc["RAGEval EIR", "token F1"] == pytest.approx(tau)
    assert (np.diag(matrix) == 1).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_the_area_is_scikit_learns(pairs):
    values, good = [v for v, _ in pairs], [g for _, g in pairs]
    found = BOOK.separation(values, good, resamples=0)[0]
    if len(set(good)) == 1:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(roc_auc_score(good, values))


def test_there_is_no_interval_where_the_kinds_are_wholly_apart():
    assert np.isnan(BOOK.separation([1, 2, 3, 4] * 5, [0, 0, 1, 1] * 5)[1:]).all()


def test_the_interval_of_the_area_is_that_of_resampled_questions():
    table = made_table(60)
    x, good, groups = table["token F1"].to_numpy(), (table["grade"] == 5).to_numpy(), table["question_id"].to_numpy()
    _, low, high = BOOK.separation(x, good, groups, resamples=3000)
    rng = np.random.default_rng(1)
    names = np.unique(groups)
    places = {name: np.flatnonzero(groups == name) for name in names}
    draws = []
    for _ in range(600):
        take = np.concatenate([places[name] for name in rng.choice(names, len(names))])
        if 0 < good[take].sum() < len(take):
            draws.append(roc_auc_score(good[take], x[take]))
    assert (low, high) == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.03)


def test_agreement_with_grades_by_hand():
    table = made_table(6)
    table["question_id"] = ["p", "p", "p", "q", "q", "r"]
    table["grade"] = pd.array([5, 1, 3, 5, 5, None], dtype="Int64")
    table["token F1"] = [0.6, 0.4, 0.6, 0.9, NAN, 0.1]
    table["RAGChecker hallucination"] = [0.0, 1.0, 0.5, 1.0, 0.0, 0.5]
    agreed = BOOK.grade_agreement(table, resamples=20)
    assert agreed["auc"].dropna().is_monotonic_decreasing
    found = agreed.set_index("metric")
    f1 = found.loc["token F1"]
    # Right: 0.6, 0.9; others: 0.4, 0.6. Of four pairs three are won and one is a tie.
    assert f1["auc"] == pytest.approx(3.5 / 4)
    assert (f1["within"], f1["pairs"], f1["n"], f1["missing"]) == (0.75, 2, 4, 2)
    other = found.loc["RAGChecker hallucination"]
    # Less is better: right 0, 1, 0; others 1, 0.5.
    assert other["auc"] == pytest.approx((2 + 0.5 + 2) / 6)
    assert other["within"] == 1.0
    assert other["tau"] == pytest.approx(reference.kendalltau([0, -1, -0.5, -1, 0], [1, 0, 0, 1, 1]).statistic)


def test_rankings_are_compared_by_kendalls_tau_of_the_means():
    table = made_table(30, systems=SYSTEMS)
    found = BOOK.ranking_correlations(table, 100).set_index(["a", "b"])
    turned = table.groupby("system", sort=False)[THREE].mean() * [1, -1, 1]
    for a, b in [("token F1", "RAGEval EIR"), ("RAGChecker hallucination", "token F1")]:
        key = (a, b) if (a, b) in found.index else (b, a)
        assert found.loc[key, "estimate"] == pytest.approx(reference.kendalltau(turned[a], turned[b]).statistic)
        assert -1 <= found.loc[key, "low"] <= found.loc[key, "high"] <= 1
    assert math.isnan(found.loc[("token F1", "BLEU")]["estimate"])


def test_the_interval_of_a_ranking_is_that_of_resampled_questions():
    table = made_table(20, systems=tuple(f"{letter}@1" for letter in "ABCDEFGH"))  # fine steps of tau
    table.loc[5, "token F1"] = NAN
    pair = ["RAGEval EIR", "token F1"]
    row = BOOK.ranking_correlations(table, 2000).set_index(["a", "b"]).loc[tuple(pair)]
    cubes = [table.pivot(index="question_id", columns="system", values=m).to_numpy() for m in pair]
    rng = np.random.default_rng(3)
    draws = []
    for _ in range(1000):
        take = rng.integers(0, 20, 20)
        draws.append(reference.kendalltau(*(np.nanmean(c[take], axis=0) for c in cubes)).statistic)
    assert (row["low"], row["high"]) == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.1)
    mean = reference.kendalltau(*(np.nanmean(c, axis=0) for c in cubes)).statistic
    assert row["estimate"] == pytest.approx(mean)
