"""Text, PDF, DOCX and HTML files as documents (extra ``[documents]``), with every visible word once
and in order, but for what is struck out. Raised digits are written as such, 10⁶, and the mark of a
note comes after a blank. Symbols of a symbol font are U+FFFD. Not read are the numbers of lists,
tick boxes of Word, values of forms, notes of a PDF, and the pages in frames.

Line breaks stay as the file has them. A word that a hyphen divides at a line end is joined where
texts are compared: by the IR score and by BM25, both with `ragbench.text.layout`.
"""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ragbench.data.files import each_record, read_text
from ragbench.errors import ConfigError, DataError, EmptyFileError
from ragbench.paths import refuse_stream
from ragbench.records import Document

# Elements that begin a line, beside those that lxml knows: of HTML 5.
_BLOCKS = (
    "article aside body br button details dialog figcaption figure footer header hgroup html main "
    "nav search section select summary textarea"
)
_INLINE = {"del", "ins"}  # blocks to lxml
_UNSEEN = (
    "title script style template noscript noframes iframe datalist audio video canvas rp "
    "annotation del s strike"
)
_HIDDEN = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|text-decoration[^;]*line-through", re.IGNORECASE
)
_RAISED_STYLE = re.compile(r"vertical-align\s*:\s*super", re.IGNORECASE)
_KATEX_COPY = "katex-html"  # a formula's second form, beside MathML
_AS_WRITTEN = ("pre", "textarea")
# Of a DOCX: what stands for a character, and what is left out: deletions, the second form of a text
# box.
_BREAKS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_BREAKS["sym"] = "\N{REPLACEMENT CHARACTER}"
_LEFT_OUT = ("del", "moveFrom", "Fallback")
_NEXT_CELL = "\x1f"
_OFF = ("0", "false", "off")
_DEFAULT = "style of paragraphs without one"
_WORD_PART = re.compile(r"word/(styles|(header|document|footnotes|endnotes|footer)\d*)\.xml\Z")
_Styles = dict[str, dict[str, str]]
_RUN_PROPERTIES = ("vanish", "strike", "dstrike", "vertAlign")
# Of an HTML file: what it names its encoding, and what a browser reads instead.
_CHARSET = re.compile(
    rb"""<(?:meta|\?xml)\b[^>]*?(?:charset|encoding)\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE
)
_LATIN_1 = ("ascii", "us-ascii", "iso-8859-1", "iso8859-1", "latin1")
_READ_AS: dict[str, str] = dict.fromkeys(_LATIN_1, "cp1252")
_READ_AS |= {"gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc-kr": "cp949"}
_READ_AS |= {"iso-8859-9": "cp1254"}
# Superscripts
_RAISED = str.maketrans("0123456789+-−=()", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾")
_NOTE_NUMBERS = re.compile(r"\s*\d{1,3}(?:\s*[,;–-]\s*\d{1,3})*\s*")
_NOTE = re.compile(r"note|\bfn|ref|cit", re.IGNORECASE)
# What a number is the exponent of: a bracket, a number that is no year, a variable, a unit.
_UNITS = "[cdkmn]m ft in yd mi [km]g ms sec min mol Hz sin cos tan log ln".replace(" ", "|")
_POWER_BEFORE = re.compile(
    r"(?:[)\]}|⁰¹²³⁴-⁹]|(?<![\d.,])(?!\d{4}\Z)[\d.,]*\d"
    rf"|(?<![^\W\d_⁰¹²³⁴-⁹])(?:[^\W\d_]|{_UNITS}))\Z"
)


def read_documents(path: Path) -> list[Document]:
    """Read a file, or a folder's files, in subfolders too, without the hidden ones.

    A PDF is one document per page ("report, page 3"). A page without text (a scan, mostly) is kept,
    empty, and a warning names it. Files of other kinds are left out and named, like files without
    text. Files that fail are reported together.

    ConfigError without the package that reads a file, DataError for one that is damaged or
    encrypted, EmptyFileError for one without text.
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
    skipped = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if any(part.startswith((".", "~$")) for part in name.parts) or not path.is_file():
            continue
        is_read = path.suffix.lower() in READERS
        (files if is_read else skipped).append(str(name))
    listed = f"{len(skipped)} of other kinds ({_first(skipped)})" if skipped else "it is empty"
    if not files:
        raise DataError(
            f"the folder {folder.absolute()} holds no {', '.join(READERS)}: {listed}",
            "one text file per document",
            "check the path; turn other formats into text first, for instance with pandoc",
        )
    if skipped:
        _warn(f"{folder}: {len(files)} files are read; skipped: {listed}")
    return files


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=5)


