"""BLEU and ROUGE-L as in RAGChecker's Tables 2 and 5: the field's formulas on the tokens of a Chinese word segmenter.

The tokens are jieba's, with the blanks between words kept as tokens of their own: found by trying, as only these give
the published rows to the last digit. Use the two functions to meet those rows; `ragbench.metrics.lexical` has the same
measures on the tokens that are usual for English.
"""

from __future__ import annotations

import logging
import math
from collections import Counter

from ragbench.errors import ConfigError
from ragbench.text.common import lcs_length


def jieba_tokens(text: str) -> list[str]:
    """Split a text into jieba's tokens; in English text these are words, marks, and every blank by itself.

    Raises
    ------
    ConfigError when jieba is not installed (it is one of the development dependencies).
    """
    try:
        import jieba
    except ModuleNotFoundError:
        raise ConfigError(
            "jieba is not installed",
            "jieba, with which the published BLEU and ROUGE-L rows were made",
            "pip install 'ragbench[dev]', or use ragbench.metrics.lexical, which does without",
        ) from None
    jieba.setLogLevel(logging.WARNING)  # it reports the loading of its dictionary on stderr
    return list(jieba.cut(text))


def bleu_avg(response: str, reference: str) -> float:
    """Geometric mean of the clipped 1- to 4-gram precisions on jieba tokens: BLEU without smoothing or brevity penalty.

    Parameters
    ----------
    response, reference : the answer to score and the true one.

    Returns
    -------
    float in [0, 1]; 0 when an order has no match, hence also for a response of fewer than four tokens.

    Source: RAGChecker, Table 2 (row BLEU-avg): Pearson 38.89 / 32.13 / 35.14 with the three human labels. The brevity
    penalty is divided out again in the numbers published.
    """
    tokens, wanted = jieba_tokens(response), jieba_tokens(reference)
    logs = 0.0
    for order in range(1, 5):
        grams, known = _grams(tokens, order), _grams(wanted, order)
        matches = (grams & known).total()
        if not matches:
            return 0.0
        logs += math.log(matches / grams.total())
    return math.exp(logs / 4)


def _grams(tokens: list[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1))


def rouge_l_jieba(response: str, reference: str) -> float:
    """ROUGE-L F1 on jieba tokens, blanks included.

    Parameters
    ----------
    response, reference : the answer to score and the true one.

    Returns
    -------
    float in [0, 1]; 0 without a common token.

    Source: RAGChecker, Table 2 (row ROUGE-L): Pearson 31.75 / 47.88 / 43.10 with the three human labels.
    """
    tokens, wanted = jieba_tokens(response), jieba_tokens(reference)
    common = lcs_length(tokens, wanted)
    if not common:
        return 0.0
    precision, recall = common / len(tokens), common / len(wanted)
    return 2 * precision * recall / (precision + recall)
