"""The pairwise protocol of RAGAS's Table 1: a made scorer, a model on the loopback, the recorded
runs.
"""

import json
import math
import re
from itertools import product
from types import SimpleNamespace

import pandas as pd
import pytest
from fake_ollama import FakeOllama
from label_replies import verdicts
from notebook_parts import parts
from scipy.stats import binom

from ragas_runs import RagasAsRun
from ragbench import papers
from ragbench.data.wikieval import DIMENSIONS, Pair
from ragbench.errors import ConfigError, DataError
from ragbench.paths import packaged_data, project_root

BOOK = parts("30")
QUIET = {"progress": False, "retries": 0}
NAN = math.nan


def frame(better, worse):
    return pd.DataFrame({"better": better, "worse": worse})


def agreement(pairs, seed=0):
    """The numbers of one table of pairs."""
    return BOOK.agreement_table({("made", "faithfulness"): pairs}, seed).iloc[0]


def test_ties_count_half_in_expectation_and_unscored_pairs_are_counted():
    row = agreement(frame([0.9, 0.5, 0.1, NAN, 0.7], [0.1, 0.5, 0.2, 0.3, 0.2]))
    names = ["agreement", "wins", "ties", "losses", "n", "unscored"]
    assert row[names].tolist() == [(2 + 0.5) / 4, 2, 1, 1, 4, 1]
    assert row["at_random"] in (0.5, 0.75)


def test_float_noise_is_a_tie():
    assert agreement(frame([1.0, 0.5], [0.9999999, 0.50001]))["ties"] == 1


def test_random_tie_breaks_average_to_the_expectation():
    ties = frame([1.0] * 9 + [2.0], [1.0] * 10)
    draws = [agreement(ties, seed)["at_random"] for seed in range(400)]
    assert sum(draws) / 400 == pytest.approx(agreement(ties)["agreement"], abs=0.03)
    assert len(set(draws)) > 5
    assert agreement(ties, 3).equals(agreement(ties, 3))


def test_the_interval_is_the_exact_binomial_one():
    row = agreement(frame([1.0] * 22 + [0.0] * 3, [0.5] * 25))
    assert binom.sf(21, 25, row["low"]) == pytest.approx(0.025)
    assert binom.cdf(22, 25, row["high"]) == pytest.approx(0.025)


def test_a_table_without_the_two_columns_or_without_numbers_is_refused():
    with pytest.raises(ConfigError, match="'better'"):
        agreement(pd.DataFrame({"bettr": [1.0], "worse": [0.0]}))
    with pytest.raises(DataError, match="worse that are not numbers"):
        agreement(frame([1.0], ["much"]))


def model_reply(body):
    """Statements are sentences, supported when the context has them; a question is asked back by
    the answer's name.
    """
    prompt = body["messages"][0]["content"]
    (field, *_) = body["format"]["properties"]
    answer = prompt.split("Answer:\n")[-1].split("\n\nReply")[0]
    if field == "labels":
        return json.dumps(verdicts(prompt))
    made = {
        "claims": [s.strip() + "." for s in answer.split(".") if s.strip()],
        "questions": ["Who built the tower?" if "Ann" in answer else "What is a fern?"] * 3,
        "sentences": ["Ann built it."],
        "score": 2 if "Rob" in prompt else 9,
        "better": 1,
    }
    return json.dumps({field: made[field]})


WHO = "Who built the tower?"
TALL = "Ann built it. It is tall."
F = [Pair("w", WHO, "Ann built it.", "Rob built it. Ann built it.", TALL)]
C = [Pair("w", WHO, TALL, f"{TALL} Moss grows. Rain falls.")]
ALL = {"faithfulness": F, "answer_relevance": F, "context_relevance": C}


def test_a_ranking_that_always_takes_the_first_place_is_a_tie_with_full_position_bias():
    with FakeOllama(reply=model_reply) as server:
        pairs = BOOK.baseline_scores(server.model(), F, "faithfulness", **QUIET)
        prompts = [call.prompt for call in server.calls]
    assert [(TALL in prompt, WHO in prompt) for prompt in prompts] == [(True, False)] * 4
    assert pairs.to_numpy().tolist() == [["faithfulness", F[0].id, 9, 2, 1, 1]]
    assert [F[0].worse in prompt for prompt in prompts] == [False, True, True, True]
    tables = BOOK.baseline_tables(pairs)
    ranked = tables[BOOK.RANKING, "faithfulness"]
    assert ranked[["better", "worse"]].to_numpy().tolist() == [[0.5, 0.5]]
    assert agreement(ranked)["ties"] == 1


