"""Configurations: a model makes up values for the fields of a schema (RAGEval, section 3.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints, create_model

from ragbench.datagen.checks import mentions
from ragbench.datagen.parts import (
    LANGUAGES,
    Call,
    Configuration,
    Rejected,
    Schema,
    StepResult,
    Unfit,
    ask_step,
)
from ragbench.errors import ConfigError

_PLACEHOLDER = re.compile(
    r"[\[\]{}<>]|\b(?:n/?a|tbd|xxx+|unknown|none|j(?:ohn|ane) doe)\b", re.IGNORECASE
)
_LONGEST = 160  # characters of a value; a server with a grammar cuts longer ones off
_MIN_SHARE = 0.5  # of the fields of a schema that a configuration must have values for


def make_configurations(
    model: Any, schema: Schema, documents: int, seeds: Sequence[str] = (), **options: Any
) -> StepResult[Configuration]:
    """Let a model make up the values of so many documents, the schema's subdomains in turn.

    A value is rejected when it is empty, cut off or a placeholder, repeats another field's value,
    or is copied from a seed document; its field is then left out. A configuration is rejected when
    the name of its subject is rejected or taken, or more than half of its values are.

    Source: RAGEval, section 3.2, where rules make some values (dates, choices); here the model
    makes all.
    """
    if documents < 1:
        raise ConfigError(
            f"documents={documents!r}", "a whole number, at least 1", "ask for one document or more"
        )
    calls = _record_calls(schema, documents)
    taken: set[str] = set()
    rejected: list[Rejected] = []

    def read(name: tuple[str, str], reply: BaseModel) -> Configuration:
        identity, subdomain = name
        values, faults = _usable_values(reply.model_dump(), seeds)
        rejected.extend(Rejected(f"{identity}/{fault.id}", *fault[1:]) for fault in faults)
        subject = values.get(schema.subject)
        if subject is None:
            raise Unfit("the name of its subject was rejected")
        if subject in taken:
            raise Unfit("the name of its subject is taken", subject)
        if len(values) < _MIN_SHARE * len(schema.fields):
            raise Unfit("more than half of its values were rejected")
        taken.add(subject)
        return Configuration(identity, subdomain, values)

    result = ask_step(model, "configuration", "rageval_configuration", calls, read, options)
    return StepResult(result.made, (*rejected, *result.rejected))


def _record_calls(schema: Schema, documents: int) -> list[Call]:
    """Return a prompt for each document, the subdomains in turn."""
    form = _form(schema)
    calls = []
    for number in range(documents):
        subdomain = schema.subdomains[number % len(schema.subdomains)]
        fields = {
            "domain": schema.domain,
            "language": LANGUAGES[schema.language],
            "fields": ", ".join(name.replace("_", " ") for name in schema.fields),
            "subdomain": subdomain,
        }
        identity = f"{schema.domain}-{number + 1:02d}"
        calls.append(Call(identity, fields, form, (identity, subdomain)))
    return calls


def _form(schema: Schema) -> type[BaseModel]:
    """Make the form of a reply: one short text for each field of the schema."""
    value = Annotated[str, StringConstraints(max_length=_LONGEST)]
    fields: dict[str, Any] = dict.fromkeys(schema.fields, (value, ...))
    return create_model("ConfigurationReply", __config__=ConfigDict(extra="forbid"), **fields)


def _usable_values(
    reply: Mapping[str, str], seeds: Sequence[str]
) -> tuple[dict[str, str], list[Rejected]]:
    values: dict[str, str] = {}
    faults = []
    for name, text in reply.items():
        value = text.strip().rstrip(".。")
        if fault := _value_fault(value, values, seeds):
            faults.append(Rejected(name, "configuration", fault, value))
        else:
            values[name] = value
    return values, faults


def _value_fault(value: str, before: Mapping[str, str], seeds: Sequence[str]) -> str:
    if not value:
        return "an empty value"
    if len(value) >= _LONGEST - 1:
        return "a value that is cut off"
    if _PLACEHOLDER.search(value):
        return "a placeholder"
    if value in before.values():
        return "the value of another field"
    if " " in value and any(mentions(seed, value) for seed in seeds):
        return "a value copied from a seed document"
    return ""
