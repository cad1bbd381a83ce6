"""Invented names of people, places and companies, and the check that none of them is a known real one."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path


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
    from ragbench.datagen.parts import mentions

    low = text.lower()
    return sorted(name for name in blocklist() if name in low and mentions(low, name))


def invent(kind: str, language: str, rng: random.Random) -> str:
    """Make a name.

    Parameters
    ----------
    kind : "person", "place" or "firm" (the distinctive part of a company's name).
    language : "en" or "zh"; a Chinese person is a rare family name with 某, as court records anonymise.
    rng : the source of chance.
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
