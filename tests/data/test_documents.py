"""PDF, DOCX and HTML: every visible word once and in order, pages without text named, damaged files
told.
"""

from __future__ import annotations

import itertools
import sys
import zipfile

import matplotlib.pyplot as plt
import pytest
from checks import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_pdf import PdfPages
from retrieval_parts import chunks_of, ids_found

import ragbench as rb
from ragbench.data import load_documents
from ragbench.errors import ConfigError, DataError

HTML = """<html><head><title>No</title><style>p {}</style></head><body><h1>Mill</h1><p>It <b>burned</b> down.</p>
<ul><li><p>In 1902.</p></li><li>In spring.</li></ul><script>no()</script></body></html>"""


def pdf(path, *pages):
    with PdfPages(path) as file:
        for text in pages:
            figure = plt.figure()
            figure.text(0.1, 0.5, text)
            file.savefig(figure)
            plt.close(figure)
    return path


@pytest.mark.filterwarnings("ignore:.*no text on page")
def test_pages_of_a_pdf_are_named_in_the_titles_of_their_chunks(tmp_path):
    texts = ["The mill burned down.", "", "The dam is 48 metres high."]
    pdf(tmp_path / "report.pdf", *texts)
    for source in (tmp_path, tmp_path / "report.pdf"):
        documents = load_documents(source)
        assert [(d.id, d.title, d.text.strip()) for d in documents] == [
            (f"report.pdf#page-{n}", f"report, page {n}", text) for n, text in enumerate(texts, 1)
        ]
    last = rb.token_chunks(documents, size=50)[-1]
    assert (last.title, last.text) == ("report, page 3", "The dam is 48 metres high.")


def test_a_page_without_text_is_named_and_a_file_without_any_is_refused(tmp_path):
    pdf(tmp_path / "half.pdf", "Text.", "", "")
    with pytest.warns(UserWarning, match=r"half\.pdf: no text on page 2, 3 of 3"):
        load_documents(tmp_path)
    with refused(DataError, r"scan\.pdf holds no text(.|\n)*OCR"):
        load_documents(pdf(tmp_path / "scan.pdf", ""))


def test_html_and_docx_give_their_parts_in_order_and_once(tmp_path, put):
    import docx

    put("a.html", HTML)
    letter = docx.Document()
    letter.add_heading("Dam")
    letter.add_paragraph("It is 48 metres high.")
    letter.add_table(1, 2).rows[0].cells[1].text = "stone"
    letter.save(str(tmp_path / "b.docx"))
    put("c.txt", "plain")
    assert [(d.id, d.title, d.text) for d in load_documents(tmp_path)] == [
        ("a.html", "a", "Mill\nIt burned down.\nIn 1902.\nIn spring."),
        ("b.docx", "b", "Dam\nIt is 48 metres high.\n\tstone"),
        ("c.txt", "c", "plain"),
    ]


