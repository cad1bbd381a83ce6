"""Structured replies: from what a model wrote to one validated pydantic object, or to the reason
why not.

Nothing is guessed: a truncated JSON text is never closed by us, a missing label never filled in, a
number in quotes never taken as a number (pydantic's strict mode). What is allowed is wrapping: a
``<think>`` part, a code fence, prose around one JSON value.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from ragbench.records import once

# Where a draft begins and ends: most models; Mistral; the channels of harmony (gpt-oss).
_BEGIN = re.compile(
    r"<think(?:ing)?>|\[THINK\]|(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary)",
    re.IGNORECASE,
)
_END = re.compile(r"</think(?:ing)?>|\[/THINK\]|<\|channel\|>final<\|message\|>", re.IGNORECASE)
# Drafts at the beginning of a text; the first without a mark of its own where none follows.
_DRAFT = re.compile(
    rf"\A(?:(?:(?!{_BEGIN.pattern}).)*?(?:{_END.pattern})(?![`,.;:)]|[\"'][,.;:)]))?"
    rf"(?:\s*(?:{_BEGIN.pattern}).*?(?:{_END.pattern}))*",
    re.IGNORECASE | re.DOTALL,
)
_BLOCK = re.compile(rf"(?:{_BEGIN.pattern}).*?(?:{_END.pattern})", re.IGNORECASE | re.DOTALL)
_FENCE = re.compile(r"\A\s*```\w*|```\s*\Z")
# For lists without a number of their own: small models fill an open list until they run out of
# tokens.
MOST_ITEMS = 50


def without_thinking(text: str) -> str | None:
    """Return the text without drafts at its beginning, or None when thinking was begun and not
    finished.

    An end without a beginning (some templates write ``<think>`` into the prompt) ends the thinking
    too, unless the sentence goes on behind it. A tag that is only named within the answer stays.
    """
    answer = _DRAFT.sub("", text, count=1).strip()
    return None if _BEGIN.match(answer) else answer


def _without_drafts(text: str) -> str | None:
    """Return what stands before and after the drafts, wherever they are; None where one is not
    finished.
    """
    answer = without_thinking(text)
    if answer is None:
        return None
    answer = _BLOCK.sub(" ", answer).strip()
    return None if _BEGIN.search(answer) else answer


def _json_values(text: str) -> list[str]:
    """Return the outermost complete JSON objects and arrays in a text, as written, in order.

    What lies inside a value that breaks off at the end of the text is not looked at: a part of a
    truncated answer is not an answer.
    """
    decoder = json.JSONDecoder()
    values: list[str] = []
    end = 0
    for mark in re.finditer(r"[{\[]", text):
        if mark.start() < end:
            continue  # inside a value
        try:
            _, end = decoder.raw_decode(text, mark.start())
        except json.JSONDecodeError as error:
            if error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip()):
                break
        except (RecursionError, ValueError):  # too deep, or a number of thousands of digits
            break
        else:
            values.append(text[mark.start() : end])
    return values


def read_reply(
    text: str, schema: type[BaseModel], cut_off: str = "", prompt: str = ""
) -> tuple[Any, str, str]:
    """Find the one JSON value that fits the pydantic model strictly (no ``"3"`` for 3).

    A value among other words that stands in the ``prompt`` is quoted from there, and no reply.
    ``cut_off`` says that a reply ended at its limit: a whole value, with white space up to the
    limit, counts all the same. Returns (object, its JSON text, "") or (None, "", what is wrong with
    it).
    """
    answer: str | None = text.strip()
    if _json_values(text)[:1] != [answer]:  # else a tag inside is a word of it
        if cut_off:
            return None, "", cut_off
        answer = _without_drafts(text)
    if answer is None:
        return None, "", "the thinking part was not finished, so there is no answer"
    fitting, problem = _fitting(answer, schema, prompt)
    if not fitting:
        return None, "", problem
    part, value = next(iter(fitting.items()))
    if any(other != value for other in fitting.values()):
        return None, "", f"{len(fitting)} different JSON values in it fit the schema"
    return value, part, ""


def _fitting(answer: str, schema: type[BaseModel], prompt: str) -> tuple[dict[str, BaseModel], str]:
    """Return the JSON values in an answer that fit, by their texts, and what is wrong with the
    last that does not.
    """
    candidates = _json_values(answer)
    if answer[:1] in ("{", "["):
        candidates.insert(0, answer)
    bare = _FENCE.sub("", answer).strip()
    said = _without_blanks(prompt)
    problem = "there is no complete JSON value in it"
    fitting = {}
    for candidate in candidates:
        if candidate != bare and _without_blanks(candidate) in said:
            problem = "its JSON value repeats one that stands in the prompt"
            continue
        try:
            fitting[candidate] = _fitted(candidate, schema)
        except ValueError as error:
            problem = _in_words(error)
    return fitting, problem


def _fitted(text: str, schema: type[BaseModel]) -> BaseModel:
    """Return the value of a JSON text; 5.0 fits a whole number. ValueError for no fit."""
    try:
        value = schema.model_validate_json(text, strict=True)
    except ValueError as error:
        try:
            whole = json.dumps(json.loads(text, parse_float=_whole))
            value = schema.model_validate_json(whole, strict=True)
        except (ValueError, RecursionError):
            raise error from None
    json.loads(text, object_pairs_hook=once)
    return value


def _whole(number: str) -> int | float:
    value = float(number)
    return int(value) if value.is_integer() else value


def _without_blanks(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _in_words(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    parts = []
    for item in error.errors(include_url=False)[:5]:
        where = ".".join(str(step) for step in item["loc"]) or "the JSON"
        parts.append(f"{where}: {item['msg']}")
    return "; ".join(parts)


@lru_cache(maxsize=1024)
def label_schema(count: int, labels: tuple[str, ...], field: str = "labels") -> type:
    """Make the schema of a reply whose ``field`` lists exactly ``count`` of these labels, never
    padded.
    """
    label = Literal[labels]  # type: ignore[valid-type]
    length = Field(min_length=count, max_length=count)
    fields: dict[str, Any] = {field: (list[label], length)}  # type: ignore[valid-type]
    of_model: Any = create_model  # its overloads know no mapping of fields
    return of_model(f"Labels{count}", __config__=ConfigDict(extra="forbid"), **fields)
