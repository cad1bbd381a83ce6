"""Answers from frames, lists, files and other tools: the same rows whatever the way in; bad cells
named or put right.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from checks import refusals, refused
from langchain_core.documents import Document
from pydantic import BaseModel

import ragbench as rb
from ragbench.data.answers import read_answers
from ragbench.errors import ConfigError, DataError

QUESTION = "How high is the tower?"
ANSWER = "It is 330 m high."
TRUTH = "330 metres."
PASSAGES = ["The tower is 330 m high.", 'Ships "pass", it\'s said.\nAt night']


def named(*names):
    """The same row under a tool's names of question, answer, true answer and passages."""
    return dict(zip(names, (QUESTION, ANSWER, TRUTH, PASSAGES), strict=True))


OURS = named("question", "answer", "reference", "chunks")
RAGAS = named("user_input", "response", "reference", "retrieved_contexts")
OLD_RAGAS = named("question", "answer", "ground_truth", "contexts")
DEEPEVAL = named("input", "actual_output", "expected_output", "retrieval_context")
PYTERRIER = {
    "qid": "7",
    "query": QUESTION,
    "qcontext": " ".join(PASSAGES),
    "qanswer": ANSWER,
    "gold_answer": [TRUTH],
}
RAGBENCH = {
    "id": "7",
    "question": QUESTION,
    "documents": PASSAGES,
    "response": ANSWER,
    "generation_model_name": "gpt-3.5-turbo-0125",
    "documents_sentences": [[["0a", PASSAGES[0]]]],
    "adherence_score": True,
}
RAGCHECKER = {
    "results": [
        {
            "query_id": "7", "query": QUESTION, "gt_answer": TRUTH, "response": ANSWER,
            "retrieved_context": [{"doc_id": str(i), "text": text} for i, text in enumerate(PASSAGES)],
        }
    ]
}  # fmt: skip


class HasPandas:
    """What is needed of a Hugging Face Dataset, or of ragas' EvaluationDataset: lists come back as
    arrays.
    """

    def to_pandas(self):
        return pd.DataFrame(
            {name: [np.array(v) if isinstance(v, list) else v] for name, v in OLD_RAGAS.items()}
        )


class Sample(BaseModel):
    """ragas' SingleTurnSample, as far as it is read: most fields are empty."""

    user_input: str
    response: str
    reference: str
    retrieved_contexts: list[str]
    rubrics: dict[str, str] | None = None


@dataclass
class TestCase:
    """DeepEval's LLMTestCase, as far as it is read."""

    __test__ = False

    input: str
    actual_output: str
    expected_output: str
    retrieval_context: list[str]
    context: list[str] | None = None


WRITERS = {
    ".csv": lambda frame, path: frame.to_csv(path, index=False),
    ".tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    ".parquet": lambda frame, path: frame.to_parquet(path),
    ".json": lambda frame, path: frame.to_json(path, orient="records"),
    ".jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    ".gz": lambda frame, path: frame.to_json(path, orient="records", lines=True),
}


def stored(folder, kind, rows):
    """Write rows in a format, as its usual tool does."""
    frame = pd.DataFrame(rows)
    in_memory = {"frame": frame, "dicts": rows, "columns": frame.to_dict("list")}
    if kind in in_memory:
        return in_memory[kind]
    path = folder / kind
    if path.suffix == ".parquet" and "reference" in frame:  # a column has one type
        several = [row if isinstance(row, list) else [row] for row in frame["reference"]]
        frame = frame.assign(reference=several)
    WRITERS[path.suffix](frame, path)
    return path


def first(row):
    """The row that is read of one."""
    return read_answers([row]).loc[0]


def ours(frame):
    return frame.loc[0, [*OURS]].to_dict()


