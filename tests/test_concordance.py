"""Concordance: one set of answers by four papers' metrics; labels made once, scores from labels, agreement measured."""

from __future__ import annotations

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
from ragbench.concordance import METRICS, cut_chunks
from ragbench.concordance import agreement as ag
from ragbench.data import load_minihop
from ragbench.errors import ConfigError, DataError
from ragbench.experiment import Experiment
from ragbench.generation import contexts_from_hits
from ragbench.labelling.embedded_checker import EmbeddedChecker, split_claims
from ragbench.labelling.embedded_grader import EmbeddedGrader
from ragbench.labelling.embedded_judge import EmbeddedJudge
from ragbench.labelling.embedded_ragas import EmbeddedRagas
from ragbench.labelling.grades import GradedAnswer, facts_of, load_graded_answers
from ragbench.llm import chat_model
from ragbench.metrics.claims import METRICS as CLAIM_METRICS
from ragbench.metrics.claims import ClaimLabels, claim_metrics
from ragbench.records import Chunk, Dataset, Hit, Question

NAN = float("nan")
NAMES = [m.name for m in METRICS]


def hits(*texts):
    return [Hit(Chunk(f"c{i}", text, f"d{i}"), 1.0 / (i + 1), i + 1) for i, text in enumerate(texts)]


def hits_chunks(*texts):
    return [hit.chunk for hit in hits(*texts)]


def question(name="q1", references=("Ann Lee was born in Ely.",), **meta):
    return Question(name, "Where was Ann Lee born?", "Ely", references, "bridge", "easy", meta)


def case(name="a1", answer="Ann Lee was born in Ely.", chunks=("Ann Lee was born in Ely in 1840.",), **more):
    return co.Case(name, more.pop("question", question()), answer, chunks, **more)


# --- cases ------------------------------------------------------------------------------------------------------------


def test_the_true_answer_is_the_data_sets_own_long_one_or_the_short_one_with_its_evidence():
    short = case(question=question(references=("Ann Lee was born in Ely.", "She sang. She danced.")))
    assert short.reference == "Ely\nAnn Lee was born in Ely.\nShe sang. She danced."
    assert short.reference_claims == ("Ann Lee was born in Ely.", "She sang.", "She danced.")
    assert short.keypoints == ("Ely",)
    claims = [{"text": "Ann Lee came from Ely.", "support": []}]
    full = case(question=question(long_answer="She came from Ely.", claims=claims, keypoints=["Ely", "1840"]))
    assert full.reference == "She came from Ely."
    assert full.reference_claims == ("Ann Lee came from Ely.",)
    assert full.keypoints == ("Ely", "1840")


def test_chunks_are_cut_where_their_join_is_cut():
    found = ["one two three", "four five", "six seven eight"]
    words = lambda text: [i for i in range(1, len(text) + 1) if i == len(text) or text[i] == " "]  # noqa: E731
    assert cut_chunks(found, 4, words) == ("one two three", "four")
    assert cut_chunks(found, 3, words) == ("one two three",)
    assert cut_chunks(found, 99, words) == ("one two three", "four five", "six seven eight")
    assert cut_chunks([], 3, words) == ()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text("ab .", min_size=1, max_size=12).filter(str.strip), max_size=5), st.integers(1, 12))
def test_cut_chunks_hold_what_a_generator_is_shown(texts, n):
    (context,) = contexts_from_hits([hits(*texts)], [n])[0]
    pieces = cut_chunks(texts, n)
    assert "".join("".join(pieces).split()) == "".join(context.split())


def test_graded_answers_share_their_questions_context_and_keep_their_grades():
    contexts = [co.Case("", question(name), "", (text,)) for name, text in (("q1", "first"), ("q2", "second"))]
    answers = [GradedAnswer("a", "q2", "Ely.", 5, "dev"), GradedAnswer("b", "q1", "York.", 4, "dev"),
               GradedAnswer("c", "q2", "Bath.", 1, "dev"), GradedAnswer("d", "q9", "Bath.", 1, "dev")]  # fmt: skip
    made = co.graded_cases(contexts, answers)
    assert [(c.id, c.question.id, c.chunks, c.grade, c.system) for c in made] == [
        ("a", "q2", ("second",), 5, ""),
        ("b", "q1", ("first",), 4, ""),
        ("c", "q2", ("second",), 1, ""),
    ]


