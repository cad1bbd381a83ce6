"""Schemas: which facts a document of a domain states, how values are made, and how sentences and questions are worded.

A schema is a YAML file, one per domain and language; copy one and edit it to make a domain of your own. Its parts:

``fields``     name -> rule for its value (see `ragbench.datagen.configuration`); ``profile`` and ``profiles`` add
               fields that belong together, a row of values per subdomain.
``context``    fields every sentence may use freely (the company, the year): not facts to be asked for.
``sections``   heading and ``facts``: id, ``say`` (patterns of one sentence each, all stating the same fields), and for
               facts that may be left out on purpose ``lost`` (what is missing, in words, and the question about it).
``questions``  per type: ``ask`` (patterns), ``say`` (at least three statements), ``derive`` (values to be inferred).

`schema_from_documents` lets a model propose one from documents of your own (RAGEval, section 3.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr, ValidationError

from ragbench.datagen.parts import KINDS, LANGUAGES, MULTI, ask_step
from ragbench.datagen.wording import FIELD, choose, fields_of
from ragbench.errors import ConfigError, DataError, ModelError, check_known, unknown
from ragbench.llm import Cassette
from ragbench.llm.structured import MOST_ITEMS
from ragbench.prompts import Prompt, fill_prompt, load_prompt

_FOLDER = Path(__file__).parent / "schemas"
DOMAINS = ("finance", "law", "medicine")
RULES = {
    "amount",
    "choice",
    "date",
    "difference",
    "invented",
    "number",
    "percent",
    "person",
    "place",
    "profile",
    "subdomain",
    "sum",
    "year",
}

DERIVE = {"days", "difference", "earlier", "larger", "later", "smaller", "sum"}
_OF_DATES = {"days", "earlier", "later"}
_NAMING = {"earlier", "larger", "later", "smaller"}
_STATEMENTS = 3
_SHOWN = 5
_Texts = Annotated[list[StrictStr], Field(min_length=1)]
_Rows = Annotated[list[list[StrictStr | StrictInt | StrictFloat]], Field(min_length=1)]


@dataclass(frozen=True)
class FactPattern:
    """A group of fields that one sentence states, its patterns, and how to ask for it when it was left out."""

    id: str
    fields: tuple[str, ...]
    say: tuple[str, ...]
    lost: tuple[str, str] | None = None


@dataclass(frozen=True)
class SectionPattern:
    """A heading, its facts, and whether their order is fixed."""

    id: str
    heading: str
    facts: tuple[FactPattern, ...]
    fixed: bool = False


@dataclass(frozen=True)
class QuestionPattern:
    """A question of one type."""

    id: str
    kind: str
    ask: tuple[str, ...]
    say: tuple[str, ...]
    derive: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    section: str = ""


@dataclass(frozen=True)
class Schema:
    """A domain in one language; ``order`` lists the fields so that each comes after those it needs."""

    domain: str
    language: str
    title: str
    subdomain: str
    context: tuple[str, ...]
    profile: tuple[str, ...]
    profiles: Mapping[str, Sequence[Sequence[str]]]
    fields: Mapping[str, Mapping[str, Any]]
    order: tuple[str, ...]
    sections: tuple[SectionPattern, ...]
    questions: tuple[QuestionPattern, ...]
    unanswerable: tuple[str, ...]
    drop: int = 2
    source: str = ""

    @property
    def facts(self) -> tuple[FactPattern, ...]:
        """The facts of all sections."""
        return tuple(f for s in self.sections for f in s.facts)

    @property
    def named(self) -> tuple[str, ...]:
        """The context fields that name a document, such as the company; every question mentions them."""
        return tuple(n for n in self.context if self.fields[n]["rule"] in ("invented", "person"))

    @property
    def fact_fields(self) -> tuple[str, ...]:
        """The fields that documents state as facts."""
        return tuple(dict.fromkeys(name for f in self.facts for name in f.fields))


def load_schema(domain: str, language: str = "en") -> Schema:
    """Load a schema that comes with ragbench.

    Parameters
    ----------
    domain : "finance" (20 sectors), "law" (10 areas) or "medicine" (19 categories, two diseases each).
    language : "en" or "zh".

    Raises
    ------
    ConfigError for another domain or language.
    """
    check_known("domain", [domain], DOMAINS)
    check_known("language", [language], LANGUAGES)
    return read_schema(_FOLDER / f"{domain}_{language}.yaml")


def read_schema(path: str | Path) -> Schema:
    """Read and check a schema file of your own.

    Raises
    ------
    DataError when it is missing or no YAML mapping; ConfigError when a field is missing, refers to itself in a circle,
    has an unknown rule, or when patterns do not fit the fields.
    """
    path = Path(path).expanduser()
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read the schema {path}: {error.strerror}", "a YAML file", "check the path") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, byte {error.start}: no UTF-8", "a YAML file in UTF-8", "save it as UTF-8") from None
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where else ""
        raise DataError(f"{path}{line}: no valid YAML", "a schema file", "mend that line") from None
    if not isinstance(raw, dict):
        raise DataError(f"{path} holds a {type(raw).__name__}", "a mapping of the schema's parts", "copy a shipped one")
    return build_schema(raw, str(path))


def build_schema(raw: Mapping[str, Any], source: str = "schema") -> Schema:
    """Build a schema from a mapping (the content of a schema file) and check it; ``source`` names it in messages."""
    needed = [name for name, part in _Schema.model_fields.items() if part.is_required()]
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{source}: a {type(raw).__name__}", "a mapping of the schema's parts", "copy a shipped one")
    for key in needed:
        if key not in raw:
            raise ConfigError(f"{source}: no {key!r}", "the parts " + ", ".join(needed), "add it; see a shipped schema")
    check_shape(raw, source)
    if raw["language"] not in LANGUAGES:
        raise unknown("language", raw["language"], LANGUAGES)
    fields = {
        raw["subdomain"]: {"rule": "subdomain"},
        **{name: {"rule": "profile"} for name in raw["profile"]},
        **raw["fields"],
    }
    context = frozenset(raw["context"])
    sections = tuple(_section(s, context, source) for s in raw["sections"])
    questions = tuple(_question(kind, q, source) for kind, several in raw["questions"].items() for q in several)
    schema = Schema(
        raw["domain"],
        raw["language"],
        raw["title"],
        raw["subdomain"],
        tuple(raw["context"]),
        tuple(raw["profile"]),
        raw["profiles"],
        fields,
        _order(fields, source),
        sections,
        questions,
        tuple(raw["unanswerable"]),
        raw.get("drop", 2),
        source,
    )
    for problem in misfits(schema):
        raise ConfigError(f"{source}: {problem}", "a schema whose parts fit together", "mend that part")
    return schema


def needs(rule: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields a rule takes values from."""
    return tuple(rule[k] for k in ("year", "after") if k in rule) + tuple(rule.get("of", ()))