def test_a_ranking_that_sees_the_better_text_in_both_orders_wins_without_bias():
    def choose(body):
        if "score" in body["format"]["properties"]:
            return json.dumps({"score": 5})
        first = re.search("Ann did|Ferns grow", body["messages"][0]["content"])
        return json.dumps({"better": 1 if first[0] == "Ann did" else 2})

    pairs = [Pair("w", "Who built it?", "Ann did.", "Ferns grow.")]
    with FakeOllama(reply=choose) as server:
        scored = BOOK.baseline_scores(server.model(), pairs, "answer_relevance", **QUIET)
    assert scored.iloc[0, 2:].tolist() == [5, 5, 1, 2]
    tables = BOOK.baseline_tables(scored)
    ranked = tables[BOOK.RANKING, "answer_relevance"]
    assert ranked[["better", "worse"]].to_numpy().tolist() == [[1.0, 0.0]]
    assert agreement(ranked)["wins"] == 1
    assert agreement(tables[BOOK.SCORE, "answer_relevance"])["ties"] == 1


def test_a_score_that_is_no_whole_number_from_0_to_10_is_unread():
    replies = {"a": 0, "b": 10, "c": 11, "d": -1, "e": 7.5, "f": True, "g": "8"}

    def reply(body):
        return json.dumps(
            {"score": replies[body["messages"][0]["content"].split("Answer:\n")[1][0]]}
        )

    texts = list(replies)
    with FakeOllama(reply=reply) as server:
        scores = BOOK.gpt_scores(
            server.model(), "answer_relevance", ["Q"] * 7, texts, None, **QUIET
        )
    assert scores[:2] == [0, 10]
    assert pd.isna(scores[2:]).all()


def test_the_shipped_scores_and_choices_give_the_cells_of_the_ledger():
    shipped = pd.read_csv(packaged_data("recordings", "ragas_baselines.csv"))
    names = ["dimension", "id", "better", "worse", "better_first", "better_second"]
    assert shipped.columns.tolist() == names
    assert shipped.groupby("dimension").size().to_dict() == dict.fromkeys(DIMENSIONS, 50)
    assert shipped[["better", "worse"]].stack().between(0, 10).all()
    assert set(shipped[["better_first", "better_second"]].stack().dropna()) <= {1, 2}
    ledger = pd.read_csv(project_root() / "figures" / "ledger.csv")
    cells = ledger[ledger["paper"] == "ragas"].set_index(["row", "column"])
    for dimension, own in shipped.groupby("dimension"):
        ranked = own.dropna(subset=["better_first", "better_second"])
        right = ranked["better_first"].eq(1) + ranked["better_second"].eq(2).astype(int)
        for name, share in {
            "GPT Score": wins_of(own).mean(),
            "GPT Ranking": right.mean() / 2,
        }.items():
            row = f"{name}: Qwen (construction)"
            cell = cells.loc[row, dimension.replace("_", " ")]
            assert cell["ours"] == pytest.approx(share)
            assert cell["n"] + cell["unscored"] == 50


def wins_of(pairs):
    """Of the pairs with both scores: 1 where the better one has more, a half for a tie."""
    scored = pairs[["better", "worse"]].dropna().round(6)
    return scored["better"].gt(scored["worse"]) + scored["better"].eq(scored["worse"]) / 2


def test_the_shipped_labels_give_the_agreement_that_the_notebook_shows():
    texts = pd.read_json(packaged_data("recordings", "ragas_metrics.jsonl.gz"), lines=True)
    assert texts.groupby(["dimension", "side"]).size().to_dict() == dict.fromkeys(
        product(DIMENSIONS, SIDES), 50
    )
    assert set(texts["verdicts"].dropna().explode()) == {"Yes", "No"}
    assert texts["cosines"].dropna().map(len).eq(3).all()
    wins = {"faithfulness": (40, 50), "answer_relevance": (22, 50), "context_relevance": (38.5, 49)}
    texts["score"] = list(map(BOOK.text_score, texts.to_dict("records")))
    for dimension, own in texts.groupby("dimension"):
        won = wins_of(BOOK.as_pairs(own, "score"))
        assert (won.sum(), len(won)) == wins[dimension]


SIDES = ("better", "worse")


