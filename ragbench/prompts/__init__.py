"""Prompts: one text file each, id = file name. A user may point to a file of their own wherever an
id is taken.

A file may begin with a header between two lines ``---``: for readers, never sent and in no hash.
Ours say there which section of which paper the prompt follows and where it departs from it. Fields
are written ``{name}``.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from pathlib import Path

from ragbench.errors import ConfigError, DataError, check_known
from ragbench.paths import refuse_stream

Prompt = str | os.PathLike[str]  # an id of ours, or a file
_FOLDER = Path(__file__).parent
_MARK = "---"  # opens and closes a header
# from "For instance" or "Example 1." to the next empty line
_DEMONSTRATION = re.compile(r"(?:^Example|\bFor instance)\b.*?(?=\n\n|\Z)", re.M | re.S)
# A capital letter within a sentence; in Chinese a family name and 某, as courts write it.
_NAME = re.compile(r"(?<=[\w,] )[A-Z]\w{2,}|[\u4e00-\u9fff]某")
_WORD = re.compile(r"[^\W\u4e00-\u9fff]+|[\u4e00-\u9fff]某")
_HEADER = re.compile(rf"{_MARK}[ \t]*\n(.*?)^{_MARK}[ \t]*(?:\n|\Z)(.*)", re.DOTALL | re.MULTILINE)


def _prompt_ids() -> list[str]:
    """Return the ids of the prompts that come with ragbench, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.txt"))


def load_prompt(prompt: Prompt) -> str:
    """Return a prompt's text as it is sent: without its header, and without white space at its
    ends.

    Parameters
    ----------
    prompt : an id, or the path of a text file (anything with a folder or an ending, or a ``Path``).
    """
    return _parts(prompt)[1]


def prompt_scale(prompt: Prompt) -> dict[int, str]:
    """Return the grades of a grading prompt and what they mean, as its header says; empty without.

    The header has a line ``Scale:``, and below it a line per grade: ``3: partly right``. The
    greatest grade is that of an answer that is fully right.

    >>> prompt_scale("thesis_grade")[5]
    'fully correct'
    """
    header, _ = _parts(prompt)
    lines = [line.strip() for line in header]
    heads = [line.casefold() for line in lines]
    if "scale:" not in heads:
        return {}
    start = heads.index("scale:") + 1
    grades = [line for line in lines[start:] if line]
    scale = {}
    for line in grades:
        if grade := re.match(r"(\d+): *(.+)", line):
            scale[int(grade[1])] = grade[2]
    if len(scale) < 2 or len(scale) < len(grades):
        raise DataError(
            f"{len(scale)} grades below 'Scale:' in the header of {prompt}, in {len(grades)} lines",
            "a line per grade, such as 3: partly right, and no other below 'Scale:'",
            "write one for each; other notes go above 'Scale:'",
        )
    return scale


def _parts(prompt: Prompt) -> tuple[list[str], str]:
    """Return the lines of a prompt's header, and its text."""
    path = Path(prompt)
    if isinstance(prompt, str) and path.name == prompt and not path.suffix:
        check_known("prompt", [prompt], _prompt_ids())
        path = _FOLDER / f"{prompt}.txt"
    text = _read(path)
    header = ""
    if re.match(rf"{_MARK}[ \t]*(\n|\Z)", text):
        parts = _HEADER.match(text)
        if parts is None:
            raise DataError(
                f"the header of {path} has no end",
                f"a second line {_MARK!r}",
                "add it below the header, or drop both",
            )
        header = parts[1]
        text = parts[2].strip()
    if not text:
        raise DataError(
            f"the prompt file {path} is empty",
            "a prompt",
            "write one, or use an id of ragbench's own",
        )
    return [line.rstrip() for line in header.split("\n")], text


def _read(path: Path) -> str:
    refuse_stream(path)
    try:
        return path.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DataError(
            f"cannot read the prompt file {path}: {reason}", "a text file", "check the path"
        ) from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 at byte {error.start}", "UTF-8 text", "save it as UTF-8"
        ) from None


def prompt_hash(prompt: Prompt) -> str:
    """Return the sha256 of a prompt's text as ``load_prompt`` gives it, in hex."""
    return hashlib.sha256(load_prompt(prompt).encode("utf-8")).hexdigest()


def names_demonstration(written: str, template: str, prompt: str) -> bool:
    """Tell whether what a model wrote has a name of the template's demonstration that no text of
    the filled prompt has: small models copy from it.

    >>> template = load_prompt("steps_questions")
    >>> prompt = fill_prompt(template, answer="It has a lamp.", count="1")
    >>> names_demonstration("Who built the bridge at Tarn?", template, prompt)
    True
    """
    copied = _names_of_demonstrations(template) & set(_WORD.findall(written))
    return any(prompt.count(name) == template.count(name) for name in copied)


@functools.lru_cache
def _names_of_demonstrations(template: str) -> frozenset[str]:
    """Return the names in a template's demonstrations; one template is asked about many replies."""
    names: set[str] = set()
    for demonstration in _DEMONSTRATION.findall(template):
        names.update(_NAME.findall(demonstration))
    return frozenset(names)


def fill_prompt(text: str, **fields: str) -> str:
    """Put values into the ``{name}`` fields of a prompt's text; other braces stay as they are.

    ConfigError when the text lacks one of the fields, since the model would then never see that
    value.
    """
    marks = [f"{{{name}}}" for name in fields]
    for mark in marks:
        if mark not in text:
            raise ConfigError(
                f"the prompt has no field {mark}",
                f"the fields {', '.join(marks)}",
                "add the missing field to the prompt file",
            )
    # One pass from left to right: a value that itself holds "{question}" is not filled again.
    return re.sub(r"\{(\w+)\}", lambda match: fields.get(match[1], match[0]), text)
