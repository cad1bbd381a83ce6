"""An answer held against the true answer and the facts: what is hit, what is backed, what is not."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ragbench.text.apart import Token, content_stems, token_stems, tokens
from ragbench.text.stance import abstains, guesses, polarity

FEATURES = (
    "hit",
    "hit_clean",
    "hit_part",
    "part_last",
    "missed",
    "contradicts",
    "no_stance",
    "turned",
    "declines",
    "declines_bare",
    "guesses",
    "bare",
    "wrong_names",
    "wrong_numbers",
    "rare_words",
    "wrong_share",
    "bridge_names",
    "from_bridges",
    "from_answer_fact",
    "asked_again",
    "off_topic",
    "short_hit",
    "short_miss",
    "length",
)
_MOST = 20_000  # characters of an answer that are compared; an answer to one question that is longer is judged by these
_SHORT = 4  # words up to which an answer is the bare thing asked for
_LONG = 40  # words from which an answer is long; the graded ones have 47 at most, and a weight must not run away
_COMPARES = re.compile(r"\b(?:than|before|after|followed|follows|preceded|preceding|behind|instead of|rather than)\b")
_LOOKED = 400  # characters after the one picked in which the sentence may turn it round
_BRACKETS = re.compile(r"\s*\([^()]*\)")


@dataclass(frozen=True)
class Task:
    """One question with its true answer and facts, taken apart once for all answers to it."""

    question: frozenset[str]
    asked: frozenset[str]
    reference: frozenset[str]
    reference_last: str
    reference_is_name: bool
    polar: int
    options: tuple[frozenset[str], frozenset[str]] | None
    facts: frozenset[str]
    bridges: frozenset[str]
    answer_facts: frozenset[str]
    known: frozenset[str]


def options(question: str, reference: str) -> tuple[frozenset[str], frozenset[str]] | None:
    """Find the two things a question lets one choose from, as the stems that tell them apart.

    Returns
    -------
    (stems of the true one, stems of the other), or None when the question offers no choice that names the true one.
    """
    head, found, tail = question.rpartition(" or ")
    if not found:
        return None
    left = re.split(r"[,:;]", head.rstrip(" ,"))[-1]
    true, sides = content_stems(reference), (content_stems(left), content_stems(tail))
    overlaps = [len(true & side) for side in sides]
    if overlaps[0] == overlaps[1]:
        return None
    right = 0 if overlaps[0] > overlaps[1] else 1
    mine, other = true - sides[1 - right], sides[1 - right] - true - sides[right]
    return (mine, other) if mine and mine <= sides[right] and other else None


def choice(text: str, mine: frozenset[str], other: frozenset[str]) -> int:
    """Return 1 when an answer picks ``mine``, -1 when it picks ``other``, 0 when it names neither.

    The one named first is picked, unless the sentence turns it round ("Titan was not the first"). An answer that
    declines picks neither.
    """
    if abstains(text, "grader"):
        return 0
    said = tokens(text)
    first = next((t for t in said if t.stem in mine or t.stem in other), None)
    if first is None:
        return 0
    picked = 1 if first.stem in mine else -1
    clause = re.split(r"[.,;:!?\n]", text[: first.start + _LOOKED].casefold().replace("’", "'"))
    place = 0
    for part in clause:
        if place <= first.start <= place + len(part):
            return -picked if re.search(r"\bnot\b|n't\b", part) else picked
        place += len(part) + 1
    return picked


def after_comparison(text: str, place: int) -> bool:
    """Say whether what stands at ``place`` comes after "than", "before", "followed": the other term of a comparison."""
    start = max(text.rfind(mark, 0, place) for mark in ",.;!?\n") + 1
    return bool(_COMPARES.search(text[start:place].casefold()))


@functools.lru_cache(maxsize=4096)
def task(question: str, reference: str, facts: tuple[str, ...]) -> Task:
    """Take a question apart."""
    asked, core = content_stems(question), _BRACKETS.sub("", reference).strip()
    core = core if tokens(core) else reference  # "-(x+1)" is all in brackets
    true = tokens(core)
    distinct = frozenset(t.stem for t in true if t.content and t.stem not in asked)
    names = [t for t in true if t.capital]
    said = reference.casefold().strip(" .!")
    polar = {"yes": 1, "no": -1}.get(said, 0)
    holding = [f for f in facts if distinct and distinct <= token_stems(f)]
    offered = None if polar else options(question, core)
    if polar or offered:
        holding = list(facts)  # a comparison needs them all
    rest = [f for f in facts if f not in holding]
    every = frozenset().union(*(token_stems(f) for f in facts))
    return Task(
        question=token_stems(question),
        asked=content_stems(re.split(r"(?<=[.!?]) ", question)[-1]),
        reference=distinct or content_stems(core),
        reference_last=(names[-1] if names else true[-1]).stem,
        reference_is_name=len(names) > 1 and all(t.capital or not t.content for t in true),
        polar=polar,
        options=offered,
        facts=every,
        bridges=frozenset().union(*(content_stems(f) for f in rest)) - asked - distinct,
        answer_facts=frozenset().union(*(content_stems(f) for f in holding)) - asked,
        known=every | token_stems(question) | token_stems(reference),
    )


def _outcome(given: Task, text: str, said: Sequence[Token]) -> dict[str, float]:
    """Say how the answer stands to the true one: hit, part of it, missed, or the opposite."""
    if given.polar or given.options:
        way = polarity(text) * given.polar if given.polar else choice(text, *given.options)
        # Paraphrases ("the Siberian one") name neither option: no hit, and no contradiction.
        return {
            "hit": float(way > 0),
            "contradicts": float(way < 0),
            "no_stance": float(way == 0),
            "missed": float(way <= 0),
        }
    places = {t.stem: t.start for t in reversed(said)}
    found = given.reference & places.keys()
    share = len(found) / len(given.reference)
    if share < 1 and given.reference_is_name and given.reference_last in found:
        share = 1.0  # "Grant" for "James Augustus Grant"
    first = min((places[s] for s in found), default=0)
    turned = share == 1 and (
        after_comparison(text, first) or bool(re.search(r"\b(?:not|never)\W+(?:\w+\W+)?$", text[:first].casefold()))
    )
    return {
        "hit": float(share == 1),
        "hit_part": share if share < 1 else 0.0,
        "part_last": float(0 < share < 1 and given.reference_last in found),
        "missed": float(share == 0),
        "turned": float(turned),
    }


def evidence(question: str, answer: str, reference: str, facts: tuple[str, ...]) -> list[float]:
    """Compute the features of one answer.

    Returns
    -------
    list of ``len(FEATURES)`` numbers, all finite.
    """
    given = task(question, reference, facts)
    text = answer[:_MOST]
    said = tokens(text)
    content = [t for t in said if t.content]
    f = dict.fromkeys(FEATURES, 0.0)
    f |= _outcome(given, text, said)
    f["declines"] = float(abstains(text, "grader"))
    f["guesses"] = float(guesses(text))
    fresh = {t.stem: t for t in content if t.stem not in given.known}
    f["wrong_names"] = math.log1p(sum(t.name for t in fresh.values()))
    f["wrong_numbers"] = math.log1p(sum(t.number and len(t.word) > 1 for t in fresh.values()))
    f["rare_words"] = math.log1p(sum(not (t.name or t.number or t.plain) for t in fresh.values()))
    f["hit_clean"] = float(f["hit"] > 0 and not fresh)
    distinct = {t.stem for t in content}
    f["wrong_share"] = len(fresh) / len(distinct) if distinct else 0.0
    new = {t.stem: t for t in content if t.stem not in given.question}
    f["bridge_names"] = math.log1p(sum((t.name or t.number) and s in given.bridges for s, t in new.items()))
    f["from_bridges"] = math.log1p(len(new.keys() & given.bridges))
    f["from_answer_fact"] = math.log1p(len((new.keys() & given.answer_facts) - given.reference))
    f["asked_again"] = len(distinct & given.asked) / max(len(given.asked), 1)
    f["off_topic"] = float(len(distinct) > 3 and len(distinct & given.known) <= 0.34 * len(distinct))
    f["bare"] = float(not new and not f["declines"])
    f["declines_bare"] = float(f["declines"] > 0 and f["bridge_names"] == 0)
    short = len(said) <= _SHORT
    f["short_hit"], f["short_miss"] = float(short and f["hit"] > 0), float(short and f["missed"] > 0)
    f["length"] = math.log1p(min(len(said), _LONG))
    return [f[name] for name in FEATURES]
