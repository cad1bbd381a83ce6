"""Sentences that pad a context: those of pages that mention it, as back-links do (RAGAS, section 4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ragbench.text.sentences import split_sentences

if TYPE_CHECKING:
    from ragbench.records import Document


def back_linked(
    pages: Sequence[Document], others: Iterable[Document], count: int, reserve: Iterable[Document] = ()
) -> list[str]:
    """Return up to ``count`` sentences of other pages that mention one of the pages by title, as back-links do.

    Parameters
    ----------
    pages : what is padded. others : where to look.
    reserve : pages whose sentences fill what is missing, in order.

    Returns
    -------
    Sentences, each once, none of the pages' own.
    """
    own = {sentence for page in pages for sentence in sentences_of(page)}
    names = [page.title for page in pages]
    links = [d for d in others if d.title not in names]
    found = [s for d in links for s in sentences_of(d) if any(_mentions(s, name) for name in names)]
    around = [s for d in links if any(_mentions(d.text, name) for name in names) for s in sentences_of(d)]
    spare = [s for d in reserve for s in sentences_of(d)]
    return [s for s in dict.fromkeys([*found, *around, *spare]) if s not in own][:count]


def sentences_of(page: Document) -> Sequence[str]:
    """Return a page's sentences without white space around them."""
    # MiniHop's sentences after the first begin with a blank, so that they join to the text.
    return [s.strip() for s in page.sentences] or split_sentences(page.text, "en")


def _mentions(text: str, title: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(title)}(?!\w)", text) is not None
