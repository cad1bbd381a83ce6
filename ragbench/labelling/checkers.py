"""Checkers: is a claim entailed by a text, contradicted by it, or neither? Whatever has
``check_many(claims, texts)``.

`ModelChecker` asks a chat model in MiniCheck's document / claim form (Tang et al. 2024);
`make_checker` makes one by name. A checker of your own is an object with ``check_many``.
RAGChecker's form, several claims in a prompt and three labels, is
`ragbench.labelling.claims.check_claims`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragbench.data.ragchecker import LABELS, Claim, claim_text
from ragbench.errors import ConfigError, ModelError
from ragbench.llm.models import BOUNDS, chat_model, not_named

ENTAILMENT, NEUTRAL, CONTRADICTION = LABELS
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
        name = (
            self.model
            if isinstance(self.model, str)
            else getattr(self.model, "model", type(self.model).__name__)
        )
        return f"ModelChecker({name!r})"

    def check(self, claims: Sequence[Claim], text: str) -> list[str]:
        """Label claims against one text."""
        if not isinstance(text, str):
            raise ConfigError(
                f"text is {type(text).__name__}", "one text", "use check_many for a list of texts"
            )
        return [labels[0] for labels in self.check_many(claims, [text])]

    def check_many(self, claims: Sequence[Claim], texts: Sequence[str]) -> list[list[str]]:
        """Label every claim against every text, each different pair once: shape (n_claims,
        n_texts).

        The parts of a claim that is a triple are joined. An empty text entails nothing.
        """
        if isinstance(claims, str) or isinstance(texts, str):
            raise ConfigError(
                "one string", "a list of claims and a list of texts", "use check(claims, text)"
            )
        for place, text in enumerate(texts):
            if not isinstance(text, str):
                got = f"text {place} is {type(text).__name__}"
                raise ConfigError(got, "a text", "pass chunk.text, not the chunk")
        sentences = [claim_text(claim) for claim in claims]
        pairs = list(
            dict.fromkeys((text, claim) for claim in sentences for text in texts if text.strip())
        )
        label = dict(zip(pairs, self._labels(pairs), strict=True))
        return [[label.get((text, claim), NEUTRAL) for text in texts] for claim in sentences]

    def _labels(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Ask about pairs of a text and a claim."""
        from ragbench.llm import ask

        prompts = [f"Document: {text}\nClaim: {claim}" for text, claim in pairs]
        options = {"step": "claim check", "num_predict": BOUNDS["label"]} | self.options
        replies = ask(self.model, prompts, **options) if prompts else []
        labels = []
        unread = []
        for reply in replies:
            verdict = _VERDICT.match(reply.text) if reply.ok else None
            if verdict is None:
                unread.append(reply)
            else:
                labels.append(ENTAILMENT if verdict[1].lower() == "yes" else NEUTRAL)
        if unread:
            first = repr(unread[0].text[:80])
            if unread[0].error:
                first += f", {unread[0].error}"
            got = f"{len(unread)} of {len(replies)} claims got no label; the first reply: {first}"
            raise ModelError(
                got, "Yes or No", "use a model made for this form, such as ollama:bespoke-minicheck"
            )
        return labels


def check_lists(
    checker: Any, claims: Sequence[Sequence[Claim] | None], texts: Sequence[str]
) -> list[tuple[str, ...] | None]:
    """Label lists of claims, each against its own text: what
    `ragbench.labelling.claims.check_claims` does by a model.

    Each different list is checked once against each of its texts; None, where claims are not known,
    stays None.
    """
    lists = [None if of_text is None else tuple(map(_hashable, of_text)) for of_text in claims]
    texts_of: dict[tuple, dict[str, None]] = {}  # a dict keeps the texts in their order
    for claim_list, text in zip(lists, texts, strict=True):
        if claim_list is not None:
            texts_of.setdefault(claim_list, {})[text] = None
    labels: dict[tuple, dict[str, tuple[str, ...]]] = {}
    for claim_list, own_texts in texts_of.items():
        table = checker.check_many(claim_list, list(own_texts)) if claim_list else []
        if len(table) != len(claim_list) or any(len(row) != len(own_texts) for row in table):
            got = (
                f"{checker!r} gave {len(table)} rows of {sorted({len(row) for row in table})} "
                "labels"
            )
            expected = (
                f"{len(claim_list)} rows, one per claim, of {len(own_texts)} labels, one per text"
            )
            raise ConfigError(got, expected, "mend its check_many; do not pad the labels")
        labels[claim_list] = {
            text: tuple(row[i] for row in table) for i, text in enumerate(own_texts)
        }
    return [
        None if claim_list is None else labels[claim_list][text]
        for claim_list, text in zip(lists, texts, strict=True)
    ]


def _hashable(claim: Claim) -> Claim:
    return tuple(claim) if isinstance(claim, list) else claim


def make_checker(name: str | Mapping[str, Any] | None, **options: Any) -> ModelChecker:
    """Make a checker of a chat model by its name, such as ``"ollama:bespoke-minicheck"``.

    ``name`` may be a mapping as in `ragbench.llm.chat_model`. ``options``: ``cassette``, and those
    of `chat_model`.
    """
    if name is None:
        raise not_named("checker", ", or an object with check_many(claims, texts)")
    if isinstance(name, Mapping):
        options = {key: value for key, value in name.items() if key != "use"} | options
        name = name["use"]
    if name.startswith("onnx:"):
        do = (
            "give an object with check_many(claims, texts) that runs the classifier, see "
            "docs/models.md"
        )
        raise ConfigError(
            f"the checker {name!r}", "a chat model such as ollama:bespoke-minicheck", do
        )
    cassette = options.pop("cassette", None)
    model = chat_model(name, **options)
    return ModelChecker(model, cassette=cassette) if cassette else ModelChecker(model)