def test_every_system_answers_every_question_from_what_it_found(tmp_path):
    class Copier:
        name = "copier"

        def settings(self):
            return {}

        def answer(self, question, context):
            if context.startswith("four"):
                raise ValueError("no answer to this")
            return context

    class Found:
        def __init__(self, *texts):
            self.texts = texts

        def settings(self):
            return {"texts": self.texts}

        def search(self, queries, k, scope=None):
            places = [("first?", "second?").index(query) for query in queries]
            return [[Hit(next(c for c in chunks if c.text == self.texts[i]), 1.0, 1)] for i in places]

    chunks = hits_chunks("one two three", "four", "five six seven", "eight")
    asked = tuple(Question(f"q{i}", text, "x", ()) for i, text in enumerate(("first?", "second?"), 1))
    retriever = {"A": lambda c: Found("one two three", "four"), "B": lambda c: Found("five six seven", "eight")}
    grid = Experiment("c", data={"d": Dataset("d", asked, ())}, chunker={"c": lambda documents: chunks},
                      retriever=retriever, k=1, N=[2, 50], generator={"copier": Copier()}, folder=tmp_path)  # fmt: skip
    rows = grid.run(progress=False)
    made = co.system_cases(asked, rows, chunks)
    assert [c.question.id for c in made] == ["q1"] * 4 + ["q2"] * 4
    assert [c.system for c in made[:4]] == ["A@2", "A@50", "B@2", "B@50"]
    assert [c.answer for c in made[:4]] == ["one two", "one two three", "five six", "five six seven"]
    assert all(c.answer == c.context for c in made if c.context != "four")
    assert [c.answer for c in made if c.context == "four"] == ["", ""]
    assert made[1].id == "q1 A@50"
    with pytest.raises(ConfigError, match="N = 0"):
        co.system_cases(asked, rows.assign(N=0), chunks)


# --- scores -----------------------------------------------------------------------------------------------------------


def labels_of(claims, verdicts, **more):
    n = len(claims)
    ragas = {name: np.full(n, 0.5) for name in ("faithfulness", "answer_relevance", "context_relevance")}
    given_ = {"ragas": ragas, "right": np.full(n, 0.25), "preference": np.full(n, 0.75), "by": "hand"} | more
    return co.Labels(tuple(claims), tuple(verdicts), **given_)


def test_a_row_by_hand():
    one = ClaimLabels([True, False], [True, False, False], [[1, 0], [0, 1]], [[1, 0], [1, 0], [0, 0]])
    cases = [case(answer="Ely, I think.", chunks=("Ann Lee was born in Ely.", "It rains."), grade=5)]
    row = co.score_table(cases, labels_of([one], [["covered", "neither", "contradicted", "neither"]])).iloc[0]
    by_hand = claim_metrics([True, False], [True, False, False], [[1, 0], [0, 1]], [[1, 0], [1, 0], [0, 0]])
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
    assert row["RAGAS faithfulness"] == row["RAGAS answer relevance"] == row["RAGAS context relevance"] == 0.5
    assert (row["grader: fully right"], row["judge: preference"], row["grade"]) == (0.25, 0.75, 5)
    counts = ["response claims", "reference claims", "chunks", "keypoints"]
    assert row[counts].tolist() == [2, 3, 2, 4]


def test_what_could_not_be_labelled_is_nan_and_counted_and_moves_nothing_else():
    claims = [None, ClaimLabels([True], [True], [[1]], [[1]]), ClaimLabels([True], [True], [[]], [[]])]
    cases = [case("a"), case("b"), case("c", chunks=())]
    ragas = {name: np.array([0.5, NAN, 0.5]) for name in ("faithfulness", "answer_relevance", "context_relevance")}
    right = np.array([1, NAN, 0])
    labels = labels_of(claims, [["covered"], [None], ["covered"]], ragas=ragas, right=right)
    table = co.score_table(cases, labels)
    found = co.defined(table).set_index("metric")["undefined"]
    assert table.loc[0, ["RAGChecker precision", "RAGChecker faithfulness"]].isna().all()
    assert table.loc[1, "RAGChecker precision"] == 1
    assert table["RAGEval completeness"].tolist()[::2] == [1, 1]
    assert math.isnan(table.loc[1, "RAGEval completeness"])
    # "Ann Lee was born in Ely" of "Ann Lee was born in Ely.": 23 of 24 characters.
    assert table["IR score"].tolist() == [pytest.approx(23 / 24), pytest.approx(23 / 24), 0]
    assert found["RAGChecker precision"] == 1
    assert found["RAGChecker faithfulness"] == 2  # without chunks undefined, too
    assert (found["RAGAS faithfulness"], found["grader: fully right"], found["IR score"]) == (1, 1, 0)


