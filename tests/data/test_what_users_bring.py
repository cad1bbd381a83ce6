"""What users bring: repeated questions, texts out of a PDF, files that unpack without end, links."""

from __future__ import annotations

import csv
import datetime
import json
import re

import docx
import numpy as np
import pandas as pd
import pytest
from checks import refused
from docx.oxml import parse_xml
from retrieval_parts import chunks_of, ids_found

import ragbench as rb
from ragbench import data
from ragbench.data.relevance import judgements
from ragbench.errors import DataError
from ragbench.paths import project_root
from ragbench.retrieval.text import Tokenizer
from ragbench.stats.clusters import document_clusters
from ragbench.text.escape import in_csv
from ragbench.text.languages import language_of
from ragbench.text.layout import _Normalised
from ragbench.text.sentences import split_sentences

W = "xmlns:w='http://schemas.openxmlformats.org/wordprocessingml/2006/main'"
FACT = "The office burned in 1902."


def test_ten_questions_asked_five_times_without_ids_are_ten():
    rows = [{"question": f"Who was {n % 10}?", "answer": "Ada"} for n in range(50)]
    with pytest.warns(UserWarning, match="40 of 50 rows repeat a question"):
        loaded = data.load_questions(rows)
    assert [question.text for question in loaded.questions] == [f"Who was {n}?" for n in range(10)]
    others = [{"question": "Who?", "answer": name} for name in ("Ada", "Bo")]
    assert len(data.load_questions(others).questions) == 2
    with_ids = [row | {"id": n} for n, row in enumerate(rows)]
    assert len(data.load_questions(with_ids).questions) == 50


@pytest.mark.parametrize(
    "text",
    [
        "The office\nburned in 1902.",
        "The  office burned in 1902.",
        "The\u00a0office burned in 1902.",
        "The of\u00adfice burned in 1902.",
        "The oﬃce burned in 1902.",
    ],
    ids=["wrapped", "two blanks", "no-break space", "soft hyphen", "ligature"],
)
def test_a_reference_that_differs_in_layout_alone_is_found_by_every_reader(text):
    questions = (
        rb.Question("a", "When?", "1902", (FACT,)),
        rb.Question("b", "When?", "1902", (FACT,)),
    )
    page = f"So. {text} Then."
    documents = (rb.Document("other", "", "A wall."), rb.Document("page", "", page))
    asked = rb.Dataset("d", questions, documents)
    assert judgements(asked) == {"a": {"page": 1}, "b": {"page": 1}}
    assert len(set(document_clusters(asked).values())) == 1
    assert data.validate(asked) == []
    assert rb.ir_score([FACT], page) == 1.0
    assert ids_found(rb.BM25(chunks_of("A wall.", page)), "office", 1) == ["c00001"]


def test_every_ligature_is_its_letters_and_maps_back():
    normalised = _Normalised.of("aﬀﬁﬂﬃﬄﬅﬆb")
    assert normalised.text == "afffiflffifflststb"
    assert normalised.span(1, 3) == (1, 2)


def test_istanbul_is_found_whatever_its_i():
    words = Tokenizer.of("words")
    assert words("İSTANBUL") == words("istanbul") == ["istanbul"]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("यह एक है। वह दो है।", 2),
        ("یہ ایک ہے۔ وہ دو ہے۔", 2),
        ("これは本です．あれはペンです．", 2),
        ("See fig. 3 there. Next.", 2),
        ("Er kam am 3. Mai an. Dann ging er.", 2),
        ("Art. 5 gilt. Mehr nicht.", 2),
        ("He was no. 5. May came.", 3),  # a published rule: only the words named here go on
    ],
)
def test_full_stops_of_other_scripts_end_a_sentence_and_those_of_short_words_do_not(
    text, sentences
):
    assert len(split_sentences(text, "chunks")) == sentences


def test_a_german_question_of_words_that_english_has_too_is_not_english():
    assert language_of(["Was zeigt free an?"]) != "english"


