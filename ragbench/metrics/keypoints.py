"""RAGEval's measures (Zhu et al. 2024, section 3.5): keypoint metrics, Recall and EIR of passages.

Recall (Eq 1) and the effective information rate (Eq 2) match references to passages sentence by
sentence, as substrings, in one of two variants:

``normalised``  differences of layout removed on both sides (`ragbench.text.layout`); the default,
                for documents whose lines are wrapped.
``paper``       characters as they are.

The sentences of one reference may match in different passages: Eq 1's text can be read as asking
for one passage that holds them all, the evaluation that made the published numbers does not. EIR
counts the words of references that matched as a whole; the released code counts every sentence that
matched (notebook 41). Without references both score 0 there; here the value is NaN.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import pandas as pd

from ragbench.errors import DataError, check_known
from ragbench.stats.inputs import as_list, same_length
from ragbench.text.layout import comparable
from ragbench.text.sentences import LANGUAGES, split_sentences

_Language = Literal["en", "zh"]
_Variant = Literal["normalised", "paper"]
_Verdict = Literal["covered", "contradicted", "neither"]
VERDICTS = ("covered", "contradicted", "neither")
KEYPOINT_METRICS = ("completeness", "hallucination", "irrelevance")
# Whether differences of layout between references and passages are removed.
VARIANTS: Mapping[str, bool] = {"normalised": True, "paper": False}
# The name in a prefix may hold brackets itself: (Marn (Holdings) Ltd).
_PREFIX = re.compile(r"\A\s*(?:\((?:[^()]|\([^()]*\))*\)|（(?:[^（）]|（[^（）]*）)*）)")


def keypoint_metrics(verdicts: Sequence[_Verdict]) -> dict[str, float]:
    """Completeness, hallucination and irrelevance of one answer: shares of its keypoints' verdicts.

    The shares add up to 1; NaN without keypoints.

    Source: RAGEval, Eq 3-5. Paper value: 0.6845 / 0.1636 / 0.1520 (GPT-4o, English, Table 3).

    >>> rb.keypoint_metrics(["covered", "covered", "contradicted", "neither"])
    {'completeness': 0.5, 'hallucination': 0.25, 'irrelevance': 0.25}
    """
    verdicts = as_list(verdicts, "verdicts")
    if wrong := set(verdicts) - set(VERDICTS):
        raise DataError(f"the verdict {min(wrong)!r}", f"one of {', '.join(VERDICTS)}")
    n = len(verdicts)
    return {
        "completeness": _share(verdicts.count("covered"), n),  # Eq 3
        "hallucination": _share(verdicts.count("contradicted"), n),  # Eq 4
        "irrelevance": _share(verdicts.count("neither"), n),  # Eq 5
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def reference_recall(
    references: Sequence[str],
    passages: Sequence[str],
    language: _Language = "en",
    variant: _Variant = "normalised",
    *,
    prefix: bool = True,
) -> float:
    """Share of the true references of which every sentence stands in some passage; 0 without
    passages, NaN without references.

        Recall = (1/n) sum over references i of [every sentence of i stands in some passage]

    Parameters
    ----------
    variant : see the module.
    prefix : whether a bracket at the start of a passage is metadata put there by the indexer, to be
        cut off; it stays where a sentence of the references opens with it.

    Source: RAGEval, Eq 1. Paper value: 0.6717 (BM25, English finance, Table 4).

    >>> rb.reference_recall(["Ada built it.", "It burnt down."], ["Ada built it. It was old."])
    0.5
    """
    return _passage_scores(references, passages, language, variant, prefix)["recall"]


def effective_information_rate(
    references: Sequence[str],
    passages: Sequence[str],
    language: _Language = "en",
    variant: _Variant = "normalised",
    *,
    prefix: bool = True,
) -> float:
    """Words of the matched references over the words of all passages.

        EIR = sum over matched references i of |i| / sum over passages j of |j|

    Parameters are those of `reference_recall`; NaN without references or without a word. The result
    is above 1 only where references repeat each other or passages overlap them more than once.

    Source: RAGEval, Eq 2. Paper value: 0.1162 (BM25, English finance, Table 4).

    >>> rb.effective_information_rate(["Ada built it."], ["Ada built it. It was old."])
    0.5
    """
    return _passage_scores(references, passages, language, variant, prefix)["eir"]


def passage_table(
    references: Sequence[Sequence[str]],
    passages: Sequence[Sequence[str]],
    language: _Language = "en",
    variant: _Variant = "normalised",
    *,
    prefix: bool = True,
) -> pd.DataFrame:
    """Recall and EIR of many questions.

    DataFrame, one row per question: recall, eir, references (their number), words (of the
    passages).

    >>> rb.passage_table([["Ada built it."]], [["Ada built it. It was old."]])
       recall  eir  references  words
    0     1.0  0.5           1      6
    """
    same_length(references=references, passages=passages)
    rows = []
    for number, (true, retrieved) in enumerate(zip(references, passages, strict=True)):
        try:
            rows.append(_passage_scores(true, retrieved, language, variant, prefix))
        except DataError as error:
            raise DataError(f"question {number}: {error.got}", error.expected, error.do) from None
    return pd.DataFrame(rows, columns=["recall", "eir", "references", "words"])


def _passage_scores(
    references: Sequence[str],
    passages: Sequence[str],
    language: _Language,
    variant: _Variant,
    prefix: bool,
) -> dict[str, float]:
    """Eq 1 and Eq 2 of one question: a row of `passage_table`."""
    check_known("language", [language], LANGUAGES)
    check_known("variant", [variant], VARIANTS)
    references = as_list(references, "references")
    passages = as_list(passages, "passages")
    if VARIANTS[variant]:
        passages = [comparable(references, passage)[1].text for passage in passages]
        references = comparable(references, "")[0]
    sentences_of_each = _sentences_of_each(references, language)
    if prefix:
        wanted = [sentence for sentences in sentences_of_each for sentence in sentences]
        passages = [_without_prefix(passage, wanted) for passage in passages]
    n_matched = 0
    matched_words = 0
    for sentences in sentences_of_each:
        if all(_stands_in_some(sentence, passages) for sentence in sentences):
            n_matched += 1
            matched_words += _count_words(sentences, language)
    words = _count_words(passages, language)
    return {
        "recall": _share(n_matched, len(references)),
        "eir": _share(matched_words, words) if references else math.nan,
        "references": len(references),
        "words": words,
    }


def _without_prefix(passage: str, wanted: Iterable[str]) -> str:
    """Cut the bracket off that opens a passage, but where a wanted sentence opens with it: (RML)
    Ltd was founded.
    """
    prefix = _PREFIX.match(passage)
    if prefix is None or any(sentence.startswith(prefix[0].strip()) for sentence in wanted):
        return passage
    return passage[prefix.end() :]


def _sentences_of_each(references: Sequence[str], language: _Language) -> list[tuple[str, ...]]:
    sentences = [split_sentences(reference, language) for reference in references]
    if () in sentences:
        raise DataError(
            f"reference {sentences.index(())} is empty",
            "a text with a sentence",
            "remove it, or fill it in",
        )
    return sentences


def _stands_in_some(sentence: str, passages: Sequence[str]) -> bool:
    return any(sentence in passage for passage in passages)


def _count_words(texts: Iterable[str], language: _Language) -> int:
    """Count words: runs without white space in English; in Chinese characters, as the released
    RAGEval does.
    """
    if language == "zh":
        return sum(map(len, texts))
    return sum(len(text.split()) for text in texts)