def html(folder, text):
    path = folder / "a.html"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_documents(path)[0].text


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("<div>Founded 1841.</div><p>Closed 1902.</p>", "Founded 1841.\nClosed 1902."),
        ("<p>One<p>Two<ul><li>a<li>b<ul><li>c</ul>d</ul>", "One\nTwo\na\nb\nc\nd"),
        ("<table>T<tr><td>1<td>2<tr><th>3</table>", "T\n1\n2\n3"),
        ("a<br>b <ins>c</ins><details><summary>d</summary>e</details>f", "a\nb c\nd\ne\nf"),
        ("CO<sub>2</sub> of the <b>m</b>ill", "CO2 of the mill"),
        ("<pre>if a:\n  b</pre><textarea>x\ny</textarea>", "if a:\nb\nx\ny"),
        (
            "<p hidden>no</p><p style='display: none'>no</p>yes<!-- no --><template>no</template>",
            "yes",
        ),
        ("<p>Köln".encode("latin-1"), "Köln"),
        ('<meta charset="koi8-r"><p>Дом'.encode("koi8-r"), "Дом"),
        ("<p>caf\xe9 \x93a\x94 \x80".encode("latin-1"), "café “a” €"),
        ("<meta charset=iso-8859-1><p>\x93a\x94".encode("latin-1"), "“a”"),
        (
            b"<meta http-equiv=content-type content='text/html; charset=x-none'><p>caf\xe9 \x85",
            "café …",
        ),
        ("<?xml version='1.0' encoding='koi8-r'?><p>Дом".encode("koi8-r"), "Дом"),
        ("<p>Дом".encode("utf-16"), "Дом"),
        ("<meta charset=gb2312><p>镕".encode("gb18030"), "镕"),
    ],
)
def test_html_is_read_as_a_browser_shows_it(tmp_path, text, read):
    assert html(tmp_path, text) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("10<sup>6</sup> cells", "10⁶ cells"),
        ("10<sup>−3</sup> m<sup>-2</sup>", "10⁻³ m⁻²"),
        ("5 km<sup>2</sup>, (a+b)<sup>2</sup>, R<sup>2</sup>", "5 km², (a+b)², R²"),
        ("x<sup>2</sup>y<sup>3</sup>, 2<sup>n</sup>", "x²y³, 2ⁿ"),
        ("10<sup>1<b>2</b></sup>, 10<span style='vertical-align: super'>6</span>", "10¹², 10⁶"),
        ("Ca<sup>2+</sup>, <sup>14</sup>C", "Ca²⁺, ¹⁴C"),
        ("the 1<sup>st</sup>, XIX<sup>e</sup>", "the 1st, XIXe"),
        ("1<sup>1</sup>/<sub>2</sub>", "1¹/2"),
        ("in 1841<sup>2</sup>", "in 1841 ²"),
        ("Ely<sup>2</sup> burned.<sup>3, 4</sup>", "Ely ² burned. ³, ⁴"),
        ("48<sup class=reference><a href='#n'>[2]</a></sup>", "48 [2]"),
        ("48<a href='#n'><sup>2</sup></a>", "48 ²"),
        ("48<sup id=fnref2>2</sup>", "48 ²"),
        ("<math><msup><mn>10</mn><mn>6</mn></msup></math>", "10⁶"),
        ("<math><msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup></math>", "x1²"),
        ("<math><mfrac><mn>1</mn><mn>2</mn></mfrac></math>", "1/2"),
    ],
)
def test_raised_numbers_of_html_stay_apart_from_what_they_stand_at(tmp_path, text, read):
    assert html(tmp_path, f"<p>{text}</p>") == read


@pytest.mark.parametrize(
    "five",
    [
        "<del>5</del>",
        "<s>5</s>",
        "<strike>5</strike>",
        "<del><p>5</p></del>",
        "<span style='text-decoration: line-through'>5</span>",
    ],
)
def test_what_is_struck_out_of_html_is_left_out(tmp_path, five):
    assert html(tmp_path, f"<p>with {five}<ins>6</ins> sails") == "with 6 sails"


WORDS = itertools.count()


@st.composite
def nodes(draw, depth=3):
    """HTML and the words of it that a browser shows, in order."""
    kind = draw(
        st.sampled_from(
            ["text"] * 3 + ["inline", "block", "p", "list", "table", "unseen"] * (depth > 0)
        )
    )
    if kind == "text":
        word = f"w{next(WORDS)}"
        return f" {word}\n", [word]
    inner = draw(st.lists(nodes(depth - 1), max_size=3))
    if kind == "unseen":
        tag = draw(st.sampled_from(["script", "style", "template", "noscript", "!-- "]))
        return ("<!-- no -->" if tag[0] == "!" else f"<{tag}>no</{tag}>"), []
    words = [word for _, each in inner for word in each]
    if kind in ("inline", "block"):
        tags = {
            "inline": ["b", "ins", "span", "a", "sub", "q"],
            "block": ["div", "section", "blockquote", "details"],
        }
        tag = draw(st.sampled_from(tags[kind]))
        return f"<{tag}>{''.join(text for text, _ in inner)}</{tag}>", words
    tag, around = {
        "p": ("p", "{}"),
        "list": ("li", "<ul>{}</ul>"),
        "table": ("td", "<table><tr>{}</table>"),
    }[kind]
    end = draw(st.sampled_from(["", f"</{tag}>"]))  # may be left out
    return around.format("".join(f"<{tag}>{text}{end}" for text, _ in inner)), words