def _first(names: list[str]) -> str:
    return ", ".join([*names[:5], "..."] if len(names) > 5 else names)


def _read_document(path: Path, name: str) -> list[Document]:
    """Read one file; ``name`` is that of the file in ids."""
    texts = _texts_of(path)
    empty = [str(page) for page, text in enumerate(texts, 1) if not text.strip()]
    if len(empty) == len(texts):
        raise EmptyFileError(
            f"{path} holds no text", "text, not pictures of it", "run a scan through OCR first"
        )
    if path.suffix.lower() != ".pdf":
        return [Document(name, path.stem, texts[0], meta={"file": name})]
    if empty:
        what = f"no text on page {', '.join(empty)} of {len(texts)}"
        _warn(f"{path}: {what}; if it is a scan, run it through OCR")
    documents = []
    for number, text in enumerate(texts, 1):
        title = f"{path.stem}, page {number}"
        meta = {"file": name, "page": number}
        documents.append(Document(f"{name}#page-{number}", title, text, meta=meta))
    return documents


def _texts_of(path: Path) -> list[str]:
    """Return the texts of a file; what goes wrong in a library is an error of ours."""
    ending = path.suffix.lower()
    refuse_stream(path)
    try:
        return READERS[ending](path)
    except DataError:
        raise
    except ImportError as error:
        raise ConfigError(
            f"{path} without {error.name}", "that package", 'pip install "ragbench-lab[documents]"'
        ) from None
    except Exception as error:  # each library has errors of its own, and of its parser
        needed = re.match(r"([\w-]+)\S* is required", str(error))
        if needed:  # of pypdf, for a file that is encrypted with AES
            do = f"pip install {needed[1]}, or save the file without protection"
            raise ConfigError(f"{path}: {error}", "that package", do) from None
        raise DataError(
            f"{path} cannot be read: {type(error).__name__}: {error}",
            f"a whole {ending[1:].upper()} file without a password",
            "open it, and save or export it again",
        ) from None


def _lines(pieces: Iterable[str]) -> str:
    """Join pieces of text to lines without white space around them, and without empty ones."""
    text = re.sub(f"\n?{_NEXT_CELL}", "\t", "".join(pieces))  # a paragraph ends before it
    lines = (line.strip(" \r\v\f") for line in text.split("\n"))
    return "\n".join(line for line in lines if line.strip())


def _plain_text(path: Path) -> list[str]:
    return [read_text(path)]


def _pdf_pages(path: Path) -> list[str]:
    import pypdf

    texts = []
    for page in pypdf.PdfReader(path).pages:
        # a half of a surrogate pair could not be written again
        raw = page.extract_text().encode("utf-16", "surrogatepass")
        texts.append(raw.decode("utf-16", "replace"))
    return texts


def _raised(text: str, before: str, is_note: bool | None) -> str:
    """Write a superscript that follows on ``before``: digits and signs as raised characters, the
    mark of a note after a blank.

    ``is_note`` None: a number is one unless it can be an exponent of what is before.

    >>> _raised("6", "10", None), _raised("2", "in 1841", None), _raised("[2]", "Ely", True)
    ('⁶', ' ²', ' [2]')
    """
    if is_note is None:
        is_note = bool(_NOTE_NUMBERS.fullmatch(text)) and not _POWER_BEFORE.search(before)
    written = text
    if "[" not in text:
        written = "ⁿ" if text == "n" else text.translate(_RAISED)
    is_after_text = before and not before[-1].isspace()
    return f" {written}" if is_note and is_after_text and text.strip() else written