def test_german_heads_are_read_and_other_columns_are_kept():
    rows = [{"Frage": "Wer?", "Antwort": "Ada", "Belege": ["Ada."], "Sprache": "de", "Nr": 7}]
    (question,) = data.load_questions(rows, [{"Titel": "T", "Text": "Ada."}]).questions
    assert (question.text, question.answer, question.references) == ("Wer?", "Ada", ("Ada.",))
    assert question.meta == {"Sprache": "de", "Nr": 7}


def test_empty_last_rows_of_a_spreadsheet_are_none(put):
    path = put("q.csv", "question;answer\nWho?;Ada\n;\n;\n")
    assert len(data.load_questions(path).questions) == 1


def test_a_missing_folder_is_named_in_full(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused(DataError, str(tmp_path / "dosc")):
        data.load_documents("dosc")


def test_a_file_from_excel_in_cp1252_says_how_to_save_it(put):
    path = put("q.csv", "question;answer\nWer?;Köln\n".encode("cp1252"))
    with refused(DataError, r"line 2(.|\n)*CSV UTF-8"):
        data.load_questions(path)


def test_ids_1_and_text_1_are_one_id():
    with refused(DataError, "used twice"):
        data.read_answers([{"id": 1, "answer": "a"}, {"id": "1", "answer": "b"}])
    rows = [{"id": n, "question": "q", "answer": "a"} for n in (1, "1")]
    with refused(DataError, "there before"):
        data.load_questions(rows)


def test_lock_files_of_word_are_hidden(tmp_path, put):
    put("a.txt", "A mill.")
    put("~$x.docx", b"\x05user")
    (document,) = data.load_documents(tmp_path)
    assert document.id == "a.txt"


def test_a_symbol_of_a_symbol_font_is_seen_to_be_missing(tmp_path):
    letter = docx.Document()
    paragraph = letter.add_paragraph("dose ")
    for run in (
        "<w:sym w:font='Symbol' w:char='F0A3'/>",
        "<w:t>5 mg</w:t><w:ptab w:alignment='right'/><w:t>17</w:t>",
    ):
        paragraph._p.append(parse_xml(f"<w:r {W}>{run}</w:r>"))
    letter.save(str(tmp_path / "a.docx"))
    (document,) = data.load_documents(tmp_path / "a.docx")
    assert document.text == "dose \N{REPLACEMENT CHARACTER}5 mg\t17"


def test_a_formula_of_katex_stands_once(put):
    tex = "<annotation encoding='application/x-tex'>x^2</annotation>"
    formula = f"<semantics><mrow><msup><mi>x</mi><mn>2</mn></msup></mrow>{tex}</semantics>"
    mathml = f"<span class='katex-mathml'><math>{formula}</math></span>"
    copy = "<span class='katex-html' aria-hidden='true'>x2</span>"
    path = put("a.html", f"<p>So <span class='katex'>{mathml}{copy}</span> it is.")
    (document,) = data.load_documents(path)
    assert document.text == "So x² it is."


CATALOGUE = b"<< /Type /Catalog /Pages 2 0 R >>"
ONE_PAGE = b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>"


@pytest.fixture
def pdf_of(put):
    """Writes a PDF of objects after its catalogue; returns its path."""

    def write(*objects):
        content = b"%PDF-1.4\n"
        places = b""
        for number, body in enumerate((CATALOGUE, *objects), 1):
            places += b"%010d 00000 n \n" % len(content)
            content += b"%d 0 obj\n%b\nendobj\n" % (number, body)
        size = len(objects) + 2
        table = b"xref\n0 %d\n0000000000 65535 f \n%b" % (size, places)
        end = b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (size, len(content))
        return put("a.pdf", content + table + end)

    return write


def test_half_a_surrogate_pair_in_a_pdf_is_replaced(pdf_of, monkeypatch):
    monkeypatch.setattr("pypdf.PageObject.extract_text", lambda page, **_: "dam \ud83d broke")
    path = pdf_of(ONE_PAGE, b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] >>")
    (page,) = data.load_documents(path)
    assert page.text == "dam \N{REPLACEMENT CHARACTER} broke"


def test_a_formula_in_brackets_is_quoted_for_spreadsheets():
    cells = ["-1 [=cmd|x]", "-1.5 [-2, 1]"]
    assert in_csv(pd.DataFrame({"a": cells}))["a"].tolist() == ["'-1 [=cmd|x]", "-1.5 [-2, 1]"]


def test_columns_without_a_head_that_a_spreadsheet_leaves_are_no_column_that_occurs_twice(tmp_path):
    (tmp_path / "q.csv").write_text("question;answer;;\nWho?;Ada;;\n")
    (question,) = data.load_questions(tmp_path / "q.csv").questions
    assert (question.text, question.answer) == ("Who?", "Ada")
    (tmp_path / "q.csv").write_text("question;answer;answer;\nWho?;Ada;Bea;\n")
    with refused(DataError, "a column occurs twice: question, answer, answer"):
        data.load_questions(tmp_path / "q.csv")


def first_answer(path):
    return data.read_answers(path)["answer"].tolist()


@pytest.mark.parametrize(
    "text",
    [
        '"Yes," he said',
        'a 5" pipe',
        '"Hamlet"',
        'He said "x',
        '"unclosed',
        "it's",
    ],
)
def test_quotation_marks_of_a_tsv_are_text_and_merge_no_rows(put, text):
    path = put("a.tsv", f"answer\tsystem\n{text}\ta\n{text}\tb\n")
    assert first_answer(path) == [text, text]


@pytest.mark.parametrize("text", ['He said "x"', "two\nlines", "a\ttab", '"', '"all"'])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_a_tsv_that_its_writer_quoted_is_read_as_it_was(tmp_path, text, quoting):
    frame = pd.DataFrame({"answer": [text, "b"], "system": ["x", "y"]})
    frame.to_csv(tmp_path / "a.tsv", sep="\t", index=False, quoting=quoting)
    assert first_answer(tmp_path / "a.tsv") == [text, "b"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", '{"question": "q", "answer": "a", "answer": "b"}'),
        ("a.json", '[{"question": "q", "answer": "a", "answer": "b"}]'),
        ("a.jsonl", '{"question": "q", "answer": "a", "meta": {"x": 1, "x": 2}}'),
        ("a.json", '{"answer": ["a"], "question": ["q"], "answer": ["b"]}'),
        ("a.jsonl", '{"question": "q", "answer": "a", "answer": "a"}'),
    ],
)
def test_a_key_that_is_twice_in_json_is_refused(put, name, text):
    for read in (data.load_questions, data.read_answers):
        with refused(DataError, r"a\.jsonl?, line 1: the key '(answer|x)' is there twice"):
            read(put(name, text))


