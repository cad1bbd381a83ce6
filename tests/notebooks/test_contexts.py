"""Which number of a retriever tells the context that gives the right answer (notebook 16): the numbers by hand, the
fit, and the notebook's table again by a slow version.
"""

import itertools

import numpy as np
import pandas as pd
import pytest

import contexts
import recorded
from ragbench.paths import packaged_data, project_root

CELL = ["question_id", "retriever", "N"]
MILL = "The Grey Mill was built in 1841."
INN = "Tarn Inn stood in 1790."


def row(**changed):
    """One context: the first chunk delivered whole, the second cut, the third not delivered."""
    values = {
        "question_id": "q",
        "retriever": "BM25",
        "N": 20,
        "question": "Was the mill older?",
        "reference": "Tarn Inn",
        "references": [MILL, INN],
        "retrieved": ["Lake", "Mill", "Inn"],
        "relevant": {"Mill": 1, "Inn": 1},
        "chunks": ["The lake is older.", f"{MILL} Tarn"],
        "ir_score": 0.6,
        "context_tokens": 12,
    }
    values |= changed
    return values | {"context": " ".join(values["chunks"])}


def test_numbers_are_those_of_the_delivered_chunks():
    (numbers,) = contexts.context_rows(pd.DataFrame([row()])).to_dict("records")
    assert numbers["recall of documents"] == 0.5  # the inn's document was not delivered
    assert numbers["recall of sentences"] == 0.5
    assert numbers["Success@10"] == 1
    assert numbers["AP"] == 0.25  # found at rank 2, of two
    assert numbers["nDCG@10"] == pytest.approx(1 / np.log2(3) / (1 + 1 / np.log2(3)), abs=1e-6)
    assert numbers["EIR"] == pytest.approx(7 / 12, abs=1e-6)
    assert numbers["distraction"] == 0.5  # "the" and "older" of four words stand in the lake's
    assert numbers["answer in the text"] == 0
    assert 0 < numbers["claim overlap"] < 1
    assert (numbers["IR score"], numbers["tokens"], numbers["same"]) == (0.6, 12, 0)


def test_ranks_follow_the_delivered_order_and_a_document_counts_once():
    rows = [
        row(chunks=["a", "b", "c"], retrieved=["Mill", "Mill", "Inn"]),
        row(chunks=["a", "b"], retrieved=["Lake", "Lake"], question_id="p"),
    ]
    numbers = contexts.context_rows(pd.DataFrame(rows))
    assert numbers["AP"].tolist() == pytest.approx([(1 + 2 / 3) / 2, 0], abs=1e-6)
    assert numbers["recall of documents"].tolist() == [1, 0]
    assert numbers["Success@10"].tolist() == [1, 0]


def test_without_a_chunk_beside_the_evidence_nothing_distracts():
    assert contexts.distraction("mill?", [MILL], [MILL]) == 0
    assert contexts.distraction("old mill?", [INN], ["a mill", "the old mill"]) == 0.75


def test_equal_contexts_count_once_and_one_without_a_label_not_at_all():
    rows = [row(), row(N=30), row(N=40, chunks=["other"]), row(N=50, chunks=["third"])]
    found = contexts.context_rows(pd.DataFrame(rows)).assign(right=[1, 1, 0, np.nan])
    assert found["same"].tolist() == [0, 0, 1, 2]
    assert contexts.distinct(found)["N"].tolist() == [20, 40]


def made(right, cluster=None, **numbers):
    """Contexts of questions "a", "a", "b", ...; all numbers that are not given are 0."""
    questions = [name for name, marks in right.items() for _ in marks]
    table = pd.DataFrame(
        {"question_id": questions, "right": list(itertools.chain(*right.values()))}
    )
    table = table.assign(**dict.fromkeys(contexts.MEASURED, 0.0), cluster=cluster or questions)
    return table.assign(**numbers)


def test_auc_by_hand():
    part = made({"a": [1, 0, 0], "b": [1, 1, 0], "c": [1, 1]}, tokens=[5, 5, 1, 2, 9, 4, 0, 9.0])
    shares = contexts.within_questions(part, "tokens")
    assert shares.to_dict() == {"a": 0.75, "b": 0.5}  # c tells nothing
    assert contexts.auc(part, "tokens").estimate == 0.625
    assert contexts.minus(part, "tokens").estimate == 0.125
    assert contexts.minus(part, "tokens", "AP").estimate == 0.125
    assert contexts.auc(part, "tokens").clusters == 2


