"""How every label is asked of a model: one item a prompt, each different prompt once. A label that
could not be read is None; `ragbench.llm.ask` logs how many, and why.

Functions that ask a model for labels take these ``options``: ``prompt``, the id or file of another
prompt with the same fields; ``ids``, names of the examples for messages; and those of
`ragbench.llm.ask`.

RAGChecker and RAGAS put all claims of a text into one prompt: ``joint=True``, a quarter of the
calls. Small models then label by place (the first item Neutral, the second Contradiction) or lose
count, so by default each item has a prompt of its own. Equal prompts, such as those of two systems,
are asked once.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, get_args

import pandas as pd
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from ragbench.data.ragchecker import Claim, claim_text
from ragbench.llm import Reply, ask, label_schema
from ragbench.llm.models import BOUNDS
from ragbench.llm.structured import MOST_ITEMS
from ragbench.prompts import Prompt, fill_prompt, load_prompt
from ragbench.stats.inputs import as_list, same_length

log = logging.getLogger(__name__)

# from "For instance" or "Example 1." to the next empty line
_DEMONSTRATION = re.compile(r"^(?:For instance|Example)\b.*?(?=\n\n|\Z)", re.M | re.S)
_NAME = re.compile(r"(?<=[\w,] )[A-Z]\w{2,}")  # a capital letter within a sentence
_WORD = re.compile(r"\w+")
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
        options.pop("joint", None)  # of the steps that label items
        template = load_prompt(options.pop("prompt", self.prompt))
        names = _names_of(options, columns)
        prompts = self._prompts(template, names, columns)
        first_name: dict[str, str] = {}  # each different prompt, and the name of its first example
        for name, prompt in zip(names, prompts, strict=True):
            if prompt:
                first_name.setdefault(prompt, name)
        label_of = {"": self.blank}
        if first_name:
            asked = [*first_name]
            replies = ask(model, asked, self.schema, ids=[*first_name.values()], **options)
            label_of |= self._labels(asked, replies, template)
        return [label_of[prompt] for prompt in prompts]

    def _labels(
        self, prompts: Sequence[str], replies: Sequence[Reply], template: str
    ) -> dict[str, Any]:
        """Read each prompt's label; None where there is none, or one from the demonstration."""
        labels = {}
        leaked = 0
        for prompt, reply in zip(prompts, replies, strict=True):
            label = self.read(reply.parsed) if reply.ok else None
            if _names_demonstration(label, template, prompt):
                leaked += 1
                label = None
            labels[prompt] = label
        if leaked:
            log.warning(
                "%s of %s labels (%s) name what only the demonstration of their prompt names, "
                "and are unread",
                leaked,
                len(prompts),
                self.name,
            )
        return labels

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

        ``items`` : None where a list is not known. With ``joint=True`` among the options all items
        of a list are in one prompt, each labelled under its number; an item whose number is missing
        in the reply, or there twice, is asked alone, once.
        """
        options = dict(options)
        is_joint = options.pop("joint", False)
        lists = self._item_lists(options, items, columns)
        labels: dict[tuple[int, int], Any] = {}  # by the places of list and item
        if is_joint:
            labels = self._ask_jointly(model, options, lists, [*columns])
        labels |= self._ask_alone(model, options, lists, [*columns], labels)
        labelled: list[tuple[Any, ...] | None] = []
        for place, listed in enumerate(lists):
            of_list = tuple(labels[place, number] for number in range(len(listed.items)))
            labelled.append(None if items[place] is None else of_list)
        return labelled

    def _ask_alone(
        self,
        model: Any,
        options: Mapping[str, Any],
        lists: Sequence[_ItemList],
        columns: Sequence[str],
        labels: Mapping[tuple[int, int], Any],
    ) -> dict[tuple[int, int], Any]:
        """Ask one prompt for each item that has no label yet; return labels by place."""
        rows = {}
        for place, listed in enumerate(lists):
            for number in range(len(listed.items)):
                if (place, number) not in labels:
                    rows[place, number] = self._row_of_item(listed, number)
        if not rows:
            return {}
        answers = self._ask_rows(model, options, [*rows.values()], columns)
        return dict(zip(rows, answers, strict=True))

    def _item_lists(
        self,
        options: dict[str, Any],
        items: Sequence[Sequence[Claim] | None],
        columns: Mapping[str, Sequence[Context]],
    ) -> list[_ItemList]:
        """Return each list of items (an empty one for None) with its name and texts."""
        names = _names_of(options, {self.items.removesuffix("s"): items, **columns})
        lists = []
        for name, listed, *texts in zip(names, items, *columns.values(), strict=True):
            checked = as_list(listed or (), f"{self.items} of {name}", object)
            lists.append(_ItemList(name, checked, texts))
        return lists

    def _row_of_item(self, listed: _ItemList, number: int) -> list[Any]:
        """Return a row for `_ask_rows` that has one item of a list."""
        name = f"{listed.name} {self.items.removesuffix('s')} {number + 1}"
        return [name, *listed.texts, "1", _numbered([listed.items[number]])]

    def _ask_rows(
        self, model: Any, options: Mapping[str, Any], rows: Sequence[Any], columns: Sequence[str]
    ) -> list[Any]:
        """Ask one prompt a row: its name, its texts, how many items, and the items."""
        table = pd.DataFrame(rows, columns=["ids", *columns, "count", self.items], dtype=object)
        ids = table.pop("ids").tolist()
        return self.ask(model, {**options, "ids": ids}, **table.to_dict("list"))

    def _ask_jointly(
        self,
        model: Any,
        options: Mapping[str, Any],
        lists: Sequence[_ItemList],
        columns: Sequence[str],
    ) -> dict[tuple[int, int], Any]:
        """Ask one prompt a list of two items and more; return the labels whose number was given
        once, by the places of list and item.
        """
        several = {place: listed for place, listed in enumerate(lists) if len(listed.items) > 1}
        if not several:
            return {}
        table = [_row_of_list(listed) for listed in several.values()]
        step = replace(self, schema=_joint_schema(self.schema), read=_by_number, bound="text")
        options = {"prompt": f"{self.prompt}_joint", **options}
        replies = step._ask_rows(model, options, table, columns)
        labels = {}
        for (place, listed), reply in zip(several.items(), replies, strict=True):
            for number, label in self._joint_labels(reply, len(listed.items)):
                labels[place, number - 1] = label
        return labels

    def _joint_labels(self, reply: Any, count: int) -> Iterator[tuple[int, Any]]:
        """Yield number and label of the items that a reply has labelled once."""
        for number in range(1, count + 1):
            if reply == self.blank:  # nothing to look in
                yield number, self.blank
            elif number in (reply or {}):
                yield number, reply[number]


@dataclass(frozen=True, slots=True)
class _ItemList:
    """Items, such as the claims of a text, and the texts that their prompts show."""

    name: str
    items: list[Claim]
    texts: list[Context]


def _row_of_list(listed: _ItemList) -> list[Any]:
    """Return a row for `LabelStep._ask_rows` that has all items of a list."""
    return [listed.name, *listed.texts, str(len(listed.items)), _numbered(listed.items)]


def _numbered(claims: Sequence[Claim]) -> str:
    """Write claims as a numbered list, a line each."""
    lines = [" ".join(claim_text(claim).split()) for claim in claims]
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


@lru_cache(maxsize=16)
def _joint_schema(schema: type[BaseModel]) -> type[BaseModel]:
    """Make the schema of labels under their numbers, of the schema of a single label."""
    (label,) = get_args(schema.model_fields["labels"].annotation)
    if isinstance(label, type) and issubclass(label, BaseModel):
        label = label.model_fields["verdict"].annotation
    closed = ConfigDict(extra="forbid")
    numbered = create_model("Numbered", __config__=closed, number=(int, Field(ge=1)), label=label)
    listed = (list[numbered], Field(max_length=MOST_ITEMS))  # type: ignore[valid-type]
    return create_model("JointLabels", __config__=closed, labels=listed)


def _by_number(reply: Any) -> dict[int, Any]:
    """Return the labels whose number stands once in a reply."""
    counts = Counter(row.number for row in reply.labels)
    return {row.number: row.label for row in reply.labels if counts[row.number] == 1}


def _names_demonstration(label: Any, template: str, prompt: str) -> bool:
    """Tell whether texts that a model wrote have a name of the template's demonstration that no
    text of the prompt has: small models copy from it.
    """
    if not isinstance(label, tuple):
        return False
    names = set()
    for demonstration in _DEMONSTRATION.findall(template):
        names.update(_NAME.findall(demonstration))
    words = set(_WORD.findall(" ".join(map(str, label))))
    return any(prompt.count(name) == template.count(name) for name in names & words)


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
