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
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from ragbench.data.ragchecker import Claim, claim_text
from ragbench.llm import ask, label_schema
from ragbench.llm.models import BOUNDS
from ragbench.llm.structured import MOST_ITEMS
from ragbench.prompts import Prompt, fill_prompt, load_prompt
from ragbench.stats.inputs import as_list, same_length

Context = str | Sequence[str]  # one text, or a list of passages


def names_of(options: dict[str, Any], **columns: Sequence[Any] | None) -> list[str]:
    """Take ``ids`` of the examples (default: their numbers) out of the options.

    DataError unless all columns are lists of one length.
    """
    columns["ids"] = options.pop("ids", None)
    lists = {}
    for name, column in columns.items():
        if column is not None:
            lists[name] = as_list(column, name, object)
    same_length(**lists)
    length = len(next(iter(lists.values())))
    return [str(name) for name in lists.get("ids", range(length))]


def context_text(context: Context, name: str) -> str:
    """Return a context as one text, passages a blank line apart.

    ``name`` : of the example, for the message where a passage is no text.
    """
    passages = as_list([context] if isinstance(context, str) else context, f"context of {name}")
    return "\n\n".join(passage.strip() for passage in passages if passage.strip())


@dataclass(frozen=True, slots=True)
class LabelStep:
    """A label that takes one prompt per item."""

    name: str  # in the cassette and in plans
    prompt: Prompt
    schema: type[BaseModel]  # of the reply
    # field of the prompt; an item where it is blank has the label ``blank`` and needs no call
    needs: str
    read: Callable[[Any], Any]  # the label that a reply holds, from its parsed object
    blank: Any = ()
    bound: str = "text"  # of a reply's length, in `ragbench.llm.models.BOUNDS`

    def ask(
        self,
        model: Any,
        names: Sequence[str],
        fields: Mapping[str, Sequence[str]],
        options: Mapping[str, Any],
    ) -> list[Any]:
        """Label every item; ``fields`` are texts of the items by field of the prompt."""
        options = {"step": self.name, "num_predict": BOUNDS[self.bound], **options}
        template = load_prompt(options.pop("prompt", self.prompt))
        prompts: dict[int, str] = {}
        for place, texts in enumerate(zip(*fields.values(), strict=True)):
            row = dict(zip(fields, map(str.strip, texts), strict=True))
            if row[self.needs]:
                prompts[place] = fill_prompt(template, **row)
        first: dict[str, str] = {}  # each different prompt, and the name of its first item
        for place, prompt in prompts.items():
            first.setdefault(prompt, names[place])
        labels = [self.blank] * len(names)
        if first:
            replies = ask(model, list(first), self.schema, ids=list(first.values()), **options)
            reply_to = dict(zip(first, replies, strict=True))
            for place, prompt in prompts.items():
                reply = reply_to[prompt]
                labels[place] = self.read(reply.parsed) if reply.ok else None
        return labels


@dataclass(frozen=True, slots=True)
class ItemStep:
    """A label of each item of a text, such as of its claims."""

    step: LabelStep  # its prompt has a field for the text, one for the items, and count
    items: str  # the field; a plural: an item is called so without its s

    def ask(
        self,
        model: Any,
        items: Sequence[Sequence[Claim] | None],
        texts: Sequence[Context],
        options: dict[str, Any],
        **others: Sequence[str],
    ) -> list[tuple[Any, ...] | None]:
        """Label lists of items, each item against the text of its list.

        ``items`` : None where a list is not known. ``others`` : texts of the prompt's other fields,
        by field.
        """
        columns = {self.step.needs: texts, **others}
        plurals = {f"{name}s": column for name, column in columns.items()}
        names = names_of(options, **{self.items: items}, **plurals)
        rows = []
        for place, (name, listed) in enumerate(zip(names, items, strict=True)):
            if listed is None:
                continue
            same = {field: column[place] for field, column in others.items()}
            same |= {self.step.needs: context_text(texts[place], name), "count": "1"}
            claims = as_list(listed, f"{self.items} of {name}", object)
            for number, claim in enumerate(claims, 1):
                line = " ".join(claim_text(claim).split())  # one number, one line
                item = f"{name} {self.items.removesuffix('s')} {number}"
                rows.append({"name": item, **same, self.items: f"1. {line}"})
        fields = ["name", *columns, "count", self.items]
        table = pd.DataFrame(rows, columns=fields, dtype=object).to_dict("list")
        labels = iter(self.step.ask(model, table.pop("name"), table, options))
        return [None if listed is None else tuple(next(labels) for _ in listed) for listed in items]


# Schemas. Their names and fields are a part of recorded requests


def one_label(labels: tuple[str, ...]) -> type[BaseModel]:
    """Make the schema of a reply with exactly one of these labels."""
    return label_schema(1, labels)


def explained_label(labels: tuple[str, ...]) -> type[BaseModel]:
    """Make the schema of a reply with one of these labels, after a sentence that says why."""
    forbid = ConfigDict(extra="forbid")
    fields: dict[str, Any] = {"why": (str, ...), "verdict": (Literal[labels], ...)}
    verdict: Any = create_model("Verdict", __config__=forbid, **fields)
    one = (list[verdict], Field(min_length=1, max_length=1))
    return create_model("LabelsFor1", __config__=forbid, labels=one)


@lru_cache(maxsize=64)
def texts_schema(field: str, count: int | None = None) -> type[BaseModel]:
    """Make the schema of a list of texts, none of them blank: ``count`` of them, or up to
    ``MOST_ITEMS``.
    """

    def not_blank(text: str) -> str:
        if not text.strip():
            raise ValueError("a text of white space alone")
        return text.strip()

    text: Any = Annotated[str, Field(min_length=1), AfterValidator(not_blank)]
    sized = Field(min_length=count, max_length=count or MOST_ITEMS)
    fields: dict[str, Any] = {field: (list[text], sized)}
    return create_model(field.title(), __config__=ConfigDict(extra="forbid"), **fields)
