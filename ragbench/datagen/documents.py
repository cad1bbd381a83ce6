"""Documents of a domain by a model: a schema, values for its fields, and texts that state them
(RAGEval, sections 3.1 and 3.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from ragbench.datagen.checks import mentions, states, unfounded_numbers
from ragbench.datagen.parts import (
    LANGUAGE,
    Configuration,
    GeneratedDocument,
    Schema,
    SchemaSection,
    Section,
    Unfit,
    Writer,
    field_list,
)
from ragbench.errors import ConfigError, DataError
from ragbench.text.sentences import split_sentences

_MIN_FIELDS = 6
_LONGEST = 160  # characters of a value; a server with a grammar cuts longer ones off
_MIN_SHARE = 0.5  # of the fields that a configuration has values for, and a document states
_PLACEHOLDER = re.compile(
    r"[\[\]{}<>]|\b(?:n/?a|tbd|xxx+|unknown|none|j(?:ohn|ane) doe)\b", re.IGNORECASE
)
_Words = Annotated[str, StringConstraints(min_length=2, max_length=60)]
# Small letters and no digits: names of persons, dates and amounts do not fit. (The Chinese
# characters are a part of recorded requests.)
_Key = Annotated[str, StringConstraints(pattern=r"^[a-z\u4e00-\u9fff][a-z_\u4e00-\u9fff]{1,29}$")]


class _Section(BaseModel, title="Section"):
    heading: _Words
    keys: list[_Key] = Field(min_length=4, max_length=6)


class _SchemaReply(BaseModel, title="SchemaReply"):
    about: _Key
    sections: list[_Section] = Field(min_length=2, max_length=3)
    subdomains: list[_Words] = Field(min_length=10, max_length=10)


def summarise_schema(writer: Writer, domain: str, seeds: Sequence[str]) -> Schema | None:
    """Let a model sum seed documents up as a schema: sections with their fields, and subdomains to
    write about; None where its reply is no usable schema.

    A field is rejected when it was there before, a subdomain when it is the domain itself, the
    schema when fewer than six fields are left.

    Source: RAGEval, section 3.1, where people refine the schema in a dialogue; here it is one
    prompt.
    """
    if not seeds:
        raise DataError(
            "no seed documents", "two or three short documents of the domain", "pass their texts"
        )

    def read(_: str, reply: _SchemaReply) -> Schema:
        names = [reply.about]
        sections: dict[str, tuple[str, ...]] = {}
        for section in reply.sections:
            heading = section.heading.replace("_", " ").strip().capitalize()
            for name in section.keys:
                if name in names:
                    writer.reject(domain, "schema", "a field that was there before", name)
                else:
                    names.append(name)
                    sections[heading] = (*sections.get(heading, ()), name)
        if len(names) < _MIN_FIELDS:
            raise Unfit("too few fields", f"{len(names)}, not {_MIN_FIELDS} or more")
        subdomains = dict.fromkeys(name.strip() for name in reply.subdomains)
        if domain in subdomains:
            del subdomains[domain]
            writer.reject(domain, "schema", "a subdomain that is the domain", domain)
        parts = tuple(SchemaSection(*section) for section in sections.items())
        return Schema(domain, reply.about, parts, tuple(subdomains))

    fields = {"domain": domain, "language": LANGUAGE, "documents": "\n\n".join(seeds)}
    schemas = writer.ask("schema", "rageval_schema", {domain: fields}, read, _SchemaReply)
    return schemas.get(domain)


# Values


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
        raise ConfigError(f"documents={documents!r}", "a whole number, at least 1")
    prompts = {}
    for number in range(documents):
        prompts[f"{schema.domain}-{number + 1:02d}"] = {
            "domain": schema.domain,
            "language": LANGUAGE,
            "fields": ", ".join(name.replace("_", " ") for name in schema.fields),
            "subdomain": schema.subdomains[number % len(schema.subdomains)],
        }
    subjects: set[str] = set()

    def read(name: str, reply: BaseModel) -> Configuration:
        values: dict[str, str] = {}
        for key, text in reply.model_dump().items():
            value = text.strip().rstrip(".。")
            fault = _value_fault(value, values.values(), seeds)
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

    # the form of a reply: one short text for each field
    value = Annotated[str, StringConstraints(max_length=_LONGEST)]
    fields: dict[str, Any] = dict.fromkeys(schema.fields, (value, ...))
    form = create_model("ConfigurationReply", __config__=ConfigDict(extra="forbid"), **fields)
    made = writer.ask("configuration", "rageval_configuration", prompts, read, form)
    return list(made.values())


def _value_fault(value: str, before: Iterable[str], seeds: Sequence[str]) -> str:
    """Return what is wrong with a value that follows others, in few words; "" where nothing is."""
    faults = {
        "an empty value": not value,
        "a value that is cut off": len(value) >= _LONGEST - 1,
        "a placeholder": _PLACEHOLDER.search(value),
        "the value of another field": value in before,
        "a value copied from a seed document": " " in value
        and any(mentions(seed, value) for seed in seeds),
    }
    return next((fault for fault, is_so in faults.items() if is_so), "")


# Texts


def write_documents(
    writer: Writer, schema: Schema, configurations: Sequence[Configuration]
) -> list[GeneratedDocument]:
    """Let a model write each configuration's document, one prompt a section.

    A sentence is rejected when it has a number that neither the configuration nor a sum or
    difference of two of its numbers explains. A document is rejected when a section could not be
    read, or when it states fewer than half of its values (`ragbench.datagen.checks.states`). Fields
    of the schema that it does not state are its ``lost`` ones.

    Source: RAGEval, section 3.2.
    """
    prompts = {one.id: _section_prompts(schema, one) for one in configurations}
    fields = {name: shown for sections in prompts.values() for name, shown in sections.items()}
    texts = writer.ask("document", "rageval_document", fields, lambda _, text: text)
    documents = []
    for configuration in configurations:
        wanted = prompts[configuration.id]
        if not wanted.keys() <= texts.keys():
            continue
        sections = []
        for name, shown in wanted.items():
            sentences = _founded_sentences(writer, texts[name], configuration)
            sections.append(Section(shown["heading"], sentences))
        document = _document(schema, configuration, sections)
        stated = len(schema.fields) - len(document.lost)
        if stated < _MIN_SHARE * len(configuration.values):
            detail = f"{stated} of {len(configuration.values)}"
            reason = "states fewer than half of its values"
            writer.reject(configuration.id, "document", reason, detail)
        else:
            documents.append(document)
    return documents


def _section_prompts(schema: Schema, configuration: Configuration) -> dict[str, dict[str, str]]:
    """Return what fills the prompt of each section that has a value: its values, the subject's."""
    prompts = {}
    for section in schema.sections:
        names = [name for name in section.fields if name in configuration.values]
        if names:
            shown = dict.fromkeys([schema.subject, *names])
            prompts[f"{configuration.id}/{section.heading}"] = {
                "domain": schema.domain,
                "subdomain": configuration.subdomain,
                "language": LANGUAGE,
                "title": configuration.values[schema.subject],
                "heading": section.heading,
                "facts": field_list({name: configuration.values[name] for name in shown}),
            }
    return prompts


def _founded_sentences(writer: Writer, text: str, configuration: Configuration) -> tuple[str, ...]:
    """Return the sentences of a section without invented numbers; the others are rejected."""
    values = " | ".join(configuration.values.values())
    sentences = []
    for sentence in split_sentences(" ".join(text.split()), "en"):
        if unfounded_numbers(sentence, values):
            reason = "a sentence with an invented number"
            writer.reject(configuration.id, "document", reason, sentence)
        else:
            sentences.append(sentence)
    return tuple(sentences)


def _document(
    schema: Schema, configuration: Configuration, sections: Sequence[Section]
) -> GeneratedDocument:
    sentences = [sentence for section in sections for sentence in section.sentences]
    stated = [name for name, value in configuration.values.items() if states(sentences, value)]
    lost = tuple(name for name in schema.fields if name not in stated)
    title = configuration.values[schema.subject]
    return GeneratedDocument(configuration.id, title, tuple(sections), lost)
