"""Claims checked against texts: Entailment, Neutral and Contradiction kept apart (RAGChecker)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ragbench.data.ragchecker import LABELS, Claim, claim_text
from ragbench.errors import ConfigError, DataError
from ragbench.metrics.steps.engine import Judged, Task, Unit, judge_items
from ragbench.metrics.steps.inputs import names_of, same_length
from ragbench.prompts import load_prompt


def check_claims(
    model: Any,
    claims: Sequence[Sequence[Claim] | None],
    references: Sequence[str],
    joint: int | None = 5,
    *,
    prompt: str | os.PathLike[str] = "steps_check",
    ids: Sequence[Any] | None = None,
    **options: Any,
) -> Judged:
    """Check lists of claims, each against its own text.

    Parameters
    ----------
    model : as for `ragbench.llm.ask`.
    claims : for each text its claims (sentences or triples); None where they are not known, as `extract_claims` says.
    references : the texts, shape (n,): a reference answer, a response, a chunk.
    joint : claims per prompt; 1 asks for each singly, None puts all claims of one text into one prompt, so that the
        number of calls does not depend on the number of claims. A joint reply with another number of labels than
        claims is not used: its claims are checked again one by one.
    prompt : id or file with the fields reference, count and claims. What comes before the claims is what the prompts
        of one text share, and what a server's prompt cache saves: keep the text first.
    ids : names of the pairs for messages; default numbers.
    options : for `ragbench.llm.ask`: ``cassette``, ``concurrency``, ``progress`` ...

    Returns
    -------
    Judged: for each text one label per claim; None where the reply could not be read, and None in place of the list
    where the claims were None. An empty text entails nothing: Neutral, without a call.

    Raises
    ------
    ConfigError for lists that do not fit, DataError for something that is no claim; errors of ``ask``.

    Source: RAGChecker, section 3.2 (claim-entailment checker; the wording of the prompt is ours).
    """
    return judge_known(model, check_task(prompt), claim_units(claims, references, ids), joint, options)


def check_task(prompt: str | os.PathLike[str]) -> Task:
    """Make the task of a claim check."""
    return Task("claim check", load_prompt(prompt), LABELS, "Neutral", "reference", "claims", "claim")


def claim_units(
    claims: Sequence[Sequence[Claim] | None], references: Sequence[str], ids: Sequence[Any] | None = None
) -> list[Unit | None]:
    """Pair claims with their texts; None where the claims are not known."""
    names = names_of(ids, same_length(claims=claims, references=references))
    return [
        None if own is None else Unit(name, text.strip(), checked(own, name), {})
        for name, own, text in zip(names, claims, references, strict=True)
    ]


def checked(claims: Sequence[Claim], name: str, what: str = "claim") -> tuple[str, ...]:
    """Return claims as texts; DataError naming the place of one that is none."""
    if isinstance(claims, str):
        raise ConfigError(f"the {what}s of {name} are one string", f"a list of {what}s", "put it in a list")
    for place, claim in enumerate(claims):
        parts = [claim] if isinstance(claim, str) else claim
        triple = isinstance(parts, (list, tuple)) and len(parts) in (1, 3)
        if not (triple and all(isinstance(part, str) for part in parts) and any(part.strip() for part in parts)):
            raise DataError(
                f"{what} {place + 1} of {name} is {claim!r:.60}",
                "a sentence, or a triple (subject, predicate, object) of texts",
                "mend it, or extract the claims again",
            )
    return tuple(claim_text(claim) for claim in claims)


def judge_known(
    model: Any, task: Task, units: Sequence[Unit | None], joint: int | None, options: dict[str, Any]
) -> Judged:
    """Judge the units that are there; None for the others."""
    judged = judge_items(model, task, [unit for unit in units if unit is not None], joint, options)
    labels = iter(judged.labels)
    return Judged(tuple(None if unit is None else next(labels) for unit in units), judged.report)