def test_every_order_of_a_questions_numbers_has_an_auc_of_one_half_on_average():
    part = made({"a": [1, 0, 0, 1]})
    reached = [
        contexts.within_questions(part.assign(tokens=list(order)), "tokens").mean()
        for order in itertools.permutations([1.0, 2.0, 2.0, 7.0])
    ]
    assert np.mean(reached) == pytest.approx(0.5)
    assert max(reached) > 0.8


def test_a_shuffle_stays_within_the_question():
    part = made({"a": [1, 0], "b": [1, 0]}, tokens=[1.0, 2, 3, 3])
    reached = contexts.shuffled(part, "tokens", 50)
    assert set(reached) == {0.25, 0.75}  # b is a tie in every shuffle


def test_the_fit_finds_penalty_direction_and_order():
    train = made(
        {"a": [1, 0], "b": [1, 0], "c": [1, 0]},
        **{
            "recall of sentences": [0.5, 0.6, 0.5, 0.5, 0.5, 0.7],
            "distraction": [0.0, 0.5, 0.0, 0.2, 0.0, 0.5],
            "tokens": [1.0, 2, 1, 2, 1, 2],
            "AP": [1.0, 0, 1, 0, 0, 1],
        },
    )
    fitted = contexts.Fitted(train)
    assert fitted.penalty == 0.5  # at .4 the third question is a loss
    assert fitted.direction == -1
    assert fitted.order[:3] == [contexts.GAIN, "tokens", "AP"]
    ready = fitted.apply(train)
    assert contexts.within_questions(ready, contexts.GAIN).mean() == 1
    assert contexts.within_questions(ready, contexts.ALL).mean() == 1
    (zero,) = {
        weight
        for weight, name in zip(fitted.weights, contexts.MEASURED, strict=True)
        if name == "EIR"
    }
    assert zero == pytest.approx(0, abs=1e-6)


def test_the_weights_are_those_of_least_penalised_loss():
    rng = np.random.default_rng(0)
    train = made({name: rng.permutation([1, 1, 0, 0]) for name in "abcdefgh"})
    train = train.assign(**{name: rng.normal(size=32) for name in ("AP", "tokens")})
    fitted = contexts.Fitted(train).weights
    differences = [
        contexts.differences(*part)
        for part in contexts.by_question(train, contexts.MEASURED).values()
    ]
    scale = np.concatenate(differences).std(axis=0)

    def loss(weights):
        total = 0.0
        for of_question in differences:
            total += np.mean(
                [np.log1p(np.exp(-difference @ weights)) for difference in of_question]
            )
        return total + contexts.RIDGE / 2 * ((weights * scale) ** 2).sum()

    for place in (contexts.MEASURED.index("AP"), contexts.MEASURED.index("tokens")):
        for step in (-0.05, 0.05):
            other = fitted.copy()
            other[place] += step
            assert loss(other) > loss(fitted)


# -- the shipped numbers, and the notebook's


@pytest.fixture(scope="module")
def hotpotqa():
    numbers = pd.read_csv(packaged_data("hotpotqa", "contexts.csv.gz"), dtype={"question_id": str})
    answers = [recorded.thesis_rows(table) for table in ("Table 3.2", "Table 3.3")]
    answers = pd.concat(answers).drop_duplicates(CELL).query("N > 0")
    return numbers.merge(answers[[*CELL, "contained", "ir_score", "cluster"]], on=CELL, how="outer")


def test_each_recorded_answer_has_the_numbers_of_its_text(hotpotqa):
    assert len(hotpotqa) == 200 * 14
    assert not hotpotqa[["same", *contexts.MEASURED]].isna().any(axis=None)
    np.testing.assert_allclose(hotpotqa["IR score"], hotpotqa["ir_score"], atol=1e-6)
    assert hotpotqa["tokens"].between(1, hotpotqa["N"]).all()
    same = hotpotqa.groupby(["question_id", "same"])[[*contexts.MEASURED, "contained"]].nunique()
    assert same.max(axis=None) == 1