def _order(fields: Mapping[str, Mapping[str, Any]], source: str) -> tuple[str, ...]:
    for name, rule in fields.items():
        if rule.get("rule") not in RULES:
            raise ConfigError(
                f"{source}: the field {name!r} has the rule {rule.get('rule')!r}",
                "one of " + ", ".join(sorted(RULES)),
                "choose one of these",
            )
        for other in needs(rule):
            if other not in fields:
                raise ConfigError(
                    f"{source}: the field {name!r} needs {other!r}, which is missing",
                    "a field of this schema",
                    f"add {other!r} under fields, or mend the rule of {name!r}",
                )
    try:
        return tuple(TopologicalSorter({name: needs(rule) for name, rule in fields.items()}).static_order())
    except CycleError as error:
        raise ConfigError(
            f"{source}: fields need each other in a circle: {' -> '.join(error.args[1])}",
            "values that can be made one after another",
            "take one of these references out",
        ) from None


def _section(raw: Mapping[str, Any], context: frozenset[str], source: str) -> SectionPattern:
    facts = []
    for fact in raw["facts"]:
        stated = [fields_of(p) - context for p in fact["say"]]
        if len(set(stated)) != 1:
            raise ConfigError(
                f"{source}: the patterns of the fact {fact['id']!r} state different fields: "
                + " / ".join(",".join(sorted(s)) for s in stated),
                "the same fields in each",
                "mend the patterns",
            )
        lost = (fact["lost"]["what"], fact["lost"]["ask"]) if "lost" in fact else None
        facts.append(FactPattern(fact["id"], tuple(sorted(stated[0])), tuple(fact["say"]), lost))
    return SectionPattern(raw["id"], raw["heading"], tuple(facts), bool(raw.get("fixed", False)))


def _question(kind: str, raw: Mapping[str, Any], source: str) -> QuestionPattern:
    if kind not in KINDS or kind == "unanswerable":
        raise ConfigError(f"{source}: questions of type {kind!r}", "one of " + ", ".join(KINDS[:-1]), "rename the type")
    return QuestionPattern(
        raw["id"], kind, tuple(raw["ask"]), tuple(raw.get("say", ())), raw.get("derive", {}), raw.get("section", "")
    )


# -- what can be wrong with a schema: the form of its parts, and parts that do not fit together ------------------------


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
        faults = [f"{_path(e['loc'])}: {e['msg']}" for e in error.errors()]
        more = f" (and {len(faults) - _SHOWN} more)" if len(faults) > _SHOWN else ""
        raise ConfigError(
            f"{source}: " + "; ".join(faults[:_SHOWN]) + more,
            "parts in the form of a shipped schema",
            "mend them; quote a text that YAML takes for something else, such as no or 2021-03-14",
        ) from None


def _path(keys: tuple[str | int, ...]) -> str:
    return "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in keys).lstrip(".")


def misfits(schema: Schema) -> Iterator[str]:
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
    marks = ("a.", "b.") if question.kind in MULTI else ("",)
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
        if (owner in ("a", "b")) != (question.kind in MULTI) or bare not in usable:
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
        source = schema.fields.get(name.rpartition(".")[2], {}).get("rule")
        if source is not None and (source == "date") != (how in _OF_DATES):
            yield f"by {how!r} from {name!r}, which is made by the rule {source!r}"


# -- a schema from documents, by a model -------------------------------------------------------------------------------


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
    prompt: Prompt = "rageval_schema",
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
    patterns: ask by model (`ragbench.datagen.questions.model_questions`), or write some.

    Raises
    ------
    ModelError when the model's reply cannot be used.

    Source: RAGEval, section 3.1.
    """
    check_known("language", [language], LANGUAGES)
    if isinstance(documents, str) or not documents:
        raise ConfigError("no list of seed documents", "the texts of at least one document", "pass a list of texts")
    texts = "\n\n".join(f"[{i}]\n{text}" for i, text in enumerate(documents, 1))
    # {name} stands in the prompt as an example of a field; it is no field of the prompt.
    filled = fill_prompt(load_prompt(prompt), language=LANGUAGES[language], domain=domain, documents=texts)
    reply = ask_step(model, [filled], SchemaReply, cassette, [f"schema/{domain}"], "schema")[0]
    if not reply.ok:
        raise ModelError(
            f"no schema for {domain}: {reply.error}", "a schema in the form asked for", "try another model"
        )
    return proposed_yaml(reply.parsed, domain, language)


def proposed_yaml(proposal: SchemaReply, domain: str, language: str) -> str:
    """Write a proposed schema as YAML in the form of the shipped ones."""
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
