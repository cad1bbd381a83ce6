"""The schema of a domain, summed up by a model from a few seed documents (RAGEval, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

from ragbench.datagen.parts import LANGUAGES, Schema, SchemaSection, Unfit, Writer
from ragbench.errors import DataError, check_known

_MIN_FIELDS = 6
_Words = Annotated[str, StringConstraints(min_length=2, max_length=60)]
# Small letters and no digits, or Chinese characters: names of persons, dates and amounts do not
# fit.
_Key = Annotated[str, StringConstraints(pattern=r"^[a-z\u4e00-\u9fff][a-z_\u4e00-\u9fff]{1,29}$")]


class _Section(BaseModel, title="Section"):
    heading: _Words
    keys: list[_Key] = Field(min_length=4, max_length=6)


class _SchemaReply(BaseModel, title="SchemaReply"):
    about: _Key
    sections: list[_Section] = Field(min_length=2, max_length=3)
    subdomains: list[_Words] = Field(min_length=10, max_length=10)


def summarise_schema(
    writer: Writer, domain: str, seeds: Sequence[str], language: str = "en"
) -> Schema | None:
    """Let a model sum seed documents up as a schema: sections with their fields, and subdomains to
    write about; None where its reply is no usable schema.

    A field is rejected when it was there before, a subdomain when it is the domain itself, the
    schema when fewer than six fields are left.

    Source: RAGEval, section 3.1, where people refine the schema in a dialogue; here it is one
    prompt.
    """
    check_known("language", [language], LANGUAGES)
    if not seeds:
        raise DataError(
            "no seed documents", "two or three short documents of the domain", "pass their texts"
        )

    def read(_: str, reply: _SchemaReply) -> Schema:
        names = [reply.about]
        sections: dict[str, list[str]] = {}
        for section in reply.sections:
            heading = section.heading.replace("_", " ").strip().capitalize()
            for name in section.keys:
                if name in names:
                    writer.reject(domain, "schema", "a field that was there before", name)
                else:
                    names.append(name)
                    sections.setdefault(heading, []).append(name)
        if len(names) < _MIN_FIELDS:
            raise Unfit("too few fields", f"{len(names)}, not {_MIN_FIELDS} or more")
        subdomains = dict.fromkeys(name.strip() for name in reply.subdomains)
        if domain in subdomains:
            del subdomains[domain]
            writer.reject(domain, "schema", "a subdomain that is the domain", domain)
        parts = tuple(SchemaSection(name, tuple(fields)) for name, fields in sections.items())
        return Schema(domain, language, reply.about, parts, tuple(subdomains))

    fields = {"domain": domain, "language": LANGUAGES[language], "documents": "\n\n".join(seeds)}
    schemas = writer.ask("schema", "rageval_schema", {domain: fields}, read, _SchemaReply)
    return schemas.get(domain)