def run(labels, replies, score, parse_status, truncated, **more):
    return pd.DataFrame({"id": "a", "question": "q?", "better": [True, False]} | more).assign(
        labels=labels, replies=replies, score=score, parse_status=parse_status, truncated=truncated
    )


RUN = run(
    [[1, 1], [0, 1]],
    [["Verdict: 1"] * 2, ["Hm.", "Verdict: 1"]],
    [1.0, 0.25],
    ["ok", "failed"],
    [False, True],
)


def test_rescoring_shows_rows_that_do_not_come_out():
    assert list(BOOK.rescore("ff", RUN, None)) == [1.0, 0.5]  # the second was recorded as 0.25

    def recorded(*options, **named):
        return BOOK.recorded_pairs(RUN, *options, **named).fillna(-1).to_numpy().tolist()

    assert recorded() == [["a", 1.0, 0.25]]
    assert recorded([0.5, 0.5]) == [["a", 0.5, 0.5]]
    # The worse text's replies were not parsed: its recorded score stands for nothing.
    assert recorded(whole=True) == [["a", 1.0, -1]]


def test_readability_counts_labels_rows_flags_and_cut_replies():
    replies = [['["A sentence.",'], ['["Insufficient Information"]']]
    context = run([[], []], replies, 0.0, ["partial_fix_list", ""], False)
    assert [*BOOK.readability("ff", RUN).values()] == ["faithfulness", 4, 1, 2, 1, 1, 1]
    assert [*BOOK.readability("cr", context).values()] == ["context_relevance", 2, 1, 2, 1, 1, 0]


@pytest.mark.parametrize(
    ("dimension", "labels", "score"),
    [
        ("faithfulness", {"verdicts": ["Yes", "No", "Yes", "Yes"]}, 0.75),
        ("answer_relevance", {"cosines": [0.5, 1.0]}, 0.75),
        ("context_relevance", {"extracted": 1.0, "sentences": 4.0}, 0.25),
        ("faithfulness", {"verdicts": ["Yes", None]}, NAN),
        ("faithfulness", {"verdicts": []}, NAN),
        ("faithfulness", {}, NAN),
        ("answer_relevance", {}, NAN),
        ("context_relevance", {"sentences": NAN}, NAN),
    ],
)
def test_scores_come_from_verdicts_cosines_and_counts(dimension, labels, score):
    text = {"dimension": dimension} | dict.fromkeys(("verdicts", "cosines", "extracted"), NAN)
    assert BOOK.text_score(text | labels) == pytest.approx(score, nan_ok=True)


def test_a_pair_is_won_tied_lost_or_unscored():
    table = frame([0.9, 0.5, 0.1, NAN], [0.1, 0.5000001, 0.2, 0.3]).assign(id=list("abcd"))
    assert BOOK.wins(table).fillna(-1).to_dict() == {"a": 1.0, "b": 0.5, "c": 0.0, "d": -1.0}


def test_shared_words_ask_each_dimensions_own_question():
    idf = {"tower": 1.0, "ann": 3.0, "built": 2.0, "moss": 2.0}
    pair = Pair("a", "built tower", "", "", "Ann built moss")
    for name, share in zip(DIMENSIONS, (3 / 4, 1 / 3, 1 / 4), strict=True):
        assert BOOK.shared_words(pair, "Ann tower", name, idf) == share


def test_length_is_tried_in_the_direction_that_helps():
    assert BOOK.BETTER == {"faithfulness": -1, "answer_relevance": 1, "context_relevance": -1}


@pytest.mark.parametrize(
    ("p", "difference", "said"),
    [
        (0.04, 0.1, "above length (0.68)"),
        (0.04, -0.1, "below length (0.68)"),
        (0.06, 0.3, "not shown to differ from length (0.68)"),
        (NAN, 0.3, "not shown to differ from length (0.68)"),
    ],
)
def test_a_conclusion_needs_a_small_corrected_p(p, difference, said):
    test = SimpleNamespace(against="length", other=0.68, p_holm=p, difference=difference)
    assert BOOK.conclusion(test) == said


