"""Checkers: is a claim entailed by a text, contradicted by it, or neither? ``check(claims, text)``, ``check_many``.

`EmbeddedChecker` is a rule without a language model (and no inference model): results made with it are labelled
*embedded*. It sees shared words, numbers, names and topic, not who did what to whom. `OnnxChecker` reads a folder with
an exported classifier (NLI or MiniCheck's kind), `ModelChecker` asks a chat model in MiniCheck's document / claim form
(Tang et al. 2024). `make_checker` makes one by name.
"""

from __future__ import annotations

import itertools
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings

from ragbench.data.ragchecker import LABELS, Claim, claim_text
from ragbench.embedding import default_embedder, embed_distinct
from ragbench.errors import ConfigError, ModelError, check_known
from ragbench.onnx_models import Classifier
from ragbench.text.negation import NEGATION
from ragbench.text.parse import ParsedText, parse
from ragbench.text.sentences import split_sentences

ENTAILMENT, NEUTRAL, CONTRADICTION = LABELS
_MARKER = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+")
_CITATION = re.compile(r"\s*\[\d+(?:,\s*\d+)*\]")
_EMPHASIS = re.compile(r"\*\*|__|`")
_ENTAILS = re.compile(r"entail|support|consistent|factual", re.I)
_DENIES = re.compile(r"^(?:not|un|in|non)|[ _-]not[ _-]", re.I)
_VERDICT = re.compile(r"^\W*(yes|no)\b", re.I)

_CELLS = 4_000_000  # numbers in a table of claims and their stems by windows


def split_claims(text: str) -> list[str]:
    """Cut one text (else ConfigError) into sentence claims, without list, emphasis and citation marks."""
    if not isinstance(text, str):
        raise ConfigError(f"text is {type(text).__name__}", "a text", "split one text at a time")
    claims = (_EMPHASIS.sub("", _CITATION.sub("", _MARKER.sub("", s))).strip() for s in split_sentences(text, "claims"))
    return [c for c in claims if any(ch.isalnum() for ch in c)]


class _Checker(ABC):
    """Says of claims (sentences, or triples of texts) whether texts entail them."""

    @abstractmethod
    def check_many(self, claims: Sequence[Claim], texts: Sequence[str]) -> list[list[str]]:
        """Label every claim against every text, shape (n_claims, n_texts); an empty text entails nothing."""

    def check(self, claims: Sequence[Claim], text: str) -> list[str]:
        """Label claims against one text."""
        if not isinstance(text, str):
            raise ConfigError(f"text is {type(text).__name__}", "one text", "use check_many for a list of texts")
        return [row[0] for row in self.check_many(claims, [text])]


def _sentences(claims: Sequence[Claim], texts: Sequence[str]) -> list[str]:
    """Return claims as sentences, the parts of a triple joined; ConfigError unless both are lists of texts."""
    if isinstance(claims, str) or isinstance(texts, str):
        raise ConfigError("one string", "a list of claims and a list of texts", "use check(claims, text)")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise ConfigError(f"text {i} is {type(text).__name__}", "a text", "pass chunk.text, not the chunk")
    return [claim_text(claim) for claim in claims]


