"""Checkers: is a claim entailed by a text, contradicted by it, or neither? Whatever has
``check_many(claims, texts)``.

`ModelChecker` asks a chat model in MiniCheck's document / claim form (Tang et al. 2024);
`make_checker` makes one by name. A checker of your own is an object with ``check_many``.
RAGChecker's form, with three labels, is `ragbench.labelling.claims.check_claims`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragbench.data.ragchecker import Claim, claim_text
from ragbench.errors import ModelError
from ragbench.labelling.claims import ENTAILMENT, NEUTRAL
from ragbench.llm import ask
from ragbench.llm.models import BOUNDS, chat_model, not_named
from ragbench.stats.inputs import as_list

_VERDICT = re.compile(r"^\W*(yes|no)\b", re.I)


class ModelChecker:
    """Label claims by a chat model that is given "Document: ... Claim: ..." and answers Yes or No
    (MiniCheck's form).

    Yes is *Entailment*, No is *Neutral*: this form knows no contradiction.
    ``"ollama:bespoke-minicheck"`` was trained on exactly this form. ``options`` are those of
    `ragbench.llm.ask`: ``cassette``, ``concurrency`` ...
    """

    def __init__(self, model: Any, **options: Any) -> None:
        self.model = model
        self.options = options

    def __repr__(self) -> str:
        return f"ModelChecker({getattr(self.model, 'model', self.model)!r})"

    def check_many(self, claims: Sequence[Claim], texts: Sequence[str]) -> list[list[str]]:
        """Label every claim against every text, each different pair once: shape (n_claims,
        n_texts).

        The parts of a claim that is a triple are joined. An empty text entails nothing.
        """
        texts = as_list(texts, "texts")
        sentences = [claim_text(claim) for claim in as_list(claims, "claims", object)]
        read = [text for text in texts if text.strip()]
        pairs = list(dict.fromkeys(itertools.product(read, sentences)))
        label = dict(zip(pairs, self._labels(pairs), strict=True))
        return [[label.get((text, claim), NEUTRAL) for text in texts] for claim in sentences]

    def _labels(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Ask about pairs of a text and a claim."""
        if not pairs:
            return []
        prompts = [f"Document: {text}\nClaim: {claim}" for text, claim in pairs]
        options = {"step": "claim check", "num_predict": BOUNDS["label"], **self.options}
        replies = ask(self.model, prompts, **options)
        verdicts = [_VERDICT.match(reply.text) if reply.ok else None for reply in replies]
        if None in verdicts:
            first = replies[verdicts.index(None)]
            got = f"{verdicts.count(None)} of {len(replies)} claims got no label"
            raise ModelError(
                f"{got}; the first reply: {first.text[:80]!r} {first.error or ''}",
                "Yes or No",
                "use a model made for this form, such as ollama:bespoke-minicheck",
            )
        yes = [verdict is not None and verdict[1].lower() == "yes" for verdict in verdicts]
        return [ENTAILMENT if said else NEUTRAL for said in yes]


def make_checker(
    name: str | Mapping[str, Any] | None, cassette: Any = None, **options: Any
) -> ModelChecker:
    """Make a checker of a chat model by its name, such as ``"ollama:bespoke-minicheck"``.

    ``name`` may be a mapping; ``options`` are those of `ragbench.llm.chat_model`.
    """
    if name is None:
        raise not_named("checker", ", or an object with check_many(claims, texts)")
    return ModelChecker(chat_model(name, **options), cassette=cassette)
