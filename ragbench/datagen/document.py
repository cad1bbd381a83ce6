"""Documents, written by a model from configurations, section by section (RAGEval, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragbench.datagen.checks import states, unfounded_numbers
from ragbench.datagen.parts import (
    LANGUAGES,
    Call,
    Configuration,
    GeneratedDocument,
    Rejected,
    Schema,
    Section,
    StepResult,
    ask_step,
    field_list,
)
from ragbench.text.sentences import split_sentences

_MIN_SHARE = 0.5  # of a configuration's values that its document must state


def write_documents(
    model: Any, schema: Schema, configurations: Sequence[Configuration], **options: Any
) -> StepResult[GeneratedDocument]:
    """Let a model write each configuration's document, one prompt a section.

    A sentence is rejected when it has a number that neither the configuration nor a sum or
    difference of two of its numbers explains. A document is rejected when a section could not be
    read, or when it states fewer than half of its values (`ragbench.datagen.checks.states`). Fields
    of the schema that it does not state are its ``lost`` ones.

    Source: RAGEval, section 3.2.
    """
    calls = []
    for configuration in configurations:
        calls.extend(_section_calls(schema, configuration))
    written = ask_step(model, "document", "rageval_document", calls, _section_text, options)
    rejected = list(written.rejected)
    unread = {one.id.partition("/")[0] for one in rejected}
    made = []
    for configuration in configurations:
        if configuration.id in unread:
            continue
        sections = []
        for identity, heading, text in written.made:
            if identity == configuration.id:
                sentences, faults = _founded_sentences(text, configuration, schema.language)
                sections.append(Section(heading, sentences))
                rejected.extend(faults)
        document = _document(schema, configuration, sections)
        stated = len(set(schema.fields) - set(document.lost))
        if stated < _MIN_SHARE * len(configuration.values):
            detail = f"{stated} of {len(configuration.values)}"
            rejected.append(
                Rejected(
                    configuration.id, "document", "states fewer than half of its values", detail
                )
            )
        else:
            made.append(document)
    return StepResult(tuple(made), tuple(rejected))


def _section_calls(schema: Schema, configuration: Configuration) -> list[Call]:
    """Return a prompt for each section that has a value;

    it shows the section's values and the subject's.
    """
    calls = []
    for section in schema.sections:
        names = [name for name in section.fields if name in configuration.values]
        if names:
            shown = dict.fromkeys([schema.subject, *names])
            fields = {
                "domain": schema.domain,
                "subdomain": configuration.subdomain,
                "language": LANGUAGES[schema.language],
                "title": configuration.values[schema.subject],
                "heading": section.heading,
                "facts": field_list({name: configuration.values[name] for name in shown}),
            }
            identity = f"{configuration.id}/{section.heading}"
            calls.append(Call(identity, fields, None, (configuration.id, section.heading)))
    return calls


def _section_text(item: tuple[str, str], text: str) -> tuple[str, str, str]:
    """Return the configuration's id, the heading and the text of a section."""
    return (*item, text)


def _founded_sentences(
    text: str, configuration: Configuration, language: str
) -> tuple[tuple[str, ...], list[Rejected]]:
    """Return the sentences without invented numbers, and the others as rejected."""
    values = " | ".join(configuration.values.values())
    sentences = []
    faults = []
    for sentence in split_sentences(" ".join(text.split()), language):
        if unfounded_numbers(sentence, values):
            faults.append(
                Rejected(
                    configuration.id, "document", "a sentence with an invented number", sentence
                )
            )
        else:
            sentences.append(sentence)
    return tuple(sentences), faults


def _document(
    schema: Schema, configuration: Configuration, sections: Sequence[Section]
) -> GeneratedDocument:
    sentences = [sentence for section in sections for sentence in section.sentences]
    stated = [name for name, value in configuration.values.items() if states(sentences, value)]
    lost = tuple(name for name in schema.fields if name not in stated)
    title = configuration.values[schema.subject]
    return GeneratedDocument(configuration.id, title, schema.language, tuple(sections), lost)