class EmbeddedChecker(_Checker):
    """Label claims against texts as Entailment, Neutral or Contradiction.

    Compared are a claim and the window of up to ``window`` consecutive sentences of the text that supports it best.
    *Support* is ``mix`` x coverage + (1 - ``mix``) x cosine: the share of the claim's stems, by weight, that the window
    has, and the cosine between claim and window (its sentences' mean direction).

    1. *Entailment*: support >= ``entail``, every number of the claim is in the text, and claim and best sentence agree
       in being negated or not.
    2. *Contradiction*: support >= ``related`` and the window has other numbers in place of one of the claim's, or
       support >= ``entail`` and only one side is negated.
    3. *Neutral* otherwise.

    The defaults of the thresholds and the weight, in [0, 1], were set on MiniHop's claims (see LOG.md) and on nothing
    else. ``embedder``: a LangChain ``Embeddings`` with unit vectors; default the embedded MiniLM.
    """

    def __init__(
        self,
        embedder: Embeddings | None = None,
        entail: float = 0.53,
        related: float = 0.45,
        mix: float = 0.7,
        window: int = 3,
    ) -> None:
        self.entail, self.related, self.mix, self.window = entail, related, mix, window
        self.embedder = embedder or default_embedder()
        self._vectors: dict[str, np.ndarray] = {}
        self._texts: dict[str, _Text] = {}

    def __repr__(self) -> str:
        return f"EmbeddedChecker(entail={self.entail}, related={self.related}, mix={self.mix}, window={self.window})"

    def warm(self, claims: Sequence[Claim], texts: Sequence[str]) -> EmbeddedChecker:
        """Return a checker with the same settings that has embedded all of these, in one call, and keeps them.

        For many checks over texts that come back (a chunk retrieved for several questions): its labels are the same.
        """
        kept = EmbeddedChecker(self.embedder, self.entail, self.related, self.mix, self.window)
        _, sources, kept._vectors = self._ready(claims, texts)
        kept._texts = {source.prepared.text: source for source in sources}
        return kept

    def check_many(self, claims: Sequence[Claim], texts: Sequence[str]) -> list[list[str]]:
        """Label every claim against every text, embedding all sentences in one call."""
        ready, sources, vectors = self._ready(claims, texts)
        rows = [[NEUTRAL] * len(sources) for _ in ready]
        least = min(self.related, self.entail)
        for place, some in self._slices(ready, sources):
            support, starts, ends = _supports(ready, some, vectors, self.mix)
            best = np.maximum.reduceat(support, starts, axis=1)
            # Few pairs come this far, so what needs a look at words is done one pair at a time.
            for i, j in np.argwhere(best >= least):
                window = int(support[i, starts[j] : ends[j]].argmax())
                rows[i][place[j]] = self._label(ready[i], vectors[ready[i].text], some[j], float(best[i, j]), window)
        return rows

    def support(self, claims: Sequence[Claim], texts: Sequence[str]) -> np.ndarray:
        """Return the support of each claim in each text's best window: shape (n_claims, n_texts), about 0..1."""
        ready, sources, vectors = self._ready(claims, texts)
        values = np.zeros((len(ready), len(sources)))
        for place, some in self._slices(ready, sources):
            support, starts, _ = _supports(ready, some, vectors, self.mix)
            values[:, place] = np.maximum.reduceat(support, starts, axis=1)
        return values

    def _ready(
        self, claims: Sequence[Claim], texts: Sequence[str]
    ) -> tuple[list[ParsedText], list[_Text], dict[str, np.ndarray]]:
        """Parse claims and texts, and embed their sentences unless all are kept."""
        ready = [parse(sentence) for sentence in _sentences(claims, texts)]
        sources = [parse(text) for text in texts]
        needed = [c.text for c in ready] + [s for t in sources for s in t.sentences]
        known = all(text in self._vectors for text in needed)
        vectors = self._vectors if known else embed_distinct(self.embedder, needed)
        return ready, [self._texts.get(t.text) or _Text(t, vectors, self.window) for t in sources], vectors

    def _slices(self, ready: Sequence[ParsedText], sources: Sequence[_Text]) -> list[tuple[list[int], list[_Text]]]:
        """Texts with their places, in groups whose tables fit into memory; a text without a sentence is in none."""
        height = 1 + len(ready) + len({s for c in ready for s in c.weight})
        groups: list[list[int]] = []
        cells = 0
        for j, source in enumerate(sources if ready else ()):
            if source.spans:
                cells += len(source.spans) * height
                if not groups or cells > _CELLS:
                    groups.append([])
                    cells = len(source.spans) * height
                groups[-1].append(j)
        return [(places, [sources[j] for j in places]) for places in groups]

    def _label(self, claim: ParsedText, vector: np.ndarray, text: _Text, support: float, best: int) -> str:
        if claim.numbers - text.prepared.numbers:
            others = text.numbers(best) - claim.numbers
            return CONTRADICTION if others and support >= self.related else NEUTRAL
        if support < self.entail:
            return NEUTRAL
        negated = bool(NEGATION.search(claim.text))
        return ENTAILMENT if negated == text.negated(best, vector) else CONTRADICTION


class _Text:
    """A text's windows: runs of 1..size sentences, and how long the sums of their vectors are."""

    def __init__(self, prepared: ParsedText, vectors: dict[str, np.ndarray], size: int) -> None:
        self.prepared = prepared
        n = len(prepared.sentences)
        self.spans = [(i, i + k) for k in range(1, size + 1) for i in range(n - k + 1)]
        self.sentence_vectors = np.array([vectors[s] for s in prepared.sentences])
        sums = [self.sentence_vectors[a:b].sum(0, float) for a, b in self.spans]
        self.lengths = np.maximum(np.sqrt([s @ s for s in sums]), 1e-9)

    def numbers(self, i: int) -> frozenset[str]:
        """Return the numbers in window ``i``."""
        a, b = self.spans[i]
        return frozenset().union(*(parse(s).numbers for s in self.prepared.sentences[a:b]))

    def negated(self, i: int, vector: np.ndarray) -> bool:
        """Whether the sentence of window ``i`` that is nearest to the claim has a negation."""
        a, b = self.spans[i]
        nearest = a + int((self.sentence_vectors[a:b] @ vector).argmax())
        return bool(NEGATION.search(self.prepared.sentences[nearest]))


