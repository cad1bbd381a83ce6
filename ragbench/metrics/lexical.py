"""Answers compared word by word: exact match, token F1, BLEU, ROUGE-L, IDF-weighted overlap. All in [0, 1].

``reference`` is one text or several, of which the best counts. The tokenizer of BLEU and ROUGE-L is an argument, since
published numbers depend on it: those of RAGChecker's Tables 2 and 5 need the tokens of a Chinese word segmenter.
"""

from __future__ import annotations

import functools
import logging
import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ragbench.errors import ConfigError, check_known
from ragbench.text.common import lcs_length
from ragbench.text.words import stems

Words = Callable[[str], Sequence[str]]

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_CLOSED = ("yes", "no", "noanswer")


def _texts(prediction: str, reference: str | Sequence[str]) -> tuple[str, list[str]]:
    """Return prediction and references; ConfigError for what is no text."""
    references = [reference] if isinstance(reference, str) else reference
    if not isinstance(prediction, str):
        raise ConfigError(
            f"prediction is {type(prediction).__name__}", "a text", "pass answer.text; leave failures out"
        )
    if not isinstance(references, Sequence) or not references or not all(isinstance(r, str) for r in references):
        raise ConfigError(f"reference={reference!r}", "a text, or a list of at least one", "pass question.answer")
    return prediction, list(references)


