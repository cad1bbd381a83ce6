"""Text, PDF, DOCX and HTML files as documents (extra ``[documents]``), with every visible word once
and in order. What is not read (symbols of a symbol font, list numbers, form values, notes of a PDF,
frames) is a warning that names the file.

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
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ragbench.data.files import raise_all, read_text
from ragbench.errors import ConfigError, DataError, EmptyFileError
from ragbench.records import Document

_TEXTS = (".txt", ".md", ".rst")
_READERS = {".pdf": "pypdf", ".docx": "docx", ".html": "lxml", ".htm": "lxml"}  # ending -> package
_MAX_TAGS = 1_000_000  # of a DOCX or HTML file, or of a part of one
_MAX_BYTES = 64 * 2**20
_MAX_PAGES = 20_000  # of a PDF
_MAX_OPERATIONS = 5_000_000  # that draw its pages
_LOCK = "~$"  # how the file begins that Word puts beside an open one
# Beside those that lxml knows, of HTML 5.
_BLOCKS = [
    "article",
    "aside",
    "body",
    "br",
    "button",
    "details",
    "dialog",
    "figcaption",
    "figure",
    "footer",
    "header",
    "hgroup",
    "html",
    "main",
    "nav",
    "search",
    "section",
    "select",
    "summary",
    "textarea",
]
_INLINE = ("del", "ins")  # blocks to lxml
_UNSEEN = [
    "title",
    "script",
    "style",
    "template",
    "noscript",
    "noframes",
    "iframe",
    "datalist",
    "audio",
    "video",
    "canvas",
    "rp",
    "annotation",
]
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_KATEX_COPY = "katex-html"  # a formula's second form, beside MathML
_AS_WRITTEN = ("pre", "textarea")
# Of a DOCX: what stands for a character, and what is left out: deletions, the second form of a text
# box.
_BREAKS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_LEFT_OUT = ("del", "moveFrom", "Fallback")
_NEXT_CELL = "\x1f"
_UNREAD = {
    "sym": "symbols of a symbol font",
    "numPr": "list numbers",
    "checkBox": "tick boxes",
    "altChunk": "embedded documents",
}


def is_document(path: Path) -> bool:
    """Tell whether a file is read by `read_documents`, by its ending."""
    return path.suffix.lower() in (*_TEXTS, *_READERS)


def read_documents(path: Path) -> Iterator[Document]:
    """Read a file, or a folder's files, in subfolders too, without the hidden ones.

    A PDF is one document per page ("report, page 3"). A page without text (a scan, mostly) is kept,
    empty, and a warning names it. Links that lead out of the folder are left out and named, like
    files without text; files of other kinds are counted. Files that fail are reported together.

    ConfigError without the package that reads a file, DataError for one that is damaged, encrypted
    or too large, EmptyFileError for one without text.
    """
    if not path.is_dir():
        yield from _read_document(path, path.name)
        return
    files = _document_files(path)
    errors: list[DataError] = []
    for file in files:
        try:
            yield from _read_document(file, str(file.relative_to(path)))
        except DataError as error:
            errors.append(error)
    empty = [error.got for error in errors if isinstance(error, EmptyFileError)]
    bad = [error for error in errors if not isinstance(error, EmptyFileError)]
    if len(empty) == len(files):
        bad = errors
    raise_all(bad, path, len(files), "files")
    if empty:
        _warn(f"{len(empty)} of {len(files)} files left out, without text: {_first(empty)}")


def _document_files(folder: Path) -> list[Path]:
    """List the documents of a folder; a warning names what else it holds."""
    files = []
    left_out: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if any(part.startswith(".") for part in name.parts) or not path.is_file():
            continue
        if not path.resolve().is_relative_to(folder.resolve()):
            left_out.setdefault("links out of the folder", []).append(str(name))
        elif path.name.startswith(_LOCK):
            left_out.setdefault("lock files of Word", []).append(str(name))
        elif is_document(path):
            files.append(path)
        else:
            kind = path.suffix.lower() or "without an ending"
            left_out.setdefault(kind, []).append(str(name))
    skipped = "; ".join(f"{len(n)} {kind} ({_first(n)})" for kind, n in left_out.items())
    if not files:
        got = (
            f"the folder {folder.absolute()} holds no .txt, .md or .rst file, no PDF, DOCX or HTML"
        )
        do = "check the path; turn other formats into text first, for instance with pandoc"
        held = f"it holds {skipped}" if skipped else "it is empty"
        raise DataError(f"{got} ({held})", "one text file per document", do)
    if skipped:
        _warn(f"{folder}: {len(files)} files are read; skipped: {skipped}")
    return files


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=5)


def _first(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _read_document(path: Path, name: str) -> list[Document]:
    """Read one file; ``name`` is that of the file in ids."""
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
        do = 'pip install "ragbench-lab[documents]"'
        raise ConfigError(f"{path} without {package}", "that package", do) from None
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
        do = "run a scan through OCR first"
        raise EmptyFileError(f"{path} holds no text", "text, not pictures of it", do)
    if empty:
        pages = f"no text on page {', '.join(empty)} of {len(texts)}"
        _warn(f"{path}: {pages}; if it is a scan, run it through OCR")
    return texts


def _warn_of_unread(path: Path, unread: Counter[str]) -> None:
    if unread:
        listed = ", ".join(f"{count} {what}" for what, count in unread.items())
        _warn(f"{path}: not read: {listed}")


def _check_size(path: Path, parts: Iterable[bytes]) -> None:
    """Refuse parts of a file with too many bytes or elements; parts after one that is too large are
    not asked for.
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
    text = re.sub(f"\n?{_NEXT_CELL}", "\t", "".join(pieces))  # a paragraph ends before it
    lines = (line.strip(" \r\v\f") for line in text.split("\n"))
    return "\n".join(line for line in lines if line.strip())