@pytest.mark.parametrize(
    "row", [OURS, RAGAS, OLD_RAGAS, DEEPEVAL], ids=["ours", "ragas", "old ragas", "DeepEval"]
)
@pytest.mark.parametrize(
    "kind", ["frame", "dicts", "columns", "a.csv", "a.jsonl", "a.json", "a.parquet"]
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_same_answer_comes_out_of_every_tools_columns_and_every_kind_of_file(
    row, kind, tmp_path
):
    frame = read_answers(stored(tmp_path, kind, [row]))
    assert ours(frame) == OURS
    assert frame["question_id"].tolist() == ["q1"]


@pytest.mark.parametrize(
    ("row", "lacks"),
    [(PYTERRIER, {"chunks"}), (RAGBENCH, {"reference"})],
    ids=["PyTerrier-RAG", "RAGBench"],
)
@pytest.mark.parametrize("kind", ["frame", "dicts", "a.jsonl", "a.json"])
@pytest.mark.filterwarnings("ignore:.*put right")
def test_rows_of_other_workbenches_are_read_as_they_are(row, lacks, kind, tmp_path):
    (read,) = read_answers(stored(tmp_path, kind, [row])).to_dict("records")
    expected = OURS | {"question_id": "7"}
    assert {name: read[name] for name in expected if name in read} == {
        name: value for name, value in expected.items() if name not in lacks
    }


@pytest.mark.filterwarnings("ignore:.*put right")
def test_what_else_other_workbenches_keep_of_a_row_stays():
    assert first(PYTERRIER)["context"] == " ".join(PASSAGES)
    assert first(RAGBENCH)["system"] == "gpt-3.5-turbo-0125"


def test_mtrags_answers_are_scored_as_they_are():
    answers = rb.data.load_mtrag().answers
    scored = rb.score(answers[answers["system"] == "reference"], ["rouge_l", "claim_overlap"])
    assert (scored["rouge_l"] == 1).all()
    assert scored["claim_overlap"].notna().any()


@pytest.mark.parametrize("made", [Sample(**RAGAS), TestCase(**DEEPEVAL)])
def test_objects_with_fields_are_rows_one_or_many_and_empty_fields_are_no_columns(made):
    for source in (made, [made], iter([made])):
        frame = read_answers(source)
        assert ours(frame) == OURS
        assert {*frame.columns} == {*OURS, "question_id"}
    assert len(read_answers([made, made])) == 2
    scores = rb.score([made], ["rouge_l", "contained"])
    assert scores.loc[0, "rouge_l"] == rb.rouge_l(ANSWER, TRUTH)


def test_data_sets_with_to_pandas_and_ragcheckers_json_are_read(put):
    assert ours(read_answers(HasPandas())) == OURS
    for strange in ({"train": HasPandas(), "test": HasPandas()}, {"question": ["a"], "answer": []}):
        with refused(DataError, r"a table as dict"):
            read_answers(strange)
    path = put("checking_inputs.json", RAGCHECKER)
    for source in (path, RAGCHECKER, rb.data.read_ragchecker(path)):
        frame = read_answers(source)
        assert ours(frame) == OURS
        assert frame["question_id"].tolist() == ["7"]


def test_checked_results_of_ragchecker_bring_their_labels():
    labels = {
        "response_claims": ["a", "b"], "gt_answer_claims": ["c"], "answer2response": ["Entailment", "Neutral"],
        "response2answer": ["Entailment"], "retrieved2response": [["Neutral", "Neutral"]] * 2,
        "retrieved2answer": [["Entailment", "Neutral"]],
    }  # fmt: skip
    table = rb.score(
        {"results": [RAGCHECKER["results"][0] | labels]}, ["precision", "claim_recall"]
    )
    assert table[["precision", "claim_recall"]].to_numpy().tolist() == [[0.5, 1.0]]
    assert table["labelled_by"].tolist() == ["given"]


def test_supporting_texts_have_three_names_and_deepevals_context_is_one():
    for name in ("references", "reference_contexts", "facts"):
        assert first(RAGAS | {name: ["x"]})["references"] == ["x"]
    assert first(DEEPEVAL | {"context": ["x"]})["references"] == ["x"]
    assert first(OURS | {"context": "joined"})["context"] == "joined"


def test_columns_of_ones_own_go_first_and_two_of_one_meaning_are_refused():
    rows = [{"q": QUESTION, "answer": "gold", "said": ANSWER}]
    read = read_answers(rows, {"question": "q", "answer": "said"}).loc[0]
    assert read[["question", "answer", "given_answer"]].tolist() == [QUESTION, ANSWER, "gold"]
    with refused(DataError, r"the columns 'answer' and 'response' both mean 'answer'"):
        first({"question": "q", "answer": "gold", "response": "said"})
    with refused(
        DataError, r"columns names the column 'sed' for 'answer'\n.*one of q, answer, said"
    ):
        read_answers(rows, {"answer": "sed"})


def test_columns_with_other_capitals_spaces_or_hyphens_are_recognised():
    row = {
        "User-Input": "Who?",
        "Response ": "Ann.",
        "Ground Truth": "Ann",
        "CONTEXTS": ["Ann."],
        "System": "a",
        "Model Size": 3,
    }
    assert set(first(row).index) == {*OURS, "system", "Model Size", "question_id"}
    with refused(DataError, "'_id' and 'Question ID' both mean 'question_id'"):
        first({"_id": "b", "Question ID": "a", "answer": "c"})


def test_rows_of_one_question_share_its_id_over_systems():
    frame = pd.DataFrame({"question": ["one?", "two?"] * 2, "answer": "a", "system": list("AABB")})
    assert read_answers(frame)["question_id"].tolist() == ["q1", "q2", "q1", "q2"]
    named = frame.assign(id=frame["question"])
    assert read_answers(named)["question_id"].tolist() == ["one?", "two?"] * 2
    without = named.drop(columns="system")
    with pytest.warns(UserWarning, match=r"2 of 4 rows repeat a question(.|\n)*'system': 'model'"):
        assert read_answers(without)["question_id"].tolist() == ["one?", "two?"] * 2
    without.loc[2, "question"] = "three?"
    with refused(DataError, r"row 2: question_id is empty or used twice(.|\n)*'system': 'model'"):
        read_answers(without)


@pytest.mark.parametrize(
    "cell",
    [json.dumps(PASSAGES), repr(PASSAGES), str(np.array(PASSAGES))],
    ids=["JSON", "Python", "numpy"],
)
@pytest.mark.filterwarnings("ignore:.*read as lists")
def test_a_list_written_as_text_keeps_the_borders_of_its_passages(cell):
    assert first(OURS | {"chunks": cell})["chunks"] == PASSAGES


def test_what_is_put_right_is_counted_by_column_and_warned_of(recwarn):
    rows = [
        {"question": "a?", "answer": 1979, "ground_truths": ["x"], "contexts": "['c', 'd']"},
        {"answer": np.float64(1980), "ground_truths": ["y"], "contexts": ["c", None]},
        {"answer": float("nan"), "ground_truths": None, "contexts": []},
        {"answer": True, "ground_truths": ["z"], "contexts": "only one"},
    ]
    with pytest.warns(UserWarning, match="cells of 'answer' put right: 3"):
        frame = read_answers(rows)
    assert frame["answer"].tolist() == ["1979", "1980", None, "True"]
    assert frame["reference"].tolist() == ["x", "y", None, "z"]
    assert frame["chunks"].tolist() == [["c", "d"], ["c"], [], ["only one"]]
    repairs = [f"cells of '{name}' put right: 3" for name in ("answer", "chunks", "reference")]
    assert sorted(frame.attrs["repairs"]) == repairs
    recwarn.clear()
    assert read_answers([OURS]).attrs["repairs"] == []
    assert not recwarn.list


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"user_input": [{"content": "hi", "type": "human"}]}, "'question'"),
        ({"response": {"text": "x"}}, "'answer'"),
        ({"retrieved_contexts": ["a", ["b"]]}, "'chunks.1'"),
        ({"retrieved_contexts": 7}, "'chunks'"),
        ({"retrieved_contexts": "['a', b"}, "'chunks'"),
        ({"retrieved_contexts": "['a', 7]"}, "'chunks.1'"),
        ({"retrieved_contexts": "['a' 'b' ... 'z']"}, "'chunks'"),
        ({"retrieved_contexts": "[" * 100_000}, "'chunks'"),
        ({"retrieved_contexts": "[1, 2]"}, "'chunks.0'"),
        ({"id": None}, "question_id"),
        ({"id": "1", "user_input": "How old?"}, "question_id"),
    ],
)
def test_a_cell_that_cannot_be_read_is_one_error_with_file_line_and_column(
    change, column, write_lines
):
    path = write_lines("answers.jsonl", RAGAS | {"id": "1"}, RAGAS | {"id": "2"} | change)
    with refused(DataError, rf"answers\.jsonl, line 2: {column}") as caught:
        read_answers(path)
    assert len(str(caught.value)) < 1000


