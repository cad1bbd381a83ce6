"""A set of WikiEval's shape from a user's own pages, made by a model (RAGAS, section 4).

Each row holds a text made better and a text made worse for each of the three dimensions: grounded /
ungrounded answer, complete / incomplete answer, focused / padded context. Padding comes from pages
that mention the page (back-links).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ragbench.data.wikieval import WikiEval, WikiEvalRow
from ragbench.datagen.parts import Unfit, Writer
from ragbench.errors import DataError
from ragbench.records import Document
from ragbench.text.sentences import split_sentences

_INTRODUCTION = 12  # sentences
_PADDING = 0.5  # sentences that are added to a context, as a share of its own
# What a model is asked for a page, and what its prompt shows.
_STEPS = {
    "question": ("context",),
    "answer": ("question", "context"),
    "ungrounded": ("question",),
    "incomplete": ("question",),
    "padding": ("context", "count"),
}


def make_ragas_set(model: Any, pages: Sequence[Document], **options: Any) -> WikiEval:
    """Make a set of WikiEval's shape from a user's own pages, with a model, in four or five calls
    per page.

    The first 12 sentences of a page are its introduction. A page for which a call failed is listed
    in ``failed``. ``options`` are of `ragbench.llm.ask`.

    Source: RAGAS, section 4 (the wording of the prompts is ours).
    """
    if not pages:
        raise DataError(
            "no pages", "at least one document", "load them with ragbench.data.load_documents"
        )
    # what prompts show, and what came back
    texts = {page.id: _shown(page, pages) for page in pages}
    linked = {name for name, known in texts.items() if "padding" in known}
    writer = Writer(model, **options)
    failed: dict[str, str] = {}

    def read(_: str, text: str) -> str:
        if not text.strip():
            raise Unfit("an empty reply")
        return text.strip()

    for step, fields in _STEPS.items():
        prompts = {}
        for name, known in texts.items():
            if name not in failed and step not in known:
                prompts[name] = {field: known[field] for field in fields}
        writer.rejected.clear()
        replies = writer.ask(f"ragas {step}", f"ragas_data_{step}", prompts, read)
        for name, text in replies.items():
            texts[name][step] = text
        for one in writer.rejected:
            failed[one.id] = f"{step}: {one.reason} {one.detail}".strip()
    rows = []
    for page in pages:
        if page.id not in failed:
            padding = "back-links" if page.id in linked else "model"
            rows.append(_row(page, texts[page.id], padding))
    return WikiEval("own pages", tuple(rows), tuple(failed.items()))


def _shown(page: Document, pages: Sequence[Document]) -> dict[str, str]:
    """Return a page's introduction, the number of sentences to add to it, and these where other
    pages link to it.
    """
    introduction = " ".join(_sentences_of(page)[:_INTRODUCTION])
    if not introduction:
        raise DataError(
            f"page {page.id!r} has no text", "a page with an introduction", "leave it out"
        )
    count = max(1, round(_PADDING * len(split_sentences(introduction, "en"))))
    shown = {"context": introduction, "count": str(count)}
    if linked := _back_linked(page, pages, count):
        shown["padding"] = " ".join(linked)
    return shown


def _back_linked(page: Document, pages: Sequence[Document], count: int) -> list[str]:
    """Return up to ``count`` sentences of other pages that mention a page by title: those that
    mention it, then their others.
    """
    own = _sentences_of(page)
    linking = []
    around = []
    for other in pages:
        if other.title == page.title or not _mentions(other.text, page.title):
            continue
        for sentence in _sentences_of(other):
            if _mentions(sentence, page.title):
                linking.append(sentence)
            elif sentence not in own:
                around.append(sentence)
    return list(dict.fromkeys([*linking, *around]))[:count]


def _sentences_of(page: Document) -> Sequence[str]:
    """Return a page's sentences without white space around them."""
    # MiniHop's sentences after the first begin with a blank, so that they join to the text.
    return [sentence.strip() for sentence in page.sentences] or split_sentences(page.text, "en")


def _mentions(text: str, title: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(title)}(?!\w)", text) is not None


def _row(page: Document, known: dict[str, str], padding: str) -> WikiEvalRow:
    context = known["context"]
    return WikiEvalRow(
        page.id,
        known["question"],
        (context,),
        (context, known["padding"]),
        known["answer"],
        known["ungrounded"],
        known["incomplete"],
        source=page.title,
        meta={"padding": padding},
    )
