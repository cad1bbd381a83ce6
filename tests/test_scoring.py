"""Metrics by name: from rows to numbers, and a metric of one's own by one entry."""

import math
import re
import time
import warnings
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from experiment_parts import Copier, graded
from fake_ollama import FakeOllama, Fault
from label_replies import reply

import ragbench as rb
from ragbench import scoring, widgets
from ragbench.errors import ConfigError, DataError, RagbenchError
from ragbench.labelling.checkers import ModelChecker
from ragbench.metrics.table import METRICS, Metric, grade_metrics
from ragbench.prompts import prompt_scale
from ragbench.records import Chunk, Hit
from ragbench.report.export import export_scores
from ragbench.report.methods import Methods
from ragbench.scoring import LABELS, LabelMethod, Scores, grade_label, metric_table, score

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
HIGH = "The tower is 330 metres high."
LOW = "The tower is 120 metres high."
RIGHT = {
    "question": "How high is the tower?",
    "answer": HIGH,
    "reference": HIGH,
    "chunks": [HIGH, "Ships pass the lighthouse at night."],
    "facts": [HIGH],
    "keypoints": [HIGH],
}
ROWS = [RIGHT, RIGHT | {"answer": LOW, "chunks": [HIGH]}]
WITH_IDS = [row | {"id": f"{n}"} for n, row in enumerate(ROWS)]


def grading(body):
    """The reply of a model that makes no mistakes, and finds every answer right."""
    return graded(body, 5) if "grades" in str(body.get("format")) else reply(body)


def by_model(rows, metrics, answers=reply, fault=None, **options):
    """Score rows with the labels of a model that answers so."""
    with FakeOllama(reply=answers, fault=fault) as server:
        return score(rows, metrics, server.model(), progress=False, **options)


def test_every_metric_has_a_source_a_range_and_needs():
    texts = "question answer reference context chunks facts keypoints references kind nuggets"
    for name, metric in METRICS.items():
        assert metric.source, name
        assert metric.range[0] < metric.range[1], name
        assert {*metric.needs} <= {*texts.split(), "retrieved", "relevant", *LABELS}, name


def test_metrics_of_texts_equal_their_functions():
    table = rb.score(ROWS, ["ir_score", "token_f1", "rouge_l"])
    for n, row in enumerate(ROWS):
        of_texts = (row["answer"], row["reference"])
        assert table.loc[n, [*table.numbers, "unscored", "question"]].to_dict() == {
            "ir_score": rb.ir_score(row["facts"], " ".join(row["chunks"])),
            "token_f1": rb.token_f1(*of_texts),
            "rouge_l": rb.rouge_l(*of_texts),
            "unscored": 0,
            "question": row["question"],
        }


def test_without_a_model_the_rest_is_computed_and_what_it_leaves_out_is_said():
    said = (
        r"completeness \(needs keypoint_verdicts\); fully_right \(needs grade\); "
        r".*ollama:llama3:8b.*smollm2"
    )
    with pytest.warns(UserWarning, match=said):
        table = score(ROWS, ["completeness", "fully_right", "token_f1", "contained"])
    assert table.numbers == ["token_f1", "contained"]
    assert table["contained"].tolist() == [1.0, 0.0]
    assert "fully_right" not in table
    with pytest.raises(
        ConfigError, match=r"no model is named(.|\n)*grade(.|\n)*ollama:llama3:8b.*smollm2"
    ):
        score(ROWS, ["fully_right"])
    with pytest.raises(ConfigError, match=r"precision \(needs claim_labels\)"):
        rb.plan_score(ROWS, ["precision"], checker=Strict())  # who writes the claims?
    given = [row | {"grade": 5, "keypoint_verdicts": ["covered"]} for row in ROWS]
    table = score(given, ["fully_right", "completeness", "token_f1"])  # people's labels
    assert table[["fully_right", "labelled_by"]].eq([1.0, "given"]).all(axis=None)


def test_claims_are_those_of_a_long_true_answer_where_rows_have_one():
    longer = "The tower is very high indeed; It was painted blue"
    row = ROWS[0] | {"answer": longer, "reference": "The tower is very high indeed"}
    claims = ["The tower is very high indeed", "It was painted blue", "Ships pass the lighthouse"]
    long = row | {"long_reference": longer}
    rows = [row, long, long | {"reference_claims": claims}]
    table = by_model(rows, ["precision", "recall", "token_f1"])
    assert table["precision"].tolist() == [0.5, 1.0, 1.0]
    assert table["recall"].tolist() == [1.0, 1.0, pytest.approx(2 / 3)]
    assert table["token_f1"].nunique() == 1