@settings(max_examples=150)
@given(st.lists(nodes(), min_size=1, max_size=5))
def test_every_visible_word_of_an_html_page_is_read_once_and_in_order(tmp_path_factory, parts):
    text = (
        "<html><head><title>no</title></head><body>" + "".join(part for part, _ in parts) + " end"
    )
    words = [word for _, each in parts for word in each]
    assert html(tmp_path_factory.getbasetemp(), text).split() == [*words, "end"]


RUN = "<w:r><w:t xml:space='preserve'> {} </w:t></w:r>"
BOX = (
    "<w:r><mc:AlternateContent "
    "xmlns:mc='http://schemas.openxmlformats.org/markup-compatibility/2006'>"
    "<mc:Choice Requires='wps'><w:drawing><w:txbxContent><w:p>{0}</w:p></w:txbxContent></w:drawing></mc:Choice>"
    "<mc:Fallback><w:pict><w:txbxContent><w:p>{0}</w:p></w:txbxContent></w:pict></mc:Fallback>"
    "</mc:AlternateContent></w:r>"
)
INLINE = {
    "run": "{0}",
    "insertion": "<w:ins w:id='1' w:author='a'>{0}</w:ins>",
    "moved here": "<w:moveTo w:id='1' w:author='a'>{0}</w:moveTo>",
    "link": "<w:hyperlink w:anchor='a'>{0}</w:hyperlink>",
    "control": "<w:sdt><w:sdtContent>{0}</w:sdtContent></w:sdt>",
    "smart tag": "<w:smartTag>{0}</w:smartTag>",
    "text box": BOX,
    "deletion": "<w:del w:id='1' w:author='a'><w:r><w:delText>no</w:delText></w:r></w:del>",
    "moved away": "<w:moveFrom w:id='1' w:author='a'><w:r><w:t>no</w:t></w:r></w:moveFrom>",
    "hidden": "<w:r><w:rPr><w:vanish/></w:rPr><w:t>no</w:t></w:r>",
    "field": "<w:r><w:instrText>no</w:instrText></w:r>",
}


@st.composite
def blocks(draw):
    """XML of a DOCX body and its words: a paragraph, one in a content control, or a table with a
    merged cell.
    """
    kinds = draw(st.lists(st.sampled_from(sorted(INLINE)), min_size=1, max_size=4))
    words = [f"w{next(WORDS)}" for _ in kinds]
    text = "".join(
        INLINE[kind].format(RUN.format(word)) for kind, word in zip(kinds, words, strict=True)
    )
    read = [word for kind, word in zip(kinds, words, strict=True) if "{0}" in INLINE[kind]]
    paragraph = f"<w:p>{text}</w:p>"
    block = draw(st.sampled_from(["paragraph", "control", "table"]))
    if block == "control":
        return f"<w:sdt><w:sdtContent>{paragraph}</w:sdtContent></w:sdt>", read
    if block == "table":
        other = f"w{next(WORDS)}"
        wide = f"<w:tc><w:tcPr><w:gridSpan w:val='2'/></w:tcPr>{paragraph}</w:tc>"
        tall = "<w:tc><w:tcPr><w:vMerge/></w:tcPr><w:p/></w:tc>"
        cell = f"<w:tc><w:p>{RUN.format(other)}</w:p></w:tc>"
        return f"<w:tbl><w:tr>{wide}{cell}</w:tr><w:tr>{tall}{cell.replace(other, 'x' + other)}</w:tr></w:tbl>", [
            *read, other, f"x{other}",
        ]  # fmt: skip
    return paragraph, read


