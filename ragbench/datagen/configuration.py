"""Configurations: values for a schema's fields by rule, seeded.

A model may fill in further ones (`model_values`). Names are invented, and checked against a list of real ones.

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
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ragbench.datagen.parts import LANGUAGES, Configuration, Done, ask_step, field_list
from ragbench.datagen.schema import Schema
from ragbench.datagen.wording import FIELD, mentions
from ragbench.errors import ConfigError
from ragbench.llm import Cassette
from ragbench.prompts import Prompt, fill_prompt, load_prompt
from ragbench.text.words import MONTHS

_TRIES = 200


def make_configurations(schema: Schema, documents: int, seed: int = 0) -> list[Configuration]:
    """Make configurations that differ in name: subdomains in turn, and their profiles in turn.

    Returns
    -------
    list of Configuration, ids ``<domain>-<language>-0001`` on; the same for the same seed.

    Source: RAGEval, section 3.2.
    """
    if not isinstance(documents, int) or documents < 1:
        raise ConfigError(f"documents={documents!r}", "a whole number, at least 1", "ask for one document or more")
    taken: set[tuple[str, ...]] = set()
    configurations = []
    for index in range(documents):
        configuration = make_configuration(schema, index, seed, taken)
        taken.add(tuple(configuration.text[name] for name in schema.named))
        configurations.append(configuration)
    return configurations


def make_configuration(
    schema: Schema, index: int = 0, seed: int = 0, taken: Collection[tuple[str, ...]] = ()
) -> Configuration:
    """Make the values of one document.

    Parameters
    ----------
    index : which document of a set: chooses subdomain and profile, and goes into the seed.
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
    reason = clash(text, schema.fact_fields, [text[n] for n in schema.context])
    raise ConfigError(
        f"{schema.source}: no usable values for document {index + 1} in {_TRIES} tries"
        + (f" ({reason})" if reason else ""),
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
                values[name] = _value(rule, values, schema.language, rng)
            except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
                raise ConfigError(
                    f"{schema.source}: the rule of {name!r} cannot be used ({type(error).__name__}: {error})",
                    f"what the rule {rule['rule']!r} takes",
                    "see ragbench.datagen.configuration for the rules",
                ) from None
        text[name] = written(values[name], rule, schema.language)
    return values, text


def written(value: Any, rule: Mapping[str, Any], language: str) -> str:
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


def _value(rule: Mapping, values: Mapping, language: str, rng: random.Random) -> Any:
    match rule["rule"]:
        case "year" | "amount" | "number":
            return rng.randint(rule["low"], rule["high"])
        case "date" if "after" in rule:
            low, high = rule["days"]
            return values[rule["after"]] + dt.timedelta(days=rng.randint(low, high))
        case "date":  # days 1 to 28 of a month exist in every year
            return dt.date(values[rule["year"]], rng.randint(*rule.get("months", (1, 12))), rng.randint(1, 28))
        case "sum":
            return sum(values[name] for name in rule["of"])
        case "difference":
            first, second = (values[name] for name in rule["of"])
            if first < second:
                raise ValueError(f"{rule['of'][0]} is less than {rule['of'][1]}")
            return first - second
        case "percent":
            part, whole = (values[name] for name in rule["of"])
            return round(100 * part / whole, 1)
        case "person" | "place" as kind:
            return invent(kind, language, rng)
        case "invented":
            return FIELD.sub(lambda m: invent(m.group(1), language, rng), rng.choice(rule["form"]))
        case "choice":
            return rng.choice(rule["from"])
        case unknown:
            raise KeyError(unknown)


# -- invented names ----------------------------------------------------------------------------------------------------


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_EN_HEAD = _words(
    "Bal Bren Cald Dorv Eld Farn Gald Hask Ild Jesp Kelv Lund Marv Nerv Orv Pelv Quar Rask Selv Tarv Ulv "
    "Velm Wist Yarv Zelk Ambr Brisk Corv Druv Esk Fenv Grav Hult Istr Karv Lorv Mosk Nalv"
)
_EN_MIDDLE = ("a", "e", "i", "o", "an", "en", "or", "el", "is", "un")
_EN_FAMILY = ("ric", "sk", "mer", "thal", "dun", "nard", "quist", "zar", "lov", "bane", "dell", "vic", "gren", "tz")
_EN_PLACE = ("wick", "stead", "mouth", "holm", "ford", "haven", "crest", "moor", "gate", "fell", "bury", "minster")
_EN_FIRM = ("ra", "nova", "tis", "lia", "rex", "dor", "via", "mont", "trix", "gen", "sol", "lux", "cor", "phen")
_EN_GIVEN = _words(
    "Ada Boris Clara Dario Edda Felix Greta Hugo Ines Jonas Karin Leon Mira Nils Olga Pavel Rosa Stefan "
    "Tilda Viktor Wanda Xenia Yara Zoe Anton Berta Cyril Dora Emil Frida"
)
_ZH_FAMILY = "闻苗宓郗邸阚蔺芮胥晁邰卞滕缪阮屈虞戚佘栾扈郏宁茅庞岑宦暴厉戎祖符景詹束龙叶幸司韶"
_ZH_HEAD = "岚澜霁翎漪沅芷菡珩琮筠荇霂峣嶂骊鹭鸢鸾鹂汐渌潞滟璟昀暄晞霏棠"
_ZH_TAIL = "穹湄汀皋垠屿岑渚溆墟甸陌浔淙崖坞岫漠崮浦"


@cache
def blocklist() -> frozenset[str]:
    """Return well-known real names of companies, people, hospitals and cities that must not be made, lower-cased."""
    lines = (Path(__file__).parent / "schemas" / "blocklist.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(line.strip().lower() for line in lines if line.strip() and not line.startswith("#"))


def real_names(text: str) -> list[str]:
    """Return the names of the blocklist that a text mentions, sorted.

    A short list cannot prove that a name is invented: the names that ragbench makes are put together from syllables
    and checked against it; a model's text is only checked.
    """
    low = text.lower()
    return sorted(name for name in blocklist() if name in low and mentions(low, name))


def invent(kind: str, language: str, rng: random.Random) -> str:
    """Make a name.

    Parameters
    ----------
    kind : "person", "place" or "firm" (the distinctive part of a company's name).
    language : "en" or "zh"; a Chinese person is a rare family name with 某, as court records anonymise.
    """
    while True:
        name = (_chinese if language == "zh" else _english)(kind, rng)
        if not any(part in blocklist() for part in (name.lower(), *name.lower().split())):
            return name


def _english(kind: str, rng: random.Random) -> str:
    end = {"person": _EN_FAMILY, "place": _EN_PLACE, "firm": _EN_FIRM}[kind]
    word = rng.choice(_EN_HEAD) + rng.choice(_EN_MIDDLE) + rng.choice(end)
    return f"{rng.choice(_EN_GIVEN)} {word}" if kind == "person" else word


def _chinese(kind: str, rng: random.Random) -> str:
    if kind == "person":
        return rng.choice(_ZH_FAMILY) + rng.choice(("某某", "某甲", "某乙", "某丙", "某丁"))
    return rng.choice(_ZH_HEAD) + rng.choice(_ZH_TAIL)


# -- values by a model -------------------------------------------------------------------------------------------------


class ValueReply(BaseModel):
    """A made-up value."""

    value: str


def model_values(
    model: Any,
    schema: Schema,
    configurations: Sequence[Configuration],
    *,
    cassette: Cassette | None = None,
    prompt: Prompt = "rageval_values",
) -> Done[Configuration]:
    """Let a model fill the fields that a schema marks with ``llm`` (what is wanted, in words).

    Parameters
    ----------
    model, cassette : as for `ragbench.llm.ask`.
    configurations : the rule-based values, which the model is shown.

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
            language=LANGUAGES[c.language],
            domain=schema.domain,
            subdomain=c.subdomain,
            values=field_list(c, [n for n in c.text if n != name]),
            wanted=what,
        )
        for c, name, what in wanted
    ]
    replies = ask_step(model, prompts, ValueReply, cassette, [f"{c.id}/{name}" for c, name, _ in wanted], "values")
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
    same = clash(configuration.text, schema.fact_fields, [configuration.text[n] for n in schema.context])
    return f"cannot be told apart: {same}" if same else ""