def test_labels_that_are_there_are_used_and_what_is_missing_is_counted():
    rows = pd.DataFrame({"marks": [["covered", "neither"], ["covered", None], None]})
    table = score(rows, ["keypoints"], columns={"keypoint_verdicts": "marks"})
    assert table["completeness"].fillna(-1).tolist() == [0.5, -1, -1]
    assert table["unscored"].tolist() == [0, 3, 3]


def test_an_unknown_metric_and_a_missing_column_are_named():
    one = [{"answer": "Paris", "reference": "Paris"}]
    assert rb.score(one, "token_f1").equals(rb.score(one, ["token_f1"]))
    with pytest.raises(ConfigError, match=r"unknown metric 'rouge'(.|\n)*rouge_l"):
        score(ROWS, ["rouge"])
    texts = [{"question": "q", "answer": "a", "reference": "r"}]
    with pytest.raises(DataError, match=r"no column 'references', needed by 'eir'"):
        score([texts[0] | {"chunks": ["c"]}], ["eir"])
    said = r"no column 'chunks', needed by 'ragchecker' \(for its claim_labels\)"
    with pytest.raises(DataError, match=said):
        score(texts, ["ragchecker"], "ollama:llama3:8b")


def test_all_that_is_missing_is_said_before_anything_runs_with_what_can_be_computed():
    rows = [{"user_input": "q", "response": "a", "reference": "r"}]
    with FakeOllama(reply=reply) as server, pytest.raises(DataError) as caught:
        score(rows, ["token_f1", "claim_recall", "eir", "ragas"], server.model())
    assert server.calls == []
    said = str(caught.value)
    for column, metric in (("chunks", "ragchecker"), ("references", "eir"), ("context", "ragas")):
        assert re.search(rf"no column {column!r}, needed by .*{metric!r}", said)
    assert "'reference'" not in said
    computed = "keypoints, exact_match, contained, token_f1, bleu, rouge_l"
    assert said.endswith(f"what can be computed as it is: {computed}")


def test_columns_have_one_length():
    columns = {"answer": ["Rome", "Paris"], "reference": ["Paris", "Paris"]}
    assert score(columns, ["exact_match"])["exact_match"].tolist() == [0.0, 1.0]
    for cells in ("BM25", ["BM25"], ["a", "b", "c"]):
        with pytest.raises(DataError, match="a table as dict"):
            score({**columns, "system": cells}, ["exact_match"])


def test_grades_and_abstentions_are_read_as_tables_write_them(tmp_path):
    path = tmp_path / "grades.csv"
    path.write_text("answer,grade\na,5\nb,5.0\nc,4\nd,7\ne,0\nf,good\ng,\n")
    expected = [1.0, 1.0, 0.0, -1, -1, -1, -1]
    table = score(path, ["fully_right", "grade"])
    assert table["fully_right"].astype(float).fillna(-1).tolist() == expected
    assert table["grade 5"].astype(float).fillna(-1).tolist() == expected
    assert table["unscored"].tolist() == [0, 0, 0, 6, 6, 6, 6]
    kinds = {"kind": ["x"] * 6, "abstained": ["yes", "1.0", True, "No", 0, "perhaps"]}
    abstained = score(pd.DataFrame(kinds), ["abstention"])["any_abstention"]
    assert abstained.astype(float).fillna(-1).tolist() == [1, 1, 1, 0, 0, -1]


