"""Text, PDF, DOCX and HTML files as documents (extra ``[documents]``), with every visible word once
and in order.

Line breaks stay as the file has them. A word that a hyphen divides at a line end is joined where
texts are compared: by the IR score and by BM25, both with `ragbench.text.layout`.
"""

from __future__ import annotations

import importlib
import io
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ragbench.data.files import raise_all, read_text
from ragbench.errors import ConfigError, DataError, EmptyFileError
from ragbench.records import Document

_TEXTS = (".txt", ".md", ".rst")
_READERS = {".pdf": "pypdf", ".docx": "docx", ".html": "lxml", ".htm": "lxml"}  # ending -> package
_MAX_TAGS, _MAX_BYTES = 1_000_000, 64 * 2**20  # of a DOCX or HTML file, or of a part of one
# What stands on lines of its own, by the HTML standard's style sheet (15.3); other elements are
# parts of a line.
_BLOCKS = frozenset((
    "address", "article", "aside", "blockquote", "br", "button", "caption", "center", "dd", "details", "dialog",
    "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5",
    "h6", "header", "hgroup", "hr", "html", "body", "legend", "li", "listing", "main", "menu", "nav", "ol",
    "optgroup", "option", "p", "plaintext", "pre", "search", "section", "select", "summary", "table", "tbody",
    "td", "textarea", "tfoot", "th", "thead", "tr", "ul", "xmp",
))  # fmt: skip
_UNSEEN = frozenset((
    "title", "script", "style", "template", "noscript", "noframes", "iframe", "datalist", "audio", "video",
    "canvas", "rp",
))  # fmt: skip
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_AS_WRITTEN = ("pre", "textarea", "listing", "plaintext", "xmp")
_BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}  # of a DOCX
# deletions, the second form of a text box; hidden runs too
_LEFT_OUT = ("del", "moveFrom", "Fallback")


def is_document(path: Path) -> bool:
    """Tell whether a file is read by `read_document`, by its ending."""
    return path.suffix.lower() in (*_TEXTS, *_READERS)


def read_folder(folder: Path) -> Iterator[Document]:
    """Read a folder's files, in subfolders too, without the hidden ones.

    Files that fail are reported together. A warning names files without text, and how many files of
    other kinds are skipped.
    """
    visible = [
        p
        for p in folder.rglob("*")
        if not any(part.startswith(".") for part in p.relative_to(folder).parts)
    ]
    files = sorted(p for p in visible if is_document(p) and p.is_file())
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
    for path in files:
        try:
            yield from read_document(path, str(path.relative_to(folder)))
        except DataError as error:
            errors.append(error)
    empty = [error for error in errors if isinstance(error, EmptyFileError)]
    bad = [error for error in errors if error not in empty]
    raise_all(bad or (empty if len(empty) == len(files) else []), folder, len(files), "files")
    if empty:
        names = ", ".join(error.got for error in empty[:5]) + ", ..." * (len(empty) > 5)
        warnings.warn(
            f"{len(empty)} of {len(files)} files left out, without text: {names}", stacklevel=4
        )


def _kinds(files: Iterable[Path]) -> str:
    """Count files by ending, the most frequent first: "3 .pdf, 1 .png"; empty for none."""
    counts = Counter(p.suffix.lower() or "without an ending" for p in sorted(files) if p.is_file())
    return ", ".join(f"{count} {ending}" for ending, count in counts.most_common())


def read_document(path: Path, name: str) -> list[Document]:
    """Read one file: a document, or one per page of a PDF ("report, page 3"); ``name`` is that of
    the file in ids.

    A page without text (a scan, mostly) is kept, empty, and a warning names it. ConfigError without
    the package that reads the file, DataError for a file that is damaged, encrypted or too large,
    EmptyFileError for one without text.
    """
    ending = path.suffix.lower()
    texts = _read(path, ending) if ending in _READERS else [read_text(path)]
    if ending != ".pdf":
        return [Document(name, path.stem, texts[0], meta={"file": name})]
    return [
        Document(
            f"{name}#page-{number}",
            f"{path.stem}, page {number}",
            text,
            meta={"file": name, "page": number},
        )
        for number, text in enumerate(texts, 1)
    ]


def _read(path: Path, ending: str) -> list[str]:
    package = _READERS[ending]
    try:
        importlib.import_module(package)
    except ImportError:
        raise ConfigError(
            f"{path} without {package}", "that package", 'pip install "ragbench-lab[documents]"'
        ) from None
    try:
        texts = {"pypdf": _pdf_pages, "docx": _docx_text, "lxml": _html_text}[package](path)
    except DataError:
        raise
    except Exception as error:  # each library has errors of its own, and of its parser
        got = f"{path} cannot be read: {type(error).__name__}: {error}"
        expected = f"a whole {ending[1:].upper()} file without a password"
        raise DataError(got, expected, "open it, and save or export it again") from None
    empty = [str(number) for number, text in enumerate(texts, 1) if not text.strip()]
    if len(empty) == len(texts):
        raise EmptyFileError(
            f"{path} holds no text", "text, not pictures of it", "run a scan through OCR first"
        )
    if empty:
        pages = f"no text on page {', '.join(empty)} of {len(texts)}"
        warnings.warn(f"{path}: {pages}; if it is a scan, run it through OCR", stacklevel=6)
    return texts


