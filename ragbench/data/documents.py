"""Documents of a user: a table of them, or a folder of text, PDF, DOCX and HTML files (extra ``[documents]``)."""

from __future__ import annotations

import importlib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ragbench.data.files import MAX_FIELD, raise_all, read_text
from ragbench.errors import ConfigError, DataError, EmptyFileError
from ragbench.records import Document

_TEXTS = (".txt", ".md", ".rst")
_READERS = {".pdf": "pypdf", ".docx": "docx", ".html": "bs4", ".htm": "bs4"}  # ending -> package
_PARTS = ["h1", "h2", "h3", "h4", "h5", "h6", "p", "li", "td", "th", "pre", "blockquote", "figcaption", "dt", "dd"]


def is_document(path: Path) -> bool:
    """Tell whether a file is one document, of PDF, DOCX or HTML."""
    return path.suffix.lower() in _READERS and path.is_file()


def read_folder(folder: Path) -> Iterator[Document]:
    """Read a folder's files, in subfolders too; hidden ones are passed over.

    Files that fail are told together. Files without text are left out, files of another kind skipped, with a warning.
    """
    visible = [p for p in folder.rglob("*") if not any(part.startswith(".") for part in p.relative_to(folder).parts)]
    files = sorted(p for p in visible if p.suffix.lower() in (*_TEXTS, *_READERS) and p.is_file())
    if not files:
        held = _kinds(visible)
        raise DataError(
            f"the folder {folder} holds no .txt, .md or .rst file, no PDF, DOCX or HTML "
            f"({f'it holds {held}' if held else 'it is empty'})",
            "one text file per document, or documents.jsonl",
            "check the path; turn other formats into text first, for instance with pandoc",
        )
    if skipped := _kinds(set(visible) - set(files)):
        warnings.warn(f"{folder}: read {_kinds(files)}; skipped {skipped}", stacklevel=4)
    errors: list[DataError] = []
    empty: list[DataError] = []
    for path in files:
        try:
            yield from read_document(path, str(path.relative_to(folder)))
        except EmptyFileError as error:
            empty.append(error)
        except DataError as error:
            errors.append(error)
    raise_all(errors, folder, len(files), "files")
    if len(empty) == len(files):
        raise_all(empty, folder, len(files), "files")
    if empty:
        names = ", ".join(error.got for error in empty[:5]) + ", ..." * (len(empty) > 5)
        warnings.warn(f"{len(empty)} of {len(files)} files left out, without text: {names}", stacklevel=4)


def _kinds(files: Iterable[Path]) -> str:
    """Count files by ending, the commonest first: "3 .pdf, 1 .png"; empty for none."""
    counts = Counter(p.suffix.lower() or "without an ending" for p in sorted(files) if p.is_file())
    return ", ".join(f"{count} {ending}" for ending, count in counts.most_common())


def read_document(path: Path, name: str) -> list[Document]:
    """Read one file: a document, or one per page of a PDF ("report, page 3").

    A page without text (a scan, mostly) is there, empty, and a warning names it.

    Parameters
    ----------
    name : of the file in ids.

    Raises
    ------
    ConfigError without the package that reads it; DataError for a file that is damaged, encrypted or too long,
    EmptyFileError for one without any text.
    """
    ending = path.suffix.lower()
    texts = _read(path, ending) if ending in _READERS else [read_text(path)]
    if size := max((len(text) for text in texts if len(text) > MAX_FIELD), default=0):
        raise DataError(f"{path} has {size:,} characters", f"at most {MAX_FIELD:,}", "split it into several files")
    if ending != ".pdf":
        return [Document(name, path.stem, texts[0])]
    return [
        Document(f"{name}#page-{number}", f"{path.stem}, page {number}", text, meta={"page": number})
        for number, text in enumerate(texts, 1)
    ]


def _read(path: Path, ending: str) -> list[str]:
    package = _READERS[ending]
    try:
        module = importlib.import_module(package)
    except ImportError:
        raise ConfigError(f"{path} without {package}", "that package", 'pip install "ragbench[documents]"') from None
    try:
        texts = {"pypdf": _pages, "docx": _paragraphs, "bs4": _parts}[package](module, path)
    except Exception as error:  # each library has errors of its own, and of its parser
        got = f"{path} cannot be read: {type(error).__name__}: {error}"
        expected = f"a whole {ending[1:].upper()} file without a password"
        raise DataError(got, expected, "open it, and save or export it again") from None
    empty = [str(number) for number, text in enumerate(texts, 1) if not text.strip()]
    if len(empty) == len(texts):
        raise EmptyFileError(f"{path} holds no text", "text, not pictures of it", "run a scan through OCR first")
    if empty:
        pages = f"no text on page {', '.join(empty)} of {len(texts)}"
        warnings.warn(f"{path}: {pages}; if it is a scan, run it through OCR", stacklevel=6)
    return texts


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
