"""The template writer: a configuration becomes a document, offline, each sentence from a pattern of the schema."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from ragbench.datagen.parts import Configuration, GeneratedDocument, Section, Sentence
from ragbench.datagen.patterns import fill, write
from ragbench.datagen.schema import FactPattern, Schema
from ragbench.errors import ConfigError

_TRIES = 100


def write_documents(schema: Schema, configurations: Sequence[Configuration], seed: int = 0) -> list[GeneratedDocument]:
    """Write a document per configuration, no two with the same list of sentence patterns.

    Raises
    ------
    ConfigError when the schema's patterns are too few for so many different documents.
    """
    used: set[tuple[str, ...]] = set()
    documents = []
    for configuration in configurations:
        document = write_document(schema, configuration, seed, used)
        used.add(document.patterns)
        documents.append(document)
    return documents


def write_document(
    schema: Schema, configuration: Configuration, seed: int = 0, used: Collection[tuple[str, ...]] = ()
) -> GeneratedDocument:
    """Write one document from a configuration, by patterns.

    Parameters
    ----------
    schema : patterns of sentences; ``drop`` says how many of the facts that may be left out are left out.
    configuration : the facts. Nothing else is stated.
    seed : same seed and configuration id, same document.
    used : lists of patterns that other documents have.

    Returns
    -------
    GeneratedDocument whose ``dropped`` are the fields left out on purpose, the stuff of unanswerable questions.

    Source: RAGEval, section 3.2; Table 6 (unanswerable: information lost between schema and article).
    """
    missing = left_out(schema, configuration, seed)
    for attempt in range(_TRIES):
        document = _write(
            schema, configuration, missing, random.Random(f"document/{configuration.id}/{seed}/{attempt}")
        )
        if document.patterns not in used:
            return document
    raise ConfigError(
        f"{schema.source}: {_TRIES} tries gave no new list of sentence patterns for {configuration.id}",
        "documents that differ in wording",
        "add patterns or alternatives to the schema, or ask for fewer documents",
    )


def left_out(schema: Schema, configuration: Configuration, seed: int = 0) -> tuple[FactPattern, ...]:
    """Choose the facts that a document leaves out on purpose: ``schema.drop`` of those that may be asked for."""
    losable = [fact for fact in schema.facts if fact.lost]
    rng = random.Random(f"drop/{configuration.id}/{seed}")
    return tuple(rng.sample(losable, min(schema.drop, len(losable))))


def _write(
    schema: Schema, configuration: Configuration, missing: Collection[FactPattern], rng: random.Random
) -> GeneratedDocument:
    sections = []
    for section in schema.sections:
        facts = [fact for fact in section.facts if fact not in missing]
        if not section.fixed:
            # The first fact introduces the section.
            rest = facts[1:]
            rng.shuffle(rest)
            facts[1:] = rest
        sentences = tuple(_sentence(fact, configuration, rng) for fact in facts)
        if sentences:
            sections.append(Section(section.heading, sentences))
    dropped = tuple(name for fact in missing for name in fact.fields)
    title = fill(schema.title, configuration.text)
    return GeneratedDocument(configuration.id, title, schema.language, tuple(sections), dropped)


def _sentence(fact: FactPattern, configuration: Configuration, rng: random.Random) -> Sentence:
    text, mark = write(fact.say, configuration.text, rng)
    return Sentence(text, fact.fields, f"{fact.id}/{mark}")