def _check_size(path: Path, parts: Iterable[bytes]) -> None:
    """Refuse parts of a file with too many bytes or elements;

    parts after one that is too large are not asked for.
    """
    tags = 0
    for raw in parts:
        tags += raw.count(b"<") - raw.count(b"</")
        if len(raw) > _MAX_BYTES or tags > _MAX_TAGS:
            got = f"{path} has a part of {len(raw):,} bytes and {tags:,} elements"
            expected = f"at most {_MAX_TAGS:,} elements and {_MAX_BYTES:,} bytes"
            raise DataError(got, expected, "split it into several files")


def _lines(pieces: Iterable[str]) -> str:
    """Join pieces of text to lines without white space around them, and without empty ones."""
    lines = (line.strip(" \r\n\v\f") for line in "".join(pieces).split("\n"))
    return "\n".join(line for line in lines if line.strip())


def _pdf_pages(path: Path) -> list[str]:
    import pypdf

    return [page.extract_text() for page in pypdf.PdfReader(path).pages]


def _docx_text(path: Path) -> list[str]:
    """Read headers, body, notes and footers;

    tracked insertions are text, deletions are not, each cell stands once.
    """
    import docx
    from docx.oxml import parse_xml

    with zipfile.ZipFile(path) as packed:
        names = [name for name in packed.namelist() if re.match(r"word/.*\.xml$", name)]
        _check_size(path, (packed.open(name).read(_MAX_BYTES + 1) for name in names))
    main = docx.Document(str(path)).part
    named = {str(part.partname): part for part in main.package.iter_parts() if part is not main}
    pieces: list[str] = []
    for kind in ("header", "", "footnotes", "endnotes", "footer"):
        for part in (
            [named[n] for n in sorted(named) if re.search(rf"/{kind}\d*\.xml$", n)]
            if kind
            else [main]
        ):
            root = part.element if hasattr(part, "element") else parse_xml(part.blob)
            pieces += [*_docx_pieces(root), "\n"]
    if any(part.reltype.endswith("/aFChunk") for part in main.rels.values()):
        warnings.warn(f"{path}: a document that is embedded in it is not read", stacklevel=7)
    return [_lines(pieces)]


def _docx_pieces(root: Any) -> Iterator[str]:
    from lxml import etree

    walk = etree.iterwalk(root, events=("start", "end"))
    cells = [0]  # of each table row that is open
    for event, element in walk:
        tag = etree.QName(element).localname if isinstance(element.tag, str) else ""
        if event == "start":
            if tag in _LEFT_OUT or (tag == "r" and element.find("./{*}rPr/{*}vanish") is not None):
                walk.skip_subtree()
            elif tag == "t":
                yield element.text or ""
            elif tag in _BREAKS and element.getparent().tag.endswith("}r"):
                yield _BREAKS[tag]
            elif tag == "tr":
                cells.append(0)
                yield "\n"
            elif tag == "tc":
                cells[-1] += 1
                yield "\t" * (cells[-1] > 1)
            elif tag in ("txbxContent", "tbl"):
                yield "\n"
        elif tag == "tr":
            cells.pop()
            yield "\n"
        elif tag == "p" and not (
            element.getnext() is None and element.getparent().tag.endswith("}tc")
        ):
            yield "\n"


def _html_text(path: Path) -> list[str]:
    from lxml import etree

    raw = path.read_bytes()
    _check_size(path, [raw])
    try:
        raw.decode("utf-8")
        encoding = "utf-8"
    except UnicodeDecodeError:
        encoding = None  # the one that the file names, else windows-1252
    parser = etree.HTMLParser(
        encoding=encoding, huge_tree=True, remove_comments=True, remove_pis=True
    )
    root = etree.parse(io.BytesIO(raw), parser).getroot() if raw.strip() else None
    if cut := [
        entry.message for entry in parser.error_log if entry.level == etree.ErrorLevels.FATAL
    ]:
        raise DataError(
            f"{path} cannot be read to its end: {cut[0]}",
            "elements that end",
            "mend or simplify it",
        )
    if root is None:
        return [""]
    if frames := root.xpath("//iframe[@src] | //frame[@src]"):
        pages = ", ".join(frame.get("src")[:60] for frame in frames[:5])
        warnings.warn(f"{path}: the pages in its frames are not read: {pages}", stacklevel=7)
    return [_lines(_html_pieces(root))]


def _html_pieces(root: Any) -> Iterator[str]:
    from lxml import etree

    walk = etree.iterwalk(root, events=("start", "end"))
    as_written = 0
    for event, element in walk:
        block = element.tag in _BLOCKS
        if event == "start":
            as_written += element.tag in _AS_WRITTEN
            if block:
                yield "\n"
            if (
                element.tag in _UNSEEN
                or "hidden" in element.attrib
                or _HIDDEN.search(element.get("style", ""))
            ):
                walk.skip_subtree()
            elif element.text:
                yield element.text if as_written else re.sub(r"\s+", " ", element.text)
        else:
            as_written -= element.tag in _AS_WRITTEN
            if block:
                yield "\n"
            if element.tail and element is not root:
                yield element.tail if as_written else re.sub(r"\s+", " ", element.tail)
