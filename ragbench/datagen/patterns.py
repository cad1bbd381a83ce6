"""Sentence patterns: ``{field}`` takes a value, ``[a|b|c]`` takes one of its alternatives."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

from ragbench.datagen.parts import FIELD
from ragbench.errors import ConfigError

_CHOICE = re.compile(r"\[([^\[\]]*)\]")


def fields_of(pattern: str) -> frozenset[str]:
    """Return the names of the fields a pattern mentions."""
    return frozenset(FIELD.findall(pattern))


def choose(pattern: str, rng: random.Random | None = None) -> tuple[str, tuple[int, ...]]:
    """Settle every ``[a|b]`` of a pattern.

    Parameters
    ----------
    pattern : text with alternatives.
    rng : chooses; None takes the first alternative everywhere.

    Returns
    -------
    the text with its fields still open, and the numbers of the alternatives taken.
    """
    taken: list[int] = []

    def pick(match: re.Match) -> str:
        options = match.group(1).split("|")
        taken.append(rng.randrange(len(options)) if rng else 0)
        return options[taken[-1]]

    return _CHOICE.sub(pick, pattern), tuple(taken)


def fill(pattern: str, values: Mapping[str, str], *, sentence: bool = True) -> str:
    """Put values into the fields of a pattern; a sentence begins with a capital letter.

    Raises
    ------
    ConfigError for a field without a value.
    """

    def value(match: re.Match) -> str:
        if match.group(1) not in values:
            raise ConfigError(
                f"the pattern {pattern[:60]!r} needs {match.group(1)!r}",
                "a field of the schema",
                "add the field, or mend the pattern",
            )
        return values[match.group(1)]

    text = FIELD.sub(value, pattern)
    return text[:1].upper() + text[1:] if sentence else text


def write(patterns: Sequence[str], values: Mapping[str, str], rng: random.Random | None) -> tuple[str, str]:
    """Choose a pattern and fill it.

    Returns
    -------
    the sentence, and the mark of the choices, e.g. ``"1:0.2"`` (second pattern, alternatives 0 and 2).
    """
    number = rng.randrange(len(patterns)) if rng else 0
    text, taken = choose(patterns[number], rng)
    return fill(text, values), f"{number}:{'.'.join(map(str, taken))}"
