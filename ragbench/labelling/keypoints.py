"""Verdicts on keypoints (RAGEval): is each covered by a response, contradicted by it, or
neither?
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragbench.labelling.asking import LabelStep
from ragbench.metrics.keypoints import VERDICTS

_STEP = LabelStep.of_choices(
    "keypoints", "steps_keypoints", VERDICTS, needs="response", blank="neither", items="keypoints"
)


def keypoint_verdicts(
    model: Any,
    questions: Sequence[str],
    responses: Sequence[str],
    keypoints: Sequence[Sequence[str]],
    **options: Any,
) -> list[tuple[str | None, ...] | None]:
    """Compare responses with the keypoints of the true answers: "covered", "contradicted" or
    "neither" each.

    ``questions``, ``responses``: shape (n,), English or Chinese; an empty response says nothing:
    neither, without a call. ``keypoints``: a list per question, each asked about in a call of its
    own. ``options``: see `ragbench.labelling.asking`.
    `ragbench.metrics.keypoints.keypoint_metrics` takes the labels.

    Source: RAGEval, section 3.5.2, Eq 3-5 (the wording of the prompt is ours).
    """
    return _STEP.ask_items(model, options, keypoints, response=responses, question=questions)
