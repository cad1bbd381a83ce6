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

import itertools
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
    lists = {}
    for field, column in columns.items():
        name = f"{field}s"
        lists[name] = as_list(column, name, object)
    length = len(lists[name])
    ids = options.pop("ids", None)
    lists["ids"] = as_list(range(length) if ids is None else ids, "ids", object)
    same_length(**lists)
    return [str(name) for name in lists["ids"]]


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

    @classmethod
    def of_texts(
        cls, name: str, prompt: str, needs: str, field: str, count: int | None = None
    ) -> LabelStep:
        """Make a step whose label is a tuple of texts: ``count`` of them, or up to ``MOST_ITEMS``.

        ``field`` : of the reply. None of the texts is blank.
        """
        schema = _texts_schema(field, count)
        return cls(name, prompt, schema, needs, lambda reply: tuple(getattr(reply, field)))

    @classmethod
    def of_choices(
        cls, name: str, prompt: str, labels: tuple[str, ...], needs: str, blank: str, items: str
    ) -> LabelStep:
        """Make a step whose label is one of ``labels`` for each item of a text."""
        schema = label_schema(1, labels)
        return cls(name, prompt, schema, needs, _first_label, blank, "label", items)

    def ask(
        self, model: Any, options: Mapping[str, Any], **columns: Sequence[Context]
    ) -> list[Any]:
        """Label every example; ``columns`` are texts by field of the prompt, one per example."""
        options = {"step": self.name, "num_predict": BOUNDS[self.bound], **options}
        template = load_prompt(options.pop("prompt", self.prompt))
        names = _names_of(options, columns)
        prompts = self._prompts(template, names, columns)
        first_name: dict[str, str] = {}  # each different prompt, and the name of its first example
        for name, prompt in zip(names, prompts, strict=True):
            if prompt:
                first_name.setdefault(prompt, name)
        label_of = {"": self.blank}
        if first_name:
            replies = ask(
                model, list(first_name), self.schema, ids=list(first_name.values()), **options
            )
            for prompt, reply in zip(first_name, replies, strict=True):
                label_of[prompt] = self.read(reply.parsed) if reply.ok else None
        return [label_of[prompt] for prompt in prompts]

    def _prompts(
        self, template: str, names: Sequence[str], columns: Mapping[str, Sequence[Context]]
    ) -> list[str]:
        """Return the prompt of each example; an empty one where the text that it needs is blank."""
        prompts = []
        for name, *texts in zip(names, *columns.values(), strict=True):
            fields = {}
            for field, text in zip(columns, texts, strict=True):
                fields[field] = context_text(text, f"{field} of {name}") or self.empty
            prompts.append(fill_prompt(template, **fields) if fields[self.needs] else "")
        return prompts

    def ask_items(
        self,
        model: Any,
        options: Mapping[str, Any],
        items: Sequence[Sequence[Claim] | None],
        **columns: Sequence[Context],
    ) -> list[tuple[Any, ...] | None]:
        """Label lists of items, each item in a prompt with the texts of its list.

        ``items`` : None where a list is not known.
        """
        options = dict(options)
        item = self.items.removesuffix("s")
        names = _names_of(options, {item: items, **columns})
        rows = []
        for name, listed, *texts in zip(names, items, *columns.values(), strict=True):
            claims = as_list(listed or (), f"{self.items} of {name}", object)
            for number, claim in enumerate(claims, 1):
                line = " ".join(claim_text(claim).split())  # one number, one line
                rows.append([f"{name} {item} {number}", *texts, "1", f"1. {line}"])
        table = pd.DataFrame(rows, columns=["ids", *columns, "count", self.items], dtype=object)
        options["ids"] = table.pop("ids").tolist()
        labels = iter(self.ask(model, options, **table.to_dict("list")))
        labelled: list[tuple[Any, ...] | None] = []
        for listed in items:
            of_list = None
            if listed is not None:
                of_list = tuple(itertools.islice(labels, len(listed)))
            labelled.append(of_list)
        return labelled


def _first_label(reply: Any) -> Any:
    return reply.labels[0]


@lru_cache(maxsize=64)
def _texts_schema(field: str, count: int | None = None) -> type[BaseModel]:
    """Make the schema of a list of texts; its name and field are a part of recorded requests."""

    def not_blank(text: str) -> str:
        if not text.strip():
            raise ValueError("a text of white space alone")
        return text.strip()

    text: Any = Annotated[str, Field(min_length=1), AfterValidator(not_blank)]
    texts = (list[text], Field(min_length=count, max_length=count or MOST_ITEMS))
    fields: dict[str, Any] = {field: texts}
    return create_model(field.title(), __config__=ConfigDict(extra="forbid"), **fields)