FORMATS = ["dicts", "frame", *(f"a{ending}" for ending in WRITERS if ending != ".gz"), "a.jsonl.gz"]
CODE = "if (a || b) return early;"
TRICKY = [
    {
        "question": "nan",
        "answer": "nan",
        "reference": "nan",
        "chunks": ["nan", "None"],
        "retrieved": [1, 2],
        "relevant": [2.0],
    },
    {
        "question": "if (a || b)?",
        "answer": CODE,
        "reference": "early",
        "chunks": [CODE],
        "relevant": [7],
    },
    {
        "question": 'é, "quoted"; =1+1\nwhere?',
        "answer": "",
        "answer_is_empty": True,
        "reference": "x",
        "chunks": ["[1] a; b", "c"],
    },
    {
        "question": "Which?",
        "answer": "1.50",
        "reference": ["one and a half", "1.50"],
        "chunks": ["\ttab, 'it'"],
    },
]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_same_row_has_the_same_score_in_every_format(tmp_path):
    scored = {}
    for kind in FORMATS:
        table = rb.score(stored(tmp_path, kind, TRICKY), ["lexical", "ranking"])
        scored[kind] = table[table.numbers]
        assert table["chunks"].tolist() == [row["chunks"] for row in TRICKY], kind
        pd.testing.assert_frame_equal(scored[kind], scored["dicts"], obj=kind)
    assert scored["dicts"]["exact_match"].tolist() == [1, 0, 0, 1]
    assert scored["dicts"]["RR"][0] == 0.5


