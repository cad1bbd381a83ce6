"""Text, PDF, DOCX and HTML files as documents (extra ``[documents]``), with every visible word once
and in order. Symbols of a symbol font are U+FFFD. Not read are list numbers and tick boxes of Word,
form values and notes of a PDF, and the pages in frames.

Line breaks stay as the file has them. A word that a hyphen divides at a line end is joined where
texts are compared: by the IR score and by BM25, both with `ragbench.text.layout`.
"""

from __future__ import annotations

import re
import warnings
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ragbench.data.files import each_record, read_text
from ragbench.errors import ConfigError, DataError, EmptyFileError
from ragbench.records import Document

_MAX_TAGS = 1_000_000  # of an HTML file, or of a part of a DOCX
_MAX_BYTES = 64 * 2**20
_MAX_PAGES = 20_000  # of a PDF
MAX_OPERATIONS = 5_000_000  # that draw its pages
# Elements that begin a line, beside those that lxml knows: of HTML 5.
_BLOCKS = (
    "article aside body br button details dialog figcaption figure footer header hgroup html main "
    "nav search section select summary textarea"
)
_INLINE = {"del", "ins"}  # blocks to lxml
_UNSEEN = (
    "title script style template noscript noframes iframe datalist audio video canvas rp annotation"
)
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_KATEX_COPY = "katex-html"  # a formula's second form, beside MathML
_AS_WRITTEN = ("pre", "textarea")
# Of a DOCX: what stands for a character, and what is left out: deletions, the second form of a text
# box.
_BREAKS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_BREAKS["sym"] = "\N{REPLACEMENT CHARACTER}"
_LEFT_OUT = ("del", "moveFrom", "Fallback")
_NEXT_CELL = "\x1f"


def read_documents(path: Path) -> list[Document]:
    """Read a file, or a folder's files, in subfolders too, without the hidden ones.

    A PDF is one document per page ("report, page 3"). A page without text (a scan, mostly) is kept,
    empty, and a warning names it. Links that lead out of the folder and files of other kinds are
    left out and named, like files without text. Files that fail are reported together.

    ConfigError without the package that reads a file, DataError for one that is damaged, encrypted
    or too large, EmptyFileError for one without text.
    """
    if not path.is_dir():
        return _read_document(path, path.name)
    empty: list[str] = []

    def read(name: str, where: str) -> list[Document]:
        try:
            return _read_document(path / name, name)
        except EmptyFileError as error:
            empty.append(error.got)
            return []

    names = _document_files(path)
    read_files = each_record(path, zip(names, names, strict=True), read, None)
    left = f"{len(empty)} of {len(names)} files left out, without text: {_first(empty)}"
    if len(empty) == len(names):
        raise DataError(f"{path}: {left}", "at least one with text", "run scans through OCR first")
    if empty:
        _warn(left)
    return [document for documents in read_files for document in documents]


def _document_files(folder: Path) -> list[str]:
    """List the documents of a folder; a warning names what else it holds."""
    files = []
    skipped = defaultdict(list)
    root = folder.resolve()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if any(part.startswith((".", "~$")) for part in name.parts) or not path.is_file():
            continue
        kind = path.suffix.lower() or "without an ending"
        if not path.resolve().is_relative_to(root):
            kind = "links out of the folder"
        if kind in READERS:
            files.append(str(name))
        else:
            skipped[kind].append(str(name))
    listed = "; ".join(f"{len(names)} {kind} ({_first(names)})" for kind, names in skipped.items())
    if not files:
        raise DataError(
            f"the folder {folder.absolute()} holds no {', '.join(READERS)}: "
            f"{listed or 'it is empty'}",
            "one text file per document",
            "check the path; turn other formats into text first, for instance with pandoc",
        )
    if listed:
        _warn(f"{folder}: {len(files)} files are read; skipped: {listed}")
    return files


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=5)


def _first(names: list[str]) -> str:
    return ", ".join([*names[:5], "..."] if len(names) > 5 else names)


def _read_document(path: Path, name: str) -> list[Document]:
    """Read one file; ``name`` is that of the file in ids."""
    ending = path.suffix.lower()
    try:
        texts = READERS[ending](path)
    except DataError:
        raise
    except ImportError as error:
        raise ConfigError(
            f"{path} without {error.name}", "that package", 'pip install "ragbench-lab[documents]"'
        ) from None
    except Exception as error:  # each library has errors of its own, and of its parser
        raise DataError(
            f"{path} cannot be read: {type(error).__name__}: {error}",
            f"a whole {ending[1:].upper()} file without a password",
            "open it, and save or export it again",
        ) from None
    _check_texts(path, texts)
    if ending != ".pdf":
        return [Document(name, path.stem, texts[0], meta={"file": name})]
    documents = []
    for number, text in enumerate(texts, 1):
        title = f"{path.stem}, page {number}"
        meta = {"file": name, "page": number}
        documents.append(Document(f"{name}#page-{number}", title, text, meta=meta))
    return documents


def _check_texts(path: Path, texts: list[str]) -> None:
    empty = [str(page) for page, text in enumerate(texts, 1) if not text.strip()]
    if len(empty) == len(texts):
        raise EmptyFileError(
            f"{path} holds no text", "text, not pictures of it", "run a scan through OCR first"
        )
    if empty:
        pages = ", ".join(empty)
        what = f"no text on page {pages} of {len(texts)}"
        _warn(f"{path}: {what}; if it is a scan, run it through OCR")