@pytest.mark.parametrize(
    "text", ["-base", "=1+1", "+ a sign", "@home", "'-base", "−5 °C", "-1.5", "'tis", "''", "a'-b"]
)
def test_the_sign_against_formulas_is_taken_off_when_the_file_is_read_again(tmp_path, text):
    frame = pd.DataFrame({"answer": [text], text: ["x"]})
    in_csv(frame).to_csv(tmp_path / "a.csv", index=False)
    read = data.read_answers(tmp_path / "a.csv")
    assert read["answer"].tolist() == [text]
    assert text in read


@pytest.mark.parametrize("first", ["sep=;\n", "SEP=;\r\n", '"sep=;"\n'])
def test_a_separator_that_the_first_line_names_is_read(put, first):
    path = put("q.csv", f"{first}question;answer\nWho, when?;Ada, 1841\n;b\n")
    with refused(DataError, r"q\.csv, line 4: 'question' is empty"):
        data.load_questions(path)
    path = put("q.csv", f"{first}question;answer\nWho, when, why?;Ada\n")
    assert data.load_questions(path).questions[0].text == "Who, when, why?"


@pytest.mark.parametrize(
    "written",
    [
        "('One.', 'Two.')",
        "['One.', 'Two.']",
        "array(['One.', 'Two.'], dtype=object)",
        '["One.", "Two."]',
        "frozenset({'One.', 'Two.'})",
        "{'One.', 'Two.'}",
    ],
)
def test_a_tuple_or_set_as_text_is_a_list(tmp_path, written):
    chunks = [{"answer": "a", "chunks": written}]
    pd.DataFrame(chunks).to_csv(tmp_path / "a.csv", index=False)
    for source in (chunks, tmp_path / "a.csv"):
        assert data.read_answers(source)["chunks"].tolist() == [["One.", "Two."]]


