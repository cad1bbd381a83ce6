"""Checkers of a user's choice behind the interface of `EmbeddedChecker`: ``check(claims, text)``, ``check_many``.

`OnnxChecker` reads a folder with an exported classifier (NLI or MiniCheck's kind), `ModelChecker` asks a chat model in
MiniCheck's document / claim form (Tang et al. 2024; ``ollama:bespoke-minicheck`` is made for it). `make_checker` makes
one by name; `ragbench.labelling.claims.checker_quality` and ``ragbench judge measure --checker`` measure all alike.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ragbench.errors import ConfigError, ModelError, check_known
from ragbench.labelling.embedded_checker import CONTRADICTION, ENTAILMENT, NEUTRAL, Claim, EmbeddedChecker, sentence_of
from ragbench.onnx_models import Classifier

_ENTAILS = re.compile(r"entail|support|consistent|factual", re.I)
_DENIES = re.compile(r"^(?:not|un|in|non)|[ _-]not[ _-]", re.I)
_VERDICT = re.compile(r"^\W*(yes|no)\b", re.I)


class _PairChecker(ABC):
    """A checker that reads one claim and one text at a time."""

    @abstractmethod
    def _labels(self, pairs: list[tuple[str, str]]) -> list[str]:
        """Label pairs of (text, claim)."""

    def check(self, claims: Sequence[Claim], text: str) -> list[str]:
        """Label claims against one text; as `EmbeddedChecker.check`."""
        return [row[0] for row in self.check_many(claims, [text])]

    def check_many(self, claims: Sequence[Claim], texts: Sequence[str]) -> list[list[str]]:
        """Label every claim against every text, shape (n_claims, n_texts); an empty text entails nothing."""
        if isinstance(claims, str) or isinstance(texts, str):
            raise ConfigError("one string", "a list of claims and a list of texts", "use check(claims, text)")
        sentences = [sentence_of(claim, f"claim {i}") for i, claim in enumerate(claims)]
        pairs = list(dict.fromkeys((text, claim) for claim in sentences for text in texts if text.strip()))
        label = dict(zip(pairs, self._labels(pairs) if pairs else [], strict=True))
        return [[label.get((text, claim), NEUTRAL) for text in texts] for claim in sentences]


class PairCounter(_PairChecker):
    """Notes the pairs that a checker would read, and labels nothing: for a plan."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []

    def _labels(self, pairs: list[tuple[str, str]]) -> list[str]:
        self.pairs += pairs
        return [NEUTRAL] * len(pairs)


class OnnxChecker(_PairChecker):
    """Label claims by a sequence classifier over (text, claim): NLI models, FactCG, MiniCheck-RoBERTa and DeBERTa ...

    A long text is read in windows. A claim is *Entailment* where a window entails it with a probability of at least
    ``threshold``, else *Contradiction* where the model has such a label and a window reaches it there, else *Neutral*.

    Parameters
    ----------
    folder, max_tokens : as for `ragbench.onnx_models.Classifier`.
    labels : names of the model's outputs in their order, e.g. ["entailment", "neutral", "contradiction"]; default those
        of ``config.json``. A model of one output is read as the probability that the text supports the claim.
    threshold : least probability.

    Raises
    ------
    ConfigError where no label, or more than one, says that a claim is supported.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        labels: Sequence[str] | None = None,
        threshold: float = 0.5,
        max_tokens: int | None = None,
    ) -> None:
        if not 0 < threshold < 1:
            raise ConfigError(f"threshold={threshold}", "between 0 and 1", "leave it out for 0.5")
        self._model = Classifier(folder, labels=labels, cut="first", max_tokens=max_tokens)
        self.threshold, named = threshold, self._model.labels
        entails = [i for i, label in enumerate(named) if _ENTAILS.search(label) and not _DENIES.search(label)]
        if len(named) > 1 and len(entails) != 1:
            raise ConfigError(
                f"{self._model.folder.path} has the labels {', '.join(named)}",
                "one of them that says that a claim is supported",
                'name them in their order: labels=["not supported", "supported"]',
            )
        self._entails = entails[0] if entails else 0
        self._contradicts = next((i for i, label in enumerate(named) if label.lower().startswith("contra")), None)

    def __repr__(self) -> str:
        return f"OnnxChecker({self._model.folder.path.name!r}, threshold={self.threshold})"

    def _labels(self, pairs: list[tuple[str, str]]) -> list[str]:
        from scipy.special import expit, softmax

        labels = []
        for logits in self._model.logits(pairs):
            shares = expit(logits) if logits.shape[1] == 1 else softmax(logits, axis=1)
            best = shares.max(axis=0)  # over windows
            denied = self._contradicts is not None and best[self._contradicts] >= self.threshold
            entailed = best[self._entails] >= self.threshold
            labels.append(ENTAILMENT if entailed else CONTRADICTION if denied else NEUTRAL)
        return labels


class ModelChecker(_PairChecker):
    """Label claims by a chat model that is given "Document: ... Claim: ..." and answers Yes or No (MiniCheck's form).

    Yes is *Entailment*, No is *Neutral*: this form knows no contradiction.

    Parameters
    ----------
    model : as for `ragbench.llm.ask`; ``"ollama:bespoke-minicheck"`` was trained on exactly this form.
    options : for `ragbench.llm.ask`: ``cassette``, ``concurrency`` ...
    """

    def __init__(self, model: Any, **options: Any) -> None:
        self.model, self.options = model, options

    def __repr__(self) -> str:
        name = self.model if isinstance(self.model, str) else getattr(self.model, "model", type(self.model).__name__)
        return f"ModelChecker({name!r})"

    @staticmethod
    def prompt(text: str, claim: str) -> str:
        """Return the prompt of one pair."""
        return f"Document: {text}\nClaim: {claim}"

    def _labels(self, pairs: list[tuple[str, str]]) -> list[str]:
        from ragbench.llm import ask

        prompts = [self.prompt(*pair) for pair in pairs]
        replies = ask(self.model, prompts, **({"step": "claim check"} | self.options))
        read = [_VERDICT.match(reply.text) if reply.ok else None for reply in replies]
        failed = [reply for reply, verdict in zip(replies, read, strict=True) if verdict is None]
        if failed:
            raise ModelError(
                f"{len(failed)} of {len(replies)} claims got no label; the first reply: "
                f"{failed[0].text[:80]!r}{f', {failed[0].error}' if failed[0].error else ''}",
                "Yes or No",
                "use a model made for this form, such as ollama:bespoke-minicheck",
            )
        return [ENTAILMENT if verdict and verdict[1].lower() == "yes" else NEUTRAL for verdict in read]


def asks_model(name: str) -> bool:
    """Say whether a name is that of a chat model, and not of rules or of a folder."""
    return name != "embedded" and not name.startswith("onnx:")


def make_checker(name: str = "embedded", **options: Any) -> Any:
    """Make a checker by name.

    Parameters
    ----------
    name : "embedded", "onnx:FOLDER", or a chat model such as "ollama:bespoke-minicheck".
    options : of the class; for a chat model ``cassette`` and those of `ragbench.llm.chat_model`.

    Raises
    ------
    ConfigError for an unknown name or option; DataError for a folder that lacks a file.
    """
    if name == "embedded":
        return EmbeddedChecker(**options)
    if name.startswith("onnx:"):
        check_known(f"option of {name}", options, ("labels", "threshold", "max_tokens"))
        return OnnxChecker(name.removeprefix("onnx:"), **options)
    from ragbench.llm import chat_model

    cassette = options.pop("cassette", None)
    return ModelChecker(chat_model(name, **options), **({"cassette": cassette} if cassette else {}))
