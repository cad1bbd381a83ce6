"""Documents, written by a model from configurations, section by section (RAGEval, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

from ragbench.datagen.checks import states, unfounded_numbers
from ragbench.datagen.parts import (
    LANGUAGES,
    Configuration,
    GeneratedDocument,
    Schema,
    Section,
    Writer,
    field_list,
)
from ragbench.text.sentences import split_sentences

_MIN_SHARE = 0.5  # of a configuration's values that its document must state


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
    prompts = {}
    for configuration in configurations:
        prompts |= _section_prompts(schema, configuration)
    texts = writer.ask("document", "rageval_document", prompts, lambda _, text: text)
    documents = []
    for configuration in configurations:
        headings = {
            f"{configuration.id}/{section.heading}": section.heading for section in schema.sections
        }
        wanted = [name for name in headings if name in prompts]
        if not all(name in texts for name in wanted):
            continue
        sections = []
        for name in wanted:
            sentences = _founded_sentences(writer, texts[name], configuration, schema.language)
            sections.append(Section(headings[name], sentences))
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
                "language": LANGUAGES[schema.language],
                "title": configuration.values[schema.subject],
                "heading": section.heading,
                "facts": field_list({name: configuration.values[name] for name in shown}),
            }
    return prompts


def _founded_sentences(
    writer: Writer, text: str, configuration: Configuration, language: str
) -> tuple[str, ...]:
    """Return the sentences of a section without invented numbers; the others are rejected."""
    values = " | ".join(configuration.values.values())
    sentences = []
    for sentence in split_sentences(" ".join(text.split()), language):
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
    return GeneratedDocument(configuration.id, title, schema.language, tuple(sections), lost)
