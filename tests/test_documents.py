"""PDF, DOCX and HTML: text by page and part, pages without text named, damaged files told."""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import pytest
from matplotlib.backends.backend_pdf import PdfPages

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
    pdf(tmp_path / "report.pdf", "The mill burned down.", "", "The dam is 48 metres high.")
    for source in (tmp_path, tmp_path / "report.pdf"):
        documents = load_documents(source)
        assert [d.title for d in documents] == ["report, page 1", "report, page 2", "report, page 3"]
        assert [d.id for d in documents] == [f"report.pdf#page-{n}" for n in (1, 2, 3)]
        assert [d.text.strip() for d in documents] == ["The mill burned down.", "", "The dam is 48 metres high."]
    chunks = rb.token_chunks(documents, size=50)
    assert [(c.title, c.text) for c in chunks][-1] == ("report, page 3", "The dam is 48 metres high.")


def test_a_page_without_text_is_named_and_a_file_without_any_is_refused(tmp_path):
    pdf(tmp_path / "half.pdf", "Text.", "", "")
    with pytest.warns(UserWarning, match=r"half\.pdf: no text on page 2, 3 of 3"):
        load_documents(tmp_path)
    with pytest.raises(DataError, match=r"scan\.pdf holds no text(.|\n)*OCR"):
        load_documents(pdf(tmp_path / "scan.pdf", ""))


def test_html_and_docx_give_their_parts_in_order_and_once(tmp_path):
    import docx

    (tmp_path / "a.html").write_text(HTML, encoding="utf-8")
    letter = docx.Document()
    letter.add_heading("Dam")
    letter.add_paragraph("It is 48 metres high.")
    letter.add_table(1, 2).rows[0].cells[1].text = "stone"
    letter.save(str(tmp_path / "b.docx"))
    (tmp_path / "c.txt").write_text("plain", encoding="utf-8")
    documents = load_documents(tmp_path)
    texts = ["Mill\nIt burned down.\nIn 1902.\nIn spring.", "Dam\nIt is 48 metres high.\n\tstone", "plain"]
    assert [d.text for d in documents] == texts
    assert [(d.id, d.title) for d in documents] == [("a.html", "a"), ("b.docx", "b"), ("c.txt", "c")]


@pytest.mark.parametrize("name", ["bad.pdf", "bad.docx"])
def test_damaged_files_and_a_missing_package_are_told(name, tmp_path, monkeypatch):
    (tmp_path / name).write_bytes(b"%PDF no more")
    with pytest.raises(DataError, match=rf"{name} cannot be read"):
        load_documents(tmp_path)
    monkeypatch.setitem(sys.modules, "pypdf", None)
    monkeypatch.setitem(sys.modules, "docx", None)
    with pytest.raises(ConfigError, match=rf"{name} without \w+(.|\n)*ragbench\[documents\]"):
        load_documents(tmp_path)


def test_all_bad_files_of_a_folder_are_told_at_once(tmp_path):
    (tmp_path / "bad.pdf").write_bytes(b"%PDF no more")
    (tmp_path / "fine.rst").write_text("Mill\n====")
    (tmp_path / "latin.txt").write_bytes("Mühle".encode("latin-1"))
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match=r"2 of 4 files are bad\n.*bad.pdf cannot(.|\n)*latin.txt, line 1: byte 0xfc"):
        load_documents(tmp_path)


def test_files_without_text_are_left_out_of_a_folder_with_a_warning(tmp_path):
    (tmp_path / "a.html").write_text("<html><head><meta http-equiv='refresh' content='0; b.html'></head></html>")
    (tmp_path / "b.html").write_text(HTML)
    (tmp_path / "c.txt").write_text(" \n")
    with pytest.warns(UserWarning, match=r"2 of 3 files left out, without text: \S+a.html holds no text, \S+c.txt is"):
        assert [d.id for d in load_documents(tmp_path)] == ["b.html"]
    (tmp_path / "b.html").unlink()
    with pytest.raises(DataError, match="2 of 2 files are bad"):
        load_documents(tmp_path)
