"""Sentences that a question needs, copied from a context by the model and checked to be copies (RAGAS)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragbench.metrics.steps.engine import Request, send_some, texts_schema
from ragbench.metrics.steps.extraction import Prompt
from ragbench.metrics.steps.inputs import Context, joined, names_of, same_length
from ragbench.metrics.steps.report import StepReport
from ragbench.prompts import fill_prompt, load_prompt
from ragbench.text.sentences import split_sentences

INSUFFICIENT = "Insufficient Information"


@dataclass(frozen=True, slots=True)
class Picked:
    """What the model copied from one context.

    Attributes
    ----------
    sentences : the context's own sentences that it copied whole, each once, in the order of the context.
    altered : what it wrote and the context does not hold as whole sentences: not counted.
    total : sentences of the context.
    insufficient : it copied nothing, or wrote just "Insufficient Information".
    """

    sentences: tuple[str, ...]
    altered: tuple[str, ...]
    total: int
    insufficient: bool


@dataclass(frozen=True, slots=True)
class PickedSentences:
    """One `Picked` per example; None where no reply could be read."""

    picked: tuple[Picked | None, ...]
    report: StepReport


def extract_sentences(
    model: Any,
    questions: Sequence[str],
    contexts: Sequence[Context],
    *,
    rule: str = "en",
    prompt: Prompt = "steps_sentences",
    ids: Sequence[Any] | None = None,
    **options: Any,
) -> PickedSentences:
    """Copy from each context the sentences that its question needs, and check that they are copies.

    Parameters
    ----------
    model, options : as for `ragbench.llm.ask`.
    questions : shape (n,). contexts : one text, or a list of passages, per example.
    rule : a row of `ragbench.text.sentences.SENTENCES`, by which a context is cut.
    prompt : id or file with the fields context and question.
    ids : names for messages; default numbers.

    Returns
    -------
    PickedSentences. Copies are compared without white space. An empty context has no sentences: insufficient, no call.

    Source: RAGAS, section 3, Eq 2.
    """
    requests = sentence_requests(questions, contexts, prompt, ids)
    texts = [joined(context, "a context") for context in contexts]

    def read(reply: Any, place: int) -> Picked:
        return pick(reply.parsed.sentences, split_sentences(texts[place], rule))

    found, report = send_some(model, "sentences", requests, read, options)
    nothing = Picked((), (), 0, True)
    return PickedSentences(tuple(nothing if r is None else p for r, p in zip(requests, found, strict=True)), report)


def pick(items: Sequence[str], sentences: Sequence[str]) -> Picked:
    """Find the context's sentences that were copied whole, and what is no copy.

    Parameters
    ----------
    items : what the model wrote; an item may hold several sentences in a row.
    sentences : of the context, in order.

    Returns
    -------
    Picked.
    """
    wrote = [item for item in items if item.strip()]
    phrase = [item.strip().strip("\"'.").casefold() == INSUFFICIENT.casefold() for item in wrote]
    if all(phrase):
        return Picked((), (), len(sentences), True)
    starts, text = [], ""
    for sentence in sentences:
        starts.append(len(text))
        text += _compact(sentence)
    starts.append(len(text))
    taken: set[int] = set()
    altered = []
    for item in wrote:
        inside = [s for s in _places(_compact(item), text, starts) if s]
        fresh = next((s for s in inside if not s <= taken), None)
        if not inside:
            altered.append(item)
        elif fresh is not None:
            taken |= fresh
    return Picked(tuple(sentences[i] for i in sorted(taken)), tuple(altered), len(sentences), False)


def _places(item: str, text: str, starts: Sequence[int]) -> list[set[int]]:
    """For each place of the item in the text: the sentences that lie wholly inside it."""
    found = []
    at = text.find(item)
    while at >= 0:
        end = at + len(item)
        found.append({i for i in range(len(starts) - 1) if at <= starts[i] and starts[i + 1] <= end})
        at = text.find(item, at + 1)
    return found


def sentence_requests(
    questions: Sequence[str], contexts: Sequence[Context], prompt: Prompt, ids: Sequence[Any] | None
) -> list[Request | None]:
    """Make the prompt of each question and context; None for an empty context."""
    names, template = names_of(ids, same_length(questions=questions, contexts=contexts)), load_prompt(prompt)
    requests: list[Request | None] = []
    for name, question, context in zip(names, questions, contexts, strict=True):
        text = joined(context, name)
        filled = fill_prompt(template, context=text, question=question.strip())
        requests.append(Request(name, filled, texts_schema("sentences", None)) if text else None)
    return requests


def _compact(text: str) -> str:
    return "".join(text.split())
