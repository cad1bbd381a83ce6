"""Configurations: values for a schema's fields, by seeded rules; a model may replace some.

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
==========  =====================================================================================================

``llm`` says in words what a model is to fill in. The columns of the profiles and the name of the subdomain are fields,
too, with the rules ``profile`` and ``subdomain``.
"""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ragbench.datagen.parts import LANGUAGES, Configuration, Done, ask_step, field_list
from ragbench.datagen.schema import Schema
from ragbench.datagen.wording import FIELD, mentions
from ragbench.errors import ConfigError
from ragbench.text.words import MONTHS

_TRIES = 200


def make_configurations(schema: Schema, documents: int, seed: int = 0) -> list[Configuration]:
    """Make configurations that differ in name, ids ``<domain>-<language>-0001`` on: subdomains and profiles in turn.

    Source: RAGEval, section 3.2.
    """
    if documents < 1:
        raise ConfigError(f"documents={documents!r}", "a whole number, at least 1", "ask for one document or more")
    taken: set[tuple[str, ...]] = set()
    return [_configuration(schema, index, seed, taken) for index in range(documents)]


def _configuration(schema: Schema, index: int, seed: int, taken: set[tuple[str, ...]]) -> Configuration:
    """Make the values of one document, whose name joins the names that are ``taken``.

    No fact's wording is part of another's, so that a text that states one does not seem to state the other.
    """
    names = list(schema.profiles)
    subdomain = names[index % len(names)]
    rows = schema.profiles[subdomain]
    columns = dict(zip(schema.profile, rows[index // len(names) % len(rows)], strict=True))
    reason: str | None = None
    for attempt in range(_TRIES):
        rng = random.Random(f"{schema.domain}/{schema.language}/{seed}/{index}/{attempt}")
        values: dict[str, Any] = {schema.subdomain: subdomain, **columns}
        for name in schema.order:
            if name not in values:
                values[name] = _value(schema, name, values, rng)
        text = {name: _written(value, schema.fields[name], schema.language) for name, value in values.items()}
        reason, name = _clash(text, schema), tuple(text[part] for part in schema.named)
        if reason is None and name not in taken:
            taken.add(name)
            identity = f"{schema.domain}-{schema.language}-{index + 1:04d}"
            return Configuration(identity, subdomain, values, text)
    raise ConfigError(
        f"{schema.source}: no usable values for document {index + 1} in {_TRIES} tries ({reason or 'names are taken'})",
        "facts that can be told apart",
        "widen the ranges or lists of these fields, or ask for fewer documents",
    )


def _clash(text: Mapping[str, str], schema: Schema) -> str | None:
    """Name two facts of which one's wording holds the other's, or a fact that the context gives away."""
    facts = schema.fact_fields
    context = [("the context", text[name]) for name in schema.context]
    for name in facts:
        for other, wording in [*((other, text[other]) for other in facts if other != name), *context]:
            if text[name] in wording and mentions(wording, text[name]):
                return f"{name} = {text[name]!r} and {other} = {wording!r}"
    return None


def _value(schema: Schema, name: str, values: Mapping[str, Any], rng: random.Random) -> Any:
    rule = schema.fields[name]
    try:
        match rule["rule"]:
            case "year" | "amount" | "number":
                return rng.randint(rule["low"], rule["high"])
            case "date" if "after" in rule:
                low, high = rule["days"]
                return values[rule["after"]] + dt.timedelta(days=rng.randint(low, high))
            case "date":  # days 1 to 28 of a month exist in every year
                return dt.date(values[rule["year"]], rng.randint(*rule.get("months", (1, 12))), rng.randint(1, 28))
            case "sum":
                return sum(values[other] for other in rule["of"])
            case "difference":
                first, second = (values[other] for other in rule["of"])
                if first < second:
                    raise ValueError(f"{rule['of'][0]} is less than {rule['of'][1]}")
                return first - second
            case "percent":
                part, whole = (values[other] for other in rule["of"])
                return round(100 * part / whole, 1)
            case "person" | "place" as kind:
                return _invent(kind, schema.language, rng)
            case "invented":
                return FIELD.sub(lambda m: _invent(m[1], schema.language, rng), rng.choice(rule["form"]))
            case "choice":
                return rng.choice(rule["from"])
    except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ConfigError(
            f"{schema.source}: the rule of {name!r} cannot be used ({type(error).__name__}: {error})",
            f"what the rule {rule['rule']!r} takes",
            "see ragbench.datagen.configuration for the rules",
        ) from None


def _written(value: Any, rule: Mapping[str, Any], language: str) -> str:
    """Write a value as documents do: 14 March 2021, 1,204 million crowns, 37.5%; 2021年3月14日, 1204万元."""
    chinese, unit = language == "zh", rule.get("unit", "")
    match rule["rule"]:
        case "date" if chinese:
            return f"{value.year}年{value.month}月{value.day}日"
        case "date":
            return f"{value.day} {MONTHS[value.month - 1]} {value.year}"
        case "percent":
            return f"{value:.1f}%"
        case "amount" | "number" | "sum" | "difference":
            return f"{value}{unit}" if chinese else f"{value:,} {unit}".strip()
        case "year" if chinese:
            return f"{value}年"
        case _:
            return str(value)


# Invented names

_SYLLABLES = {
    "head": "Bal Bren Cald Dorv Eld Farn Gald Hask Ild Jesp Kelv Lund Marv Nerv Orv Pelv Quar Rask Selv Tarv Ulv "
    "Velm Wist Yarv Zelk Ambr Brisk Corv Druv Esk Fenv Grav Hult Istr Karv Lorv Mosk Nalv",
    "middle": "a e i o an en or el is un",
    "person": "ric sk mer thal dun nard quist zar lov bane dell vic gren tz",
    "place": "wick stead mouth holm ford haven crest moor gate fell bury minster",
    "firm": "ra nova tis lia rex dor via mont trix gen sol lux cor phen",
    "given": "Ada Boris Clara Dario Edda Felix Greta Hugo Ines Jonas Karin Leon Mira Nils Olga Pavel Rosa Stefan "
    "Tilda Viktor Wanda Xenia Yara Zoe Anton Berta Cyril Dora Emil Frida",
}
_ZH_FAMILY = "闻苗宓郗邸阚蔺芮胥晁邰卞滕缪阮屈虞戚佘栾扈郏宁茅庞岑宦暴厉戎祖符景詹束龙叶幸司韶"
_ZH_HEAD = "岚澜霁翎漪沅芷菡珩琮筠荇霂峣嶂骊鹭鸢鸾鹂汐渌潞滟璟昀暄晞霏棠"
_ZH_TAIL = "穹湄汀皋垠屿岑渚溆墟甸陌浔淙崖坞岫漠崮浦"


@cache
def _blocklist() -> frozenset[str]:
    """Return well-known real names of companies, people, hospitals and cities that must not be made, lower-cased."""
    lines = (Path(__file__).parent / "schemas" / "blocklist.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(line.strip().lower() for line in lines if line.strip() and not line.startswith("#"))


def real_names(text: str) -> list[str]:
    """Return the names of the list of real ones that a text mentions, sorted; a short list cannot prove much."""
    low = text.lower()
    return sorted(name for name in _blocklist() if name in low and mentions(low, name))


def _invent(kind: str, language: str, rng: random.Random) -> str:
    """Make the name of a "person", "place" or "firm" (the distinctive part of a company's name).

    A Chinese person is a rare family name with 某, as court records anonymise.
    """
    while True:
        if language == "zh" and kind == "person":
            name = rng.choice(_ZH_FAMILY) + rng.choice(("某某", "某甲", "某乙", "某丙", "某丁"))
        elif language == "zh":
            name = rng.choice(_ZH_HEAD) + rng.choice(_ZH_TAIL)
        else:
            name = "".join(rng.choice(_SYLLABLES[part].split()) for part in ("head", "middle", kind))
            if kind == "person":
                name = f"{rng.choice(_SYLLABLES['given'].split())} {name}"
        if not _blocklist().intersection((name.lower(), *name.lower().split())):
            return name


# Values by a model


class _ValueReply(BaseModel, title="ValueReply"):
    """A made-up value."""

    value: str


def model_values(
    model: Any, schema: Schema, configurations: Sequence[Configuration], **options: Any
) -> Done[Configuration]:
    """Let a model fill the fields that a schema marks with ``llm``; it is shown the other values.

    Where the model failed, or its value is long, names somebody real, or cannot be told apart from another fact, the
    rule's value stays and ``failed`` says so.

    Source: RAGEval, section 3.2 (hybrid of rule-based and model values).
    """
    wanted = {field: rule["llm"] for field, rule in schema.fields.items() if rule.get("llm")}
    about = {"language": LANGUAGES[schema.language], "domain": schema.domain}
    calls = []
    for c, (field, what) in product(configurations, wanted.items()):
        values = field_list(c, [name for name in c.text if name != field])
        shown = {**about, "subdomain": c.subdomain, "values": values, "wanted": what}
        calls.append((f"{c.id}/{field}", shown, (c.id, field)))
    latest = {c.id: c for c in configurations}

    def settle(about: tuple[str, str], reply: _ValueReply) -> Configuration | str:
        identity, field = about
        value, before = reply.value.strip().rstrip(".。"), latest[identity]
        after = replace(before, values={**before.values, field: value}, text={**before.text, field: value})
        if not value or len(value) > 160 or "\n" in value:
            return f"no phrase: {value[:40]!r}"
        if re.search(r"\d", value):
            return f"a number or date, which the rules make: {value[:40]!r}"
        if names := real_names(value):
            return f"a real name: {names[0]!r}"
        if same := _clash(after.text, schema):
            return f"cannot be told apart: {same}"
        latest[identity] = after
        return after

    done = ask_step(model, "values", "rageval_values", calls, _ValueReply, settle, options)
    return Done(tuple(latest.values()), done.failed)
