"""Schemas: which facts a document of a domain states, how values are made, how sentences and questions are worded.

A schema is a YAML file, one per domain and language; copy one and edit it to make a domain of your own. `Schema` and
the classes before it are its form, key by key. A pattern is a text with ``{field}`` for a value and ``[a|b]`` for
alternatives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Literal, Required

import yaml
from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr
from typing_extensions import TypedDict

from ragbench.data.files import as_record, read_text
from ragbench.datagen.parts import KINDS, LANGUAGES, MULTI
from ragbench.datagen.wording import fields_of
from ragbench.errors import ConfigError, DataError, check_known

_FOLDER = Path(__file__).parent / "schemas"
DOMAINS = ("finance", "law", "medicine")
# Of a field's value, see `ragbench.datagen.configuration`.
_RULES = ("amount", "choice", "date", "difference", "invented", "number", "percent", "person", "place", "sum", "year")
# Of a value that follows from others, see `ragbench.datagen.wording.derive`.
_DERIVE = ("days", "difference", "earlier", "larger", "later", "smaller", "sum")
_STATEMENTS = 3
_SHOWN = 5
_Texts = Annotated[list[StrictStr], Field(min_length=1)]
_Rows = Annotated[list[list[StrictStr | StrictInt | StrictFloat]], Field(min_length=1)]


class _Rule(TypedDict, total=False):
    """How a field's value is made: the rule, the fields it needs, and what else the rule takes."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]
    rule: Required[Literal[_RULES]]
    year: StrictStr
    after: StrictStr
    of: list[StrictStr]


class _Part(BaseModel):
    # A misspelt key would otherwise be passed over in silence, and what it says be lost.
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Lost(_Part):
    """What is missing when a fact is left out, in words, and the question about it."""

    what: StrictStr
    ask: StrictStr


