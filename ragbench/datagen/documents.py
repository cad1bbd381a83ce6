"""Documents of a domain by a model: a schema, values for its fields, and texts that state them
(RAGEval, sections 3.1 and 3.2).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from ragbench.datagen.checks import mentions, states, unfounded_numbers
from ragbench.datagen.parts import (
    LANGUAGE,
    Configuration,
    Fields,
    GeneratedDocument,
    Schema,
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

    def fields(texts: Sequence[str]) -> Fields:
        return {"domain": domain, "language": LANGUAGE, "documents": "\n\n".join(texts)}

    def read(_: Sequence[str], reply: _SchemaReply) -> Schema:
        return _schema(writer, domain, reply)

    items = {domain: seeds}
    return writer.ask("schema", "rageval_schema", items, fields, read, _SchemaReply).get(domain)


def _schema(writer: Writer, domain: str, reply: _SchemaReply) -> Schema:
    """Read a reply: each field once, and subdomains that are not the domain."""
    names = [reply.about]
    sections: dict[str, tuple[str, ...]] = {}
    for section in reply.sections:
        heading = section.heading.replace("_", " ").strip().capitalize()
        for name in section.keys:
            if name in names:
                writer.reject(domain, "schema", "a field that was there before", name)
                continue
            names.append(name)
            sections[heading] = (*sections.get(heading, ()), name)
    if len(names) < _MIN_FIELDS:
        raise Unfit("too few fields", f"{len(names)}, not {_MIN_FIELDS} or more")
    subdomains = dict.fromkeys(name.strip() for name in reply.subdomains)
    if domain in subdomains:
        del subdomains[domain]
        writer.reject(domain, "schema", "a subdomain that is the domain", domain)
    return Schema(domain, reply.about, sections, tuple(subdomains))


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
    items = {}
    subdomains = itertools.cycle(schema.subdomains)
    for number in range(1, documents + 1):
        name = f"{schema.domain}-{number:02d}"
        items[name] = Configuration(name, next(subdomains), {})
    subjects: set[str] = set()

    def fields(empty: Configuration) -> Fields:
        names = ", ".join(name.replace("_", " ") for name in schema.fields)
        return {
            "domain": schema.domain,
            "subdomain": empty.subdomain,
            "language": LANGUAGE,
            "fields": names,
        }

    def read(empty: Configuration, reply: BaseModel) -> Configuration:
        values = _sound_values(writer, empty.id, reply.model_dump(), seeds)
        subjects.add(_new_subject(schema, values, subjects))
        return replace(empty, values=values)

    form = _configuration_form(schema)
    filled = writer.ask("configuration", "rageval_configuration", items, fields, read, form)
    return list(filled.values())


def _configuration_form(schema: Schema) -> type[BaseModel]:
    """Return the form of a reply: one short text for each field."""
    value = Annotated[str, StringConstraints(max_length=_LONGEST)]
    texts: dict[str, Any] = dict.fromkeys(schema.fields, (value, ...))
    return create_model("ConfigurationReply", __config__=ConfigDict(extra="forbid"), **texts)


def _new_subject(schema: Schema, values: Fields, before: Collection[str]) -> str:
    """Return the name of a configuration's subject, which is new and has enough values."""
    subject = values.get(schema.subject)
    if subject is None:
        raise Unfit("the name of its subject was rejected")
    if subject in before:
        raise Unfit("the name of its subject is taken", subject)
    if len(values) < _MIN_SHARE * len(schema.fields):
        raise Unfit("more than half of its values were rejected")
    return subject


def _sound_values(writer: Writer, name: str, texts: Fields, seeds: Sequence[str]) -> Fields:
    """Return the values that can be used, without a full stop; the others are rejected."""
    values: Fields = {}
    for key, text in texts.items():
        value = text.strip().rstrip(".。")
        fault = _value_fault(value, values.values(), seeds)
        if fault:
            writer.reject(f"{name}/{key}", "configuration", fault, value)
        else:
            values[key] = value
    return values


def _value_fault(value: str, before: Collection[str], seeds: Sequence[str]) -> str:
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
    texts = _section_texts(writer, schema, configurations)
    complete = {}
    for configuration in configurations:
        headings = list(texts[configuration.id])
        if headings and headings == _headings(schema, configuration):
            complete[configuration.id] = configuration

    def make(name: str) -> GeneratedDocument:
        document = _document(writer, schema, complete[name], texts[name])
        stated = len(document.stated)
        total = len(complete[name].values)
        if stated < _MIN_SHARE * total:
            raise Unfit("states fewer than half of its values", f"{stated} of {total}")
        return document

    return list(writer.fit("document", complete, make).values())


def _section_texts(
    writer: Writer, schema: Schema, configurations: Sequence[Configuration]
) -> dict[str, Fields]:
    """Let a model write the sections; return their texts by configuration and heading."""
    items = {}
    for configuration in configurations:
        for heading in _headings(schema, configuration):
            items[f"{configuration.id}/{heading}"] = (configuration, heading)

    def fields(item: tuple[Configuration, str]) -> Fields:
        return _section_fields(schema, *item)

    written = writer.ask("document", "rageval_document", items, fields, lambda _, text: text)
    texts: dict[str, Fields] = {configuration.id: {} for configuration in configurations}
    for name, text in written.items():
        configuration, heading = items[name]
        texts[configuration.id][heading] = text
    return texts


def _headings(schema: Schema, configuration: Configuration) -> list[str]:
    """Return the headings of the sections that a configuration has values for."""
    filled = configuration.values.keys()
    return [heading for heading, names in schema.sections.items() if filled & set(names)]


def _section_fields(schema: Schema, configuration: Configuration, heading: str) -> Fields:
    """Return what fills the prompt of a section: its values, and the subject's."""
    values = configuration.values
    names = dict.fromkeys([schema.subject, *schema.sections[heading]])
    return {
        "domain": schema.domain,
        "subdomain": configuration.subdomain,
        "language": LANGUAGE,
        "title": values[schema.subject],
        "heading": heading,
        "facts": field_list({name: values[name] for name in names if name in values}),
    }


def _founded_sentences(writer: Writer, text: str, configuration: Configuration) -> tuple[str, ...]:
    """Return the sentences of a section without invented numbers; the others are rejected."""
    values = " | ".join(configuration.values.values())
    sentences = []
    for sentence in split_sentences(" ".join(text.split()), "en"):
        if unfounded_numbers(sentence, values):
            writer.reject(
                configuration.id, "document", "a sentence with an invented number", sentence
            )
        else:
            sentences.append(sentence)
    return tuple(sentences)


def _document(
    writer: Writer, schema: Schema, configuration: Configuration, texts: Fields
) -> GeneratedDocument:
    """Put a document together from the texts of its sections, by heading."""
    sections = {name: _founded_sentences(writer, texts[name], configuration) for name in texts}
    sentences = [sentence for section in sections.values() for sentence in section]
    values = configuration.values
    stated = {name: value for name, value in values.items() if states(sentences, value)}
    lost = tuple(name for name in schema.fields if name not in stated)
    title = values[schema.subject]
    return GeneratedDocument(configuration.id, title, sections, stated, lost)