@pytest.mark.parametrize("text", ["(1997)", "(see 3, 4)", "{x}", "('a')", "set (a)"])
def test_a_text_in_brackets_is_one_text(text):
    assert data.read_answers([{"answer": "a", "chunks": text}])["chunks"].tolist() == [[text]]


def test_two_documents_of_one_title_are_refused_or_told_apart_by_id(tmp_path, put):
    pages = [{"title": "Mill", "sentences": [text]} for text in ("It burned.", "It stands.")]
    asked = [{"question": "q", "answer": "a", "supporting_facts": [["Mill", 0]]}]
    with refused(DataError, "'Mill' was there before"):
        data.load_questions(asked, pages)
    named = [page | {"id": name} for page, name in zip(pages, ("d1", "d2"), strict=True)]
    with refused(DataError, "'Mill' is no document's title, or that of several: then name its id"):
        data.load_questions(asked, named)
    asked[0]["supporting_facts"] = [["d2", 0]]
    (question,) = data.load_questions(asked, named).questions
    assert question.references == ("It stands.",)
    assert question.meta["doc_ids"] == ("d2",)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime.date(1841, 5, 3), "1841-05-03"),
        (datetime.datetime(1841, 5, 3), "1841-05-03"),
        (pd.Timestamp("1841-05-03"), "1841-05-03"),
        (pd.Timestamp("1841-05-03 07:30"), "1841-05-03 07:30:00"),
        (np.datetime64("1841-05-03"), "1841-05-03"),
    ],
)
def test_a_date_as_true_answer_is_written_as_a_date(value, text):
    read = data.read_answers([{"answer": "a", "reference": value}])
    assert read["reference"].tolist() == [text]
    (question,) = data.load_questions([{"question": "When?", "answer": value}]).questions
    assert question.answer == text


CASE = {
    "name": "t",
    "input": "Who?",
    "actualOutput": "Ada did.",
    "expectedOutput": "Ada",
    "retrievalContext": ["Ada founded it."],
    "context": ["Ada."],
    "metricsData": [{"name": "m", "score": 1.0}],
}


@pytest.mark.parametrize("wrapped", [lambda run: run, lambda run: {"testRunData": run}])
def test_a_test_run_of_deepeval_is_read(put, wrapped):
    run = wrapped({"testCases": [CASE, CASE | {"input": "When?"}], "testPassed": 1})
    for source in (run, put("run.json", run)):
        read = data.read_answers(source)
        ours = ["question", "answer", "reference", "chunks", "references"]
        assert read[ours].iloc[0].tolist() == [
            "Who?", "Ada did.", "Ada", ["Ada founded it."], ["Ada."],
        ]  # fmt: skip
        assert read["question_id"].tolist() == ["q1", "q2"]


SQUAD = {
    "id": "1",
    "title": "Mill",
    "context": "Ada founded it in 1841.",
    "question": "When?",
    "answers": {"text": ["1841", "in 1841", "1841"], "answer_start": [18, 15, 18]},
}


