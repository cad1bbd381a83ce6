"""A set of WikiEval's shape from a user's own pages, written by a model (RAGAS, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ragbench.data.wikieval import WikiEval, WikiEvalRow
from ragbench.errors import ConfigError, DataError
from ragbench.prompts import fill_prompt, load_prompt
from ragbench.ragas_data.padding import back_linked, sentences_of
from ragbench.text.sentences import split_sentences

if TYPE_CHECKING:
    from ragbench.llm import Cassette, Step
    from ragbench.records import Document

PROMPTS = {
    "question": "ragas_data_question",
    "answer": "ragas_data_answer",
    "ungrounded": "ragas_data_ungrounded",
    "incomplete": "ragas_data_incomplete",
    "padding": "ragas_data_padding",
}


def make_ragas_set(
    model: Any,
    pages: Sequence[Document],
    *,
    intro_sentences: int = 12,
    padding: float = 0.5,
    cassette: Cassette | None = None,
    prompts: dict[str, str] | None = None,
    **options: Any,
) -> WikiEval:
    """Make a set of WikiEval's shape from a user's own pages, with a model.

    Four calls per page, five for a page that no other page mentions.

    Parameters
    ----------
    model, cassette, options : as for `ragbench.llm.ask`.
    pages : documents, e.g. of `ragbench.data.load_documents`; their opening sentences are the introduction.
    intro_sentences : how many of them.
    padding : sentences to add for ``context_v2``, as a share of the introduction's.
    prompts : ids or files in place of `PROMPTS`.

    Returns
    -------
    WikiEval; a page for which a call failed is left out and listed in ``failed`` with the reason.

    Raises
    ------
    DataError for no page or an empty one; errors of ``ask``.

    Source: RAGAS, section 4 (the wording of the prompts is ours).
    """
    from ragbench.llm import ask

    used = {**PROMPTS, **(prompts or {})}
    introductions = _introductions(pages, intro_sentences)
    failed: dict[int, str] = {}

    def step(kind: str, **fields: dict[int, str]) -> dict[int, str]:
        """Ask about every page that has all fields; note failures."""
        places = [i for i in range(len(pages)) if i not in failed and all(i in column for column in fields.values())]
        template = load_prompt(used[kind])
        asked = [fill_prompt(template, **{name: column[i] for name, column in fields.items()}) for i in places]
        names = [f"{pages[i].id} {kind}" for i in places]
        replies = (
            ask(model, asked, cassette=cassette, ids=names, **{"step": f"ragas {kind}", **options}) if asked else []
        )
        done = {}
        for i, reply in zip(places, replies, strict=True):
            if reply.ok and reply.text.strip():
                done[i] = reply.text.strip()
            else:
                failed[i] = f"{kind}: {reply.error or 'an empty reply'}"
        return done

    intro = dict(enumerate(introductions))
    question = step("question", context=intro)
    answer = step("answer", question=question, context=intro)
    ungrounded = step("ungrounded", question=question)
    poor = step("incomplete", question=question)
    wanted = {i: max(1, round(padding * len(split_sentences(text, "en")))) for i, text in intro.items()}
    extra = {i: " ".join(back_linked([pages[i]], pages, wanted[i])) for i in intro if i not in failed}
    alone = {i: intro[i] for i, text in extra.items() if not text}
    extra |= step("padding", context=alone, count={i: str(wanted[i]) for i in alone})
    rows = [
        WikiEvalRow(
            pages[i].id, question[i], (intro[i],), (intro[i], extra[i]), answer[i], ungrounded[i], poor[i],
            source=pages[i].title, meta={"padding": "model" if i in alone else "back-links"},
        )
        for i in range(len(pages)) if i not in failed
    ]  # fmt: skip
    return WikiEval("own pages", tuple(rows), tuple((pages[i].id, why) for i, why in sorted(failed.items())))


def steps_for_ragas_set(pages: Sequence[Document], intro_sentences: int = 12) -> list[Step]:
    """Count the calls of `make_ragas_set` before the run, for `ragbench.llm.plan`.

    Returns
    -------
    Steps with their number of calls: question, answer, ungrounded and incomplete once per page, padding once per page
    that no other page mentions.
    """
    from ragbench.llm import Step

    template = load_prompt(PROMPTS["question"])
    first = [fill_prompt(template, context=text) for text in _introductions(pages, intro_sentences)]
    alone = sum(not back_linked([page], pages, 1) for page in pages)
    calls = {"answer": len(pages), "ungrounded": len(pages), "incomplete": len(pages), "padding": alone}
    return [Step("ragas question", prompts=first), *(Step(f"ragas {kind}", calls=n) for kind, n in calls.items())]


def _introductions(pages: Sequence[Document], count: int) -> list[str]:
    if not pages:
        raise DataError("no pages", "at least one document", "load them with ragbench.data.load_documents")
    if count < 1:
        raise ConfigError(f"intro_sentences={count}", "at least 1", "leave it out for the default")
    texts = [" ".join(sentences_of(page)[:count]) for page in pages]
    for page, text in zip(pages, texts, strict=True):
        if not text:
            raise DataError(f"page {page.id!r} has no text", "a page with an introduction", "leave it out")
    return texts