def word_file(path, body, styles=""):
    """Save a DOCX whose body begins with some XML, and which has a header, a footer and further
    styles.
    """
    import docx

    letter = docx.Document()
    letter.sections[0].header.paragraphs[0].text = "top"
    letter.sections[0].footer.paragraphs[0].text = "foot"
    letter.save(str(path))
    with zipfile.ZipFile(path) as packed:
        parts = {name: packed.read(name) for name in packed.namelist()}
    parts["word/document.xml"] = parts["word/document.xml"].replace(
        b"<w:body>", b"<w:body>" + body.encode()
    )
    parts["word/styles.xml"] = parts["word/styles.xml"].replace(
        b"</w:styles>", styles.encode() + b"</w:styles>"
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in parts.items():
            packed.writestr(name, content)
    return path


@settings(max_examples=30)
@given(st.lists(blocks(), min_size=1, max_size=4))
def test_every_visible_word_of_a_docx_is_read_once_and_in_order(tmp_path_factory, parts):
    path = word_file(tmp_path_factory.getbasetemp() / "a.docx", "".join(part for part, _ in parts))
    words = [word for _, each in parts for word in each]
    assert load_documents(path)[0].text.split() == ["top", *words, "foot"]


def test_runs_of_a_docx_join_within_words_and_breaks_divide_them(tmp_path):
    runs = "<w:r><w:t>CO</w:t></w:r><w:r><w:t>2</w:t><w:br/><w:t>a</w:t><w:tab/><w:t>b</w:t><w:noBreakHyphen/></w:r>"
    body = f"<w:p>{runs}</w:p><w:p><w:r><w:t>end</w:t></w:r></w:p>"
    (document,) = load_documents(word_file(tmp_path / "a.docx", body))
    assert document.text == "top\nCO2\na\tb-\nend\nfoot"


STYLES = {
    "shy": ("character", "<w:rPr><w:vanish/></w:rPr>"),
    "shy too": ("character", "<w:basedOn w:val='shy'/>"),
    "bold": ("character", "<w:basedOn w:val='shy'/><w:rPr><w:vanish w:val='false'/></w:rPr>"),
    "note": ("paragraph", "<w:rPr><w:vanish w:val='1'/></w:rPr>"),
    "high": ("character", "<w:rPr><w:vertAlign w:val='superscript'/></w:rPr>"),
    "loop": ("character", "<w:basedOn w:val='loop'/>"),
}


def word_text(folder, run, text="seen", before="", paragraph=""):
    """The text of a DOCX of one paragraph, whose last run has these properties."""
    styles = [
        f"<w:style w:type='{kind}' w:styleId='{name}'>{inner}</w:style>"
        for name, (kind, inner) in STYLES.items()
    ]
    body = (
        f"<w:p><w:pPr>{paragraph}</w:pPr><w:r><w:t>{before}</w:t></w:r>"
        f"<w:r><w:rPr>{run}</w:rPr><w:t>{text}</w:t></w:r></w:p>"
    )
    (document,) = load_documents(word_file(folder / "a.docx", body, "".join(styles)))
    return document.text.removeprefix("top\n").removesuffix("foot").strip()


@pytest.mark.parametrize(
    ("run", "paragraph", "is_seen"),
    [
        ("<w:vanish/>", "", False),
        ("<w:vanish w:val='1'/>", "", False),
        ("<w:vanish w:val='true'/>", "", False),
        ("<w:vanish w:val='0'/>", "", True),
        ("<w:vanish w:val='false'/>", "", True),
        ("<w:vanish w:val='off'/>", "", True),
        ("<w:strike/>", "", False),
        ("<w:strike w:val='0'/>", "", True),
        ("<w:dstrike w:val='on'/>", "", False),
        ("<w:rStyle w:val='shy'/>", "", False),
        ("<w:rStyle w:val='shy too'/>", "", False),
        ("<w:rStyle w:val='bold'/>", "", True),
        ("<w:rStyle w:val='loop'/>", "", True),
        ("<w:rStyle w:val='shy'/><w:vanish w:val='0'/>", "", True),
        ("", "<w:pStyle w:val='note'/>", False),
        ("<w:vanish w:val='0'/>", "<w:pStyle w:val='note'/>", True),
        ("<w:rStyle w:val='shy'/>", "<w:pStyle w:val='note'/>", True),  # one toggles the other
    ],
)
def test_a_property_of_word_that_is_on_or_off_is_read_by_its_value(
    tmp_path, run, paragraph, is_seen
):
    assert word_text(tmp_path, run, paragraph=paragraph) == ("seen" if is_seen else "")


def test_a_hidden_default_style_of_word_hides_what_has_no_other(tmp_path):
    styles = (
        "<w:style w:type='paragraph' w:default='1' w:styleId='d'><w:rPr><w:vanish/></w:rPr></w:style>"
        "<w:style w:type='paragraph' w:styleId='e'/>"
    )
    body = (
        "<w:p><w:r><w:t>hidden</w:t></w:r></w:p>"
        "<w:p><w:pPr><w:pStyle w:val='e'/></w:pPr><w:r><w:t>seen</w:t></w:r></w:p>"
    )
    (document,) = load_documents(word_file(tmp_path / "a.docx", body, styles))
    assert document.text.split() == ["top", "seen", "foot"]


RAISED = "<w:vertAlign w:val='superscript'/>"


@pytest.mark.parametrize(
    ("before", "run", "text", "read"),
    [
        ("10", RAISED, "6", "10⁶"),
        ("10", "<w:rStyle w:val='high'/>", "-3", "10⁻³"),
        ("km", RAISED, "2", "km²"),
        ("in 1841", RAISED, "2", "in 1841 ²"),
        ("Ely", RAISED, "2", "Ely ²"),
        ("1", RAISED, "st", "1st"),
        ("10", "<w:vertAlign w:val='baseline'/>", "6", "106"),
        ("CO", "<w:vertAlign w:val='subscript'/>", "2", "CO2"),
    ],
)
def test_raised_numbers_of_word_stay_apart_from_what_they_stand_at(
    tmp_path, before, run, text, read
):
    assert word_text(tmp_path, run, text, before) == read


def test_powers_and_fractions_of_a_formula_of_word_are_seen(tmp_path):
    math = "xmlns:m='http://schemas.openxmlformats.org/officeDocument/2006/math'"
    run = "<m:r><m:t>{}</m:t></m:r>".format
    power = f"<m:sSup><m:e>{run(10)}</m:e><m:sup>{run(6)}</m:sup></m:sSup>{run(7)}"
    half = f"<m:f><m:num>{run(1)}</m:num><m:den>{run(2)}</m:den></m:f>"
    body = f"<w:p><m:oMath {math}>{power}{run('+')}{half}</m:oMath></w:p>"
    (document,) = load_documents(word_file(tmp_path / "a.docx", body))
    assert document.text == "top\n10⁶7+1/2\nfoot"


def test_a_page_that_is_not_read_to_its_end_is_refused(tmp_path):
    with refused(DataError, "read to its end"):
        html(tmp_path, "<div>x" * 200_000)


def test_a_long_page_is_read(tmp_path):
    assert len(html(tmp_path, "<p>x" * 200_000)) == 399_999


def test_a_loaded_folder_is_told_as_files_and_pages(tmp_path, put):
    pdf(tmp_path / "report.pdf", "One.", "Two.")
    put("a.txt", "Three.")
    questions = put("q.jsonl", '{"question": "q", "answer": "a"}\n')
    with pytest.warns(
        UserWarning, match=r"2 files are read; skipped: 1 of other kinds \(q\.jsonl\)"
    ):
        loaded = rb.data.load_questions(questions, tmp_path)
    assert repr(loaded) == "Dataset('q', 1 questions, 2 files, 3 pages)"
    assert "2 files, 3 pages" in loaded._repr_html_()


@pytest.mark.parametrize("variant", ["lucene", "terrier"])
def test_a_word_divided_at_a_line_end_is_found_by_bm25_and_by_the_ir_score(variant):
    texts = ["The qual-\nity of flour rose.", "The soft qual\u00ad\nity.", "Unlike oth-\ner mills."]
    bm25 = rb.BM25(chunks_of(*texts, *["A wall."] * 3), variant=variant)
    assert sorted(ids_found(bm25, "quality", 6)) == ["c00000", "c00001"]
    assert rb.ir_score(["quality of flour"], texts[0]) == 1.0


@pytest.mark.parametrize("name", ["bad.pdf", "bad.docx"])
def test_damaged_files_and_a_missing_package_are_told(name, tmp_path, put, monkeypatch):
    put(name, b"%PDF no more")
    with refused(DataError, rf"{name} cannot be read"):
        load_documents(tmp_path)
    monkeypatch.setitem(sys.modules, "pypdf", None)
    monkeypatch.setitem(sys.modules, "lxml", None)
    with refused(ConfigError, rf"{name} without \w+(.|\n)*ragbench-lab\[documents\]"):
        load_documents(tmp_path)


def test_all_bad_files_of_a_folder_are_told_at_once(tmp_path, put):
    put("bad.pdf", b"%PDF no more")
    put("fine.rst", "Mill\n====")
    put("latin.txt", "Mühle".encode("latin-1"))
    put("empty.txt", "")
    with refused(DataError, r"2 of 4 are bad\n.*bad.pdf cannot(.|\n)*latin.txt, line 1: byte 0xfc"):
        load_documents(tmp_path)


def test_files_without_text_are_left_out_of_a_folder_with_a_warning(tmp_path, put):
    put("a.html", "<html><head><meta http-equiv='refresh' content='0; b.html'></head></html>")
    full = put("b.html", HTML)
    put("c.txt", " \n")
    left_out = r"of {} files left out, without text: \S+a.html holds no text, \S+c.txt is"
    with pytest.warns(UserWarning, match="2 " + left_out.format(3)):
        assert [d.id for d in load_documents(tmp_path)] == ["b.html"]
    full.unlink()
    with refused(DataError, "2 " + left_out.format(2)):
        load_documents(tmp_path)


def test_a_text_of_html_may_be_longer_than_the_parser_reads_by_default(put):
    words = "word " * 2_200_000  # 11 MB; lxml stops at 10
    (document,) = load_documents(
        put("long.html", f"<html><body><p>{words}</p><p>last</p></body></html>")
    )
    assert document.text.endswith("last")
    assert document.text.count("word") == 2_200_000


def test_what_to_do_about_each_kind_of_bad_file_is_said(tmp_path):
    (tmp_path / "bad.pdf").write_bytes(b"%PDF no more")
    (tmp_path / "latin.txt").write_bytes("Mühle".encode("latin-1"))
    (tmp_path / "second.txt").write_bytes("Mühle".encode("latin-1"))
    with pytest.raises(DataError) as caught:
        load_documents(tmp_path)
    assert caught.value.do.startswith("open it, and save or export it again; in Excel: File")
    assert caught.value.do.count("in Excel") == 1
    assert caught.value.expected == "a whole PDF file without a password; text in UTF-8"


def test_a_pdf_that_needs_a_package_says_which(tmp_path, monkeypatch):
    def reader(_):
        raise RuntimeError("cryptography>=3.1 is required for AES algorithm")

    monkeypatch.setattr("pypdf.PdfReader", reader)
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7")
    with refused(ConfigError, r"a\.pdf: cryptography(.|\n)*do: pip install cryptography"):
        load_documents(tmp_path)
