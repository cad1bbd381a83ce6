"""Concordance: one set of answers by four papers' metrics, through `ragbench.score`; how far they agree."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from fake_ollama import FakeOllama
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as reference
from sklearn.metrics import roc_auc_score

from ragbench import concordance as co
from ragbench import plots
from ragbench.concordance import METRICS, NAMES
from ragbench.data import load_minihop
from ragbench.errors import ConfigError, DataError
from ragbench.labelling.checkers import EmbeddedChecker, split_claims
from ragbench.labelling.embedded_grader import EmbeddedGrader
from ragbench.labelling.embedded_judge import EmbeddedJudge
from ragbench.labelling.graded_answers import load_graded_answers
from ragbench.labelling.grades import facts_of
from ragbench.labelling.statements import EmbeddedRagas
from ragbench.llm import chat_model
from ragbench.metrics.claims import METRICS as CLAIM_METRICS
from ragbench.metrics.claims import ClaimLabels, claim_metrics
from ragbench.records import Question
from ragbench.stats import separation

NAN = float("nan")


def question(name="q1", references=("Ann Lee was born in Ely.",), **meta):
    return Question(name, "Where was Ann Lee born?", "Ely", references, "bridge", "easy", meta)


def frame(*cases, asked=None):
    """Cases as rows of `Experiment.answers`: (name, answer, chunks)."""
    asked = asked or question()
    rows = [
        {"question_id": asked.id, "system": name, "question": asked.text, "reference": asked.answer,
         "references": list(asked.references), "chunks": list(chunks), "context": " ".join(chunks), "answer": answer}
        for name, answer, chunks in cases
    ]  # fmt: skip
    return pd.DataFrame(rows)


ELY = ("a1", "Ann Lee was born in Ely.", ("Ann Lee was born in Ely in 1840.",))

# --- scores -----------------------------------------------------------------------------------------------------------


def test_the_true_answer_is_the_data_sets_own_long_one_or_the_short_one_with_its_evidence():
    short = question(references=("Ann Lee was born in Ely.", "She sang. She danced."))
    assert co.long_reference(short) == "Ely\nAnn Lee was born in Ely.\nShe sang. She danced."
    labels = co.with_true_answers(frame(ELY, asked=short), [short])
    assert labels["reference_claims"][0] == ["Ann Lee was born in Ely.", "She sang.", "She danced."]
    assert labels["keypoints"][0] == ["Ely"]
    claims = [{"text": "Ann Lee came from Ely.", "support": []}]
    full = question(long_answer="She came from Ely.", claims=claims, keypoints=["Ely", "1840"])
    assert co.long_reference(full) == "She came from Ely."
    labels = co.with_true_answers(frame(ELY, asked=full), [full])
    assert labels["reference_claims"][0] == ["Ann Lee came from Ely."]
    assert labels["keypoints"][0] == ["Ely", "1840"]


def test_a_row_by_hand(minilm):
    labels = [True, False], [True, False, False], [[1, 0], [0, 1]], [[1, 0], [1, 0], [0, 0]]
    verdicts = [["covered", "neither", "contradicted", "neither"]]
    ragas = [{"faithfulness": 0.5, "answer_relevance": 0.6, "context_relevance": 0.7}]
    cases = frame(("a1", "Ely, I think.", ("Ann Lee was born in Ely.", "It rains.")))
    cases = cases.assign(claim_labels=[ClaimLabels(*labels)], keypoint_verdicts=verdicts, ragas=ragas, grade=5)
    row = co.score_cases(cases, [question()]).iloc[0]
    by_hand = claim_metrics(*labels)
    for name in CLAIM_METRICS:
        assert row[f"RAGChecker {name.replace('_', ' ')}"] == pytest.approx(by_hand[name], nan_ok=True), name
    assert (row["RAGChecker precision"], row["RAGChecker recall"]) == (0.5, pytest.approx(1 / 3))
    assert row["IR score"] == 1.0
    shares = ["RAGEval completeness", "RAGEval hallucination", "RAGEval irrelevance"]
    assert row[shares].tolist() == [0.25, 0.25, 0.5]
    # One reference of six words, found whole, among the eight words of the context.
    assert (row["RAGEval recall"], row["RAGEval EIR"]) == (1.0, pytest.approx(6 / 8))
    assert row["exact match"] == 0
    assert row["token F1"] == pytest.approx(2 * (1 / 3) / (1 / 3 + 1))
    assert row[["RAGAS faithfulness", "RAGAS answer relevance", "RAGAS context relevance"]].tolist() == [0.5, 0.6, 0.7]
    assert row["IDF overlap"] == pytest.approx(0.5)  # "ely" of "ely", "think"; all as rare: one question alone
    assert (row["case"], row["system"], row["grade"]) == ("q1 a1", "a1", 5)


def test_what_could_not_be_labelled_is_nan_and_counted_and_moves_nothing_else(minilm):
    unread = ClaimLabels([None], [True], [[1]], [[1]])
    claims = [unread, ClaimLabels([True], [True], [[1]], [[1]]), ClaimLabels([True], [True], [[]], [[]])]
    cases = frame(("a", *ELY[1:]), ("b", *ELY[1:]), ("c", ELY[1], ()))
    table = co.score_cases(
        cases.assign(claim_labels=claims, keypoint_verdicts=[["covered"], [None], ["covered"]]), [question()]
    )
    undefined = table.isna().sum()
    assert table.loc[0, ["RAGChecker precision", "RAGChecker faithfulness"]].isna().all()
    assert table.loc[1, "RAGChecker precision"] == 1
    assert table["RAGEval completeness"].tolist()[::2] == [1, 1]
    assert math.isnan(table.loc[1, "RAGEval completeness"])
    # "Ann Lee was born in Ely" of "Ann Lee was born in Ely.": 23 of 24 characters.
    assert table["IR score"].tolist() == [pytest.approx(23 / 24), pytest.approx(23 / 24), 0]
    assert undefined["RAGChecker precision"] == 1
    assert undefined["RAGChecker faithfulness"] == 2  # without chunks undefined, too
    assert undefined["IR score"] == 0


def test_every_metric_is_a_column_with_its_paper_and_direction(minilm):
    assert len(NAMES) == len(set(NAMES)) == 27
    assert set(METRICS.index[~METRICS["higher"]]) == {
        "RAGChecker relevant noise sensitivity", "RAGChecker irrelevant noise sensitivity", "RAGChecker hallucination",
        "RAGChecker self knowledge", "RAGEval hallucination", "RAGEval irrelevance",
    }  # fmt: skip
    assert set(NAMES) <= set(co.score_cases(frame(ELY), [question()]))
    assert set(METRICS["paper"]) == {"thesis", "RAGChecker", "RAGAS", "RAGEval", "lexical", "ragbench"}
    reads = METRICS["reads"]
    assert (reads["RAGChecker recall"], reads["RAGChecker claim recall"]) == ("answer", "context")
    assert reads["RAGChecker faithfulness"] == "answer and context"


def test_embedded_labels_are_those_of_each_part_alone(kept_minilm):
    dataset = load_minihop()
    asked = {q.id: q for q in dataset.questions[:6]}
    by_title = {d.title: d for d in dataset.documents}
    graded = [a for a in load_graded_answers() if a.question_id in asked]
    assert len(graded) >= 6
    rows = []
    for a in graded:
        q = asked[a.question_id]
        chunks = [by_title[q.meta["supporting_facts"][0][0]].text, dataset.documents[50].text[:400]]
        rows.append(frame((a.id, a.text, chunks), asked=q).assign(grade=a.grade))
    table = co.score_cases(pd.concat(rows), list(asked.values()))
    checker, ragas = EmbeddedChecker(), EmbeddedRagas()
    for i in (0, len(graded) - 1):
        q, answer, row = asked[graded[i].question_id], graded[i].text, rows[i].iloc[0]
        claims = split_claims(answer)
        true = [claim["text"] for claim in q.meta.get("claims", ())] or [
            c for text in q.references for c in split_claims(text)
        ]
        alone = claim_metrics(
            checker.check(claims, co.long_reference(q)),
            checker.check(true, answer),
            checker.check_many(claims, row["chunks"]),
            checker.check_many(true, row["chunks"]),
        )
        for name, value in alone.items():
            assert table[f"RAGChecker {name.replace('_', ' ')}"][i] == pytest.approx(value, nan_ok=True), name
        assert table["RAGEval completeness"][i] == (checker.check([q.answer], answer) == ["Entailment"])
        scored = {
            "faithfulness": ragas.faithfulness([answer], [row["context"]]),
            "answer relevance": ragas.answer_relevance([q.text], [answer]),
            "context relevance": ragas.context_relevance([q.text], [row["context"]]),
        }
        for name, of_one in scored.items():
            assert table[f"RAGAS {name}"][i] == pytest.approx(of_one["score"][0], abs=1e-5), name
        odds = EmbeddedGrader().probabilities(q.text, answer, q.answer, facts_of(q))
        assert table["grader: fully right"][i] == odds[4]
        preference = EmbeddedJudge().score(answer, co.long_reference(q), q.text)
        assert table["judge: preference"][i] == pytest.approx(preference, abs=1e-5)


def test_the_verdict_of_a_keypoint_turns_with_the_answer(minilm):
    asked = question(keypoints=["The mill was built in 1840."])
    texts = ["The mill was built in 1840.", "The mill was built in 1850.", "It rains a lot."]
    table = co.score_cases(frame(*((str(i), text, ELY[2]) for i, text in enumerate(texts)), asked=asked), [asked])
    assert table["RAGEval completeness"].tolist() == [1, 0, 0]
    assert table["RAGEval hallucination"].tolist() == [0, 1, 0]


def test_empty_answers_and_contexts_are_undefined_not_wrong(minilm):
    bare = question("q2", references=())
    cases = pd.concat([frame(("a", None, ELY[2]), ("b", ELY[1], ())), frame(ELY, asked=bare)], ignore_index=True)
    table = co.score_cases(cases, [question(), bare])
    for row, name in enumerate(("RAGChecker precision", "RAGChecker faithfulness", "IR score")):
        assert math.isnan(table[name][row])
    assert math.isnan(table["RAGAS faithfulness"][0])
    assert math.isnan(table["RAGAS context relevance"][1])
    assert table["IR score"].tolist()[:2] == [pytest.approx(23 / 24), 0]
    assert table["token F1"].notna().all()
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


def test_a_model_labels_in_the_same_form_and_the_plan_names_its_steps(minilm):
    cases = frame(("a", *ELY[1:]), ("b", "She was born in York.", ELY[2]))
    with FakeOllama(reply=reply) as server:
        model = chat_model("ollama:llama3:8b", host=server.url, seed=0)
        planned = co.plan_cases(cases, [question()], model)
        assert server.calls == []
        table = co.score_cases(cases, [question()], model, progress=False, retries=0)
        assert server.calls
    assert table["RAGChecker precision"].tolist() == [1, 1]  # the made model says Entailment to everything
    assert table["RAGEval completeness"].tolist() == [1, 1]
    assert table["RAGAS faithfulness"].notna().all()
    assert table["RAGAS answer relevance"].between(-1, 1).all()
    assert table["grader: fully right"].isin([0, 1]).all()
    assert table["judge: preference"].notna().all()  # always the embedded judge's
    # The true answer has claims of its own: only the two answers are taken apart.
    assert (planned["claims"].calls, planned["grading"].calls, planned["keypoints"].calls) == (2, 2, 2)


# --- agreement --------------------------------------------------------------------------------------------------------


def made_table(n=40, seed=0, systems=("",)):
    """A table of random scores: token F1 follows the grade, hallucination goes against it, EIR is noise."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        for s, system in enumerate(systems):
            good = rng.random() < 0.4
            row = dict.fromkeys(NAMES, 0.5)
            row |= {"case": f"{i}-{system}", "question_id": f"q{i // 2 if systems == ('',) else i}", "system": system,
                    "grade": 5 if good else 1, "token F1": 0.3 * good + rng.random() + 0.1 * s,
                    "RAGChecker hallucination": -0.3 * good + rng.random() - 0.1 * s,
                    "RAGEval EIR": rng.random()}  # fmt: skip
            rows.append(row)
    frame = pd.DataFrame(rows)
    frame["grade"] = frame["grade"].astype("Int64")
    return frame


