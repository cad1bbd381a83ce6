"""Verdicts on keypoints (RAGEval): is each covered by a response, contradicted by it, or neither?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ragbench.labelling.asking import JointStep, LabelResult, names_of
from ragbench.labelling.checkers import EmbeddedChecker, check_lists
from ragbench.metrics.keypoints import VERDICTS
from ragbench.text.sentences import check_language, split_sentences

_STEP = JointStep("keypoints", "steps_keypoints", VERDICTS, "neither", "response", "keypoints")
# What a label of the embedded checker says of a keypoint.
_VERDICT_OF = {"Entailment": "covered", "Contradiction": "contradicted", "Neutral": "neither"}
_CHINESE = re.compile(r"[A-Za-z0-9]+(?:[.,][0-9]+)*|[^\W_]")


def keypoint_verdicts(
    model: Any,
    questions: Sequence[str],
    responses: Sequence[str],
    keypoints: Sequence[Sequence[str]],
    joint: int | None = None,
    **options: Any,
) -> LabelResult:
    """Compare responses with the keypoints of the true answers: "covered", "contradicted" or "neither" each.

    ``questions``, ``responses``: shape (n,), English or Chinese; an empty response says nothing: neither, without a
    call. ``keypoints``: a list per question. ``options``: see `ragbench.labelling.asking`; ``joint``: as for
    `ragbench.labelling.claims.check_claims`. `ragbench.metrics.keypoints.keypoint_table` takes the labels.

    Source: RAGEval, section 3.5.2, Eq 3-5 (the wording of the prompt is ours).
    """
    return _STEP.ask(model, keypoints, responses, joint, options, question=questions)


def embedded_keypoint_verdicts(
    keypoints: Sequence[Sequence[str]],
    answers: Sequence[str],
    language: str | Sequence[str] = "en",
    checker: Any = None,
) -> list[list[str]]:
    """Judge keypoints without a language model; an empty answer covers nothing.

    ``keypoints``: for each answer its true answer's points. ``language``: "en" or "zh", one for all or one per answer.
    The checker knows words by the blanks between them, so Chinese characters are set apart for it, and sentences on
    lines of their own; without that it finds 20% of the keypoints in their own references (notebook 43). It knows no
    Chinese negation. ``checker``: default `ragbench.EmbeddedChecker`.

    Source: RAGEval, Eq 3-5 (the paper's judge is GPT-4o).
    """
    languages = [language] * len(answers) if isinstance(language, str) else list(language)
    names_of({}, keypoints=keypoints, answers=answers, languages=languages)
    for code in languages:
        check_language(code)
    claims = [
        [" ".join(_readable(point, code).split("\n")) for point in points]
        for points, code in zip(keypoints, languages, strict=True)
    ]
    texts = [_readable(answer, code) for answer, code in zip(answers, languages, strict=True)]
    labels = check_lists(EmbeddedChecker() if checker is None else checker, claims, texts)
    return [[_VERDICT_OF[label] for label in of_answer or ()] for of_answer in labels]


def _readable(text: str, language: str) -> str:
    """Chinese as the checker can read it: a line per sentence, a blank around each character, numbers whole."""
    if language != "zh":
        return text
    return "\n".join(" ".join(_CHINESE.findall(sentence)) for sentence in split_sentences(text, language))