@pytest.mark.parametrize("ending", ["parquet", "json", "csv"])
def test_a_scored_table_with_labels_is_scored_again_from_a_file(tmp_path, ending):
    metrics = ["ragchecker", "keypoints", "ragas", "fully_right"]
    rows = [row | {"reference_contexts": [SKY]} for row in SAID]
    first = by_model(rows, metrics, grading, about_e9, retries=0)
    numbers = first.numbers
    # an unread label, no answer
    assert first["precision"].fillna(-1).tolist() == [-1, 0.0, -1]
    path = tmp_path / f"scored.{ending}"
    write = {
        "parquet": first.to_parquet,
        "json": partial(first.to_json, orient="records"),
        "csv": partial(first.to_csv, index=False),
    }
    write[ending](path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lists that were written as text are mended, said
        again = score(path, metrics)
    pd.testing.assert_frame_equal(first[numbers], again[numbers])
    assert again["labelled_by"].unique().tolist() == ["given"]
    inspector = widgets.ClaimInspector(again)
    inspector.show("q2")
    assert inspector.metrics["precision"] == 0.0


def test_ragas_makes_statements_with_the_question_in_view():
    with FakeOllama(reply=reply) as server:
        score(WITH_IDS, ["ragas"], server.model(), progress=False)
    statements = [call.prompt for call in server.calls if "simple statements" in call.prompt]
    assert len(statements) == len(ROWS)
    assert all(f"\nQuestion: {ROWS[0]['question']}\n" in prompt for prompt in statements)


def test_a_grading_prompt_of_ones_own_has_its_own_scale(tmp_path, monkeypatch):
    prompt = tmp_path / "mine.txt"
    lines = "".join(f"{grade}: {grade} of 3\n" for grade in range(4))
    fields = "{question} {reference} {facts} {count} {answers}"
    prompt.write_text(f"---\nScale:\n{lines}---\n{fields}")
    for name, metric in grade_metrics(prompt_scale(prompt)).items():
        monkeypatch.setitem(METRICS, name, metric)
    monkeypatch.setitem(LABELS, "grade", grade_label(prompt))
    grades = iter([3, 0])
    answers = lambda body: graded(body, next(grades))  # noqa: E731
    table = by_model(ROWS, ["fully_right", "grade"], answers, concurrency=1)
    assert table.numbers == ["fully_right", "grade 0", "grade 1", "grade 2", "grade 3"]
    assert table[["fully_right", "grade 0"]].to_numpy().tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_a_metric_of_grades_takes_the_scale_of_its_rows():
    own = {0: "wrong", 1: "partly right", 2: "right"}
    rows = pd.DataFrame(
        {"answer": ["a", "b", "c"], "grade": [2, 5, 5], "judge_scale": [own, own, None]}
    )

    def scored(rows, *metrics):
        table = score(rows, metrics)
        return table[table.numbers].astype(float).fillna(-1).to_dict("list")

    of_grades = ["grade 0", "grade 1", "grade 2", "fully_right"]
    table = score(rows[:2], ["grade", "fully_right"])
    assert table.numbers == of_grades
    assert table[of_grades].astype(float).fillna(-1).to_numpy().tolist() == [
        [0, 0, 1, 1],
        [-1, -1, -1, -1],
    ]
    assert table["reason"][1] == "undefined: grade 0, grade 1, grade 2, fully_right"
    both = scored(rows, "fully_right", "grade")
    assert [*both] == ["fully_right", *(f"grade {grade}" for grade in range(6))]
    assert both["fully_right"] == [1.0, -1, 1.0]
    assert both["grade 5"] == [-1, -1, 1.0]
    assert both["grade 0"] == [0.0, -1, -1]
    assert [*scored(rows[:2], "grade 2")] == ["grade 2"]
    # of another experiment in the same process
    assert [*scored(rows[2:], "grade")] == [f"grade {grade}" for grade in range(1, 6)]


def test_groups_single_numbers_and_shared_names_are_resolved():
    table = metric_table().set_index("number")
    for number, column, said in (
        ("faithfulness", "metric", "ragchecker"),
        ("ragas_faithfulness", "metric", "ragas"),
        ("keypoints_hallucination", "needs", "question, answer, reference"),
        ("claim_recall", "labels", "claim_labels: a model"),
        ("rouge_l", "labels", "none"),
        ("recall", "range", "0 to 1"),
    ):
        assert table.at[number, column] == said
    assert set(table.index[table["range"].str.endswith("lower is better")]) == {
        "relevant_noise_sensitivity", "irrelevant_noise_sensitivity", "hallucination", "self_knowledge",
        "keypoints_hallucination", "irrelevance", "wrong_abstention", "contradicted", "not_in_reference",
    }  # fmt: skip
    lexical = "exact_match contained token_f1 rouge_l bleu"
    assert [*Metric.find(["lexical"])] == lexical.split()
    of_ragas = Metric.find(["claim_recall", "ragas"])["ragas_faithfulness"]
    assert of_ragas == ("ragas", "faithfulness")
    assert [*Metric.find(["claim_recall", "f1", "claim_recall"])] == ["claim_recall", "f1"]


SKY = "the wide sky is always blue"
SEA = "the deep sea is always cold"
E9 = "e9 is always some kind of f9"
OF_SKY = {"reference": SKY, "retrieved_contexts": [SKY]}
SAID = [
    {
        "user_input": "q1",
        "response": f"{SKY}; {SEA}",
        "reference": f"{SKY}; {E9}",
        "retrieved_contexts": [SKY, E9],
    },
    OF_SKY | {"user_input": "q2", "response": f"not {SKY}"},
    OF_SKY | {"user_input": "q3", "response": None},
]


def about_e9(prompt, before):
    """Fail the calls that check claims against texts with E9."""
    return Fault("500") if E9 in prompt and "claims to check" in prompt else None


def test_a_chat_model_labels_after_a_plan_and_a_stopped_run_goes_on(tmp_path, capsys):
    tape = tmp_path / "mine.sqlite"
    wanted = ["precision", "claim_recall", "faithfulness", "rageval"]
    rows = [row | {"reference_contexts": [SKY]} for row in SAID]
    with FakeOllama(reply=reply, fault=about_e9) as server:
        model = server.model()
        planned = rb.plan_score(rows, wanted, model, cassette=tape)
        assert (server.calls, tape.exists()) == ([], False)
        calls = {step.name: step.calls for step in planned}
        assert calls == {"claims": 4, "claim check": 18, "key points": 3, "keypoints": 2 * 4}
        score(rows, wanted, model, cassette=tape, retries=0)
        # before the first call
        assert capsys.readouterr().err.splitlines()[1].split()[:2] == ["claims", "4"]
    with FakeOllama(reply=reply) as server:
        model = server.model()
        table = score(rows, wanted, model, cassette=tape, progress=False)
        asked = [E9 in call.prompt for call in server.calls]
        assert asked == [True] * len(asked) != []  # only what failed is asked again
        again = score(rows, wanted, model, cassette=tape, progress=False)
        assert len(server.calls) == len(asked)
        assert rb.plan_score(rows, wanted, model, cassette=tape).total.remaining == 0
    pd.testing.assert_frame_equal(table, again)
    expected = {
        "precision": [0.5, 0.0],
        "claim_recall": [1.0, 1.0],
        "faithfulness": [0.5, 0.0],
        "completeness": [2 / 3, 1.0],  # q1 has three points, two alike
    }
    assert table[:2][[*expected]].to_dict("list") == expected
    assert table["labelled_by"].unique().tolist() == ["ollama:llama3:8b"]
    assert table["unscored"].tolist() == [0, 0, 6]
    assert table["reason"][2] == (
        "no answer: precision, claim_recall, faithfulness, completeness, "
        "keypoints_hallucination, irrelevance"
    )


def test_key_points_of_the_data_set_are_used_and_no_text_is_taken_apart():
    rows = [SAID[0] | {"keypoints": [SKY, SEA, E9, f"not {SKY}"]}]
    with FakeOllama(reply=reply) as server:
        model = server.model()
        assert [step.name for step in rb.plan_score(rows, ["keypoints"], model)] == ["keypoints"]
        table = score(rows, ["keypoints"], model, progress=False)
        assert len(server.calls) == 4  # a verdict each
        assert not any("take" in call.prompt for call in server.calls)
    assert table["completeness"].tolist() == [0.5]


def test_labels_that_could_not_be_read_are_kept_for_the_inspector():
    table = by_model(SAID[:2], ["ragchecker"], fault=about_e9, retries=0)
    assert table["unscored"][0] == 11
    assert table["reason"][0].startswith("a label could not be read: precision, recall")
    inspector = widgets.ClaimInspector(table["claim_labels"].tolist())
    assert next(labels for _, labels in inspector.rows("response")) == (None, "Entailment", None)
    inspector.show("q2")
    assert inspector.metrics["precision"] == table["precision"][1] == 0.0


def test_labels_of_a_model_are_named_open_in_the_inspector_and_have_means():
    rows = [row | {"system": system} for system in "AB" for row in WITH_IDS]
    table = by_model(rows, ["ragchecker", "grade"], grading)
    assert table["labelled_by"].unique().tolist() == ["ollama:llama3:8b"]
    inspector = widgets.ClaimInspector(table["claim_labels"].tolist())
    inspector.show("1 B")
    assert inspector.metrics["precision"] == 0.0
    means = rb.means(table, ["system"], table.numbers).set_index(["system", "metric"])
    assert means.loc[("A", "precision"), ["mean", "n", "unscored"]].tolist() == [0.5, 2, 0]
    assert means.loc[("B", "grade 5"), "mean"] == 1.0
    assert "claim_labels" not in table.numbers


def test_a_model_is_not_asked_for_labels_that_the_rows_have_and_a_warning_says_so():
    table = by_model(WITH_IDS, ["ragchecker"])
    with (
        FakeOllama() as server,
        pytest.warns(UserWarning, match="already, which are used: claim_labels; drop"),
    ):
        again = score(table, ["ragchecker"], server.model(), progress=False)
    assert server.calls == []
    assert again["labelled_by"].unique().tolist() == ["given"]
    assert again["precision"].tolist() == table["precision"].tolist()


def test_an_empty_column_of_labels_is_made_without_a_warning(recwarn):
    table = by_model([row | {"grade": None} for row in ROWS], ["fully_right"], graded)
    assert table["fully_right"].tolist() == [1.0, 1.0]
    assert not [warning for warning in recwarn if "already" in str(warning.message)]


def test_recall_splits_chinese_references_into_sentences():
    chinese = {
        "references": ["塔高三百三十米。", "船在夜里经过。"],
        "chunks": ["塔高三百三十米。山很高。"],
    }
    assert score([chinese], ["reference_recall"])["reference_recall"].tolist() == [0.5]


def test_nan_empty_lists_and_mixed_languages_spoil_no_other_row():
    whole = {name: RIGHT[name] for name in ("question", "answer", "reference", "chunks")}
    high = "塔高三百三十米。"
    chinese = {"question": "塔有多高？", "answer": high, "reference": high, "chunks": ["山很高。"]}
    changes = ({}, {"answer": math.nan}, {"chunks": []}, {"reference": ""}, chinese)
    rows = [whole | change for change in changes]
    table, alone = (by_model(some, ["token_f1", "ragchecker"]) for some in (rows, [whole]))
    assert table["unscored"].tolist() == [0, 12, 7, 12, 1]
    # The made judge does not find a short answer with its question in the text itself.
    for name in ("precision", "recall"):
        assert table[name].astype(float).fillna(-1).tolist() == [1.0, -1, 1.0, -1, 0.0]
    reasons = table["reason"].str.partition(":")[0].tolist()
    assert reasons == ["", "no answer", "undefined", "no reference", "undefined"]
    assert "claim_recall" not in table["reason"][2]  # nothing was found: 0
    numbers = alone.numbers
    assert alone.loc[0, numbers].equals(table.loc[0, numbers])


def test_a_row_without_a_true_answer_has_no_number_and_stops_no_other():
    row = {"answer": "Paris", "chunks": ["Paris"]}
    rows = [row | {"reference": []}, row | {"reference": ["Paris"]}]
    table = score(rows, ["exact_match", "claim_overlap"])
    assert table["exact_match"].isna().tolist() == [True, False]
    assert table["reason"].tolist()[0].startswith("no reference")


@pytest.mark.parametrize(
    ("metric", "cells", "words"),
    [
        ("ragas", {"ragas": "yes"}, "question 'q1': no number of {'ragas': 'yes'} (ValueError"),
        ("nuggets", {"nuggets": "vital"}, "question 'q1': no number of {'nuggets': 'vital'}"),
        ("abstention", {"abstained": 1, "kind": ["a"]}, "question 'q1'"),
        ("nuggets", {"nuggets": [{"importance": "vital"}]}, "question 'q1': the nugget"),
        ("ranking", {"retrieved": ["d"], "relevant": {"d": "high"}}, "all rows: the gain 'high'"),
    ],
)
def test_a_cell_that_a_metric_cannot_take_is_shown_with_its_question(metric, cells, words):
    with pytest.raises(RagbenchError) as caught:
        score([{"question": "what?", **cells}], [metric])
    assert words in str(caught.value)


def test_half_a_surrogate_pair_in_retrieved_text_stops_nothing():
    row = {"references": ["a fact"], "chunks": ["a fact \ud800"]}
    assert score([row], ["reference_recall"])["reference_recall"].tolist() == [1.0]


def test_a_number_of_the_same_name_that_was_there_is_replaced():
    table = score([{"answer": "tower", "reference": "tower", "token_f1": 0.25}], ["token_f1"])
    assert table["token_f1"].tolist() == [1.0]


def test_the_pages_metric_of_ones_own_works_by_name(monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    code = next(block for block in blocks if "METRICS[" in block)
    assert len([line for line in code.splitlines() if line.strip()]) < 15
    for name in re.findall(r'METRICS\["(\w+)"\]', code):
        monkeypatch.setitem(METRICS, name, None)
    names = {}
    exec(code, names)
    table = names["table"]
    assert table["reference_words"].tolist() == [0.5]  # "ruck." is another word than "ruck"
    assert table["rouge_l"].between(0.4, 0.9).all()
    own = score(ROWS, ["reference_words"])["reference_words"]
    assert own.tolist() == pytest.approx([1.0, 5 / 6])


def test_a_misspelt_option_is_refused_with_the_closest_name():
    options = {"label": "labels", "cassete": "cassette", "colums": "columns"}
    for wrong, right in (options | {"concurency": "concurrency"}).items():
        said = rf"unknown option '{wrong}'(.|\n)*did you mean '{right}'"
        with pytest.raises(ConfigError, match=said):
            score(ROWS, ["token_f1"], **{wrong: 1})


def test_a_label_of_ones_own_is_one_function_and_one_entry(monkeypatch):
    def shout(rows, who, cassette):
        return [answer.isupper() and who.model is None for answer in rows["answer"]]

    monkeypatch.setitem(LABELS, "shout", LabelMethod(("answer",), shout))
    monkeypatch.setitem(METRICS, "loud", Metric(("shout",), float, "mine"))
    table = score([{"answer": "YES"}, {"answer": "no"}, {"answer": None}], ["loud"])
    assert table["loud"].fillna(-1).tolist() == [1.0, 0.0, -1]
    assert table["reason"][2] == "no answer: loud"


class Strict:
    """A checker that entails only what stands in the text."""

    def __repr__(self):
        return "Strict()"

    def check_many(self, claims, texts):
        return [
            ["Entailment" if claim in text else "Neutral" for text in texts] for claim in claims
        ]


def test_a_checker_of_ones_own_checks_the_claims_that_a_model_takes_out():
    asked = []

    def fault(prompt, before):
        asked.append(prompt)
        return Fault("500") if "e9" in prompt else None

    options = {"fault": fault, "checker": Strict(), "retries": 0}
    table = by_model(SAID[:2], ["precision"], **options)
    known = [row | {"reference_claims": [SKY]} for row in SAID[:2]]
    assert by_model(known, ["precision"], **options)["precision"].tolist() == [0.5, 0.0]
    assert "claims to check" not in "".join(asked)
    # The first one's true answer could not be taken apart.
    assert table["precision"].fillna(-1).tolist() == [-1, 0.0]
    assert table["reason"][0] == "a label could not be read: precision"
    assert table.facts["checker"] == "Strict()"
    assert table.facts["model"]["model"] == "llama3:8b"
    assert table["labelled_by"].unique().tolist() == ["ollama:llama3:8b; claims by Strict()"]
    assert "Claims were checked by Strict()." in "\n".join(Methods.of_scores(table).paragraphs)


@pytest.mark.parametrize(
    ("claims", "calls"), [({}, (5 + 1) * 3), ({"reference_claims": ["a", "b"]}, (5 + 2) * 3)]
)
def test_a_model_that_checks_is_planned_with_one_claim_and_one_text_a_prompt(claims, calls):
    row = {"question": "q", "answer": "Ada ran. Bob sat. Cy lay.", "reference": "Ada ran."}
    row |= {"chunks": ["Ada.", "Bob."]}
    model = rb.chat_model("ollama:llama3:8b", host="127.0.0.1:9")
    planned = rb.plan_score([row | claims], ["precision"], model, checker=ModelChecker(model))
    assert planned["claim check"].calls == calls


def test_the_folder_of_a_run_is_scored_by_its_rows_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    axes = {"data": {"m": {"use": "minihop", "limit": 3}}, "N": [30, 60]}
    axes |= {"chunker": "token_chunks", "retriever": "BM25", "generator": {"c": Copier()}}
    rows = rb.Experiment("mine", **axes).run(progress=False)
    table = score("mine", ["token_f1", "eir"])
    assert table["system"].tolist() == ["BM25@30", "BM25@60"] * 3
    assert table["token_f1"].notna().all()
    pd.testing.assert_frame_equal(score(tmp_path / "mine", ["token_f1", "eir"]), table)
    path = tmp_path / "mine" / "rows.jsonl"
    pd.testing.assert_frame_equal(score(path, ["token_f1", "eir"]), table)
    assert score(rows, ["token_f1"])["token_f1"].tolist() == table["token_f1"].tolist()
    with pytest.raises(DataError, match=r"no run 'mime'(.|\n)*mine"):
        score("mime", ["token_f1"])


def written(table: pd.DataFrame, path: Path) -> Path:
    """Write a table in the form that its file's ending says."""
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_json(path, orient="records")
    return path


@pytest.mark.parametrize("ending", ["parquet", "json", "csv"])
def test_a_question_with_several_answers_and_no_id_is_scored_again_from_a_file(tmp_path, ending):
    rows = [{"question": q, "answer": a, "reference": "x"} for q, a in ("ax", "ay", "bx")]
    with pytest.warns(UserWarning, match=r"1 of 3 rows repeat a question.*'system': 'model'"):
        table = score(rows, ["exact_match"])
    assert table["question_id"].tolist() == ["q1", "q1", "q2"]
    with pytest.warns(UserWarning, match="1 of 3 rows repeat a question"):
        again = score(written(table, tmp_path / f"t.{ending}"), ["exact_match"])
    assert again["question_id"].tolist() == ["q1", "q1", "q2"]
    assert again["exact_match"].tolist() == [1.0, 0.0, 1.0]
    part = score(table[table["question"] == "b"], ["exact_match"])
    assert part["question_id"].tolist() == ["q2"]
    # two tables one below the other, in which q1 is two questions
    other = score([{"question": "c", "answer": "x", "reference": "x"}], ["exact_match"])
    with pytest.raises(DataError, match="used twice"):
        score(pd.concat([other, table]), ["exact_match"])


@pytest.mark.parametrize("ending", ["parquet", "json", "csv"])
def test_a_scale_of_ones_own_is_read_from_a_file(tmp_path, ending):
    pass_or_fail = {0: "no", 1: "yes"}
    rows = [
        {"answer": "a", "grade": 2, "judge_scale": {0: "wrong", 1: "partly", 2: "right"}},
        {"answer": "b", "grade": 1, "judge_scale": pass_or_fail},
        {"answer": "c", "grade": 0, "judge_scale": pass_or_fail},
        {"answer": "d", "grade": 5, "judge_scale": None},
    ]
    table = score(rows, ["fully_right", "grade"])
    assert table["fully_right"].tolist() == [1.0, 1.0, 0.0, 1.0]
    again = score(written(table, tmp_path / f"t.{ending}"), ["fully_right", "grade"])
    assert again.numbers == table.numbers
    assert again["fully_right"].tolist() == [1.0, 1.0, 0.0, 1.0]
    assert again["grade 2"].astype(float).fillna(-1).tolist() == [1.0, -1, -1, 0.0]


def test_a_grade_that_nobody_gave_is_a_share_with_an_interval_on_any_scale():
    scale = {0: "wrong", 1: "right"}
    rows = [{"answer": a, "grade": 1, "judge_scale": scale} for a in "abcde"]
    table = rb.means(score(rows, ["grade"]), [], ["grade 0", "grade 1"]).set_index("metric")
    # Clopper and Pearson: 1 - .025 ** (1 / 5)
    assert table.loc["grade 0", ["low", "high"]].tolist() == pytest.approx([0.0, 0.5218], abs=1e-4)
    assert table.loc["grade 1", ["low", "high"]].tolist() == pytest.approx([0.4782, 1.0], abs=1e-4)


def test_an_empty_column_is_said_to_be_empty_and_is_not_among_those_there():
    rows = [{"answer": None, "reference": "x"}]
    with pytest.raises(DataError) as caught:
        score(rows, ["token_f1"])
    assert caught.value.got == (
        "nothing in the column 'answer', needed by 'token_f1'\n  there is reference"
    )


def test_scales_of_two_judges_in_one_parquet_file_stay_apart(tmp_path):
    # of `rows.jsonl`: grades are texts there, and Parquet gives each row every grade of all rows
    scales = [{"0": "wrong", "1": "partly", "2": "right"}, {"0": "no", "1": "yes"}]
    rows = pd.DataFrame({"answer": ["a", "b"], "grade": [1, 1], "judge_scale": scales})
    rows.to_parquet(tmp_path / "t.parquet")
    table = score(tmp_path / "t.parquet", ["fully_right"])
    assert table["fully_right"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_gains_by_document_are_read_back_from_a_file(tmp_path, ending):
    rows = [
        {"question_id": "a", "retrieved": ["d1"], "relevant": {"d1": 2}},
        {"question_id": "b", "retrieved": ["d1"], "relevant": {"d9": 1}},
    ]
    path = tmp_path / f"table.{ending}"
    frame = score(rows, ["RR"])
    write = {"csv": frame.to_csv, "parquet": frame.to_parquet, "json": frame.to_json}[ending]
    write(path, **({"orient": "records"} if ending == "json" else {"index": False}))
    assert score(path, ["RR"])["RR"].tolist() == [1.0, 0.0]


def test_rows_of_ones_own_may_have_the_name_of_a_runs(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"answer": "Paris", "reference": "Paris"}\n')
    assert score(path, ["exact_match"])["exact_match"].tolist() == [1.0]


def test_an_id_like_ours_with_an_empty_system_is_still_refused():
    rows = [{"question_id": "q1", "answer": "a", "system": name} for name in ("s", None)]
    with pytest.raises(DataError, match="empty or used twice"):
        score([row | {"reference": "a", "question": "w"} for row in rows], ["exact_match"])


def test_a_scale_that_is_none_is_named():
    row = {"grade": 1, "judge_scale": "{bad"}
    with pytest.raises(DataError, match=r"judge_scale \{bad"):
        score([row], ["fully_right"])


def test_an_empty_context_beside_chunks_is_one():
    row = {"references": ["Paris is"], "chunks": ["Paris is big"], "context": ""}
    assert score([row], ["ir_score"])["ir_score"].tolist() == [0.0]


def test_hits_and_chunks_are_ranked_by_their_documents():
    chunk = Chunk("d#0", "text", "d")
    row = {"retrieved": [Hit(chunk, 1.0, 1), Chunk("e#0", "text", "e")], "relevant": ["e"]}
    assert score([row], ["RR"])["RR"].tolist() == [0.5]


def test_a_question_without_a_kind_and_nuggets_are_read_back_from_a_csv(tmp_path):
    support = {"importance": "vital", "assignment": "support"}
    rows = [{"question": "w", "answer": "x", "abstained": True, "kind": "", "nuggets": [support]}]
    first = score(rows, ["abstention", "nuggets"])
    first.to_csv(tmp_path / "t.csv", index=False)
    again = score(tmp_path / "t.csv", ["abstention", "nuggets"])
    numbers = first.numbers
    pd.testing.assert_frame_equal(first[numbers], again[numbers])


@pytest.mark.parametrize("scale", ["{0, 1, 2}", "{'a': 'b'}"])
def test_a_scale_without_meanings_is_named(scale):
    with pytest.raises(DataError, match="judge_scale"):
        score([{"grade": 1, "judge_scale": scale}], ["fully_right"])


def test_the_ir_score_is_matched_as_the_row_says():
    rows = pd.DataFrame(
        {
            "question_id": ["1", "2", "3"],
            "references": [["abcd"]] * 3,
            "context": ["abxcd"] * 3,
            "match": ["exact_subsequence", "substring", None],
        }
    )
    assert score(rows, ["ir_score"])["ir_score"].tolist() == [1.0, 0.5, 0.5]
    assert score(rows.drop(columns="match"), ["ir_score"])["ir_score"].tolist() == [0.5] * 3


def test_scores_know_their_numbers_after_a_csv_and_a_concat(tmp_path):
    rows = pd.DataFrame(
        {
            "question_id": [f"q{i}" for i in range(6)] * 2,
            "system": ["A"] * 6 + ["B"] * 6,
            "answer": ["Ely", "York", "x", "Ely", "York", "Bath"] * 2,
            "reference": ["Ely", "York", "Bath", "x", "x", "x"] + ["y"] * 6,
            "precision": 0.5,  # somebody else's, which is no number of ours
        }
    )
    a, b = (score(rows[rows["system"] == name], ["exact_match"]) for name in "AB")
    other = score(rows[rows["system"] == "B"], ["exact_match", "token_f1"])
    assert type(a) is Scores
    assert (a.numbers, a.sources) == (["exact_match"], {"exact_match": "HotpotQA"})
    a.to_csv(tmp_path / "a.csv", index=False)
    for joined in (pd.concat([a, b]), pd.concat([Scores.read(tmp_path / "a.csv"), b.table])):
        assert joined.numbers == ["exact_match"]
        (pair,) = rb.compare_scores(joined).to_dict("records")
        assert (pair["mean a"], pair["mean b"], pair["n"]) == (2 / 6, 0.0, 6)
        first, second = rb.means(joined, "system", joined.numbers)["mean"]
        assert (first, second) == (2 / 6, 0.0)
        made = export_scores(joined, tmp_path / f"{len([*tmp_path.iterdir()])}", "mine")
        assert "exact match" in (made.folder / "methods.md").read_text()
        again = score(made.folder / "rows.csv", ["token_f1"])
        assert again.numbers == ["token_f1"]
    plain = pd.read_csv(tmp_path / "a.csv")
    assert Scores(pd.concat([plain, other])).numbers == ["exact_match", "token_f1"]
    assert score(a, ["contained"]).numbers == ["contained"]
    assert type(a.table) is pd.DataFrame


def test_who_labelled_is_known_from_the_rows_of_a_file(tmp_path):
    made = by_model(WITH_IDS, ["precision"])
    assert made.labelled_by == ["ollama:llama3:8b"]
    assert made[made["question_id"] == "0"].facts is made.facts
    made.drop(columns="claim_labels").to_csv(tmp_path / "a.csv", index=False)
    again = Scores.read(tmp_path / "a.csv")
    assert again.labelled_by == ["ollama:llama3:8b"]
    for scores in (made, again):
        claims = " ".join(Methods.of_scores(scores).claims)
        assert re.search(r"Labels were given by (ollama:)?llama3:8b; checked by a person", claims)


def test_a_bar_is_shown_where_scoring_takes_longer_than_five_seconds(monkeypatch, capsys):
    rows = [{"answer": "a", "reference": "a", "question_id": str(i)} for i in range(30)]
    score(rows, ["exact_match"])
    assert "metrics" not in capsys.readouterr().err
    monkeypatch.setattr(scoring, "_BAR_AFTER_S", 0.05)
    slow = Metric(("answer",), lambda answer: time.sleep(0.02) or 1.0, "mine")
    monkeypatch.setitem(METRICS, "slow", slow)
    score(rows, ["slow"])
    assert re.search(r"metrics: .*/30", capsys.readouterr().err)
    score(rows, ["slow"], progress=False)
    assert capsys.readouterr().err == ""