def _check_size(path: Path, raw: bytes) -> None:
    """Refuse a part of a file with too many bytes or elements."""
    size = len(raw)
    tags = raw.count(b"<") - raw.count(b"</")
    if size > _MAX_BYTES or tags > _MAX_TAGS:
        raise DataError(
            f"{path} has a part of {size:,} bytes and {tags:,} elements",
            f"at most {_MAX_TAGS:,} elements and {_MAX_BYTES:,} bytes",
            "split it into several files",
        )


def _lines(pieces: Iterable[str]) -> str:
    """Join pieces of text to lines without white space around them, and without empty ones."""
    text = re.sub(f"\n?{_NEXT_CELL}", "\t", "".join(pieces))  # a paragraph ends before it
    lines = (line.strip(" \r\v\f") for line in text.split("\n"))
    return "\n".join(line for line in lines if line.strip())


def _plain_text(path: Path) -> list[str]:
    return [read_text(path)]


def _pdf_pages(path: Path) -> list[str]:
    """Read the pages of a PDF; what repeats without end in a small file is refused."""
    import pypdf

    reader = pypdf.PdfReader(path)
    _check_pages(path, reader)
    operations = 0

    def count(*_: Any) -> None:
        nonlocal operations
        operations += 1
        if operations > MAX_OPERATIONS:
            raise DataError(
                f"{path} draws more than {MAX_OPERATIONS:,} times",
                "pages of text",
                "print it to a new PDF, or split it",
            )

    texts = []
    for page in reader.pages:
        text = page.extract_text(visitor_operand_before=count)
        # a half of a surrogate pair could not be written again
        raw = text.encode("utf-16", "surrogatepass")
        texts.append(raw.decode("utf-16", "replace"))
    count()  # pypdf goes on after an error within a form
    return texts


def _check_pages(path: Path, reader: Any) -> None:
    """Refuse a tree of very many pages, of which the same one may be many, before it is walked."""
    count = 0
    nodes = [reader.root_object["/Pages"]]
    while nodes:
        count += 1
        if count > _MAX_PAGES:
            raise DataError(
                f"{path} ({path.stat().st_size:,} bytes) has more than {_MAX_PAGES:,} pages",
                "fewer pages",
                "print it to a new PDF, or split it",
            )
        nodes += nodes.pop().get_object().get("/Kids", [])


def _docx_text(path: Path) -> list[str]:
    """Read headers, body, notes and footers; tracked insertions are text, deletions are not, each
    cell stands once.
    """
    from lxml import etree

    pieces: list[str] = []
    with zipfile.ZipFile(path) as packed:
        for kind in ("header", "document", "footnotes", "endnotes", "footer"):
            for name in sorted(packed.namelist()):
                if re.fullmatch(rf"word/{kind}\d*\.xml", name):
                    raw = packed.open(name).read(_MAX_BYTES + 1)
                    _check_size(path, raw)
                    parser = etree.XMLParser(resolve_entities=False, huge_tree=True)
                    pieces += [*_docx_pieces(etree.fromstring(raw, parser)), "\n"]
    return [_lines(pieces)]


def _docx_pieces(root: Any) -> Iterator[str]:
    """Yield the text of each run, with tabs between cells and a line's end after each paragraph."""
    from lxml import etree

    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        tag = ""
        if isinstance(element.tag, str):  # of a comment it is a function
            tag = etree.QName(element).localname
        if event == "end":
            if tag in ("p", "tr"):
                yield "\n"
        elif tag in _LEFT_OUT or (tag == "r" and element.find("./{*}rPr/{*}vanish") is not None):
            walk.skip_subtree()
        elif tag == "t":
            yield element.text or ""
        elif tag in _BREAKS and element.getparent().tag.endswith("}r"):
            yield _BREAKS[tag]  # outside a run they are settings: where tabs stop, say
        elif tag == "tc" and element.getprevious() is not None:
            yield _NEXT_CELL
        elif tag == "txbxContent":
            yield "\n"


def _html_text(path: Path) -> list[str]:
    from lxml import etree

    raw = path.read_bytes()
    _check_size(path, raw)
    try:
        raw.decode("utf-8")
        encoding = "utf-8"
    except UnicodeDecodeError:
        encoding = None  # the one that the file names, else windows-1252
    parser = etree.HTMLParser(
        encoding=encoding, huge_tree=True, remove_comments=True, remove_pis=True
    )
    root = None
    if raw.strip():
        root = etree.fromstring(raw, parser)
    if root is None:
        return [""]
    for entry in parser.error_log:
        if entry.level == etree.ErrorLevels.FATAL:
            raise DataError(
                f"{path} cannot be read to its end: {entry.message}",
                "elements that end",
                "correct or simplify it",
            )
    return [_lines(_html_pieces(root))]


def _html_pieces(root: Any) -> Iterator[str]:
    from lxml import etree
    from lxml.html import defs

    blocks = defs.block_tags.union(_BLOCKS.split()) - _INLINE
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
        element.tag in _UNSEEN.split()
        or "hidden" in element.attrib
        or _KATEX_COPY in element.get("class", "").split()
        or _HIDDEN.search(element.get("style", "")) is not None
    )


# Ending -> how its texts are read: a PDF has one a page.
READERS = {
    **dict.fromkeys((".txt", ".md", ".rst"), _plain_text),
    ".pdf": _pdf_pages,
    ".docx": _docx_text,
    ".html": _html_text,
    ".htm": _html_text,
}
