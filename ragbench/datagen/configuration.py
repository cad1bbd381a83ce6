"""Configurations: values for a schema's fields by rule, seeded.

A model may fill in further ones (`ragbench.datagen.live`).

Rules of a field, with what they take:

==========  =====================================================================================================
year        ``low``, ``high``
date        ``year`` (a field: some day in it) or ``after`` (a date field) with ``days: [least, most]``
amount      ``low``, ``high``, ``unit``; a whole number of units, e.g. 412 million crowns
number      as amount, for things that are counted
sum         ``of`` (fields): amounts that add up; ``difference`` of two; ``percent`` of a part and a whole
person      an invented name; ``place`` too
invented    ``form``: a list such as "{firm} Foods Group" with {firm}, {place} or {person} invented
choice      ``from``: a list of phrases
profile     a column of the subdomain's row; ``subdomain`` its name
==========  =====================================================================================================
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ragbench.datagen.derive import MONTHS
from ragbench.datagen.names import invent
from ragbench.datagen.parts import FIELD, Configuration, mentions
from ragbench.datagen.schema import Schema
from ragbench.errors import ConfigError

_TRIES = 200


def make_configurations(schema: Schema, documents: int, seed: int = 0) -> list[Configuration]:
    """Make configurations that differ in name: subdomains in turn, and their profiles in turn.

    Parameters
    ----------
    schema : the domain.
    documents : how many, at least 1.
    seed : same seed, same values.

    Returns
    -------
    list of Configuration, ids ``<domain>-<language>-0001`` on.

    Source: RAGEval, section 3.2.
    """
    if not isinstance(documents, int) or documents < 1:
        raise ConfigError(f"documents={documents!r}", "a whole number, at least 1", "ask for one document or more")
    taken: set[tuple[str, ...]] = set()
    made = []
    for index in range(documents):
        configuration = make_configuration(schema, index, seed, taken)
        taken.add(tuple(configuration.text[name] for name in schema.named))
        made.append(configuration)
    return made


def make_configuration(
    schema: Schema, index: int = 0, seed: int = 0, taken: Collection[tuple[str, ...]] = ()
) -> Configuration:
    """Make the values of one document.

    Parameters
    ----------
    schema : the domain.
    index : which document of a set: chooses subdomain and profile, and goes into the seed.
    seed : as for the set.
    taken : names (``schema.named``) that other documents have.

    Returns
    -------
    Configuration in which no fact's wording is part of another's, so that a text that states one does not seem to
    state the other.

    Raises
    ------
    ConfigError when the rules leave no such values.
    """
    names = list(schema.profiles)
    subdomain = names[index % len(names)]
    rows = schema.profiles[subdomain]
    row = dict(zip(schema.profile, rows[index // len(names) % len(rows)], strict=True))
    for attempt in range(_TRIES):
        rng = random.Random(f"{schema.domain}/{schema.language}/{seed}/{index}/{attempt}")
        values, text = _draw(schema, subdomain, row, rng)
        if tuple(text[name] for name in schema.named) in taken:
            continue
        if clash(text, schema.fact_fields, [text[n] for n in schema.context]) is None:
            identity = f"{schema.domain}-{schema.language}-{index + 1:04d}"
            return Configuration(identity, schema.domain, schema.language, subdomain, values, text)
    found = clash(text, schema.fact_fields, [text[n] for n in schema.context])
    raise ConfigError(
        f"{schema.source}: no usable values for document {index + 1} in {_TRIES} tries"
        + (f" ({found})" if found else ""),
        "facts that can be told apart",
        "widen the ranges or lists of these fields, or ask for fewer documents",
    )


def clash(text: Mapping[str, str], facts: Collection[str], context: Collection[str]) -> str | None:
    """Name two facts of which one's wording holds the other's, or a fact that the context gives away."""
    for name in facts:
        others = [(other, text[other]) for other in facts if other != name]
        for other, wording in [*others, *(("the context", c) for c in context)]:
            if text[name] in wording and mentions(wording, text[name]):
                return f"{name} = {text[name]!r} and {other} = {wording!r}"
    return None


def _draw(schema: Schema, subdomain: str, row: Mapping[str, str], rng: random.Random) -> tuple[dict, dict]:
    values: dict[str, Any] = {}
    text: dict[str, str] = {}
    for name in schema.order:
        rule = schema.fields[name]
        if rule["rule"] in ("subdomain", "profile"):
            values[name] = subdomain if rule["rule"] == "subdomain" else row[name]
        else:
            try:
                values[name] = _RULES[rule["rule"]](rule, values, schema.language, rng)
            except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
                raise ConfigError(
                    f"{schema.source}: the rule of {name!r} cannot be used ({type(error).__name__}: {error})",
                    f"what the rule {rule['rule']!r} takes",
                    "see ragbench.datagen.configuration for the rules",
                ) from None
        text[name] = render(values[name], rule, schema.language)
    return values, text


def render(value: Any, rule: Mapping[str, Any], language: str) -> str:
    """Write a value as documents do: 14 March 2021, 1,204 million crowns, 37.5%; 2021年3月14日, 1204万元."""
    kind = rule["rule"]
    if kind == "date":
        if language == "zh":
            return f"{value.year}年{value.month}月{value.day}日"
        return f"{value.day} {MONTHS[value.month - 1]} {value.year}"
    if kind == "percent":
        return f"{value:.1f}%"
    if kind in ("amount", "number", "sum", "difference"):
        return f"{value}{rule.get('unit', '')}" if language == "zh" else f"{value:,} {rule.get('unit', '')}".strip()
    return f"{value}年" if kind == "year" and language == "zh" else str(value)


def _date(rule: Mapping, values: Mapping, language: str, rng: random.Random) -> dt.date:
    if "after" in rule:
        low, high = rule["days"]
        return values[rule["after"]] + dt.timedelta(days=rng.randint(low, high))
    # Days 1 to 28 of a month exist in every year.
    return dt.date(values[rule["year"]], rng.randint(*rule.get("months", (1, 12))), rng.randint(1, 28))


def _between(rule: Mapping, values: Mapping, language: str, rng: random.Random) -> int:
    return rng.randint(rule["low"], rule["high"])


def _difference(rule: Mapping, values: Mapping, language: str, rng: random.Random) -> int:
    first, second = (values[name] for name in rule["of"])
    if first < second:
        raise ValueError(f"{rule['of'][0]} is less than {rule['of'][1]}")
    return first - second


def _percent(rule: Mapping, values: Mapping, language: str, rng: random.Random) -> float:
    part, whole = (values[name] for name in rule["of"])
    return round(100 * part / whole, 1)


def _invented(rule: Mapping, values: Mapping, language: str, rng: random.Random) -> str:
    return FIELD.sub(lambda m: invent(m.group(1), language, rng), rng.choice(rule["form"]))


_RULES: dict[str, Callable] = {
    "year": _between,
    "amount": _between,
    "number": _between,
    "date": _date,
    "sum": lambda rule, values, language, rng: sum(values[name] for name in rule["of"]),
    "difference": _difference,
    "percent": _percent,
    "person": lambda rule, values, language, rng: invent("person", language, rng),
    "place": lambda rule, values, language, rng: invent("place", language, rng),
    "invented": _invented,
    "choice": lambda rule, values, language, rng: rng.choice(rule["from"]),
}
