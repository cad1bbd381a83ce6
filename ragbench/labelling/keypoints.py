"""Key points of a true answer (RAGEval), and verdicts on them: is each covered by a response,
contradicted by it, or neither?
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field

from ragbench.labelling.asking import LabelStep
from ragbench.metrics.keypoints import VERDICTS
from ragbench.text.languages import language_of


# Names and docstring are a part of recorded requests.
class _Keypoints(BaseModel, title="KeypointsReply"):
    """Three to five key points."""

    keypoints: list[str] = Field(min_length=3, max_length=5)


def _texts(reply: _Keypoints) -> tuple[str, ...] | None:
    texts = tuple(text.strip() for text in reply.keypoints)
    return texts if all(texts) else None


_EXTRACT = LabelStep("key points", "rageval_keypoints", _Keypoints, "answer", _texts)
_STEP = LabelStep.of_choices(
    "keypoints", "steps_keypoints", VERDICTS, needs="response", blank="neither", items="keypoints"
)


def extract_keypoints(
    model: Any,
    questions: Sequence[str],
    answers: Sequence[str],
    language: str | None = None,
    **options: Any,
) -> list[tuple[str, ...] | None]:
    """Take three to five key points out of each true answer, in one call; none of an empty one.

    ``language`` : in which they are written; None: that of each answer. ``options`` : see
    `ragbench.labelling.asking`.

    Source: RAGEval, section 3.3 (generating keypoints; the wording of the prompt is ours).
    """
    languages = [language or (language_of([answer]) or "english").title() for answer in answers]
    return _EXTRACT.ask(model, options, answer=answers, question=questions, language=languages)


def keypoint_verdicts(
    model: Any,
    questions: Sequence[str],
    responses: Sequence[str],
    keypoints: Sequence[Sequence[str] | None],
    **options: Any,
) -> list[tuple[str | None, ...] | None]:
    """Compare responses with the keypoints of the true answers: "covered", "contradicted" or
    "neither" each.

    ``questions``, ``responses``: shape (n,), English or Chinese; an empty response says nothing:
    neither, without a call. ``keypoints``: a list per question, each asked about in a call of its
    own; None where they are not known. ``options``: see `ragbench.labelling.asking`.
    `ragbench.metrics.keypoints.keypoint_metrics` takes the labels.

    Source: RAGEval, section 3.5.2, Eq 3-5 (the wording of the prompt is ours).

    >>> from langchain_core.language_models import FakeListChatModel
    >>> model = FakeListChatModel(responses=['{"labels": ["covered"]}'])
    >>> points = [["It was Ada."]]
    >>> rb.keypoint_verdicts(model, ["Who?"], ["Ada built it."], points, progress=False)
    [('covered',)]
    """
    return _STEP.ask_items(model, options, keypoints, response=responses, question=questions)
