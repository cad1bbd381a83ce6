"""Checkers: is a claim entailed by a text, contradicted by it, or neither? Whatever has
``check_many(claims, texts)``.

`ModelChecker` asks a chat model in MiniCheck's document / claim form (Tang et al. 2024). A checker
of your own is an object with ``check_many``.
RAGChecker's form, with three labels, is `ragbench.labelling.claims.check_claims`.
"""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Sequence
from typing import Any

from ragbench.data.ragchecker import Claim, claim_text
from ragbench.labelling.claims import ENTAILMENT, NEUTRAL
from ragbench.llm import ask
from ragbench.llm.models import BOUNDS, not_named
from ragbench.stats.inputs import as_list

_VERDICT = re.compile(r"^\W*(yes|no)\b", re.I)
_LABELS = {"yes": ENTAILMENT, "no": NEUTRAL}


class ModelChecker:
    """Label claims by a chat model that is given "Document: ... Claim: ..." and answers Yes or No
    (MiniCheck's form).

    Yes is *Entailment*, No is *Neutral*: this form knows no contradiction.
    ``"ollama:bespoke-minicheck"`` was trained on exactly this form. ``model`` and ``options`` are
    those of `ragbench.llm.ask`: ``cassette``, ``concurrency`` ...

    >>> from langchain_core.language_models import FakeListChatModel
    >>> checker = rb.ModelChecker(FakeListChatModel(responses=["Yes"]), progress=False)
    >>> checker.check_many(["Ada built it."], ["The mill was built by Ada."])
    [['Entailment']]
    """

    def __init__(self, model: Any, **options: Any) -> None:
        if model is None:
            raise not_named("checker", ", or an object with check_many(claims, texts)")
        self.model = model
        self.options = options

    def __repr__(self) -> str:
        return f"ModelChecker({getattr(self.model, 'model', self.model)!r})"

    def check_many(self, claims: Sequence[Claim], texts: Sequence[str]) -> list[list[str | None]]:
        """Label every claim against every text, each different pair once: shape (n_claims,
        n_texts).

        The parts of a claim that is a triple are joined. An empty text entails nothing. None where
        the reply is neither Yes nor No; a warning counts them.
        """
        texts = as_list(texts, "texts")
        sentences = [claim_text(claim) for claim in as_list(claims, "claims", object)]
        pairs = list(dict.fromkeys(itertools.product(filter(str.strip, texts), sentences)))
        label_of = dict(zip(pairs, self._labels(pairs), strict=True))
        return [[label_of.get((text, claim), NEUTRAL) for text in texts] for claim in sentences]

    def _labels(self, pairs: Sequence[tuple[str, str]]) -> list[str | None]:
        """Ask about pairs of a text and a claim."""
        prompts = [f"Document: {text}\nClaim: {claim}" for text, claim in pairs]
        options = {"step": "claim check", "num_predict": BOUNDS["label"], **self.options}
        labels: list[str | None] = []
        unread = []
        for reply in ask(self.model, prompts, **options):
            verdict = _VERDICT.match(reply.text) if reply.ok else None
            labels.append(verdict and _LABELS[verdict[1].lower()])
            if not verdict:
                unread.append(reply.text[:80])
        if unread:
            warnings.warn(
                f"{len(unread)} of {len(pairs)} claims got no label, since the reply is not Yes or "
                f"No, such as {unread[0]!r}: use a model made for this form, such as "
                "ollama:bespoke-minicheck",
                stacklevel=3,
            )
        return labels