def test_texts_are_labelled_without_keeping_them(minilm):
    with FakeOllama(reply=model_reply) as server:
        table = BOOK.label_texts(server.model(), ALL, embedder=minilm, **QUIET)
    better, worse = (table[table["side"] == side] for side in SIDES)
    assert better["verdicts"].dropna().tolist() == [["Yes"]]
    assert worse["verdicts"].dropna().tolist() == [["No", "Yes"]]
    assert worse["cosines"].dropna().map(len).tolist() == [3]
    assert worse[["extracted", "sentences", "altered"]].dropna().to_numpy().tolist() == [[1, 4, 0]]
    assert better["words"].tolist() == [3, 3, 6]
    assert not re.search("Ann|built|tall", table.to_csv())


def test_what_could_not_be_read_is_none():
    with FakeOllama(reply=lambda body: "no JSON") as server:
        table = BOOK.label_texts(server.model(), ALL, **QUIET)
    assert table[["verdicts", "cosines", "extracted"]].isna().all(axis=None)


def test_scores_of_texts_are_laid_side_by_side():
    texts = pd.DataFrame(
        {"id": list("abba"), "side": ["better"] * 2 + ["worse"] * 2, "score": [1, 2, 3, 4]}
    )
    assert BOOK.as_pairs(texts, "score").to_numpy().tolist() == [["a", 1, 4], ["b", 2, 3]]


def test_rows_become_cells_of_the_published_table(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path))
    pairs = frame([1.0, 0.5, NAN], [0.0, 0.5, 1.0])
    table = BOOK.agreement_table({("made", "answer_relevance"): pairs})
    names = ["source", "dimension", "agreement", "n", "unscored"]
    assert table[names].to_numpy().tolist() == [["made", "answer relevance", 0.75, 2, 1]]
    cells = table.assign(source="RAGAS (construction)").rename(columns=BOOK.AS_CELLS)
    papers.record("ragas", "Table 1", cells.assign(note=BOOK.NOTE), by="a test")
    row = papers.ledger("ragas", "Table 1").query("ours_by == 'a test'").iloc[0]
    # Agreement with the construction never stands in the paper's row, which is agreement with
    # people.
    assert row["row"] == "RAGAS (construction)"
    assert math.isnan(row["published"])
    assert (row["ours"], row["n"], row["unscored"]) == (0.75, 2, 1)
    assert "not with people" in row["note"]
    none = BOOK.agreement_table({})
    assert none.empty
    assert {"source", "agreement"} <= {*none}  # a page without the data picks columns of it


def test_a_run_without_any_of_the_first_questions_has_no_pairs():
    none = pd.DataFrame({"id": [], "side": [], "score": []})
    assert BOOK.as_pairs(none, "score").columns.tolist() == ["id", "better", "worse"]


def as_run(reply, n=2):
    """A server, and RAGAS as it was run against it."""
    server = FakeOllama(reply=reply)
    return server, lambda: RagasAsRun({"use": "ollama:llama3:8b", "host": server.url}, n=n, **QUIET)


def test_all_statements_of_an_answer_are_judged_by_one_reply_or_by_none():
    def judged(body):
        count = body["format"]["properties"]["verdicts"]["minItems"]
        told_of = body["messages"][0]["content"].split("Context:\n")[1]
        told = "Yes" if "dam" in told_of else "No"
        verdicts = ["No"] * (count - 1) + [told]
        why = "The context says that Brisk reads." if "a loom" in told_of else "So."
        short = {"explanations": [why] * count, "verdicts": verdicts[: 4 if count < 5 else 2]}
        return json.dumps(short)

    server, ragas = as_run(judged)
    with server:
        statements = [("a", "b"), None, (), ("c",), tuple("defgh"), ("i",)]
        made = ragas().verdicts(statements, ["a dam", "x", "x", "a mill", "a dam", "a loom"])
        asked = [call.prompt for call in server.calls]
    # five statements got two verdicts; the last reason has a name of the demonstration
    assert made == [("No", "Yes"), None, (), ("No",), (None,) * 5, (None,)]
    assert "There are 2 statements:\n1. a\n2. b\n" in asked[0]


def test_an_answer_of_which_one_question_is_unread_has_no_questions():
    def asked(body):
        is_unread = body["options"]["seed"] == 1 and "mill" in body["messages"][0]["content"]
        return "?" if is_unread else json.dumps({"questions": [f"Q{body['options']['seed']}?"]})

    server, ragas = as_run(asked)
    with server:
        made = ragas().questions(["a dam", "a mill", ""])
        temperatures = {call.body["options"]["temperature"] for call in server.calls}
    assert made == [("Q0?", "Q1?"), None, ()]
    assert temperatures == {0.2}
