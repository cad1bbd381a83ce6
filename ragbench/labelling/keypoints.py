"""Verdicts on keypoints (RAGEval): is each covered by a response, contradicted by it, or
neither?
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragbench.labelling.asking import JointStep, LabelResult
from ragbench.metrics.keypoints import VERDICTS

_STEP = JointStep("keypoints", "steps_keypoints", VERDICTS, "neither", "response", "keypoints")


def keypoint_verdicts(
    model: Any,
    questions: Sequence[str],
    responses: Sequence[str],
    keypoints: Sequence[Sequence[str]],
    joint: int | None = 1,
    **options: Any,
) -> LabelResult:
    """Compare responses with the keypoints of the true answers: "covered", "contradicted" or
    "neither" each.

    ``questions``, ``responses``: shape (n,), English or Chinese; an empty response says nothing:
    neither, without a call. ``keypoints``: a list per question. ``options``: see
    `ragbench.labelling.asking`; ``joint``: as for `ragbench.labelling.claims.check_claims`.
    `ragbench.metrics.keypoints.keypoint_table` takes the labels.

    Source: RAGEval, section 3.5.2, Eq 3-5 (the wording of the prompt is ours).
    """
    return _STEP.ask(model, keypoints, responses, joint, options, question=questions)