def test_more_of_the_same_list_never_finds_less(hotpotqa):
    grown = hotpotqa[hotpotqa["retriever"] == "BM25"].sort_values(["question_id", "N"])
    for name in (
        "IR score",
        "recall of documents",
        "recall of sentences",
        *contexts.RANKS,
        "answer in the text",
    ):
        assert grown.groupby("question_id")[name].diff().min() >= 0, name
    found = hotpotqa["recall of sentences"] > 0
    assert (hotpotqa.loc[~found, "EIR"] == 0).all()
    assert (hotpotqa.loc[found, "EIR"] > 0).all()


def slow_auc(part, number):
    shares = []
    for name in part["question_id"].unique():
        asked = part[part["question_id"] == name]
        wins = []
        for one in asked[asked["right"] == 1].itertuples():
            for other in asked[asked["right"] == 0].itertuples():
                a, b = number[one.Index], number[other.Index]
                wins.append(0.5 if abs(a - b) < 1e-9 else float(a > b))
        if wins:
            shares.append(np.mean(wins))
    return np.mean(shares)


def test_the_notebooks_table_again(hotpotqa):
    shown = pd.read_csv(project_root() / "figures" / "16_auc.csv").set_index(["set", "number"])[
        "AUC"
    ]
    part = hotpotqa.drop_duplicates(["question_id", "same"]).assign(
        right=hotpotqa["contained"].astype(int)
    )
    for number in set(contexts.MEASURED) - {"distraction"}:
        reached = slow_auc(part, part[number])
        if number == "tokens":
            reached = max(reached, 1 - reached)
        assert shown["HotpotQA, Qwen", number] == pytest.approx(reached, abs=1e-6), number
    gains = [
        slow_auc(part, part["recall of sentences"] - tenths / 10 * part["distraction"])
        for tenths in range(11)
    ]
    assert shown["HotpotQA, Qwen", contexts.GAIN] == pytest.approx(max(gains), abs=1e-6)


def test_minihops_column_again():
    shown = pd.read_csv(project_root() / "figures" / "16_auc.csv").set_index(["set", "number"])[
        "AUC"
    ]
    rows = pd.concat([recorded.rows("qwen", grid) for grid in ("retrievers", "thesis", "mlq")])
    rows = rows[(rows["N"] > 0) & (rows["retriever"] != recorded.GOLD)].drop_duplicates(
        ["question_id", "context"]
    )
    rows = recorded.with_reference_grades(rows).reset_index(drop=True)
    rows["right"] = (rows["grade"] == 5).astype(int)
    delivered = pd.Series([set(row.retrieved[: len(row.chunks)]) for row in rows.itertuples()])
    found = pd.Series(
        [len(names & set(true)) for names, true in zip(delivered, rows["relevant"], strict=True)]
    )
    numbers = {
        "recall of documents": found / rows["relevant"].map(len),
        "Success@10": found > 0,
        "IR score": rows["ir_score"],
    }
    for number, values in numbers.items():
        assert shown["MiniHop, Qwen", number] == pytest.approx(
            slow_auc(rows, values.astype(float)), abs=1e-5
        ), number


def test_qwens_texts_of_minihop_again():
    rows = recorded.with_reference_grades(recorded.rows("qwen", "thesis")).query("N == 1000")
    numbers = contexts.context_rows(rows)
    for (_, row), measured in zip(rows.iterrows(), numbers.itertuples(), strict=True):
        delivered = row["retrieved"][: len(row["chunks"])]
        for name, chunk in zip(delivered, row["chunks"], strict=True):
            assert name in row["relevant"] or not any(fact in chunk for fact in row["references"])
        found = [any(fact in chunk for chunk in row["chunks"]) for fact in row["references"]]
        assert numbers.loc[measured.Index, "recall of sentences"] == pytest.approx(
            np.mean(found), abs=1e-6
        )
        ranks = [
            place for place, name in enumerate(dict.fromkeys(delivered)) if name in row["relevant"]
        ]
        assert numbers.loc[measured.Index, "Success@10"] == bool(ranks)
