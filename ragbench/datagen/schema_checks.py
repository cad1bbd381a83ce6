"""What can be wrong with a schema: the form of its parts, and parts that do not fit together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr, ValidationError

from ragbench.datagen.parts import FIELD
from ragbench.datagen.patterns import choose, fields_of
from ragbench.datagen.schema import QuestionPattern, Schema
from ragbench.errors import ConfigError

DERIVE = {"days", "difference", "earlier", "larger", "later", "smaller", "sum"}
_OF_DATES = {"days", "earlier", "later"}
_NAMING = {"earlier", "larger", "later", "smaller"}
_MULTI = ("information integration", "numerical comparison", "temporal sequence")
_STATEMENTS = 3
_SHOWN = 5
_Texts = Annotated[list[StrictStr], Field(min_length=1)]
_Rows = Annotated[list[list[StrictStr | StrictInt | StrictFloat]], Field(min_length=1)]


class _Part(BaseModel):
    # A misspelt key would otherwise be passed over in silence, and what it says be lost.
    model_config = ConfigDict(extra="forbid")


class _Lost(_Part):
    what: StrictStr
    ask: StrictStr


class _Fact(_Part):
    id: StrictStr
    say: _Texts
    lost: _Lost = None


class _Section(_Part):
    id: StrictStr
    heading: StrictStr
    facts: list[_Fact]
    fixed: bool = False


class _Derived(_Part):
    rule: StrictStr
    of: Annotated[list[StrictStr], Field(min_length=2)]
    names: list[StrictStr] = []


class _Question(_Part):
    id: StrictStr
    ask: _Texts
    say: list[StrictStr] = []
    derive: dict[str, _Derived] = {}
    section: StrictStr = ""


class _Rule(BaseModel):
    model_config = ConfigDict(extra="allow")
    rule: StrictStr
    year: StrictStr = ""
    after: StrictStr = ""
    of: list[StrictStr] = []


class _Schema(_Part):
    domain: StrictStr
    language: StrictStr
    title: StrictStr
    subdomain: StrictStr
    context: list[StrictStr]
    profile: list[StrictStr]
    profiles: Annotated[dict[str, _Rows], Field(min_length=1)]
    fields: dict[str, _Rule]
    sections: list[_Section]
    questions: dict[str, list[_Question]]
    unanswerable: list[StrictStr]
    drop: Annotated[int, Field(ge=0)] = 2


def check_shape(raw: Mapping[str, Any], source: str) -> None:
    """Check that every part of a schema's mapping has its form: texts, lists, the keys that are known.

    Raises
    ------
    ConfigError naming each part, e.g. ``sections[0].facts[2].say``.
    """
    try:
        _Schema.model_validate(raw)
    except ValidationError as error:
        found = [f"{_path(e['loc'])}: {e['msg']}" for e in error.errors()]
        more = f" (and {len(found) - _SHOWN} more)" if len(found) > _SHOWN else ""
        raise ConfigError(
            f"{source}: " + "; ".join(found[:_SHOWN]) + more,
            "parts in the form of a shipped schema",
            "mend them; quote a text that YAML takes for something else, such as no or 2021-03-14",
        ) from None


def _path(keys: tuple[str | int, ...]) -> str:
    return "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in keys).lstrip(".")


def problems(schema: Schema) -> Iterator[str]:
    """Name what does not fit together: fields, patterns, questions."""
    stated = set(schema.fact_fields)
    known = set(schema.fields)
    for name in schema.context:
        if name not in known:
            yield f"the context field {name!r} is missing from the fields"
    for name, rows in schema.profiles.items():
        for row in rows:
            if len(row) != len(schema.profile):
                yield f"a profile of {name!r} has {len(row)} values for {len(schema.profile)} columns"
    for fact in schema.facts:
        for name in set().union(*map(fields_of, fact.say)) - known:
            yield f"the fact {fact.id!r} uses the field {name!r}, which is missing"
    for name in known - stated - set(schema.context):
        if not schema.fields[name].get("hidden"):
            yield f"no sentence states the field {name!r}; mark it 'hidden: true' if that is meant"
    for where, pattern in _patterns(schema):
        if set(FIELD.sub("", choose(pattern)[0])) & set("{}[]"):
            yield f"{where} has a bracket without its partner in {pattern[:60]!r}"
    for fact in schema.facts:
        missing = sorted(set(schema.named) - fields_of(fact.lost[1])) if fact.lost else []
        if missing:
            yield f"the question about the lost fact {fact.id!r} does not name {missing[0]!r}"
    for question in schema.questions:
        yield from _question_problems(question, schema, stated | set(schema.context))


def _patterns(schema: Schema) -> Iterator[tuple[str, str]]:
    yield "the title", schema.title
    for fact in schema.facts:
        yield from ((f"the fact {fact.id!r}", pattern) for pattern in (*fact.say, *(fact.lost or ())))
    for q in schema.questions:
        yield from ((f"the {q.kind} question {q.id!r}", pattern) for pattern in (*q.ask, *q.say))
    yield from (("the answer to unanswerable questions", pattern) for pattern in schema.unanswerable)


def _question_problems(question: QuestionPattern, schema: Schema, usable: set[str]) -> Iterator[str]:
    where = f"the {question.kind} question {question.id!r}"
    if question.section:
        if question.section not in {s.id for s in schema.sections}:
            yield f"{where} names the section {question.section!r}, which is missing"
    elif len(question.say) < _STATEMENTS:
        yield f"{where} has {len(question.say)} statements; at least {_STATEMENTS} give 3-5 keypoints"
    marks = ("a.", "b.") if question.kind in _MULTI else ("",)
    naming = {f"{mark}{name}" for mark in marks for name in schema.named}
    for ask in question.ask:
        for name in sorted(naming - fields_of(ask)):
            yield f"{where} does not name {name!r}, so it is not clear which document is meant"
    used = set().union(*map(fields_of, (*question.ask, *question.say))) - set(question.derive)
    for name, rule in question.derive.items():
        yield from (f"{where} derives {name!r} {what}" for what in _derive_problems(rule, schema))
        used |= set(rule["of"]) | set().union(*map(fields_of, rule.get("names", ())))
    for name in sorted(used):
        owner, _, bare = name.rpartition(".")
        if (owner in ("a", "b")) != (question.kind in _MULTI) or bare not in usable:
            yield f"{where} uses {name!r}, which no document states"


def _derive_problems(rule: Mapping[str, Any], schema: Schema) -> Iterator[str]:
    how, of, names = rule["rule"], rule["of"], rule.get("names", ())
    if how not in DERIVE:
        yield f"by {how!r}, which is none of {', '.join(sorted(DERIVE))}"
        return
    if how != "sum" and len(of) != 2:
        yield f"by {how!r} from {len(of)} values, not 2"
    if how in _NAMING and len(names) != len(of):
        yield f"by {how!r} with {len(names)} names for {len(of)} values"
    for name in of:
        made = schema.fields.get(name.rpartition(".")[2], {}).get("rule")
        if made is not None and (made == "date") != (how in _OF_DATES):
            yield f"by {how!r} from {name!r}, which is made by the rule {made!r}"