THREE = ["token F1", "RAGChecker hallucination", "RAGEval EIR"]


def test_correlations_are_scipys_on_metrics_turned_so_that_more_is_better():
    table = made_table()
    table.loc[3, "token F1"] = NAN
    found = co.metric_correlations(table, THREE, resamples=50).set_index(["a", "b", "method"])
    both = table.drop(index=3)
    row = found.loc[("token F1", "RAGChecker hallucination", "spearman")]
    expected = reference.spearmanr(both["token F1"], -both["RAGChecker hallucination"]).statistic
    assert row["estimate"] == pytest.approx(expected)
    assert (row["n"], row["missing"]) == (39, 1)
    assert row["low"] < row["estimate"] < row["high"]
    tau = reference.kendalltau(both["token F1"], both["RAGEval EIR"]).statistic
    assert found.loc[("token F1", "RAGEval EIR", "kendall")]["estimate"] == pytest.approx(tau)
    constant = co.metric_correlations(table, ["token F1", "BLEU"], resamples=0)
    assert constant["estimate"].isna().all()


def test_the_matrix_is_symmetric_with_the_method_asked_for():
    pairs = co.metric_correlations(made_table(), THREE, resamples=0)
    matrix = co.correlation_matrix(pairs, "kendall")
    assert list(matrix.index) == list(matrix.columns) == THREE
    assert np.allclose(matrix, matrix.T)
    assert (np.diag(matrix) == 1).all()
    part = pairs[pairs["method"] == "kendall"].set_index(["a", "b"])["estimate"]
    assert matrix.loc["RAGEval EIR", "token F1"] == part[("token F1", "RAGEval EIR")]
    with pytest.raises(ConfigError, match="unknown method 'pearson'"):
        co.correlation_matrix(pairs, "pearson")


