"""Schemas: which facts a document of a domain states, how values are made, how sentences and questions are worded.

A schema is a YAML file, one per domain and language; copy one and edit it to make a domain of your own. `Schema` and
the classes before it are its form, key by key. A pattern is a text with ``{field}`` for a value and ``[a|b]`` for
alternatives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Literal, Required

import yaml
from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr
from typing_extensions import TypedDict

from ragbench.data.files import as_record, read_text
from ragbench.datagen.parts import KINDS, LANGUAGES, MULTI, StepCall, ask_step
from ragbench.datagen.wording import fields_of
from ragbench.errors import ConfigError, DataError, ModelError, check_known
from ragbench.llm.structured import MOST_ITEMS
from ragbench.prompts import Prompt, fill_prompt, load_prompt

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

    Attributes
    ----------
    context : fields that every sentence may use (the company, the year): not facts to be asked for.
    profile, profiles : fields that belong together, and rows of their values per subdomain.
    drop : facts that a document leaves out, of those that have a ``lost``.
    fields : name -> rule; with those of the subdomain and the profile.
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
    """Load a schema that comes with ragbench.

    Parameters
    ----------
    domain : "finance" (20 sectors), "law" (10 areas) or "medicine" (19 categories, two diseases each).
    language : "en" or "zh".
    """
    check_known("domain", [domain], DOMAINS)
    check_known("language", [language], LANGUAGES)
    return read_schema(_FOLDER / f"{domain}_{language}.yaml")


def read_schema(path: str | Path) -> Schema:
    """Read and check a schema file of your own."""
    path = Path(path).expanduser()
    try:
        raw = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where else ""
        raise DataError(f"{path}{line}: no valid YAML", "a schema file", "mend that line") from None
    return build_schema(raw, str(path))


def build_schema(raw: Mapping[str, Any], source: str = "schema") -> Schema:
    """Build a schema from a mapping (the content of a schema file) and check it; ``source`` names it in messages."""
    try:
        schema = as_record(Schema, raw, source)
    except DataError as error:
        do = "mend it; quote a text that YAML takes for something else, such as no or 2021-03-14"
        raise ConfigError(error.got, error.expected, do) from None
    columns = {schema.subdomain: {"rule": "subdomain"}, **{name: {"rule": "profile"} for name in schema.profile}}
    schema = schema.model_copy(update={"fields": columns | schema.fields, "source": source})
    if misfits := list(_misfits(schema)):
        more = f"; and {len(misfits) - _SHOWN} more" if len(misfits) > _SHOWN else ""
        got = f"{source}: {'; '.join(misfits[:_SHOWN])}{more}"
        raise ConfigError(got, "a schema whose parts fit together", "mend that part")
    return schema


# What does not fit together: fields, patterns, questions


def _needs(rule: _Rule) -> tuple[str, ...]:
    return tuple(rule[k] for k in ("year", "after") if k in rule) + tuple(rule.get("of", ()))


def _misfits(schema: Schema) -> Iterator[str]:
    known, context, stated = set(schema.fields), set(schema.context), set(schema.fact_fields)
    for name, rule in schema.fields.items():
        yield from (f"the field {name!r} needs {n!r}, which is missing" for n in _needs(rule) if n not in known)
    try:
        _ = schema.order
    except CycleError as error:
        yield f"fields need each other in a circle: {' -> '.join(error.args[1])}"
    yield from (f"the context field {name!r} is missing from the fields" for name in context - known)
    for name, rows in schema.profiles.items():
        for row in rows:
            if len(row) != len(schema.profile):
                yield f"a profile of {name!r} has {len(row)} values for {len(schema.profile)} columns"
    for fact in schema.facts:
        used = [fields_of(pattern) for pattern in fact.say]
        if len({fields - context for fields in used}) != 1:
            shown = " / ".join(",".join(sorted(fields - context)) for fields in used)
            yield f"the patterns of the fact {fact.id!r} state different fields: {shown}"
        for name in sorted(set().union(*used) - known):
            yield f"the fact {fact.id!r} uses the field {name!r}, which is missing"
        if fact.lost:
            yield from _unnamed(f"the question about the lost fact {fact.id!r}", fact.lost.ask, schema.named)
    for name in sorted(known - stated - context):
        if not schema.fields[name].get("hidden"):
            yield f"no sentence states the field {name!r}; mark it 'hidden: true' if that is meant"
    for kind, questions in schema.questions.items():
        for question in questions:
            yield from _question_misfits(kind, question, schema, stated | context)


def _unnamed(where: str, ask: str, wanted: Collection[str]) -> Iterator[str]:
    for name in sorted(set(wanted) - fields_of(ask)):
        yield f"{where} does not name {name!r}, so it is not clear which document is meant"


def _question_misfits(kind: str, question: QuestionPattern, schema: Schema, usable: set[str]) -> Iterator[str]:
    where = f"the {kind} question {question.id!r}"
    if question.section:
        if question.section not in {s.id for s in schema.sections}:
            yield f"{where} names the section {question.section!r}, which is missing"
    elif len(question.say) < _STATEMENTS:
        yield f"{where} has {len(question.say)} statements; at least {_STATEMENTS} give 3-5 keypoints"
    marks = ("a.", "b.") if kind in MULTI else ("",)
    for ask in question.ask:
        yield from _unnamed(where, ask, [f"{mark}{name}" for mark in marks for name in schema.named])
    used = set().union(*map(fields_of, (*question.ask, *question.say))) - set(question.derive)
    for derivation in question.derive.values():
        used |= set(derivation.of) | set().union(*map(fields_of, derivation.names))
    for name in sorted(used):
        owner, _, bare = name.rpartition(".")
        if (owner in ("a", "b")) != (kind in MULTI) or bare not in usable:
            yield f"{where} uses {name!r}, which no document states"


# A schema from documents, by a model


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
    prompt: Prompt = "rageval_schema",
    **options: Any,
) -> str:
    """Let a model read the texts of a few documents and propose a schema, as YAML to look at and edit.

    Returns
    -------
    YAML text. Save it, edit it, and read it with `ragbench.datagen.read_schema`, which checks it. It has no question
    patterns: ask by model (`ragbench.datagen.questions.model_questions`), or write some.

    Source: RAGEval, section 3.1.
    """
    check_known("language", [language], LANGUAGES)
    if isinstance(documents, str) or not documents:
        raise ConfigError("no list of seed documents", "the texts of at least one document", "pass a list of texts")
    texts = "\n\n".join(f"[{i}]\n{text}" for i, text in enumerate(documents, 1))
    filled = fill_prompt(load_prompt(prompt), language=LANGUAGES[language], domain=domain, documents=texts)
    call = StepCall(f"schema/{domain}", filled, domain)
    proposals = ask_step(model, "schema", [call], SchemaReply, lambda _, proposal: proposal, options)
    if proposals.failed:
        reason = proposals.failed[0][1]
        raise ModelError(f"no schema for {domain}: {reason}", "a schema in the form asked for", "try another model")
    return _proposed_yaml(proposals.made[0], domain, language)


def _proposed_yaml(proposal: SchemaReply, domain: str, language: str) -> str:
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
