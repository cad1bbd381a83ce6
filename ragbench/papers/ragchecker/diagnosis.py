"""RAGChecker's diagnosis of settings (section 4.4, appendices D and F): the settings of Figures 6, 7, 8 and 10.

One setting is varied at a time around the paper's default (20 chunks of 300 tokens, overlap 0.2), or the whole grid is
run. Notebook 23 has the rest.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace

from ragbench.data import load_dragonball, load_minihop
from ragbench.papers.ragchecker import DEFAULT, PROMPTS, Setting, long_answered
from ragbench.records import Dataset, Document

KS, SIZES, OVERLAPS = (5, 10, 20), (150, 300, 600), (0.0, 0.2, 0.4)
_VALUES = {"k": KS, "size": SIZES, "prompt": tuple(PROMPTS), "overlap": OVERLAPS}
# Factor: the settings along the axis of its figure.
FACTORS = {factor: tuple(Setting(**{factor: value}) for value in values) for factor, values in _VALUES.items()}
PLACE = ("k", "size", "overlap", "prompt")
SYSTEM = ("retriever", *PLACE)
FIGURES = {"k": "Figure 6", "size": "Figure 7", "prompt": "Figure 8", "overlap": "Figure 10"}


def _topic_pages(data: Dataset) -> Dataset:
    """Join MiniHop's documents of each topic into one page, a question's document; its domain is the topic's group."""
    pages: dict[str, list[str]] = defaultdict(list)
    for document in data.documents:
        pages[document.meta["topic"]].append(document.text)
    documents = tuple(Document(t, t, "\n\n".join(texts), (), {"topic": t}) for t, texts in pages.items())
    topics = ((q, q.meta["topic"]) for q in data.questions)
    questions = tuple(replace(q, meta=q.meta | {"domain": t.partition("/")[0], "doc_ids": (t,)}) for q, t in topics)
    return replace(data, name=f"{data.name} pages", questions=questions, documents=documents)


# Documents that are long enough for chunk sizes to differ: about 1,700 tokens, and 2,200 for MiniHop's topics.
DATA: Mapping[str, Callable[..., Dataset]] = {
    "dragonball": functools.partial(load_dragonball, language="en"),
    "minihop": lambda: _topic_pages(load_minihop()),
}


def answerable(data: Dataset) -> Dataset:
    """Keep the questions with references, and of MiniHop the `long_answered` ones; exclude the others."""
    data = long_answered(data)
    bare = tuple((q.id, "no references") for q in data.questions if not q.references)
    return replace(data, questions=tuple(q for q in data.questions if q.references), excluded=(*data.excluded, *bare))


def variations(full: bool = False, prompts: bool = False) -> list[Setting]:
    """List the settings: one factor at a time around the default, or all combinations of the retriever's factors.

    With ``prompts``, for a chat model, also the default setting with the optimised prompt.
    """
    every = [Setting(k, size, overlap) for size in SIZES for overlap in OVERLAPS for k in KS]
    kept = every if full else [s for s in every if sum(getattr(s, f) != getattr(DEFAULT, f) for f in PLACE) <= 1]
    return kept + [Setting(prompt=name) for name in PROMPTS if prompts and name != DEFAULT.prompt]