def test_like_metrics_stand_side_by_side():
    names = list("abcdef")
    like = [[1.0 if x == y else 0.9 * ((x in "ace") == (y in "ace")) for y in names] for x in names]
    matrix = pd.DataFrame(like, index=names, columns=names)
    matrix.loc["a", "b"] = matrix.loc["b", "a"] = NAN
    order, tree = co.cluster_order(matrix)
    assert {frozenset(order[:3]), frozenset(order[3:])} == {frozenset("ace"), frozenset("bdf")}
    assert tree.shape == (5, 4)
    assert co.cluster_order(matrix.loc[["a"], ["a"]]) == (["a"], pytest.approx(np.empty((0, 4))))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_the_area_is_scikit_learns(pairs):
    values, good = [v for v, _ in pairs], [g for _, g in pairs]
    found = separation(values, good, resamples=0)[0]
    if len(set(good)) == 1:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(roc_auc_score(good, values))


def test_the_interval_of_the_area_is_that_of_resampled_questions():
    table = made_table(60)
    x, good, groups = table["token F1"].to_numpy(), (table["grade"] == 5).to_numpy(), table["question_id"].to_numpy()
    _, low, high = separation(x, good, groups, resamples=3000)
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
    found = co.grade_agreement(table, THREE[:2], resamples=20).set_index("metric")
    f1 = found.loc["token F1"]
    # Right: 0.6, 0.9; others: 0.4, 0.6. Of four pairs three are won and one is a tie.
    assert f1["auc"] == pytest.approx(3.5 / 4)
    assert (f1["within"], f1["pairs"], f1["n"], f1["missing"]) == (0.75, 2, 4, 2)
    other = found.loc["RAGChecker hallucination"]
    # Less is better: right 0, 1, 0; others 1, 0.5.
    assert other["auc"] == pytest.approx((2 + 0.5 + 2) / 6)
    assert other["within"] == 1.0
    assert other["tau"] == pytest.approx(reference.kendalltau([0, -1, -0.5, -1, 0], [1, 0, 0, 1, 1]).statistic)
    ordered = co.grade_agreement(table, THREE, resamples=0)["auc"].dropna()
    assert ordered.is_monotonic_decreasing
    with pytest.raises(DataError, match="no grades"):
        co.grade_agreement(table.assign(grade=pd.NA), THREE)


