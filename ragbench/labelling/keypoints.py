"""Verdicts on keypoints (RAGEval): is each covered by a response, contradicted by it, or neither?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragbench.labelling.asking import Judged, Task, Unit, names_of, same_length, task_step
from ragbench.labelling.claims import Prompt, checked, judge_known
from ragbench.llm import Step
from ragbench.metrics.keypoints import VERDICTS
from ragbench.prompts import load_prompt

STEP = "keypoints"


def keypoint_verdicts(
    model: Any,
    questions: Sequence[str],
    responses: Sequence[str],
    keypoints: Sequence[Sequence[str]],
    joint: int | None = None,
    *,
    prompt: Prompt = "steps_keypoints",
    ids: Sequence[Any] | None = None,
    **options: Any,
) -> Judged:
    """Compare responses with the keypoints of the true answers.

    Parameters
    ----------
    model, options : as for `ragbench.llm.ask`.
    questions, responses : shape (n,), English or Chinese. keypoints : a list per question.
    joint : keypoints per prompt; None: all of one question. A reply with a wrong number of verdicts is not used, its
        keypoints are asked again one by one.
    prompt : id or file with the fields question, response, count and keypoints.
    ids : names for messages; default numbers.

    Returns
    -------
    Judged with "covered", "contradicted" or "neither" per keypoint, None where unscored: its ``labels`` are what
    `ragbench.metrics.keypoints.keypoint_table` takes. An empty response says nothing: neither, without a call.

    Source: RAGEval, section 3.5.2, Eq 3-5 (the wording of the prompt is ours).
    """
    return judge_known(model, _task(prompt), _units(questions, responses, keypoints, ids), joint, options)


def steps_for_keypoints(
    questions: Sequence[str],
    responses: Sequence[str],
    keypoints: Sequence[Sequence[str]],
    joint: int | None = None,
    *,
    prompt: Prompt = "steps_keypoints",
) -> list[Step]:
    """Make the step of `keypoint_verdicts` for `ragbench.llm.plan`: its prompts, each different one once."""
    return [task_step(_task(prompt), _units(questions, responses, keypoints, None), joint)]


def _task(prompt: Prompt) -> Task:
    return Task(STEP, load_prompt(prompt), VERDICTS, "neither", "response", "keypoints", "keypoint")


def _units(
    questions: Sequence[str], responses: Sequence[str], keypoints: Sequence[Sequence[str]], ids: Sequence[Any] | None
) -> list[Unit]:
    count = same_length(questions=questions, responses=responses, keypoints=keypoints)
    rows = zip(names_of(ids, count), questions, responses, keypoints, strict=True)
    return [Unit(name, r.strip(), checked(own, name, "keypoint"), {"question": q.strip()}) for name, q, r, own in rows]
