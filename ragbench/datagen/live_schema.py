"""A schema from a user's own documents, by a model (RAGEval, section 3.1), written as YAML to be edited."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from ragbench.datagen.live import NAMES, ask_all
from ragbench.datagen.parts import LANGUAGES
from ragbench.errors import ConfigError, ModelError, unknown
from ragbench.llm.structured import MOST_ITEMS
from ragbench.prompts import fill_prompt, load_prompt

if TYPE_CHECKING:
    from ragbench.llm import Cassette


class FieldReply(BaseModel):
    """A field of a schema, as a model proposes it."""

    name: str
    rule: str
    values: list[str] = Field(max_length=MOST_ITEMS)
    low: int
    high: int
    unit: str
    section: str
    sentence: str


class SchemaReply(BaseModel):
    """A schema, as a model proposes it."""

    about: str
    subdomains: list[str] = Field(max_length=MOST_ITEMS)
    fields: list[FieldReply] = Field(max_length=MOST_ITEMS)


def schema_from_documents(
    model: Any,
    documents: Sequence[str],
    domain: str,
    language: str = "en",
    *,
    cassette: Cassette | None = None,
    prompt: str | os.PathLike[str] = "rageval_schema",
) -> str:
    """Let a model read seed documents and propose a schema, as YAML to look at and edit.

    Parameters
    ----------
    model, cassette : as for `ragbench.llm.ask`.
    documents : texts of a few documents of the domain.
    domain : its name. language : "en" or "zh".
    prompt : id or file.

    Returns
    -------
    YAML text. Save it, edit it, and read it with `ragbench.datagen.read_schema`, which checks it. It has no question
    patterns: ask by model (`ragbench.datagen.live_questions.model_questions`), or write some.

    Raises
    ------
    ModelError when the model's reply cannot be used.

    Source: RAGEval, section 3.1.
    """
    if language not in LANGUAGES:
        raise unknown("language", language, LANGUAGES)
    if isinstance(documents, str) or not documents:
        raise ConfigError("no list of seed documents", "the texts of at least one document", "pass a list of texts")
    texts = "\n\n".join(f"[{i}]\n{text}" for i, text in enumerate(documents, 1))
    # {name} stands in the prompt as an example of a field; it is no field of the prompt.
    filled = fill_prompt(load_prompt(prompt), language=NAMES[language], domain=domain, documents=texts)
    reply = ask_all(model, [filled], SchemaReply, cassette, [f"schema/{domain}"], "schema")[0]
    if not reply.ok:
        raise ModelError(
            f"no schema for {domain}: {reply.error}", "a schema in the form asked for", "try another model"
        )
    return proposed_yaml(reply.parsed, domain, language)


def proposed_yaml(proposal: SchemaReply, domain: str, language: str) -> str:
    """Write a proposed schema as YAML in the form of the shipped ones."""
    import yaml

    fields: dict[str, dict[str, Any]] = {}
    sections: dict[str, list[dict[str, Any]]] = {}
    for f in proposal.fields:
        rule: dict[str, Any] = {"rule": f.rule}
        if f.rule == "company":
            rule = {"rule": "invented", "form": ["{firm} Group" if language == "en" else "{firm}集团"]}
        elif f.rule == "choice":
            rule["from"] = list(f.values)
        elif f.rule == "date":
            fields.setdefault("calendar_year", {"rule": "year", "low": 2010, "high": 2024, "hidden": True})
            rule["year"] = "calendar_year"
        elif f.rule in ("year", "amount", "number"):
            rule |= {"low": f.low, "high": f.high} | ({"unit": f.unit} if f.unit else {})
        fields[f.name] = rule
        if f.name != proposal.about:
            sections.setdefault(f.section, []).append({"id": f.name, "say": [f.sentence]})
    raw = {
        "domain": domain,
        "language": language,
        "title": f"{{{proposal.about}}}",
        "subdomain": "subdomain",
        "context": [proposal.about, "subdomain"],
        "drop": 0,
        "profile": [],
        "profiles": {name: [[]] for name in proposal.subdomains},
        "fields": fields,
        "sections": [{"id": f"s{i}", "heading": h, "facts": facts} for i, (h, facts) in enumerate(sections.items(), 1)],
        "questions": {},
        "unanswerable": [],
    }
    return yaml.safe_dump(raw, allow_unicode=True, sort_keys=False, width=120)