def _pdf_pages(path: Path) -> list[str]:
    """Read the pages of a PDF; what repeats without end in a small file is refused."""
    import pypdf

    reader = pypdf.PdfReader(path)
    _check_pages(path, reader)
    operations = 0

    def count(*_: Any) -> None:
        nonlocal operations
        operations += 1
        if operations > _MAX_OPERATIONS:
            raise DataError(got, "pages of text", "print it to a new PDF, or split it")

    got = f"{path} draws more than {_MAX_OPERATIONS:,} times"
    texts = [page.extract_text(visitor_operand_before=count) for page in reader.pages]
    count()  # pypdf goes on after an error within a form
    unread: Counter[str] = Counter()
    if fields := reader.get_fields():
        unread["values of a form"] = len(fields)
    for page in reader.pages:
        for note in page.annotations or ():
            if note.get_object().get("/Contents"):
                unread["notes"] += 1
    _warn_of_unread(path, unread)
    whole = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts]
    if whole != texts:
        _warn(f"{path}: halves of surrogate pairs are replaced by U+FFFD")
    return whole


def _check_pages(path: Path, reader: Any) -> None:
    """Refuse a tree of very many pages, of which the same one may be many, before it is walked."""
    count = 0
    nodes = [reader.root_object["/Pages"]]
    while nodes:
        count += 1
        if count > _MAX_PAGES:
            got = f"{path} ({path.stat().st_size:,} bytes) has more than {_MAX_PAGES:,} pages"
            raise DataError(got, "fewer pages", "print it to a new PDF, or split it")
        nodes += nodes.pop().get_object().get("/Kids", [])


def _docx_text(path: Path) -> list[str]:
    """Read headers, body, notes and footers; tracked insertions are text, deletions are not, each
    cell stands once.
    """
    import docx
    from docx.oxml import parse_xml

    with zipfile.ZipFile(path) as packed:
        names = [name for name in packed.namelist() if re.match(r"word/.*\.xml$", name)]
        _check_size(path, (packed.open(name).read(_MAX_BYTES + 1) for name in names))
    main = docx.Document(str(path)).part
    named = {str(part.partname): part for part in main.package.iter_parts() if part is not main}

    def of_kind(kind: str) -> list[Any]:
        return [named[name] for name in sorted(named) if re.search(rf"/{kind}\d*\.xml$", name)]

    notes = [*of_kind("footnotes"), *of_kind("endnotes")]
    pieces: list[str] = []
    unread: Counter[str] = Counter()
    for part in [*of_kind("header"), main, *notes, *of_kind("footer")]:
        root = part.element if hasattr(part, "element") else parse_xml(part.blob)
        pieces += [*_docx_pieces(root, unread), "\n"]
    _warn_of_unread(path, unread)
    return [_lines(pieces)]


def _docx_pieces(root: Any, unread: Counter[str]) -> Iterator[str]:
    """Yield the text of each run, with tabs between cells and a line's end after each paragraph."""
    from lxml import etree

    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        tag = etree.QName(element).localname if isinstance(element.tag, str) else ""
        if event == "end":
            if tag in ("p", "tr"):
                yield "\n"
        elif tag in _LEFT_OUT or (tag == "r" and element.find("./{*}rPr/{*}vanish") is not None):
            walk.skip_subtree()
        elif tag == "t":
            yield element.text or ""
        elif tag in _BREAKS and element.getparent().tag.endswith("}r"):
            yield _BREAKS[tag]
        elif tag == "tc" and element.getprevious() is not None:
            yield _NEXT_CELL
        elif tag == "txbxContent":
            yield "\n"
        elif tag in _UNREAD:
            unread[_UNREAD[tag]] += 1
            yield "\N{REPLACEMENT CHARACTER}" if tag == "sym" else ""


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
    if not raw.strip():
        return [""]
    root = etree.parse(io.BytesIO(raw), parser).getroot()
    for entry in parser.error_log:
        if entry.level == etree.ErrorLevels.FATAL:
            got = f"{path} cannot be read to its end: {entry.message}"
            raise DataError(got, "elements that end", "correct or simplify it")
    if root is None:
        return [""]
    frames = [frame.get("src")[:60] for frame in root.xpath("//iframe[@src] | //frame[@src]")]
    if frames:
        _warn(f"{path}: the pages in its frames are not read: {_first(frames)}")
    return [_lines(_html_pieces(root))]


def _html_pieces(root: Any) -> Iterator[str]:
    from lxml import etree
    from lxml.html import defs

    blocks = defs.block_tags.union(_BLOCKS).difference(_INLINE)
    walk = etree.iterwalk(root, events=("start", "end"))
    as_written = 0
    for event, element in walk:
        if event == "end":
            as_written -= element.tag in _AS_WRITTEN
            text = element.tail if element is not root else None
        else:
            as_written += element.tag in _AS_WRITTEN
            text = element.text
            if _is_unseen(element):
                walk.skip_subtree()
                text = None
        if element.tag in blocks:
            yield "\n"
        if text:
            yield text if as_written else re.sub(r"\s+", " ", text)


def _is_unseen(element: Any) -> bool:
    return (
        element.tag in _UNSEEN
        or "hidden" in element.attrib
        or _KATEX_COPY in element.get("class", "").split()
        or _HIDDEN.search(element.get("style", "")) is not None
    )