SYSTEMS = ("A@1", "B@1", "C@1", "D@1")


def test_rankings_are_compared_by_kendalls_tau_of_the_means():
    table = made_table(30, systems=SYSTEMS)
    found = co.ranking_correlations(table, [*THREE, "BLEU"], resamples=400).set_index(["a", "b"])
    means = table.groupby("system", sort=False)[THREE].mean()
    assert list(means.index) == list(SYSTEMS)
    assert means.loc["B@1", "token F1"] == pytest.approx(table[table["system"] == "B@1"]["token F1"].mean())
    turned = means * [1, -1, 1]
    for a, b in [(0, 1), (0, 2), (1, 2)]:
        tau = reference.kendalltau(turned[THREE[a]], turned[THREE[b]]).statistic
        row = found.loc[(THREE[a], THREE[b])]
        assert row["estimate"] == pytest.approx(tau)
        assert -1 <= row["low"] <= row["high"] <= 1
    assert math.isnan(found.loc[("token F1", "BLEU")]["estimate"])
    assert found["systems"].eq(4).all()


def test_the_interval_of_a_ranking_is_that_of_resampled_questions():
    table = made_table(20, systems=tuple(f"{letter}@1" for letter in "ABCDEFGH"))  # fine steps of tau
    table.loc[5, "token F1"] = NAN
    row = co.ranking_correlations(table, THREE[::2], resamples=2000).iloc[0]
    cubes = [table.pivot(index="question_id", columns="system", values=m).to_numpy() for m in THREE[::2]]
    rng = np.random.default_rng(3)
    draws = []
    for _ in range(1000):
        take = rng.integers(0, 20, 20)
        draws.append(reference.kendalltau(*(np.nanmean(c[take], axis=0) for c in cubes)).statistic)
    assert (row["low"], row["high"]) == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.1)
    mean = reference.kendalltau(*(np.nanmean(c, axis=0) for c in cubes)).statistic
    assert row["estimate"] == pytest.approx(mean)