def _tail(pieces: list[str]) -> str:
    """Return the last characters of a text in pieces, of which many may be empty."""
    return "".join(pieces[-40:])[-20:]


def _docx_text(path: Path) -> list[str]:
    """Read headers, body, notes and footers; tracked insertions are text, deletions are not, each
    cell stands once.
    """
    import lxml.etree

    parser = lxml.etree.XMLParser(resolve_entities=False, huge_tree=True)
    with zipfile.ZipFile(path) as packed:
        names = [name for name in sorted(packed.namelist()) if _WORD_PART.match(name)]
        parts = {name: lxml.etree.fromstring(packed.read(name), parser) for name in names}
    styles: _Styles = {}
    if "word/styles.xml" in parts:
        styles = _word_styles(parts["word/styles.xml"])
    pieces: list[str] = []
    for kind in ("header", "document", "footnotes", "endnotes", "footer"):
        for name, root in parts.items():
            if name.startswith(f"word/{kind}"):
                pieces += [*_docx_pieces(root, styles), "\n"]
    return [_lines(pieces)]


def _word_value(element: Any, name: str = "val") -> str:
    """Return an attribute in its element's own namespace; "" where it or the element is not
    stated.
    """
    if element is None:
        return ""
    namespace = element.tag.rpartition("}")[0]
    return element.get(f"{namespace}}}{name}", "")


def _run_properties(element: Any) -> dict[str, str]:
    """Return those properties of a run or style that are read here, as they are stated."""
    stated = {}
    for name in _RUN_PROPERTIES:
        found = element.find(f"./{{*}}rPr/{{*}}{name}")
        if found is not None:
            stated[name] = _word_value(found)
    return stated


def _word_styles(root: Any) -> _Styles:
    """Return the properties of each style by its id, with those of the styles it is based on."""
    own = {}
    bases = {}
    for style in root.iterfind("./{*}style"):
        name = _word_value(style, "styleId")
        own[name] = _run_properties(style)
        bases[name] = _word_value(style.find("./{*}basedOn"))
        is_default = _word_value(style, "default") in ("1", "true", "on")
        if is_default and _word_value(style, "type") == "paragraph":
            own[_DEFAULT] = {}
            bases[_DEFAULT] = name

    def inherited(name: str, depth: int = 20) -> dict[str, str]:
        if name not in own or not depth:
            return {}
        return inherited(bases[name], depth - 1) | own[name]

    return {name: inherited(name) for name in own}


def _run_shows(run: Any, styles: _Styles) -> tuple[bool, bool]:
    """Tell whether a run's text is left out (hidden or struck out), and whether it is raised.

    A property that is on in both the style of the run and that of its paragraph is off (ECMA-376,
    17.7.3); the run's own value goes before.
    """
    own = _run_properties(run)
    paragraph = next(run.iterancestors("{*}p"), run)
    of_run = styles.get(_word_value(run.find("./{*}rPr/{*}rStyle")), {})
    name = _word_value(paragraph.find("./{*}pPr/{*}pStyle"))
    of_paragraph = styles.get(name or _DEFAULT, {})

    def is_on(name: str) -> bool:
        if name in own:
            return own[name] not in _OFF
        stated = (of_run.get(name, "0"), of_paragraph.get(name, "0"))
        return sum(value not in _OFF for value in stated) == 1

    is_left_out = any(is_on(name) for name in ("vanish", "strike", "dstrike"))
    align = (of_paragraph | of_run | own).get("vertAlign")
    return is_left_out, align == "superscript"


def _docx_pieces(root: Any, styles: _Styles) -> list[str]:
    """List the text of each run, with tabs between cells and a line's end after each paragraph."""
    from lxml.etree import QName, iterwalk

    pieces: list[str] = []
    is_raised = False
    exponents = 0  # of formulas, that are open
    walk = iterwalk(root, events=("start", "end"))
    for event, element in walk:
        tag = ""
        if isinstance(element.tag, str):  # of a comment it is a function
            tag = QName(element).localname
        is_left_out = tag in _LEFT_OUT
        if tag == "sup":
            exponents += 1 if event == "start" else -1
        if event == "end":
            pieces.append("\n" if tag in ("p", "tr") else "")
            continue
        if tag == "r":
            is_left_out, is_raised = _run_shows(element, styles)
        if is_left_out:
            walk.skip_subtree()
        elif tag == "t" and (exponents or is_raised):
            is_note = False if exponents else None
            pieces.append(_raised(element.text or "", _tail(pieces), is_note))
        else:
            pieces.append(_docx_text_of(tag, element))
    return pieces


