"""RAGEval's measures (Zhu et al. 2024, section 3.5): keypoint metrics, Recall and EIR of passages,
ROUGE-L.

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
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from ragbench.errors import ConfigError, DataError, check_known
from ragbench.stats.inputs import as_list, same_length
from ragbench.text.common import lcs_length
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
_TOKENS = {"en": re.compile(r"[a-z0-9]+"), "zh": re.compile(r"[a-z0-9]+|[^\W_]")}


def keypoint_metrics(verdicts: Sequence[_Verdict]) -> dict[str, float]:
    """Completeness, hallucination and irrelevance of one answer: shares of its keypoints' verdicts.

    The shares add up to 1; NaN without keypoints.

    Source: RAGEval, Eq 3-5. Paper value: 0.6845 / 0.1636 / 0.1520 (GPT-4o, English, Table 3).
    """
    verdicts = as_list(verdicts, "verdicts")
    if wrong := set(verdicts) - set(VERDICTS):
        raise DataError(f"the verdict {min(wrong)!r}", f"one of {', '.join(VERDICTS)}")
    counts = Counter(verdicts)
    return {
        # Eq 3-5: keypoints of a verdict, of all keypoints
        "completeness": _share(counts["covered"], len(verdicts)),
        "hallucination": _share(counts["contradicted"], len(verdicts)),
        "irrelevance": _share(counts["neither"], len(verdicts)),
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

    Parameters
    ----------
    variant : see the module.
    prefix : whether a bracket at the start of a passage is metadata put there by the indexer, to be
        cut off.

    Source: RAGEval, Eq 1. Paper value: 0.6717 (BM25, English finance, Table 4).
    """
    return _recall(_search(references, passages, language, variant, prefix))


def effective_information_rate(
    references: Sequence[str],
    passages: Sequence[str],
    language: _Language = "en",
    variant: _Variant = "normalised",
    *,
    prefix: bool = True,
) -> float:
    """Words of the matched references over the words of all passages.

    Parameters are those of `reference_recall`; NaN without references or without a word. The result
    is above 1 only where references repeat each other or passages overlap them more than once.

    Source: RAGEval, Eq 2. Paper value: 0.1162 (BM25, English finance, Table 4).
    """
    return _eir(_search(references, passages, language, variant, prefix))


class _Search(NamedTuple):
    """The references of a question, looked for in its passages."""

    found: list[bool]  # by reference: whether every sentence of it stands in some passage
    words: list[int]  # by reference
    retrieved: int  # words of all passages


def _recall(search: _Search) -> float:
    """Eq 1: 1/n sum_i [reference i is found]."""
    return _share(sum(search.found), len(search.found))


def _eir(search: _Search) -> float:
    """Eq 2: words of the references that are found / words of the passages."""
    relevant = [
        words for words, relevant in zip(search.words, search.found, strict=True) if relevant
    ]
    return _share(sum(relevant), search.retrieved if search.words else 0)


