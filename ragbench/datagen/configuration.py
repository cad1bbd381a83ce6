"""Configurations: a model makes up values for the fields of a schema (RAGEval, section 3.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints, create_model

from ragbench.datagen.checks import mentions
from ragbench.datagen.parts import LANGUAGES, Configuration, Schema, Unfit, Writer
from ragbench.errors import ConfigError

_PLACEHOLDER = re.compile(
    r"[\[\]{}<>]|\b(?:n/?a|tbd|xxx+|unknown|none|j(?:ohn|ane) doe)\b", re.IGNORECASE
)
_LONGEST = 160  # characters of a value; a server with a grammar cuts longer ones off
_MIN_SHARE = 0.5  # of the fields of a schema that a configuration must have values for


def make_configurations(
    writer: Writer, schema: Schema, documents: int, seeds: Sequence[str] = ()
) -> list[Configuration]:
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
    prompts = {}
    for number in range(documents):
        prompts[f"{schema.domain}-{number + 1:02d}"] = {
            "domain": schema.domain,
            "language": LANGUAGES[schema.language],
            "fields": ", ".join(name.replace("_", " ") for name in schema.fields),
            "subdomain": schema.subdomains[number % len(schema.subdomains)],
        }
    subjects: set[str] = set()

    def read(name: str, reply: BaseModel) -> Configuration:
        values: dict[str, str] = {}
        for key, text in reply.model_dump().items():
            value = text.strip().rstrip(".。")
            fault = value_fault(value, values.values(), seeds)
            if fault:
                writer.reject(f"{name}/{key}", "configuration", fault, value)
            else:
                values[key] = value
        subject = values.get(schema.subject)
        if subject is None:
            raise Unfit("the name of its subject was rejected")
        if subject in subjects:
            raise Unfit("the name of its subject is taken", subject)
        if len(values) < _MIN_SHARE * len(schema.fields):
            raise Unfit("more than half of its values were rejected")
        subjects.add(subject)
        return Configuration(name, prompts[name]["subdomain"], values)

    made = writer.ask("configuration", "rageval_configuration", prompts, read, _form(schema))
    return list(made.values())


def _form(schema: Schema) -> type[BaseModel]:
    """Make the form of a reply: one short text for each field of the schema."""
    value = Annotated[str, StringConstraints(max_length=_LONGEST)]
    fields: dict[str, Any] = dict.fromkeys(schema.fields, (value, ...))
    return create_model("ConfigurationReply", __config__=ConfigDict(extra="forbid"), **fields)


def value_fault(value: str, before: Iterable[str], seeds: Sequence[str]) -> str:
    """Return what is wrong with a value that follows others, in few words; "" where nothing is."""
    if not value:
        return "an empty value"
    if len(value) >= _LONGEST - 1:
        return "a value that is cut off"
    if _PLACEHOLDER.search(value):
        return "a placeholder"
    if value in before:
        return "the value of another field"
    if " " in value and any(mentions(seed, value) for seed in seeds):
        return "a value copied from a seed document"
    return ""