def test_two_bars_separate_texts_in_a_csv_alone_and_a_text_in_json_lines_is_one(put, write_lines):
    lines = write_lines("a.jsonl", {"answer": "a", "contexts": CODE})
    with pytest.warns(UserWarning, match="cells of 'chunks' put right: 1"):
        assert read_answers(lines)["chunks"][0] == [CODE]
    path = put("a.csv", "answer,contexts,retrieved,relevant\na,One. || Two.,1||2,2\n")
    read = read_answers(path)
    assert (read["chunks"][0], read["retrieved"][0]) == (["One.", "Two."], ["1", "2"])
    assert rb.score(path, ["ranking"])["RR"][0] == 0.5


@pytest.mark.parametrize(
    "text",
    [
        "question,answer\rWho?,Ann\r",
        "\r\nquestion,answer\r\nWho?,Ann",
    ],
)
def test_a_csv_with_other_line_ends_is_read(put, text):
    read = read_answers(put("a.csv", text))
    assert read.loc[0, ["question", "answer"]].tolist() == ["Who?", "Ann"]
    lines = put("a.jsonl", '{"answer": "a"}\r{"answer": "b"}\r')
    assert read_answers(lines)["answer"].tolist() == ["a", "b"]


def test_an_empty_context_of_a_csv_is_a_text_as_in_json_and_a_cell_may_be_long(tmp_path):
    row = {"answer": "a", "context": "", "reference": "", "question": "q" * 2_000_000}
    for name in ("a.csv", "a.jsonl"):
        read = read_answers(stored(tmp_path, name, [row])).loc[0]
        assert read[["answer", "context", "reference"]].tolist() == ["a", "", None], name
        assert len(read["question"]) == 2_000_000