def test_every_metric_is_a_column_with_its_paper_and_direction():
    assert len(NAMES) == len(set(NAMES)) == 27
    lower = {m.name for m in METRICS if not m.higher}
    assert lower == {
        "RAGChecker relevant noise sensitivity", "RAGChecker irrelevant noise sensitivity", "RAGChecker hallucination",
        "RAGChecker self knowledge", "RAGEval hallucination", "RAGEval irrelevance",
    }  # fmt: skip
    table = co.score_table([case()], labels_of([ClaimLabels([True], [True], [[1]], [[1]])], [["covered"]]))
    assert set(NAMES) <= set(table)
    assert {m.paper for m in METRICS} == {"thesis", "RAGChecker", "RAGAS", "RAGEval", "lexical", "ragbench"}


# --- labels -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def some():
    """Six MiniHop questions with their graded answers, each with two chunks of its own document."""
    dataset = load_minihop()
    asked = dataset.questions[:6]
    by_title = {d.title: d for d in dataset.documents}
    contexts = []
    for q in asked:
        first = by_title[q.meta["supporting_facts"][0][0]]
        contexts.append(co.Case(q.id, q, "", cut_chunks([first.text, dataset.documents[50].text], 300)))
    cases = co.graded_cases(contexts, load_graded_answers())
    return cases, co.label_cases(cases)


def test_embedded_labels_are_those_of_each_part_alone(some):
    cases, labels = some
    assert len(cases) >= 6
    checker, ragas = EmbeddedChecker(), EmbeddedRagas()
    for i in (0, len(cases) - 1):
        c = cases[i]
        own = split_claims(c.answer)
        assert list(labels.claims[i].response_in_reference) == checker.check(own, c.reference)
        assert list(labels.claims[i].reference_in_response) == checker.check(list(c.reference_claims), c.answer)
        assert [list(r) for r in labels.claims[i].response_in_chunks] == checker.check_many(own, c.chunks)
        assert [list(r) for r in labels.claims[i].reference_in_chunks] == checker.check_many(
            c.reference_claims, c.chunks
        )
        (label,) = checker.check([c.question.answer], c.answer)
        assert labels.verdicts[i] == (
            {"Entailment": "covered", "Contradiction": "contradicted", "Neutral": "neither"}[label],
        )
        alone = {
            "faithfulness": ragas.faithfulness([c.answer], [c.context]),
            "answer_relevance": ragas.answer_relevance([c.question.text], [c.answer]),
            "context_relevance": ragas.context_relevance([c.question.text], [c.context]),
        }
        for name, table in alone.items():
            assert labels.ragas[name][i] == pytest.approx(table["score"][0], abs=1e-5), name
        odds = EmbeddedGrader().probabilities(c.question.text, c.answer, c.question.answer, facts_of(c.question))
        assert labels.right[i] == odds[4]
        preference = EmbeddedJudge().score(c.answer, c.reference, c.question.text)
        assert labels.preference[i] == pytest.approx(preference, abs=1e-5)
    assert labels.by == "embedded"


def test_the_verdict_of_a_keypoint_turns_with_the_answer():
    asked = question(keypoints=["The mill was built in 1840."])
    texts = ["The mill was built in 1840.", "The mill was built in 1850.", "It rains a lot."]
    labels = co.label_cases([case(str(i), text, question=asked) for i, text in enumerate(texts)])
    assert labels.verdicts == (("covered",), ("contradicted",), ("neither",))


def test_empty_answers_and_contexts_are_undefined_not_wrong():
    cases = [case("a", answer=""), case("b", chunks=()), case("c", question=question(references=()))]
    table = co.score_table(cases, co.label_cases(cases))
    assert math.isnan(table["RAGChecker precision"][0])
    assert math.isnan(table["RAGAS faithfulness"][0])
    assert math.isnan(table["RAGChecker faithfulness"][1])
    assert math.isnan(table["RAGAS context relevance"][1])
    assert math.isnan(table["IR score"][2])
    assert table["IR score"].tolist()[:2] == [pytest.approx(23 / 24), 0]
    assert table["token F1"].notna().all()


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