class FactPattern(_Part):
    """A group of fields that one sentence states, its patterns, and how to ask for it when it was left out."""

    id: StrictStr
    say: _Texts
    lost: _Lost = None
    _fields: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields its patterns state, sorted; context is none of them."""
        return self._fields


class _SectionPattern(_Part):
    """A heading, its facts, and whether their order is fixed."""

    id: StrictStr
    heading: StrictStr
    facts: list[FactPattern]
    fixed: bool = False


class _Derivation(_Part):
    """A value that follows from fields; ``names`` of what is compared."""

    rule: Literal[_DERIVE]
    of: Annotated[list[StrictStr], Field(min_length=2)]
    names: list[StrictStr] = []


class QuestionPattern(_Part):
    """How a question is asked, and at least three statements of its answer, or the section it sums up."""

    id: StrictStr
    ask: _Texts
    say: list[StrictStr] = []
    derive: dict[str, _Derivation] = {}
    section: StrictStr = ""


class Schema(_Part):
    """A domain in one language.

    ``context`` are fields that every sentence may use (the company, the year): not facts to be asked for. ``profile``
    and ``profiles`` are fields that belong together, and rows of their values per subdomain. ``drop`` is how many
    facts a document leaves out, of those that have a ``lost``.
    """

    domain: StrictStr
    language: Literal[tuple(LANGUAGES)]
    title: StrictStr
    subdomain: StrictStr
    context: list[StrictStr]
    profile: list[StrictStr]
    profiles: Annotated[dict[str, _Rows], Field(min_length=1)]
    fields: dict[str, _Rule]
    sections: list[_SectionPattern]
    questions: dict[Literal[KINDS[:-1]], list[QuestionPattern]]
    unanswerable: list[StrictStr]
    drop: Annotated[int, Field(ge=0)] = 2
    source: StrictStr = ""

    def model_post_init(self, context: Any) -> None:
        for fact in self.facts:
            fact._fields = tuple(sorted(fields_of(fact.say[0]) - set(self.context)))

    @cached_property
    def facts(self) -> tuple[FactPattern, ...]:
        """The facts of all sections."""
        return tuple(f for s in self.sections for f in s.facts)

    @cached_property
    def fact_fields(self) -> tuple[str, ...]:
        """The fields that documents state as facts."""
        return tuple(dict.fromkeys(name for f in self.facts for name in f.fields))

    @property
    def named(self) -> tuple[str, ...]:
        """The context fields that name a document, such as the company; every question mentions them."""
        return tuple(n for n in self.context if n in self.fields and self.fields[n]["rule"] in ("invented", "person"))

    @property
    def order(self) -> tuple[str, ...]:
        """The fields so that each comes after those it needs."""
        return tuple(TopologicalSorter({name: _needs(rule) for name, rule in self.fields.items()}).static_order())


def load_schema(domain: str, language: str = "en") -> Schema:
    """Load a shipped schema: "finance" (20 sectors), "law" (10 areas) or "medicine" (19 categories); "en" or "zh"."""
    check_known("domain", [domain], DOMAINS)
    check_known("language", [language], LANGUAGES)
    return read_schema(_FOLDER / f"{domain}_{language}.yaml")


def read_schema(path: str | Path) -> Schema:
    """Read and check a schema file of your own."""
    path = Path(path).expanduser()
    try:
        raw = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise DataError(f"{path}: no valid YAML: {error}", "a schema file", "mend that line") from None
    return build_schema(raw, str(path))


def build_schema(raw: Mapping[str, Any], source: str = "schema") -> Schema:
    """Build a schema from a mapping (the content of a schema file) and check it; ``source`` names it in messages."""
    schema = as_record(Schema, raw, source)
    columns = {schema.subdomain: {"rule": "subdomain"}, **{name: {"rule": "profile"} for name in schema.profile}}
    schema = schema.model_copy(update={"fields": columns | schema.fields, "source": source})
    if misfits := list(_misfits(schema)):
        got = f"{source}: {'; '.join(misfits[:_SHOWN])}{'; and more' * (len(misfits) > _SHOWN)}"
        raise ConfigError(got, "a schema whose parts fit together", "mend that part")
    return schema


def _needs(rule: _Rule) -> tuple[str, ...]:
    return tuple(rule[k] for k in ("year", "after") if k in rule) + tuple(rule.get("of", ()))


def _misfits(schema: Schema) -> Iterator[str]:
    """Say which parts do not fit together."""
    context, stated = set(schema.context), {*schema.context, *schema.fact_fields}
    uses = [("the context", context)] + [(f"the field {name!r}", {*_needs(r)}) for name, r in schema.fields.items()]
    asks: list[tuple[str, str, set[str]]] = []  # who asks, how, and what names the document
    for name, rows in schema.profiles.items():
        if any(len(row) != len(schema.profile) for row in rows):
            yield f"a profile of {name!r} has not one value for each of {len(schema.profile)} columns"
    for fact in schema.facts:
        where, in_patterns = f"the fact {fact.id!r}", [fields_of(pattern) for pattern in fact.say]
        if len({fields - context for fields in in_patterns}) > 1:
            yield f"the patterns of {where} state different fields"
        uses.append((where, set().union(*in_patterns)))
        if fact.lost:
            asks.append((f"the question about the lost fact {fact.id!r}", fact.lost.ask, {*schema.named}))
    for where, names in uses:
        yield from (f"{where} uses the field {name!r}, which is missing" for name in sorted(names - set(schema.fields)))
    for kind, questions in schema.questions.items():
        marks = ("a.", "b.") if kind in MULTI else ("",)
        naming = {f"{mark}{name}" for mark in marks for name in schema.named}
        for question in questions:
            where = f"the {kind} question {question.id!r}"
            asks += [(where, ask, naming) for ask in question.ask]
            if question.section and question.section not in {s.id for s in schema.sections}:
                yield f"{where} names the section {question.section!r}, which is missing"
            elif not question.section and len(question.say) < _STATEMENTS:
                yield f"{where} has {len(question.say)} statements; at least {_STATEMENTS} give 3-5 keypoints"
            patterns = [*question.ask, *question.say, *(n for d in question.derive.values() for n in d.names)]
            used = set().union(*map(fields_of, patterns), *(d.of for d in question.derive.values()))
            missing = used - set(question.derive) - {f"{mark}{name}" for mark in marks for name in stated}
            yield from (f"{where} uses {name!r}, which no document states" for name in sorted(missing))
    for where, ask, names in asks:
        for name in sorted(names - fields_of(ask)):
            yield f"{where} does not name {name!r}, so it is not clear which document is meant"