def test_an_empty_answer_of_a_csv_is_missing_with_a_warning_unless_it_is_said_to_be_one(put):
    with pytest.warns(UserWarning, match="empty answers that count as missing: 2 .true in the"):
        read = read_answers(put("a.csv", "question,answer\np,a\nq,\nr,\n"))
    assert read["answer"].tolist() == ["a", None, None]
    said = "question,answer,answer_is_empty\np,a,False\nq,,True\nr,,False\ns,,\n"
    with pytest.warns(UserWarning, match="empty answers that count as missing: 2 "):
        read = read_answers(put("b.csv", said))
    assert read["answer"].tolist() == ["a", "", None, None]
    assert read_answers([{"question": "q", "answer": ""}])["answer"].tolist() == [""]


def test_the_best_of_several_true_answers_counts_and_labels_ask_for_one():
    row = {"question": "q", "answer": "New York", "chunks": ["x"]}
    row["reference"] = ["Albany", "new york"]
    assert rb.score([row], ["exact_match"])["exact_match"].tolist() == [1.0]
    with refused(DataError, "several true answers in 'reference'"):
        rb.score([row | {"references": ["x"]}], ["fully_right"], "ollama:llama3:8b")


@pytest.mark.parametrize(
    "cell", ["['a', nan, None]", '["a", NaN, null]', ["a", float("nan"), None]]
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_empty_places_of_a_list_are_left_out_and_counted_however_it_is_written(cell):
    frame = read_answers([OURS | {"chunks": cell}])
    assert frame.at[0, "chunks"] == ["a"]
    assert frame.attrs["repairs"] == ["cells of 'chunks' put right: 1"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, r"there is no file .*none\.csv"),
        ("none.parquet", None, r"none\.parquet cannot be read"),
        ("bad.parquet", b"PAR1 no more", r"bad\.parquet cannot be read"),
        ("list.json", b"[1]", r"list\.json: a table as int"),
    ],
)
def test_a_file_that_is_missing_or_damaged_is_told(tmp_path, put, name, content, message):
    if content is not None:
        put(name, content)
    with refused(DataError, message):
        read_answers(tmp_path / name)


def test_a_csv_as_spreadsheets_write_it_is_read(put):
    read = read_answers(put("bare.csv", "question,answer\nWo?,Köln\n".encode("utf-8-sig")))
    assert read.loc[0, ["question", "answer"]].tolist() == ["Wo?", "Köln"]
    with refused(ConfigError, r"unknown kind of file '.xlsx'(.|\n)*Save as, CSV UTF-8"):
        read_answers(put("answers.xlsx", b"PK"))


test_what_is_no_table_of_answers_is_refused = refusals(
    (lambda: read_answers(pd.DataFrame()), DataError, "holds no record"),
    (lambda: read_answers([]), DataError, "holds no record"),
    (lambda: read_answers([Sample]), DataError, "a table as"),
    (lambda: read_answers(3), DataError, "a table as int"),
)


def test_rows_without_a_question_are_not_one_question():
    rows = [{"question": q, "answer": "a"} for q in ("one?", None, None)]
    assert read_answers(rows)["question_id"].tolist() == ["q1", "q2", "q3"]


def test_documents_of_langchain_are_their_texts():
    documents = [Document(page_content=text, metadata={"source": "a"}) for text in PASSAGES]
    result = {"input": QUESTION, "context": documents, "answer": ANSWER}  # of a retrieval chain
    log = result | {"context": [document.model_dump() for document in documents]}
    for row in (result, log):
        read = read_answers([row], {"chunks": "context"})
        assert read.at[0, "chunks"] == PASSAGES
        with refused(DataError, r"columns=\{'chunks': 'context'\}"):
            read_answers([row])


@pytest.mark.parametrize("item", [{"id": "d1", "score": 2.5}, {"id": "d1", "text": "t"}, ["d1", 2]])
@pytest.mark.parametrize("column", ["retrieved", "relevant"])
def test_documents_in_place_of_their_ids_are_refused_and_not_scored_as_0(column, item):
    row = {"retrieved": ["d1"], "relevant": ["d1"]}
    with refused(DataError, rf"'{column}' is (.|\n)*ids of documents"):
        rb.score([row | {column: [item]}], ["RR"])
    assert rb.score([row], ["RR"])["RR"].tolist() == [1.0]