def test_a_model_labels_in_the_same_form_and_the_plan_names_its_steps():
    cases = [case("a"), case("b", answer="She was born in York.")]
    with FakeOllama(reply=reply) as server:
        model = chat_model("ollama:llama3:8b", host=server.url, seed=0)
        labels = co.model_labels(model, cases, progress=False, retries=0)
        steps = co.model_steps(cases, claims_per_text=1)
        assert server.calls
    assert "llama3:8b" in labels.by
    table = co.score_table(cases, labels)
    assert table["RAGChecker precision"].tolist() == [1, 1]  # the made model says Entailment to everything
    assert table["RAGEval completeness"].tolist() == [1, 1]
    assert table["RAGAS faithfulness"].notna().all()
    assert table["RAGAS answer relevance"].between(-1, 1).all()
    assert table["grader: fully right"].isin([0, 1]).all()
    assert table["judge: preference"].isna().all()
    names = [s.name for s in steps]
    assert "claims" in names
    assert "keypoints" in names
    assert "statements" not in names
    assert next(s for s in steps if s.name == "grades").prompts
    assert len(next(s for s in steps if s.name == "keypoints").prompts) == 2


def test_an_answer_is_taken_apart_once_for_all_papers():
    cases = [case("a"), case("b", answer="She was born in York."), case("c"), case("d", answer="")]
    with FakeOllama(reply=reply) as server:
        labels = co.model_labels(
            chat_model("ollama:llama3:8b", host=server.url, seed=0), cases, progress=False, retries=0
        )
        apart = [call for call in server.calls if list(call.body["format"]["properties"]) == ["claims"]]
    assert len(apart) == 2  # different texts; the true answer has claims of its own
    assert "Ann Lee" in apart[0].prompt
    assert "York" in apart[1].prompt
    faithful = co.score_table(cases, labels)["RAGAS faithfulness"]
    assert faithful[:3].notna().all()
    assert np.isnan(faithful.iloc[3])


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
    found = ag.metric_correlations(table, THREE, resamples=50).set_index(["a", "b", "method"])
    both = table.drop(index=3)
    row = found.loc[("token F1", "RAGChecker hallucination", "spearman")]
    expected = reference.spearmanr(both["token F1"], -both["RAGChecker hallucination"]).statistic
    assert row["estimate"] == pytest.approx(expected)
    assert (row["n"], row["missing"]) == (39, 1)
    assert row["low"] < row["estimate"] < row["high"]
    tau = reference.kendalltau(both["token F1"], both["RAGEval EIR"]).statistic
    assert found.loc[("token F1", "RAGEval EIR", "kendall")]["estimate"] == pytest.approx(tau)
    constant = ag.metric_correlations(table, ["token F1", "BLEU"], resamples=0)
    assert constant["estimate"].isna().all()


def test_the_matrix_is_symmetric_with_the_method_asked_for():
    pairs = ag.metric_correlations(made_table(), THREE, resamples=0)
    matrix = ag.correlation_matrix(pairs, "kendall")
    assert list(matrix.index) == list(matrix.columns) == THREE
    assert np.allclose(matrix, matrix.T)
    assert (np.diag(matrix) == 1).all()
    part = pairs[pairs["method"] == "kendall"].set_index(["a", "b"])["estimate"]
    assert matrix.loc["RAGEval EIR", "token F1"] == part[("token F1", "RAGEval EIR")]
    with pytest.raises(ConfigError, match="unknown method 'pearson'"):
        ag.correlation_matrix(pairs, "pearson")


def test_like_metrics_stand_side_by_side():
    names = list("abcdef")
    like = [[1.0 if x == y else 0.9 * ((x in "ace") == (y in "ace")) for y in names] for x in names]
    matrix = pd.DataFrame(like, index=names, columns=names)
    matrix.loc["a", "b"] = matrix.loc["b", "a"] = NAN
    order, tree = ag.cluster_order(matrix)
    assert {frozenset(order[:3]), frozenset(order[3:])} == {frozenset("ace"), frozenset("bdf")}
    assert tree.shape == (5, 4)
    assert ag.cluster_order(matrix.loc[["a"], ["a"]]) == (["a"], pytest.approx(np.empty((0, 4))))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_the_area_is_scikit_learns(pairs):
    values, good = [v for v, _ in pairs], [g for _, g in pairs]
    found = ag.separation(values, good, resamples=0)[0]
    if len(set(good)) == 1:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(roc_auc_score(good, values))


