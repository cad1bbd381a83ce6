"""A configuration becomes a document: by templates, offline, each sentence from a pattern; or by a model."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Any

from ragbench.datagen.parts import (
    LANGUAGES,
    Configuration,
    Done,
    FactSentence,
    GeneratedDocument,
    Section,
    ask_step,
    field_list,
)
from ragbench.datagen.questions import annotate
from ragbench.datagen.schema import FactPattern, Schema
from ragbench.datagen.wording import fill_pattern, write
from ragbench.errors import ConfigError, check_known
from ragbench.llm import Cassette, Reply
from ragbench.prompts import Prompt, fill_prompt, load_prompt
from ragbench.text.sentences import split_sentences

MODES = ("configuration", "zero-shot", "one-shot")
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
        written = [(fact, *write(fact.say, configuration.text, rng)) for fact in facts]
        sentences = tuple(FactSentence(text, fact.fields, f"{fact.id}/{mark}") for fact, text, mark in written)
        if sentences:
            sections.append(Section(section.heading, sentences))
    dropped = tuple(name for fact in missing for name in fact.fields)
    title = fill_pattern(schema.title, configuration.text)
    return GeneratedDocument(configuration.id, title, schema.language, tuple(sections), dropped)


def model_documents(
    model: Any,
    schema: Schema,
    configurations: Sequence[Configuration],
    mode: str = "configuration",
    *,
    drop: Sequence[Sequence[str]] | None = None,
    sample: str = "",
    cassette: Cassette | None = None,
    prompt: Prompt | None = None,
) -> Done[GeneratedDocument]:
    """Let a model write documents.

    Parameters
    ----------
    model, cassette : as for `ragbench.llm.ask`.
    schema, configurations : what to write; sections are written one by one and put together.
    mode : "configuration" (the paper's way), or its two baselines: "zero-shot" (the domain only) and "one-shot" (the
        domain and a sample document), which know no configuration.
    drop : for each configuration the fields to withhold, for unanswerable questions; default none.
    sample : the document that one-shot shows.
    prompt : id or file; default by mode.

    Returns
    -------
    Done. In mode "configuration" ``dropped`` lists the withheld facts and those the model did not write word for word;
    in the other modes no fact is known, so that the documents serve comparison (Figure 5) and not questions.

    Source: RAGEval, sections 3.2 and 4.
    """
    check_known("mode", [mode], MODES)
    if mode == "one-shot" and not sample.strip():
        raise ConfigError("mode 'one-shot' without a sample", "the text of one document", "pass sample=...")
    withheld = [frozenset(d) for d in drop] if drop is not None else [frozenset[str]()] * len(configurations)
    text = load_prompt(prompt or {"configuration": "rageval_document"}.get(mode, f"rageval_{mode.replace('-', '_')}"))
    jobs: list[tuple[int, str, str]] = []
    for number, c in enumerate(configurations):
        common = {"domain": schema.domain, "subdomain": c.subdomain, "language": LANGUAGES[c.language]}
        if mode != "configuration":
            jobs.append((number, "", fill_prompt(text, **common, **({"sample": sample} if mode == "one-shot" else {}))))
            continue
        title = fill_pattern(schema.title, c.text)
        for section in schema.sections:
            names = [n for fact in section.facts for n in fact.fields if n not in withheld[number]]
            if names:
                facts = field_list(c, [*schema.context, *names])
                filled = fill_prompt(text, **common, title=title, heading=section.heading, facts=facts)
                jobs.append((number, section.heading, filled))
    ids = [f"{configurations[n].id}/{heading or mode}" for n, heading, _ in jobs]
    replies = ask_step(model, [job[2] for job in jobs], None, cassette, ids, "documents")
    documents, failed = [], []
    for number, c in enumerate(configurations):
        parts = [(heading, reply) for (n, heading, _), reply in zip(jobs, replies, strict=True) if n == number]
        wrong = [str(reply.error) for _, reply in parts if not reply.ok]
        if wrong:
            failed.append((c.id, wrong[0]))
        elif mode == "configuration":
            documents.append(_assembled(schema, c, parts))
        else:
            documents.append(_free(c, parts[0][1].text, mode))
    return Done(tuple(documents), tuple(failed))


def _assembled(schema: Schema, configuration: Configuration, parts: Sequence[tuple[str, Reply]]) -> GeneratedDocument:
    fields = schema.fact_fields
    sections = tuple(
        Section(heading, annotate(split_sentences(reply.text, schema.language), configuration, fields))
        for heading, reply in parts
    )
    stated = {name for s in sections for sentence in s.sentences for name in sentence.facts}
    dropped = tuple(name for name in fields if name not in stated)
    title = fill_pattern(schema.title, configuration.text)
    return GeneratedDocument(configuration.id, title, schema.language, sections, dropped, "model, configuration")


def _free(configuration: Configuration, text: str, mode: str) -> GeneratedDocument:
    title, _, body = text.strip().partition("\n")
    sentences = tuple(FactSentence(s) for s in split_sentences(body or title, configuration.language))
    section = (Section("", sentences),)
    return GeneratedDocument(
        configuration.id, title.strip("# *"), configuration.language, section, (), f"model, {mode}"
    )
