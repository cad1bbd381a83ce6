"""The steps that a model does: values and documents (RAGEval, section 3.2).

Every step sends its prompts with `ragbench.llm.ask` and returns a `Done`: what came out, and what failed and why.
Questions, references, refinement and keypoints by a model are in `ragbench.datagen.live_questions`, a schema from
documents of your own in `ragbench.datagen.live_schema`, the whole way in `ragbench.datagen.live_set`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel

from ragbench.datagen.configuration import clash
from ragbench.datagen.names import real_names
from ragbench.datagen.parts import Configuration, GeneratedDocument, Section, Sentence
from ragbench.datagen.patterns import fill
from ragbench.datagen.questions import annotate
from ragbench.datagen.schema import Schema
from ragbench.errors import ConfigError, unknown
from ragbench.prompts import fill_prompt, load_prompt
from ragbench.text.sentences import split_sentences

if TYPE_CHECKING:
    from ragbench.llm import Cassette, Reply

MODES = ("configuration", "zero-shot", "one-shot")
NAMES = {"en": "English", "zh": "Chinese"}
Made = TypeVar("Made")


@dataclass(frozen=True)
class Done(Generic[Made]):
    """Results of a step, and for what failed its id and the reason: nothing is dropped in silence."""

    made: tuple[Made, ...]
    failed: tuple[tuple[str, str], ...] = ()


class ValueReply(BaseModel):
    """A made-up value."""

    value: str


def model_values(
    model: Any,
    schema: Schema,
    configurations: Sequence[Configuration],
    *,
    cassette: Cassette | None = None,
    prompt: str | os.PathLike[str] = "rageval_values",
) -> Done[Configuration]:
    """Let a model fill the fields that a schema marks with ``llm`` (what is wanted, in words).

    Parameters
    ----------
    model : as for `ragbench.llm.ask`.
    schema, configurations : the rule-based values, which the model is shown.
    cassette : as for `ragbench.llm.ask`.
    prompt : id or file.

    Returns
    -------
    Done with all configurations; where the model failed, or its value is long, names somebody real, or cannot be told
    apart from another fact, the rule's value stays and ``failed`` says so.

    Source: RAGEval, section 3.2 (hybrid of rule-based and model values).
    """
    wanted = [(c, name, rule["llm"]) for c in configurations for name, rule in schema.fields.items() if rule.get("llm")]
    text = load_prompt(prompt)
    prompts = [
        fill_prompt(
            text,
            language=NAMES[c.language],
            domain=schema.domain,
            subdomain=c.subdomain,
            values=listed(c, [n for n in c.text if n != name]),
            wanted=what,
        )
        for c, name, what in wanted
    ]
    replies = ask_all(model, prompts, ValueReply, cassette, [f"{c.id}/{name}" for c, name, _ in wanted], "values")
    done = {c.id: c for c in configurations}
    failed = []
    for (c, name, _), reply in zip(wanted, replies, strict=True):
        value = reply.parsed.value.strip().rstrip(".。") if reply.ok else ""
        now = done[c.id]
        changed = replace(now, values={**now.values, name: value}, text={**now.text, name: value})
        reason = _unusable(value, changed, schema) if reply.ok else str(reply.error)
        if reason:
            failed.append((f"{c.id}/{name}", reason))
        else:
            done[c.id] = changed
    return Done(tuple(done.values()), tuple(failed))


def _unusable(value: str, configuration: Configuration, schema: Schema) -> str:
    if not value or len(value) > 160 or "\n" in value:
        return f"no phrase: {value[:40]!r}"
    if re.search(r"\d", value):
        return f"a number or date, which the rules make: {value[:40]!r}"
    if real_names(value):
        return f"a real name: {real_names(value)[0]!r}"
    found = clash(configuration.text, schema.fact_fields, [configuration.text[n] for n in schema.context])
    return f"cannot be told apart: {found}" if found else ""


def model_documents(
    model: Any,
    schema: Schema,
    configurations: Sequence[Configuration],
    mode: str = "configuration",
    *,
    drop: Sequence[Sequence[str]] | None = None,
    sample: str = "",
    cassette: Cassette | None = None,
    prompt: str | os.PathLike[str] | None = None,
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
    if mode not in MODES:
        raise unknown("mode", mode, MODES)
    if mode == "one-shot" and not sample.strip():
        raise ConfigError("mode 'one-shot' without a sample", "the text of one document", "pass sample=...")
    withheld = [frozenset(d) for d in drop] if drop is not None else [frozenset[str]()] * len(configurations)
    text = load_prompt(prompt or {"configuration": "rageval_document"}.get(mode, f"rageval_{mode.replace('-', '_')}"))
    jobs: list[tuple[int, str, str]] = []
    for number, c in enumerate(configurations):
        common = {"domain": schema.domain, "subdomain": c.subdomain, "language": NAMES[c.language]}
        if mode != "configuration":
            jobs.append((number, "", fill_prompt(text, **common, **({"sample": sample} if mode == "one-shot" else {}))))
            continue
        title = fill(schema.title, c.text)
        for section in schema.sections:
            names = [n for fact in section.facts for n in fact.fields if n not in withheld[number]]
            if names:
                facts = listed(c, [*schema.context, *names])
                filled = fill_prompt(text, **common, title=title, heading=section.heading, facts=facts)
                jobs.append((number, section.heading, filled))
    ids = [f"{configurations[n].id}/{heading or mode}" for n, heading, _ in jobs]
    replies = ask_all(model, [job[2] for job in jobs], None, cassette, ids, "documents")
    made, failed = [], []
    for number, c in enumerate(configurations):
        own = [(heading, reply) for (n, heading, _), reply in zip(jobs, replies, strict=True) if n == number]
        wrong = [str(reply.error) for _, reply in own if not reply.ok]
        if wrong:
            failed.append((c.id, wrong[0]))
        elif mode == "configuration":
            made.append(_assembled(schema, c, own))
        else:
            made.append(_free(c, own[0][1].text, mode))
    return Done(tuple(made), tuple(failed))


def _assembled(schema: Schema, configuration: Configuration, parts: Sequence[tuple[str, Reply]]) -> GeneratedDocument:
    fields = schema.fact_fields
    sections = tuple(
        Section(heading, annotate(split_sentences(reply.text, schema.language), configuration, fields))
        for heading, reply in parts
    )
    stated = {name for s in sections for sentence in s.sentences for name in sentence.facts}
    dropped = tuple(name for name in fields if name not in stated)
    title = fill(schema.title, configuration.text)
    return GeneratedDocument(configuration.id, title, schema.language, sections, dropped, "model, configuration")


def _free(configuration: Configuration, text: str, mode: str) -> GeneratedDocument:
    title, _, body = text.strip().partition("\n")
    sentences = tuple(Sentence(s) for s in split_sentences(body or title, configuration.language))
    section = (Section("", sentences),)
    return GeneratedDocument(
        configuration.id, title.strip("# *"), configuration.language, section, (), f"model, {mode}"
    )


def listed(configuration: Configuration, names: Sequence[str]) -> str:
    """Write fields and their values as a list, for a prompt."""
    return "\n".join(f"- {name.replace('_', ' ')}: {configuration.text[name]}" for name in names)


def ask_all(
    model: Any, prompts: Sequence[str], reply: type[BaseModel] | None, cassette: Any, ids: Sequence[str], step: str
) -> list[Reply]:
    """Send the prompts of one step; none, no call."""
    from ragbench.llm import ask

    return ask(model, prompts, reply, cassette, ids=ids, step=f"rageval {step}") if prompts else []