def _docx_text_of(tag: str, element: Any) -> str:
    """Return the text of an element that is not raised, or the character it stands for."""
    if tag == "t":
        return element.text or ""
    if tag in _BREAKS and element.getparent().tag.endswith("}r"):
        return _BREAKS[tag]  # outside a run they are settings: where tabs stop, say
    if tag == "tc" and element.getprevious() is not None:
        return _NEXT_CELL
    return {"txbxContent": "\n", "den": "/"}.get(tag, "")


def _html_text(path: Path) -> list[str]:
    import lxml.etree

    text = _decoded(path.read_bytes())
    parser = lxml.etree.HTMLParser(
        encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True
    )
    root = None
    if text.strip():
        root = lxml.etree.fromstring(text.encode(), parser)
    for entry in parser.error_log:
        if entry.level == lxml.etree.ErrorLevels.FATAL:
            raise DataError(
                f"{path} cannot be read to its end: {entry.message}",
                "elements that end",
                "correct or simplify it",
            )
    return [_lines([] if root is None else _html_pieces(root))]


def _decoded(raw: bytes) -> str:
    """Decode a page: UTF-8 where it is that, else as the file says, else windows-1252."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        named = _CHARSET.search(raw)
    name = named[1].decode("ascii", "replace").lower() if named else "cp1252"
    try:
        return raw.decode(_READ_AS.get(name, name), "replace")
    except LookupError:
        return raw.decode("cp1252", "replace")


def _html_pieces(root: Any) -> list[str]:
    """List the visible texts of a page, with a line's end around each block."""
    from lxml.etree import iterwalk
    from lxml.html import defs

    blocks = defs.block_tags.union(_BLOCKS.split()) - _INLINE
    pieces = [""]
    walk = iterwalk(root, events=("start", "end"))
    as_written = False
    raised: list[bool | None] = []  # of each superscript that is open, whether it is a note
    for event, element in walk:
        is_start = event == "start"
        text = element.text if is_start else element.tail
        if element.tag in _AS_WRITTEN:
            as_written = is_start
        if _is_raised(element):
            raised = [*raised, _is_note(element)] if is_start else raised[:-1]
        if is_start and _is_unseen(element):
            walk.skip_subtree()
            continue
        if element.tag in blocks:
            pieces.append("\n")
        elif is_start and _is_denominator(element):
            pieces.append("/")
        if text:
            text = text if as_written else re.sub(r"\s+", " ", text)
            pieces.append(_raised(text, _tail(pieces), raised[-1]) if raised else text)
    return pieces


def _is_in(element: Any, *tags: str) -> bool:
    parent = element.getparent()
    return parent is not None and parent.tag in tags


def _is_denominator(element: Any) -> bool:
    return _is_in(element, "mfrac") and element.getprevious() is not None


def _is_exponent(element: Any) -> bool:
    """Tell whether an element of MathML is the exponent of another."""
    is_last = element.getnext() is None and element.getprevious() is not None
    return is_last and _is_in(element, "msup", "msubsup")


def _is_raised(element: Any) -> bool:
    style = element.get("style", "")
    return element.tag == "sup" or bool(_RAISED_STYLE.search(style)) or _is_exponent(element)


def _is_note(element: Any) -> bool | None:
    """Tell whether a superscript is the mark of a note: a link, or called so; None if it is not
    said.
    """
    if _is_exponent(element):
        return False
    said = " ".join(element.get(name, "") for name in ("class", "id", "role", "epub:type"))
    is_link = element.find(".//a") is not None or _is_in(element, "a")
    return True if is_link or _NOTE.search(said) else None


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