def test_the_interval_of_the_area_is_that_of_resampled_questions():
    table = made_table(60)
    x, good, groups = table["token F1"].to_numpy(), (table["grade"] == 5).to_numpy(), table["question_id"].to_numpy()
    _, low, high = ag.separation(x, good, groups, resamples=3000)
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
    found = ag.grade_agreement(table, THREE[:2], resamples=20).set_index("metric")
    f1 = found.loc["token F1"]
    # Right: 0.6, 0.9; others: 0.4, 0.6. Of four pairs three are won and one is a tie.
    assert f1["auc"] == pytest.approx(3.5 / 4)
    assert (f1["within"], f1["pairs"], f1["n"], f1["missing"]) == (0.75, 2, 4, 2)
    other = found.loc["RAGChecker hallucination"]
    # Less is better: right 0, 1, 0; others 1, 0.5.
    assert other["auc"] == pytest.approx((2 + 0.5 + 2) / 6)
    assert other["within"] == 1.0
    assert other["tau"] == pytest.approx(reference.kendalltau([0, -1, -0.5, -1, 0], [1, 0, 0, 1, 1]).statistic)
    ordered = ag.grade_agreement(table, THREE, resamples=0)["auc"].dropna()
    assert ordered.is_monotonic_decreasing
    with pytest.raises(DataError, match="no grades"):
        ag.grade_agreement(table.assign(grade=pd.NA), THREE)


SYSTEMS = ("A@1", "B@1", "C@1", "D@1")


def test_rankings_are_compared_by_kendalls_tau_of_the_means():
    table = made_table(30, systems=SYSTEMS)
    found = ag.ranking_correlations(table, [*THREE, "BLEU"], resamples=400).set_index(["a", "b"])
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
    row = ag.ranking_correlations(table, THREE[::2], resamples=2000).iloc[0]
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
        ag.ranking_correlations(table.drop(index=2))
    with pytest.raises(DataError, match="2 systems"):
        ag.ranking_correlations(table[table["system"].isin(SYSTEMS[:2])])


def test_disagreements_are_found_on_one_scale():
    table = made_table(4)
    table["token F1"] = [0.1, 0.2, 0.3, 0.4]
    table["RAGChecker hallucination"] = [0.9, 0.1, 0.2, 0.3]  # turned: best, from the second answer on
    table["RAGEval EIR"] = [NAN, NAN, NAN, 0.5]
    found = ag.disagreements(table, THREE, top=2)
    shares = {"0-": (0.125, 0.125), "1-": (0.375, 0.875), "2-": (0.625, 0.625), "3-": (0.875, 0.375)}
    assert list(found.index) == ["1-", "3-"]
    for name, row in found.iterrows():
        assert (row["token F1"], row["RAGChecker hallucination"]) == shares[name]
        assert row["spread"] == pytest.approx(0.5)
    assert math.isnan(found.loc["1-", "RAGEval EIR"])
    assert found.loc["3-", "RAGEval EIR"] == 0.5  # the only one: as many below as above
    alone = ag.disagreements(table, ["RAGEval EIR"])
    assert alone.empty
    with pytest.raises(ConfigError, match="unknown metric 'token F2'"):
        ag.disagreements(table, ["token F2"])


# --- figures ----------------------------------------------------------------------------------------------------------


def test_the_heat_map_has_the_tree_beside_its_rows():
    names = THREE
    matrix = pd.DataFrame([[1, 0.1, 0.9], [0.1, 1, NAN], [0.9, NAN, 1]], index=names, columns=names)
    figure = plots.clustered_heat_map(matrix, {m.name: m.paper for m in METRICS}, "made")
    branch, axis = figure.axes[:2]
    order, _ = ag.cluster_order(matrix)
    assert [t.get_text() for t in axis.get_yticklabels()] == order
    assert np.array_equal(axis.images[0].get_array().filled(NAN), matrix.loc[order, order], equal_nan=True)
    assert branch.get_ylim() == (30, 0)
    # The two that go together are joined by the branch nearest to the rows.
    nearest = min(branch.collections[0].get_paths(), key=lambda p: p.vertices[:, 0].max())
    joined = {order[round((y - 5) / 10)] for y in nearest.vertices[:, 1]}
    assert joined == {"token F1", "RAGEval EIR"}
    assert sum(len(line.get_xdata()) == 2 for line in axis.lines) == 2  # the two undefined cells are crossed out


def test_agreement_and_rankings_are_drawn_from_their_tables():
    papers = {m.name: m.paper for m in METRICS}
    agreement = ag.grade_agreement(made_table(), THREE, resamples=20)
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


# --- bad input --------------------------------------------------------------------------------------------------------


def test_bad_cases_are_named():
    with pytest.raises(DataError, match="no cases"):
        co.label_cases([])
    with pytest.raises(DataError, match="'a1' belongs to two cases"):
        co.label_cases([case(), case()])
    with pytest.raises(DataError, match="0 labels for 1 cases"):
        co.score_table([case()], labels_of([], []))
