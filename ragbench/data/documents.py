"""PDF, DOCX and HTML as documents (extra ``[documents]``): a PDF's pages are documents, with the page in the title."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

from ragbench.errors import ConfigError, DataError, EmptyFileError
from ragbench.records import Document

ENDINGS = (".pdf", ".docx", ".html", ".htm")
_PARTS = ["h1", "h2", "h3", "h4", "h5", "h6", "p", "li", "td", "th", "pre", "blockquote", "figcaption", "dt", "dd"]


def read_document(path: Path, name: str) -> list[Document]:
    """Read one file.

    Parameters
    ----------
    path : with one of `ENDINGS`.
    name : of the file in ids.

    Returns
    -------
    A document, or one per page of a PDF ("report, page 3"). A page without text (a scan, mostly) is there, empty, and a
    warning names it.

    Raises
    ------
    ConfigError without the package that reads it; DataError for a file that is damaged or encrypted, EmptyFileError for
    one without any text.
    """
    ending = path.suffix.lower()
    package = {".pdf": "pypdf", ".docx": "docx"}.get(ending, "bs4")
    try:
        module = importlib.import_module(package)
    except ImportError:
        raise ConfigError(f"{path} without {package}", "that package", 'pip install "ragbench[documents]"') from None
    try:
        texts = {"pypdf": _pages, "docx": _paragraphs, "bs4": _parts}[package](module, path)
    except Exception as error:  # each library has errors of its own, and of its parser
        raise DataError(
            f"{path} cannot be read: {type(error).__name__}: {error}",
            f"a whole {ending[1:].upper()} file without a password",
            "open it, and save or export it again",
        ) from None
    empty = [number for number, text in enumerate(texts, 1) if not text.strip()]
    if len(empty) == len(texts):
        raise EmptyFileError(f"{path} holds no text", "text, not pictures of it", "run a scan through OCR first")
    if ending != ".pdf":
        return [Document(name, path.stem, texts[0])]
    if empty:
        pages = ", ".join(map(str, empty))
        warnings.warn(
            f"{path}: no text on page {pages} of {len(texts)}; if it is a scan, run it through OCR", stacklevel=4
        )
    return [
        Document(f"{name}#page-{number}", f"{path.stem}, page {number}", text, meta={"page": number})
        for number, text in enumerate(texts, 1)
    ]


def _pages(pypdf: Any, path: Path) -> list[str]:
    return [page.extract_text() for page in pypdf.PdfReader(path).pages]


def _paragraphs(docx: Any, path: Path) -> list[str]:
    parts = []
    for part in docx.Document(str(path)).iter_inner_content():
        if hasattr(part, "rows"):
            parts += ["\t".join(cell.text for cell in row.cells) for row in part.rows]
        else:
            parts.append(part.text)
    return ["\n".join(text for text in parts if text.strip())]


def _parts(bs4: Any, path: Path) -> list[str]:
    soup = bs4.BeautifulSoup(path.read_bytes(), "html.parser")
    for unread in soup(["script", "style", "noscript", "template", "head"]):
        unread.decompose()
    # A part inside another one (p in li) is said once, by the inner one.
    parts = [part for part in soup(_PARTS) if not part.find(_PARTS)]
    texts = [" ".join(part.get_text(" ").split()) for part in parts] or [" ".join(soup.get_text(" ").split())]
    return ["\n".join(text for text in texts if text)]
