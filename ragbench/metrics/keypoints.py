"""RAGEval's measures (Zhu et al. 2024, section 3.5): keypoint metrics, Recall and EIR of passages,
ROUGE-L.

Recall (Eq 1) and the effective information rate (Eq 2) match references to passages sentence by
sentence, as substrings, in one of four variants:

``normalised``, ``normalised_nfkc``  differences of layout removed on both sides
(`ragbench.text.layout`); the default,
              for documents whose lines are wrapped. They count as ``paper`` does.
``paper``     characters as they are. EIR counts the words of references that matched as a whole; a
metadata prefix in
              brackets is cut off before matching and counting.
``released``  EIR counts every matched sentence, against the passages joined by a blank (which is a
word in Chinese);
              Recall matches against the passages as they are, prefix included.

In all, Recall lets the sentences of one reference match in different passages: Eq 1's text can be
read as asking for one passage that holds them all, the evaluation that made the published numbers
does not. Without references both score 0 there; here the value is NaN unless ``empty=0.0`` is asked
for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from ragbench.errors import ConfigError, DataError, check_known
from ragbench.stats.inputs import as_list, same_length
from ragbench.text.common import lcs_length, lcs_tokens
from ragbench.text.layout import Form, comparable
from ragbench.text.sentences import check_language, count_words, split_sentences

_Language = Literal["en", "zh"]
_Variant = Literal["normalised", "normalised_nfkc", "paper", "released"]
_Verdict = Literal["covered", "contradicted", "neither"]
VERDICTS = ("covered", "contradicted", "neither")
KEYPOINT_METRICS = ("completeness", "hallucination", "irrelevance")
# The normal form in which references and passages are compared; None: as they are.
VARIANTS: Mapping[str, Form | None] = {
    "normalised": "NFC",
    "normalised_nfkc": "NFKC",
    "paper": None,
    "released": None,
}
# The name in a prefix may hold brackets itself: (Marn (Holdings) Ltd).
_PREFIX = re.compile(r"\A\s*(?:\((?:[^()]|\([^()]*\))*\)|（(?:[^（）]|（[^（）]*）)*）)")
_TOKENS = {"en": re.compile(r"[a-z0-9]+"), "zh": re.compile(r"[a-z0-9]+|[^\W_]")}
_NAN = float("nan")


def keypoint_metrics(verdicts: Sequence[_Verdict]) -> dict[str, float]:
    """Completeness, hallucination and irrelevance of one answer: shares of its keypoints' verdicts.

    The shares add up to 1; NaN without keypoints.

    Source: RAGEval, Eq 3-5. Paper value: 0.6845 / 0.1636 / 0.1520 (GPT-4o, English, Table 3).
    """
    verdicts = as_list(verdicts, "verdicts")
    if wrong := set(verdicts) - set(VERDICTS):
        raise DataError(f"the verdict {min(wrong)!r}", f"one of {', '.join(VERDICTS)}")
    counts = Counter(verdicts)
    n = len(verdicts)
    return {
        name: counts[v] / n if n else _NAN
        for name, v in zip(KEYPOINT_METRICS, VERDICTS, strict=True)
    }


def keypoint_table(verdicts: Sequence[Sequence[_Verdict | None]]) -> pd.DataFrame:
    """Keypoint metrics of many answers; None is a verdict that could not be read.

    DataFrame, one row per answer: completeness, hallucination, irrelevance, n (keypoints), unscored
    (unread verdicts). An answer with an unread verdict has NaN shares: the missing one would decide
    between them.
    """
    rows = []
    for labels in verdicts:
        unread = sum(v is None for v in labels)
        rows.append(
            {**keypoint_metrics([] if unread else labels), "n": len(labels), "unscored": unread}
        )
    return pd.DataFrame(rows, columns=[*KEYPOINT_METRICS, "n", "unscored"])


def reference_recall(
    references: Sequence[str],
    passages: Sequence[str],
    language: _Language = "en",
    variant: _Variant = "normalised",
    empty: float = _NAN,
    *,
    prefix: bool = True,
) -> float:
    """Share of the true references of which every sentence stands in some passage; 0 without
    passages.

    Parameters
    ----------
    variant : see the module.
    empty : value without references (the released evaluation gives 0.0).
    prefix : whether a bracket at the start of a passage is metadata put there by the indexer, to be
    cut off.

    Source: RAGEval, Eq 1. Paper value: 0.6717 (BM25, English finance, Table 4).
    """
    return _passage_scores(references, passages, language, variant, empty, prefix)[0]


def effective_information_rate(
    references: Sequence[str],
    passages: Sequence[str],
    language: _Language = "en",
    variant: _Variant = "normalised",
    empty: float = _NAN,
    *,
    prefix: bool = True,
) -> float:
    """Words of the matched references over the words of all passages.

    Parameters are those of `reference_recall`; ``empty`` is the value without references or without
    a word. The result is above 1 only where references repeat each other or passages overlap them
    more than once.

    Source: RAGEval, Eq 2. Paper value: 0.1162 (BM25, English finance, Table 4).
    """
    return _passage_scores(references, passages, language, variant, empty, prefix)[1]


def passage_table(
    references: Sequence[Sequence[str]],
    passages: Sequence[Sequence[str]],
    language: _Language | Sequence[_Language] = "en",
    variant: _Variant = "normalised",
    empty: float = _NAN,
    *,
    prefix: bool = True,
) -> pd.DataFrame:
    """Recall and EIR of many questions; ``language`` is one for all, or one per question.

    DataFrame, one row per question: recall, eir, references (their number), words (of the
    passages).
    """
    languages = [language] * len(references) if isinstance(language, str) else list(language)
    same_length(references=references, passages=passages, languages=languages)
    rows = []
    for number, (wanted, retrieved, code) in enumerate(
        zip(references, passages, languages, strict=True)
    ):
        try:
            recall, eir, words = _passage_scores(wanted, retrieved, code, variant, empty, prefix)
        except DataError as error:
            raise DataError(f"question {number}: {error.got}", error.expected, error.do) from None
        rows.append((recall, eir, len(wanted), words))
    return pd.DataFrame(rows, columns=["recall", "eir", "references", "words"])


def _passage_scores(
    references: Sequence[str],
    passages: Sequence[str],
    language: str,
    variant: str,
    empty: float,
    prefix: bool,
) -> tuple[float, float, int]:
    """Recall, EIR and the number of words retrieved."""
    check_language(language)
    check_known("variant", [variant], VARIANTS)
    references = as_list(references, "references")
    passages = as_list(passages, "passages")
    if form := VARIANTS[variant]:
        passages = [comparable(references, passage, form)[1].text for passage in passages]
        references = comparable(references, "", form)[0]
    released = variant == "released"
    without_prefix = [_PREFIX.sub("", p) for p in passages] if prefix else passages
    joined = " ".join(without_prefix)
    searched = passages if released else without_prefix
    words = count_words(joined, language)
    if language == "zh" and not released:
        words -= max(0, len(passages) - 1)  # the blanks of the join are no words
    whole = matched = 0
    for number, reference in enumerate(references):
        sentences = split_sentences(reference, language)
        if not sentences:
            raise DataError(
                f"reference {number} is empty", "a text with a sentence", "remove it, or fill it in"
            )
        complete = all(any(s in p for p in searched) for s in sentences)
        whole += complete
        counted = (
            [s for s in sentences if s in joined] if released else sentences if complete else []
        )
        matched += sum(count_words(s, language) for s in counted)
    if not references:
        return empty, empty, words
    return whole / len(references), matched / words if words else empty, words


def answer_rouge_l(
    answers: Sequence[str],
    references: Sequence[str],
    language: _Language = "en",
    tokenizer: Callable[[str], Sequence[str]] | None = None,
    empty: float = _NAN,
    *,
    variant: Literal["words", "released"] = "words",
) -> np.ndarray:
    """ROUGE-L F1 of answers against true answers, in English or Chinese: float array, shape (n,),
    in [0, 1].

    Parameters
    ----------
    language : chooses the default tokens: lower-cased runs of letters and digits in English (as the
    rouge-score package
        does, without its stemmer); single characters, and runs of Latin letters and digits, in
        Chinese.
    tokenizer : your own, for instance ``jieba.lcut``, whose words the released evaluation took for
    Chinese.
    empty : value where the answer or the reference has no token (the released evaluation gives
    0.0).
    variant : ``"words"``: the longest common subsequence of words. ``"released"``: the package
    rouge 1.0.1, which the
        released code calls for English: sentences end at full stops, words at blanks; counted are
        the *distinct* words, in common when a longest common subsequence of two sentences holds
        them.

    Source: RAGEval, Table 3. Paper value: 0.2190 (GPT-4o, English). The result file that was
    released beside the code (0.1322 over 350 answers) comes from another variant:
    ``tokenizer=str.split`` with ``"words"``.
    """
    check_language(language)
    check_known("variant", [variant], ("words", "released"))
    answers = as_list(answers, "answers")
    references = as_list(references, "references")
    same_length(answers=answers, references=references)
    if variant == "released" and (language != "en" or tokenizer is not None):
        what = "a tokenizer" if tokenizer is not None else f"language={language!r}"
        raise ConfigError(
            f"variant='released' with {what}", "English, without a tokenizer", "use variant='words'"
        )
    tokens = tokenizer or (lambda text: _TOKENS[language].findall(text.lower()))

    def score(answer: str, reference: str) -> float:
        if variant == "released":
            return _distinct_rouge_l(answer, reference, empty)
        a = tokens(answer)
        b = tokens(reference)
        return 2 * lcs_length(a, b) / (len(a) + len(b)) if len(a) and len(b) else empty

    return np.array([score(*pair) for pair in zip(answers, references, strict=True)], float)


def _distinct_rouge_l(answer: str, reference: str, empty: float) -> float:
    """ROUGE-L of the package rouge 1.0.1, which counts distinct words (a blank sentence is a word
    there too).
    """
    a, b = (
        [" ".join(s.split()).split(" ") for s in text.split(".") if s]
        for text in (answer, reference)
    )
    if not a or not b:
        return empty
    common = {word for true in b for given in a for word in lcs_tokens(true, given)}
    return 2 * len(common) / (len(set().union(*a)) + len(set().union(*b)))
