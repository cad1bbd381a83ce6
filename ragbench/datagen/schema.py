"""Schemas: which facts a document of a domain states, how values are made, and how sentences and questions are worded.

A schema is a YAML file, one per domain and language; copy one and edit it to make a domain of your own. Its parts:

``fields``     name -> rule for its value (see `ragbench.datagen.configuration`); ``profile`` and ``profiles`` add
               fields that belong together, a row of values per subdomain.
``context``    fields every sentence may use freely (the company, the year): not facts to be asked for.
``sections``   heading and ``facts``: id, ``say`` (patterns of one sentence each, all stating the same fields), and for
               facts that may be left out on purpose ``lost`` (what is missing, in words, and the question about it).
``questions``  per type: ``ask`` (patterns), ``say`` (at least three statements), ``derive`` (values to be inferred).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from ragbench.datagen.parts import KINDS, LANGUAGES
from ragbench.datagen.patterns import fields_of
from ragbench.errors import ConfigError, DataError, unknown

_FOLDER = Path(__file__).parent / "schemas"
DOMAINS = ("finance", "law", "medicine")
RULES = {
    "amount", "choice", "date", "difference", "invented", "number", "percent", "person", "place", "profile",
    "subdomain", "sum", "year",
}  # fmt: skip


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
    if domain not in DOMAINS:
        raise unknown("domain", domain, DOMAINS)
    if language not in LANGUAGES:
        raise unknown("language", language, LANGUAGES)
    return read_schema(_FOLDER / f"{domain}_{language}.yaml")


def read_schema(path: str | Path) -> Schema:
    """Read and check a schema file of your own.

    Raises
    ------
    DataError when it is missing or no YAML mapping; ConfigError when a field is missing, refers to itself in a circle,
    has an unknown rule, or when patterns do not fit the fields.
    """
    import yaml

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
    """Build a schema from a mapping (the content of a schema file) and check it.

    Parameters
    ----------
    raw : as in a schema file.
    source : its name in messages.
    """
    from ragbench.datagen.schema_checks import check_shape, problems

    needed = ("domain", "language", "title", "subdomain", "context", "profile", "profiles", "fields", "sections",
              "questions", "unanswerable")  # fmt: skip
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
        raw["domain"], raw["language"], raw["title"], raw["subdomain"], tuple(raw["context"]), tuple(raw["profile"]),
        raw["profiles"], fields, _order(fields, source), sections, questions, tuple(raw["unanswerable"]),
        raw.get("drop", 2), source,
    )  # fmt: skip
    for problem in problems(schema):
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
