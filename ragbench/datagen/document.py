"""A configuration becomes a document: by templates, offline, each sentence from a pattern; or by a model."""

from __future__ import annotations

import random
from collections.abc import Sequence
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
from ragbench.datagen.wording import fill_pattern, worded
from ragbench.errors import ConfigError, check_known
from ragbench.text.sentences import split_sentences

_PROMPTS = {
    "configuration": "rageval_document",
    "zero-shot": "rageval_zero_shot",
    "one-shot": "rageval_one_shot",
}


def write_documents(schema: Schema, configurations: Sequence[Configuration], seed: int = 0) -> list[GeneratedDocument]:
    """Write a document per configuration, by patterns: its facts and nothing else.

    ``dropped`` are the fields left out on purpose, for unanswerable questions.

    Source: RAGEval, section 3.2; Table 6 (unanswerable: information lost between schema and article).
    """
    documents = []
    for c in configurations:
        missing = left_out(schema, c, seed)
        rng = random.Random(f"document/{c.id}/{seed}/0")
        sections = []
        for section in schema.sections:
            facts = [fact for fact in section.facts if fact not in missing]
            if not section.fixed:  # the first fact introduces the section
                rest = facts[1:]
                rng.shuffle(rest)
                facts[1:] = rest
            sentences = [FactSentence(worded(fact.say, c.text, rng), fact.fields) for fact in facts]
            if sentences:
                sections.append(Section(section.heading, tuple(sentences)))
        dropped = tuple(name for fact in missing for name in fact.fields)
        title = fill_pattern(schema.title, c.text)
        documents.append(GeneratedDocument(c.id, title, schema.language, tuple(sections), dropped))
    return documents


def left_out(schema: Schema, configuration: Configuration, seed: int = 0) -> list[FactPattern]:
    """Choose the facts that a document leaves out on purpose: ``schema.drop`` of those that may be asked for."""
    losable = [fact for fact in schema.facts if fact.lost]
    return random.Random(f"drop/{configuration.id}/{seed}").sample(losable, min(schema.drop, len(losable)))


def model_documents(
    model: Any,
    schema: Schema,
    configurations: Sequence[Configuration],
    mode: str = "configuration",
    *,
    drop: Sequence[Sequence[str]] | None = None,
    sample: str = "",
    **options: Any,
) -> Done[GeneratedDocument]:
    """Let a model write documents.

    Parameters
    ----------
    mode : "configuration" (the paper's way, section by section), or its two baselines: "zero-shot" (the domain only)
        and "one-shot" (the domain and the document ``sample``). Those state no known fact: they serve comparison.
    drop : for each configuration the fields to withhold, for unanswerable questions; default none. A document's
        ``dropped`` also lists the facts that the model did not write word for word.

    Source: RAGEval, sections 3.2 and 4.
    """
    check_known("mode", [mode], _PROMPTS)
    if mode == "one-shot" and not sample.strip():
        raise ConfigError("mode 'one-shot' without a sample", "the text of one document", "pass sample=...")
    calls: list[tuple[str, dict[str, str], tuple[str, str]]] = []
    for c, withheld in zip(configurations, drop or [()] * len(configurations), strict=True):
        common = {"domain": schema.domain, "subdomain": c.subdomain, "language": LANGUAGES[schema.language]}
        if mode == "configuration":
            title = fill_pattern(schema.title, c.text)
            for section in schema.sections:
                names = [n for fact in section.facts for n in fact.fields if n not in withheld]
                if names:
                    facts = field_list(c, [*schema.context, *names])
                    shown = {**common, "title": title, "heading": section.heading, "facts": facts}
                    calls.append((f"{c.id}/{section.heading}", shown, (c.id, section.heading)))
        else:
            shown = {"sample": sample} if mode == "one-shot" else {}
            calls.append((f"{c.id}/{mode}", {**common, **shown}, (c.id, "")))
    written = ask_step(model, "documents", _PROMPTS[mode], calls, None, lambda about, text: (*about, text), options)
    owner = {name: about[0] for name, _, about in calls}
    failed = {owner[name]: reason for name, reason in written.failed}
    documents = []
    for c in configurations:
        if c.id in failed:
            continue
        parts = [(heading, text) for identity, heading, text in written.made if identity == c.id]
        if mode == "configuration":
            title, fields = fill_pattern(schema.title, c.text), schema.fact_fields
            parts = [(heading, annotate(split_sentences(text, schema.language), c, fields)) for heading, text in parts]
            stated = {name for _, sentences in parts for sentence in sentences for name in sentence.facts}
            dropped = tuple(name for name in fields if name not in stated)
        else:
            title, _, body = parts[0][1].strip().partition("\n")
            parts = [("", tuple(FactSentence(s) for s in split_sentences(body or title, schema.language)))]
            title, dropped = title.strip("# *"), ()
        sections = tuple(Section(*part) for part in parts)
        documents.append(GeneratedDocument(c.id, title, schema.language, sections, dropped, f"model, {mode}"))
    return Done(tuple(documents), tuple(failed.items()))