def test_true_answers_of_squad_are_read(put):
    for source in ([SQUAD], put("squad.jsonl", json.dumps(SQUAD)), pd.DataFrame([SQUAD])):
        (question,) = data.load_questions(source).questions
        assert (question.id, question.answer) == ("1", "1841")
        assert question.references == ("Ada founded it in 1841.",)
        assert question.meta["answers"]["text"] == SQUAD["answers"]["text"]
    answered = [SQUAD | {"answer": "In 1841"}]
    scored = rb.score(answered, ["exact_match"])
    assert scored["reference"].tolist() == [["1841", "in 1841"]]
    assert scored["exact_match"].tolist() == [1.0]
    given = data.read_answers([answered[0] | {"reference": "May"}])
    assert given["reference"].tolist() == ["May"]
    unanswerable = SQUAD | {"answers": {"text": [], "answer_start": []}}
    with refused(DataError, "no field 'answer'"):
        data.load_questions([unanswerable])


HUB = {
    "id": "1",
    "question": "Who?",
    "answer": "Ada",
    "type": "bridge",
    "level": "easy",
    "supporting_facts": {"title": ["Mill", "Dam"], "sent_id": [1, 0]},
    "context": {"title": ["Mill", "Dam"], "sentences": [["It is.", " Ada built it."], ["B."]]},
}
OFFICIAL = {
    "_id": "1",
    "question": "Who?",
    "answer": "Ada",
    "type": "bridge",
    "supporting_facts": [["Mill", 1], ["Dam", 0]],
    "context": [["Mill", ["It is.", " Ada built it."]], ["Dam", ["B."]]],
}


@pytest.mark.parametrize(
    "row", [HUB, OFFICIAL | {"level": "easy"}, OFFICIAL, OFFICIAL | {"id": "1"}]
)
def test_hotpotqa_of_the_hub_and_2wiki_are_read_as_the_official_file(put, row):
    for path in (put("a.json", [row]), put("a.jsonl", json.dumps(row))):
        loaded = data.load_hotpotqa(path)
        (question,) = loaded.questions
        assert (question.id, question.answer, question.kind) == ("1", "Ada", "bridge")
        assert question.references == ("Ada built it.", "B.")
        assert question.level == row.get("level", "")
        assert [document.text for document in loaded.documents] == ["It is. Ada built it.", "B."]


def test_a_list_of_the_hub_that_is_too_short_is_refused(put):
    facts = {"title": ["Mill", "Dam"], "sent_id": [1]}
    with refused(DataError, r"a\.json, row 0"):
        data.load_hotpotqa(put("a.json", [HUB | {"supporting_facts": facts}]))


AUTORAG = {
    "query": "Who built it?",
    "generated_texts": "Ada.",
    "generation_gt": ["Ada", "Ada Ruck"],
    "retrieved_ids": ["d1", "d2"],
    "retrieval_gt": [["d2"], ["d9"]],
}
LANGSMITH = {
    "inputs": {"question": "Who built it?"},
    "outputs": {"answer": "Ada."},
    "reference_outputs": {"answer": "Ada"},
}
TRULENS = {"input": "Who built it?", "output": "Ada.", "record_id": "r1"}
TRIVIAQA = {
    "question": "Who built it?",
    "answer": {"value": "Ada", "aliases": ["Ada", "Ada Ruck"]},
    "question_id": "t1",
}


@pytest.mark.parametrize(
    ("tool", "export", "expected"),
    [
        ("AutoRAG", AUTORAG, {"relevant": ["d2", "d9"], "reference": ["Ada", "Ada Ruck"]}),
        ("LangSmith", LANGSMITH, {"question": "Who built it?", "answer": "Ada."}),
        ("TruLens", TRULENS, {"question": "Who built it?", "answer": "Ada."}),
        ("TriviaQA", TRIVIAQA, {"question": "Who built it?", "answer": "Ada"}),
    ],
)
def test_the_pages_line_of_pandas_turns_the_export_of_a_tool(tool, export, expected):
    page = (project_root() / "docs" / "data.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^\| {tool} \| .* \| `(.+)` \|$", page, re.MULTILINE)
    names = {"pd": pd, "frame": pd.DataFrame([export]), "runs": [export]}
    (row,) = eval(line, names).to_dict("records")  # our own page
    assert expected.items() <= row.items()
    if tool == "LangSmith":
        assert rb.score([row], ["contained"])["contained"].tolist() == [1]