def passage_table(
    references: Sequence[Sequence[str]],
    passages: Sequence[Sequence[str]],
    language: _Language | Sequence[_Language] = "en",
    variant: _Variant = "normalised",
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
    for number, one in enumerate(zip(references, passages, languages, strict=True)):
        try:
            search = _search(*one, variant, prefix)
        except DataError as error:
            raise DataError(f"question {number}: {error.got}", error.expected, error.do) from None
        recall = _recall(search)
        rows.append((recall, _eir(search), len(search.found), search.retrieved))
    return pd.DataFrame(rows, columns=["recall", "eir", "references", "words"])


def _search(
    references: Sequence[str],
    passages: Sequence[str],
    language: str,
    variant: str,
    prefix: bool,
) -> _Search:
    check_known("language", [language], LANGUAGES)
    check_known("variant", [variant], VARIANTS)
    references = as_list(references, "references")
    passages = as_list(passages, "passages")
    if VARIANTS[variant]:
        passages = [comparable(references, passage)[1].text for passage in passages]
        references = comparable(references, "")[0]
    if prefix:
        passages = [_PREFIX.sub("", passage) for passage in passages]
    retrieved = []
    words = []
    for number, reference in enumerate(references):
        sentences = split_sentences(reference, language)
        if not sentences:
            got = f"reference {number} is empty"
            raise DataError(got, "a text with a sentence", "remove it, or fill it in")
        retrieved.append(all(any(s in passage for passage in passages) for s in sentences))
        words.append(sum(_count_words(sentence, language) for sentence in sentences))
    return _Search(retrieved, words, sum(_count_words(passage, language) for passage in passages))


def _count_words(text: str, language: str) -> int:
    """Count words: runs without white space in English; in Chinese characters, as the released
    RAGEval does.
    """
    return len(text) if language == "zh" else len(text.split())


def answer_rouge_l(
    answers: Sequence[str],
    references: Sequence[str],
    language: _Language = "en",
    tokenizer: Callable[[str], Sequence[str]] | None = None,
    *,
    variant: Literal["words", "released"] = "words",
) -> np.ndarray:
    """ROUGE-L F1 of answers against true answers, in English or Chinese: float array, shape (n,),
    in [0, 1]; NaN where one has no token (the released evaluation gives 0).

    Parameters
    ----------
    language : chooses the default tokens: lower-cased runs of letters and digits in English (as the
        rouge-score package does, without its stemmer); single characters, and runs of Latin letters
        and digits, in Chinese.
    tokenizer : your own, for instance ``jieba.lcut``, whose words the released evaluation took for
        Chinese.
    variant : ``"words"``: the longest common subsequence of words. ``"released"``: the package
        rouge 1.0.1, which the released code calls for English: sentences end at full stops, words
        at blanks; counted are the *distinct* words, in common when a longest common subsequence of
        two sentences holds them.

    Source: RAGEval, Table 3. Paper value: 0.2190 (GPT-4o, English). The result file that was
    released beside the code (0.1322 over 350 answers) comes from another variant:
    ``tokenizer=str.split`` with ``"words"``.
    """
    check_known("language", [language], LANGUAGES)
    check_known("variant", [variant], ("words", "released"))
    answers = as_list(answers, "answers")
    references = as_list(references, "references")
    same_length(answers=answers, references=references)
    if variant == "released" and (language != "en" or tokenizer is not None):
        expected = "English, without a tokenizer"
        raise ConfigError("variant='released' with others", expected, "use variant='words'")
    tokens = tokenizer or (lambda text: _TOKENS[language].findall(text.lower()))
    scores = []
    for answer, reference in zip(answers, references, strict=True):
        if variant == "released":
            scores.append(_distinct_rouge_l(answer, reference))
            continue
        a = tokens(answer)
        b = tokens(reference)
        # F1 of precision common / len(a) and recall common / len(b)
        scores.append(2 * lcs_length(a, b) / (len(a) + len(b)) if len(a) and len(b) else math.nan)
    return np.array(scores, float)


def _distinct_rouge_l(answer: str, reference: str) -> float:
    """ROUGE-L of the package rouge 1.0.1, which counts distinct words (a blank sentence is a word
    there too).
    """
    a = _sentences_of_words(answer)
    b = _sentences_of_words(reference)
    if not a or not b:
        return math.nan
    common: set[str] = set()
    for true in b:
        for sentence in a:
            common.update(_lcs_tokens(true, sentence))
    return 2 * len(common) / (len(set().union(*a)) + len(set().union(*b)))


def _sentences_of_words(text: str) -> list[list[str]]:
    return [" ".join(sentence.split()).split(" ") for sentence in text.split(".") if sentence]


def _lcs_tokens(a: Sequence[str], b: Sequence[str]) -> list[str]:
    """Tokens of the longest common subsequence that is found from the ends, last first; on ties b's
    token is dropped.

    Which of several is found matters to ROUGE-L as the package rouge counts it: by distinct words.
    """
    lengths = [[0] * (len(b) + 1)]
    for word in a:
        above = lengths[-1]
        row = [0]
        for j, other in enumerate(b):
            row.append(above[j] + 1 if word == other else max(above[j + 1], row[j]))
        lengths.append(row)
    common = []
    i = len(a)
    j = len(b)
    while i and j:
        if a[i - 1] == b[j - 1]:
            common.append(a[i - 1])
            i -= 1
            j -= 1
        elif lengths[i - 1][j] > lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return common