def _supports(
    claims: Sequence[ParsedText], texts: Sequence[_Text], vectors: dict[str, np.ndarray], mix: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Support of every claim in every window, shape (n_claims, n_windows), and where each text's windows lie."""
    rows = {stem: i for i, stem in enumerate(dict.fromkeys(stem for claim in claims for stem in claim.weight))}
    stems = [have for text in texts for have in text.prepared.sentence_stems]
    met = [(rows[stem], column) for column, have in enumerate(stems) for stem in rows.keys() & have]
    present = np.zeros((len(rows), len(stems)), bool)
    if met:
        present[tuple(np.array(met).T)] = True
    sizes = [len(text.prepared.sentences) for text in texts]
    offsets = np.cumsum([0, *sizes[:-1]])
    spans = np.concatenate([np.array(text.spans) + at for text, at in zip(texts, offsets, strict=True)])
    first, length = spans[:, 0], spans[:, 1] - spans[:, 0]
    heads = np.array([vectors[claim.text] for claim in claims], float)
    sentences = np.concatenate([text.sentence_vectors for text in texts]).astype(float)
    # Not a matrix product: einsum's sums are the same whatever else is in the block, and start no threads.
    products = np.einsum("id,jd->ij", heads, sentences)
    inside, cosine = present[:, first], products[:, first]
    for step in range(1, int(length.max())):
        longer = np.flatnonzero(length > step)
        inside[:, longer] |= present[:, first[longer] + step]
        cosine[:, longer] += products[:, first[longer] + step]
    cosine /= np.concatenate([text.lengths for text in texts])
    support = np.zeros((len(claims), len(spans)))
    for i, claim in enumerate(claims):
        total = sum(claim.weight.values())
        if total > 0:  # without a word there is nothing to compare
            for stem, weight in claim.weight.items():
                support[i] += weight * inside[rows[stem]]
            support[i] = mix * (support[i] / total) + (1 - mix) * cosine[i]
    counts = [len(text.spans) for text in texts]
    ends = np.cumsum(counts)
    return support, ends - counts, ends


class _PairChecker(_Checker):
    """Reads one claim and one text at a time."""

    @abstractmethod
    def _labels(self, pairs: list[tuple[str, str]]) -> list[str]: ...  # of (text, claim)

    def check_many(self, claims: Sequence[Claim], texts: Sequence[str]) -> list[list[str]]:
        """Label every claim against every text, each different pair once."""
        sentences = _sentences(claims, texts)
        pairs = list(dict.fromkeys((text, claim) for claim in sentences for text in texts if text.strip()))
        label = dict(zip(pairs, self._labels(pairs) if pairs else [], strict=True))
        return [[label.get((text, claim), NEUTRAL) for text in texts] for claim in sentences]


class OnnxChecker(_PairChecker):
    """Label claims by a sequence classifier over (text, claim): NLI models, FactCG, MiniCheck-RoBERTa and DeBERTa ...

    A long text is read in windows. A claim is *Entailment* where a window entails it with a probability of at least
    ``threshold``, else *Contradiction* where the model has such a label and a window reaches it there, else *Neutral*.

    ``folder``, ``max_tokens``: as for `ragbench.onnx_models.Classifier`. ``labels``: names of the model's outputs in
    their order; default those of ``config.json``. One output is the probability that the text supports the claim.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        labels: Sequence[str] | None = None,
        threshold: float = 0.5,
        max_tokens: int | None = None,
    ) -> None:
        self._model = Classifier(folder, labels=labels, cut="first", max_tokens=max_tokens)
        self.threshold, named = threshold, self._model.labels
        entails = [i for i, label in enumerate(named) if _ENTAILS.search(label) and not _DENIES.search(label)]
        if len(named) > 1 and len(entails) != 1:
            do = 'name them in their order: labels=["not supported", "supported"]'
            got = f"{self._model.folder} has the labels {', '.join(named)}"
            raise ConfigError(got, "one of them that says that a claim is supported", do)
        self._entails = entails[0] if entails else 0
        self._contradicts = next((i for i, label in enumerate(named) if label.lower().startswith("contra")), None)

    def __repr__(self) -> str:
        return f"OnnxChecker({self._model.folder.name!r}, threshold={self.threshold})"

    def _labels(self, pairs: list[tuple[str, str]]) -> list[str]:
        from scipy.special import expit, softmax

        labels = []
        for logits in self._model.logits(pairs):
            shares = expit(logits) if logits.shape[1] == 1 else softmax(logits, axis=1)
            reached = shares.max(axis=0) >= self.threshold  # by any window
            denied = self._contradicts is not None and reached[self._contradicts]
            labels.append(ENTAILMENT if reached[self._entails] else CONTRADICTION if denied else NEUTRAL)
        return labels


class ModelChecker(_PairChecker):
    """Label claims by a chat model that is given "Document: ... Claim: ..." and answers Yes or No (MiniCheck's form).

    Yes is *Entailment*, No is *Neutral*: this form knows no contradiction. ``"ollama:bespoke-minicheck"`` was trained
    on exactly this form. ``options`` are those of `ragbench.llm.ask`: ``cassette``, ``concurrency`` ...
    """

    def __init__(self, model: Any, **options: Any) -> None:
        self.model, self.options = model, options

    def __repr__(self) -> str:
        name = self.model if isinstance(self.model, str) else getattr(self.model, "model", type(self.model).__name__)
        return f"ModelChecker({name!r})"

    def _labels(self, pairs: list[tuple[str, str]]) -> list[str]:
        from ragbench.llm import ask
        from ragbench.llm.models import BOUNDS

        prompts = [f"Document: {text}\nClaim: {claim}" for text, claim in pairs]
        replies = ask(self.model, prompts, **({"step": "claim check", "num_predict": BOUNDS["label"]} | self.options))
        read = [_VERDICT.match(reply.text) if reply.ok else None for reply in replies]
        failed = [reply for reply, verdict in zip(replies, read, strict=True) if verdict is None]
        if failed:
            said = f"{failed[0].text[:80]!r}{f', {failed[0].error}' if failed[0].error else ''}"
            got = f"{len(failed)} of {len(replies)} claims got no label; the first reply: {said}"
            raise ModelError(got, "Yes or No", "use a model made for this form, such as ollama:bespoke-minicheck")
        return [ENTAILMENT if verdict and verdict[1].lower() == "yes" else NEUTRAL for verdict in read]


def check_lists(
    checker: Any, claims: Sequence[Sequence[Claim] | None], texts: Sequence[str]
) -> list[tuple[str, ...] | None]:
    """Label lists of claims, each against its own text: what `ragbench.labelling.claims.check_claims` does by a model.

    Each different list is checked once against each of its texts; None, where claims are not known, stays None.
    """
    lists = [None if of is None else tuple(tuple(c) if isinstance(c, list) else c for c in of) for of in claims]
    needed: dict[tuple, dict[str, None]] = {}  # a dict keeps the texts in their order
    for some, text in zip(lists, texts, strict=True):
        if some is not None:
            needed.setdefault(some, {})[text] = None
    if hasattr(checker, "warm"):
        checker = checker.warm(*(list(dict.fromkeys(itertools.chain(*of))) for of in (needed, needed.values())))
    labels: dict[tuple, dict[str, tuple[str, ...]]] = {}
    for some, of_list in needed.items():
        table = checker.check_many(some, list(of_list)) if some else []
        if len(table) != len(some) or any(len(row) != len(of_list) for row in table):
            got = f"{checker!r} gave {len(table)} rows of {sorted({len(row) for row in table})} labels"
            expected = f"{len(some)} rows, one per claim, of {len(of_list)} labels, one per text"
            raise ConfigError(got, expected, "mend its check_many; do not pad the labels")
        labels[some] = {text: tuple(row[i] for row in table) for i, text in enumerate(of_list)}
    return [None if some is None else labels[some][text] for some, text in zip(lists, texts, strict=True)]


def asks_model(name: str) -> bool:
    """Say whether a name is that of a chat model, and not of rules or of a folder."""
    return name != "embedded" and not name.startswith("onnx:")


def make_checker(name: str | Mapping[str, Any] = "embedded", **options: Any) -> Any:
    """Make a checker by name: "embedded", "onnx:FOLDER", or a chat model such as "ollama:bespoke-minicheck".

    ``name`` may be a mapping as in `ragbench.llm.chat_model`. ``options``: of the class; for a chat model ``cassette``
    and those of `ragbench.llm.chat_model`.
    """
    if isinstance(name, Mapping):
        name, options = name["use"], {key: value for key, value in name.items() if key != "use"} | options
    if name == "embedded":
        return EmbeddedChecker(**options)
    if name.startswith("onnx:"):
        check_known(f"option of {name}", options, ("labels", "threshold", "max_tokens"))
        return OnnxChecker(name.removeprefix("onnx:"), **options)
    from ragbench.llm import chat_model

    cassette = options.pop("cassette", None)
    return ModelChecker(chat_model(name, **options), **({"cassette": cassette} if cassette else {}))