def test_a_ranking_needs_every_system_on_every_question():
    table = made_table(5, systems=SYSTEMS)
    with pytest.raises(DataError, match="19 answers of 4 systems to 5 questions"):
        co.ranking_correlations(table.drop(index=2))
    with pytest.raises(DataError, match="2 systems"):
        co.ranking_correlations(table[table["system"].isin(SYSTEMS[:2])])


def test_disagreements_are_found_on_one_scale():
    table = made_table(4)
    table["token F1"] = [0.1, 0.2, 0.3, 0.4]
    table["RAGChecker hallucination"] = [0.9, 0.1, 0.2, 0.3]  # turned: best, from the second answer on
    table["RAGEval EIR"] = [NAN, NAN, NAN, 0.5]
    found = co.disagreements(table, THREE, top=2)
    shares = {"0-": (0.125, 0.125), "1-": (0.375, 0.875), "2-": (0.625, 0.625), "3-": (0.875, 0.375)}
    assert list(found.index) == ["1-", "3-"]
    for name, row in found.iterrows():
        assert (row["token F1"], row["RAGChecker hallucination"]) == shares[name]
        assert row["spread"] == pytest.approx(0.5)
    assert math.isnan(found.loc["1-", "RAGEval EIR"])
    assert found.loc["3-", "RAGEval EIR"] == 0.5  # the only one: as many below as above
    alone = co.disagreements(table, ["RAGEval EIR"])
    assert alone.empty
    with pytest.raises(ConfigError, match="unknown metric 'token F2'"):
        co.disagreements(table, ["token F2"])


# --- figures ----------------------------------------------------------------------------------------------------------


def test_the_heat_map_has_the_tree_beside_its_rows():
    names = THREE
    matrix = pd.DataFrame([[1, 0.1, 0.9], [0.1, 1, NAN], [0.9, NAN, 1]], index=names, columns=names)
    figure = plots.clustered_heat_map(matrix, METRICS["paper"].to_dict(), "made")
    branch, axis = figure.axes[:2]
    order, _ = co.cluster_order(matrix)
    assert [t.get_text() for t in axis.get_yticklabels()] == order
    assert np.array_equal(axis.images[0].get_array().filled(NAN), matrix.loc[order, order], equal_nan=True)
    assert branch.get_ylim() == (30, 0)
    # The two that go together are joined by the branch nearest to the rows.
    nearest = min(branch.collections[0].get_paths(), key=lambda p: p.vertices[:, 0].max())
    joined = {order[round((y - 5) / 10)] for y in nearest.vertices[:, 1]}
    assert joined == {"token F1", "RAGEval EIR"}
    assert sum(len(line.get_xdata()) == 2 for line in axis.lines) == 2  # the two undefined cells are crossed out


def test_agreement_and_rankings_are_drawn_from_their_tables():
    papers = METRICS["paper"].to_dict()
    agreement = co.grade_agreement(made_table(), THREE, resamples=20)
    named = agreement.assign(paper=agreement["metric"].map(papers))
    figure = plots.dots(named, "metric", "auc", "paper", xlabel="AUC", at=0.5)
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == agreement["metric"].tolist()
    assert {t.get_text() for t in figure.legends[0].get_texts()} == {"lexical", "RAGChecker", "RAGEval"}
    means = pd.DataFrame({"token F1": [0.3, 0.2, 0.1], "RAGChecker hallucination": [0.1, 0.3, 0.2]}, list("xyz"))
    means["ten"] = [10, 9, 8]
    measures = [*THREE[:2], "ten"]
    lines = plots.rank_lines(means.reset_index(names="system"), measures, "system", lower_is_better=THREE[1:2])
    assert [line.get_ydata().tolist() for line in lines.axes[0].lines] == [[1, 1, 1], [2, 3, 2], [3, 2, 3]]
    assert [t.get_text() for t in lines.axes[0].texts] == ["x", "y", "z"]
