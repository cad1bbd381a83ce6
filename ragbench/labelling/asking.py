"""How every label is asked of a model: one item a prompt, each different prompt once. A label that
could not be read is None; `ragbench.llm.ask` logs how many, and why.

Functions that ask a model for labels take these ``options``: ``prompt``, the id or file of another
prompt with the same fields; ``ids``, names of the examples for messages; and those of
`ragbench.llm.ask`.

RAGChecker and RAGAS put all claims of a text into one prompt. Small models then label by place (the
first item Neutral, the second Contradiction) or lose count, so here each item has a prompt of its
own. Equal prompts, such as those of two systems, are asked once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import pandas as pd
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from ragbench.data.ragchecker import Claim, claim_text
from ragbench.llm import ask, label_schema
from ragbench.llm.models import BOUNDS
from ragbench.llm.structured import MOST_ITEMS
from ragbench.prompts import Prompt, fill_prompt, load_prompt
from ragbench.stats.inputs import as_list, same_length

Context = str | Sequence[str]  # one text, or a list of passages


def _names_of(options: dict[str, Any], columns: Mapping[str, Sequence[Any]]) -> list[str]:
    """Take ``ids`` of the examples (default: their numbers) out of the options.

    DataError unless all columns are lists of one length.
    """
    lists = {f"{field}s": as_list(column, f"{field}s", object) for field, column in columns.items()}
    ids = options.pop("ids", None)
    if ids is not None:
        lists["ids"] = as_list(ids, "ids", object)
    same_length(**lists)
    length = len(next(iter(lists.values())))
    return [str(name) for name in lists.get("ids", range(length))]


def context_text(context: Context, name: str) -> str:
    """Return a context as one text, passages a blank line apart.

    ``name`` : of the context, for the message where a passage is no text.
    """
    passages = as_list([context] if isinstance(context, str) else context, name)
    return "\n\n".join(passage.strip() for passage in passages if passage.strip())


@dataclass(frozen=True, slots=True)
class LabelStep:
    """A label that takes one prompt per example, or per item of it, such as a claim of a text."""

    name: str  # in the cassette and in plans
    prompt: Prompt
    schema: type[BaseModel]  # of the reply
    # field of the prompt; an example where it is blank has the label ``blank`` and needs no call
    needs: str
    read: Callable[[Any], Any]  # the label that a reply holds, from its parsed object
    blank: Any = ()
    bound: str = "text"  # of a reply's length, in `ragbench.llm.models.BOUNDS`
    items: str = ""  # field of the prompt that lists items
    empty: str = ""  # what a prompt shows of an empty text

    def ask(
        self, model: Any, options: Mapping[str, Any], **columns: Sequence[Context]
    ) -> list[Any]:
        """Label every example; ``columns`` are texts by field of the prompt, one per example."""
        options = {"step": self.name, "num_predict": BOUNDS[self.bound], **options}
        template = load_prompt(options.pop("prompt", self.prompt))
        names = _names_of(options, columns)
        prompts: dict[int, str] = {}
        first: dict[str, str] = {}  # each different prompt, and the name of its first example
        for place, (name, *texts) in enumerate(zip(names, *columns.values(), strict=True)):
            row = {}
            for field, text in zip(columns, texts, strict=True):
                row[field] = context_text(text, f"{field} of {name}") or self.empty
            if row[self.needs]:
                prompts[place] = fill_prompt(template, **row)
                first.setdefault(prompts[place], name)
        labels = [self.blank] * len(names)
        if first:
            replies = ask(model, list(first), self.schema, ids=list(first.values()), **options)
            reply_to = dict(zip(first, replies, strict=True))
            for place, prompt in prompts.items():
                reply = reply_to[prompt]
                labels[place] = self.read(reply.parsed) if reply.ok else None
        return labels

    def ask_items(
        self,
        model: Any,
        options: dict[str, Any],
        items: Sequence[Sequence[Claim] | None],
        **columns: Sequence[Context],
    ) -> list[tuple[Any, ...] | None]:
        """Label lists of items, each item in a prompt with the texts of its list.

        ``items`` : None where a list is not known.
        """
        names = _names_of(options, {self.items.removesuffix("s"): items, **columns})
        rows = []
        for name, listed, *texts in zip(names, items, *columns.values(), strict=True):
            for number, claim in enumerate(
                as_list(listed or (), f"{self.items} of {name}", object), 1
            ):
                line = " ".join(claim_text(claim).split())  # one number, one line
                item = f"{name} {self.items.removesuffix('s')} {number}"
                rows.append([item, *texts, "1", f"1. {line}"])
        table = pd.DataFrame(rows, columns=["ids", *columns, "count", self.items], dtype=object)
        options = {**options, "ids": table.pop("ids").tolist()}
        labels = iter(self.ask(model, options, **table.to_dict("list")))
        return [None if listed is None else tuple(next(labels) for _ in listed) for listed in items]


def label_step(
    name: str, prompt: str, labels: tuple[str, ...], needs: str, blank: str, items: str
) -> LabelStep:
    """Make a step whose label is one of ``labels`` for each item of a text.

    The label of an item is ``blank`` where its text is.
    """
    schema = label_schema(1, labels)
    return LabelStep(
        name, prompt, schema, needs, lambda reply: reply.labels[0], blank, "label", items
    )


def texts_step(
    name: str, prompt: str, needs: str, field: str, count: int | None = None
) -> LabelStep:
    """Make a step whose label is a tuple of texts: ``count`` of them, or up to ``MOST_ITEMS``.

    ``field`` : of the reply. None of the texts is blank.
    """
    return LabelStep(
        name, prompt, _texts_schema(field, count), needs, lambda reply: tuple(getattr(reply, field))
    )


@lru_cache(maxsize=64)
def _texts_schema(field: str, count: int | None = None) -> type[BaseModel]:
    """Make the schema of a list of texts; its name and field are a part of recorded requests."""

    def not_blank(text: str) -> str:
        if not text.strip():
            raise ValueError("a text of white space alone")
        return text.strip()

    text: Any = Annotated[str, Field(min_length=1), AfterValidator(not_blank)]
    sized = Field(min_length=count, max_length=count or MOST_ITEMS)
    fields: dict[str, Any] = {field: (list[text], sized)}
    return create_model(field.title(), __config__=ConfigDict(extra="forbid"), **fields)