def normalise_answer(text: str) -> str:
    """Lower-case, drop ASCII punctuation and the articles a, an, the, and squeeze white space.

    Source: HotpotQA, official evaluation script (as SQuAD's).

    >>> normalise_answer("The  U.S. Navy's")
    'us navys'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, reference: str | Sequence[str]) -> float:
    """Say whether the normalised prediction equals the normalised reference: 1.0 or 0.0.

    Source: HotpotQA, official evaluation script.
    """
    prediction, references = _texts(prediction, reference)
    return float(normalise_answer(prediction) in map(normalise_answer, references))


def token_f1(prediction: str, reference: str | Sequence[str]) -> float:
    """Return the F1 of the normalised tokens, counted with repetition; 0 when either side has none left.

    When either side is "yes", "no" or "noanswer" and the other is not the same, the score is 0 (HotpotQA's rule, which
    SQuAD's evaluation lacks).

    Source: HotpotQA, official evaluation script.
    """
    prediction, references = _texts(prediction, reference)
    return max(_f1(normalise_answer(prediction), normalise_answer(text)) for text in references)


def _f1(got: str, true: str) -> float:
    if got != true and (got in _CLOSED or true in _CLOSED):
        return 0.0
    a, b = got.split(), true.split()
    return _harmonic((Counter(a) & Counter(b)).total(), len(a), len(b))


def _harmonic(common: int, predicted: int, true: int) -> float:
    """Harmonic mean of precision and recall."""
    if not common:
        return 0.0
    precision, recall = common / predicted, common / true
    return 2 * precision * recall / (precision + recall)


def bleu(
    prediction: str,
    reference: str | Sequence[str],
    *,
    tokenizer: str | Words = "13a",
    smoothing: str = "exp",
    effective_order: bool = True,
    brevity_penalty: bool = True,
) -> float:
    """Return the sentence BLEU of a prediction.

    Parameters
    ----------
    tokenizer : a name sacrebleu knows (``"13a"``, ``"zh"``, ``"char"``, ``"none"`` ...) or a callable text -> tokens.
    smoothing : ``"exp"``, ``"floor"``, ``"add-k"`` or ``"none"``, as sacrebleu calls them.
    effective_order : leave out n-gram orders the prediction is too short for.
    brevity_penalty : False divides it out.

    Source: Papineni et al. 2002, through sacrebleu. RAGChecker's Table 2 (BLEU-avg 38.89/35.32, ...) is `bleu_avg`.
    """
    check_known("BLEU smoothing", [smoothing], ("none", "exp", "floor", "add-k"))
    prediction, references = _texts(prediction, reference)
    if callable(tokenizer):
        # sacrebleu splits at white space, so each distinct token gets a name without any.
        names: dict[str, str] = {}
        prediction, *references = (
            " ".join(names.setdefault(token, f"t{len(names)}") for token in tokenizer(text))
            for text in (prediction, *references)
        )
        tokenizer = "none"
    # A corpus of one sentence: the same number, without the warning that sentence_score prints for every call.
    result = _bleu_scorer(tokenizer, smoothing, effective_order).corpus_score([prediction], [[r] for r in references])
    return result.score / 100 / (1.0 if brevity_penalty or result.bp == 0 else result.bp)


@functools.cache
def _bleu_scorer(tokenizer: str, smoothing: str, effective_order: bool) -> Any:
    from sacrebleu.metrics import BLEU

    check_known("BLEU tokenizer", [tokenizer], BLEU.TOKENIZERS)
    return BLEU(tokenize=tokenizer, smooth_method=smoothing, effective_order=effective_order)


def rouge_l(
    prediction: str, reference: str | Sequence[str], *, tokenizer: Words | None = None, stem: bool = False
) -> float:
    """Return the F1 of ROUGE-L, by the longest common subsequence of tokens; 0 when either side has none.

    Parameters
    ----------
    tokenizer : callable text -> tokens; default rouge-score's own (runs of a-z0-9, so nothing of a Chinese text).
    stem : stem the default tokenizer's words longer than three letters (Porter).

    Source: Lin 2004; equal to rouge-score, whose tables in pure Python are replaced by bit operations. RAGChecker's
    Table 2 (ROUGE-L 31.75/31.72, ...) is `rouge_l_jieba`.
    """
    prediction, references = _texts(prediction, reference)
    cut = tokenizer or _rouge_tokenizer(stem)
    got, true = list(cut(prediction)), [list(cut(text)) for text in references]
    return max(_harmonic(lcs_length(got, tokens), len(got), len(tokens)) for tokens in true)


@functools.cache
def _rouge_tokenizer(stem: bool) -> Words:
    if not stem:
        return lambda text: re.findall("[a-z0-9]+", text.lower())
    from rouge_score.tokenizers import DefaultTokenizer  # its Porter variant is NLTK's, which takes seconds to import

    return DefaultTokenizer(use_stemmer=True).tokenize


def jieba_tokens(text: str) -> list[str]:
    """Split a text into jieba's tokens; in English text these are words, marks, and every blank by itself."""
    try:
        import jieba
    except ModuleNotFoundError:
        raise ConfigError(
            "jieba is not installed",
            "jieba, with which the published BLEU and ROUGE-L rows were made",
            "pip install 'ragbench[dev]', or use the tokens that are usual for English",
        ) from None
    jieba.setLogLevel(logging.WARNING)  # it reports the loading of its dictionary on stderr
    return list(jieba.cut(text))


def bleu_avg(response: str, reference: str) -> float:
    """BLEU on jieba tokens, without smoothing or brevity penalty: 0 when an order of n-grams has no match.

    Source: RAGChecker, Table 2 (row BLEU-avg): Pearson 38.89 / 32.13 / 35.14 with the three human labels.
    """
    plain = {"smoothing": "none", "effective_order": False, "brevity_penalty": False}
    return bleu(response, reference, tokenizer=jieba_tokens, **plain)


def rouge_l_jieba(response: str, reference: str) -> float:
    """ROUGE-L F1 on jieba tokens, blanks included.

    Source: RAGChecker, Table 2 (row ROUGE-L): Pearson 31.75 / 47.88 / 43.10 with the three human labels.
    """
    return rouge_l(response, reference, tokenizer=jieba_tokens)


def idf_weights(texts: Iterable[str]) -> dict[str, float]:
    """Weigh each stem by its rarity: ln(1 + (N - df + 0.5) / (df + 0.5)) over N texts, always above 0."""
    sets = [set(stems(text, "overlap")) for text in texts]
    frequency = Counter(stem for words in sets for stem in words)
    return {stem: math.log(1 + (len(sets) - df + 0.5) / (df + 0.5)) for stem, df in frequency.items()}


def idf_overlap(prediction: str, reference: str, idf: Mapping[str, float], *, unseen: float | None = None) -> float:
    """Return the F1 of the two texts' Porter-stemmed words, each weighted by its IDF and counted with repetition.

    Parameters
    ----------
    idf : stem -> weight, as `idf_weights` gives.
    unseen : weight of a stem that ``idf`` lacks; default the largest in ``idf``, or 1 when it is empty.

    Returns
    -------
    float in [0, 1]; NaN when neither text has a word.

    Source: none of the papers. Notebook 21 measures how it correlates with people's preference.
    """
    prediction, (reference, *_) = _texts(prediction, reference)
    rarest = max(idf.values(), default=1.0) if unseen is None else unseen
    a, b = Counter(stems(prediction, "overlap")), Counter(stems(reference, "overlap"))

    def weight(words: Counter[str]) -> float:
        return math.fsum(n * idf.get(stem, rarest) for stem, n in words.items())

    total = weight(a) + weight(b)
    return 2 * weight(a & b) / total if total else math.nan
