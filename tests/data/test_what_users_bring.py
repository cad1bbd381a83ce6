"""What users bring: repeated questions, texts out of a PDF, files that unpack without end, links."""

from __future__ import annotations

import zlib

import docx
import pandas as pd
import pytest
from checks import refused
from docx.oxml import parse_xml
from retrieval_parts import chunks_of, ids_found

import ragbench as rb
from ragbench import data
from ragbench.data.relevance import document_clusters, judgements
from ragbench.errors import ConfigError, DataError
from ragbench.retrieval.text import Tokenizer
from ragbench.text.languages import language_of
from ragbench.text.layout import Normalised
from ragbench.text.sentences import split_sentences

W = "xmlns:w='http://schemas.openxmlformats.org/wordprocessingml/2006/main'"
FACT = "The office burned in 1902."


def test_ten_questions_asked_five_times_without_ids_are_ten():
    rows = [{"question": f"Who was {n % 10}?", "answer": "Ada"} for n in range(50)]
    with pytest.warns(UserWarning, match="40 of 50 rows repeat a question"):
        loaded = data.load_questions(rows)
    assert [question.text for question in loaded.questions] == [f"Who was {n}?" for n in range(10)]
    with_ids = [row | {"id": n} for n, row in enumerate(rows)]
    assert len(data.load_questions(with_ids).questions) == 50


def test_one_text_with_two_answers_stays_two_questions():
    rows = [{"question": "Who?", "answer": name} for name in ("Ada", "Bo")]
    assert len(data.load_questions(rows).questions) == 2


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
    normalised = Normalised.of("aﬀﬁﬂﬃﬄﬅﬆb")
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


@pytest.mark.posix
def test_links_out_of_a_folder_are_left_out_and_named_and_lock_files_of_word_are_hidden(
    tmp_path, put
):
    secret = put("secret.txt", "secret")
    inside = put("docs/a.txt", "A mill.")
    put("docs/~$x.docx", b"\x05user")
    (tmp_path / "docs" / "notes.txt").symlink_to(secret)
    (tmp_path / "docs" / "same.txt").symlink_to(inside)
    with pytest.warns(UserWarning, match=r"skipped: 1 links out of the folder \(notes\.txt\)$"):
        documents = data.load_documents(tmp_path / "docs")
    assert [document.id for document in documents] == ["a.txt", "same.txt"]


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
    assert document.text == "So x2 it is."


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


def test_a_small_pdf_of_very_many_pages_is_refused_before_they_are_read(pdf_of):
    nodes = [
        b"<< /Type /Pages /Count 10 /Kids [%b] >>" % (b"%d 0 R " % (n + 1) * 10)
        for n in range(2, 8)
    ]
    path = pdf_of(*nodes, b"<< /Type /Page /MediaBox [0 0 9 9] >>")
    with refused(DataError, r"a\.pdf .* more than 20,000 pages"):
        data.load_documents(path)


def test_a_pdf_that_draws_without_end_is_refused(pdf_of, monkeypatch):
    monkeypatch.setattr("ragbench.data.documents.MAX_OPERATIONS", 1000)
    drawn = zlib.compress(b"q Q " * 5000)
    path = pdf_of(
        ONE_PAGE,
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Resources << /Font << >> >> /Contents 4 0 R >>",
        b"<< /Length %d /Filter /FlateDecode >> stream\n%b\nendstream" % (len(drawn), drawn),
    )
    with refused(DataError, r"a\.pdf draws more than 1,000 times"):
        data.load_documents(path)


def test_a_parquet_file_of_very_many_empty_cells_is_refused_by_its_head(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.setattr("ragbench.data.tables.MAX_CELLS", 100_000)
    pq.write_table(pa.table({"answer": pa.nulls(1_000_000)}), tmp_path / "a.parquet")
    with refused(DataError, r"a\.parquet .* 1,000,000 cells"):
        data.read_answers(tmp_path / "a.parquet")


def test_a_few_lines_of_yaml_that_stand_for_a_table_without_end_are_refused(put):
    lines = ["a0: &a0 [1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    with refused(ConfigError, r"e\.yaml, line 4: more than 20 aliases"):
        rb.Experiment.from_yaml(put("e.yaml", "\n".join(lines)))


def test_a_formula_in_brackets_is_quoted_for_spreadsheets():
    from ragbench.text.escape import in_csv

    cells = ["-1 [=cmd|x]", "-1.5 [-2, 1]"]
    assert in_csv(pd.DataFrame({"a": cells}))["a"].tolist() == ["'-1 [=cmd|x]", "-1.5 [-2, 1]"]


def test_a_clean_folder_is_read_without_a_warning(tmp_path, put, recwarn):
    put("a.txt", "A mill.")
    assert len(data.load_documents(tmp_path)) == 1
    assert not recwarn.list


def test_columns_without_a_head_that_a_spreadsheet_leaves_are_no_column_that_occurs_twice(tmp_path):
    (tmp_path / "q.csv").write_text("question;answer;;\nWho?;Ada;;\n")
    (question,) = data.load_questions(tmp_path / "q.csv").questions
    assert (question.text, question.answer) == ("Who?", "Ada")
    (tmp_path / "q.csv").write_text("question;answer;answer;\nWho?;Ada;Bea;\n")
    with refused(DataError, "a column occurs twice: question, answer, answer"):
        data.load_questions(tmp_path / "q.csv")
