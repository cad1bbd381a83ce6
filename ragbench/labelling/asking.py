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
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from ragbench.data.ragchecker import Claim, claim_text
from ragbench.llm import Reply, ask, label_schema
from ragbench.llm.models import BOUNDS
from ragbench.llm.structured import MOST_ITEMS
from ragbench.prompts import Prompt, fill_prompt, load_prompt, names_demonstration
from ragbench.stats.inputs import as_list, same_length

log = logging.getLogger(__name__)

Context = str | Sequence[str]  # one text, or a list of passages
_Place = tuple[int, int]  # of a list, and of an item there
_Labels = dict[_Place, Any]


@dataclass(frozen=True, slots=True)
class _Example:
    """What a prompt shows: texts by its fields, and items, such as the claims of a text."""

    name: str  # for messages
    texts: dict[str, Any]
    items: Sequence[Claim] = ()


def _examples(options: dict[str, Any], columns: Mapping[str, Sequence[Any]]) -> list[_Example]:
    """Return the examples, named by the ``ids`` among the options, which are taken out (default:
    their numbers).

    DataError unless all columns are lists of one length.
    """
    lists: dict[str, list[Any]] = {}
    length = 0
    for field, column in columns.items():
        lists[f"{field}s"] = as_list(column, f"{field}s", object)
        length = len(column)
    ids = options.pop("ids", None)
    lists["ids"] = as_list(range(length) if ids is None else ids, "ids", object)
    same_length(**lists)
    examples = []
    for *texts, name in zip(*lists.values(), strict=True):
        examples.append(_Example(str(name), dict(zip(columns, texts, strict=True))))
    return examples


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
        options = dict(options)
        options.pop("joint", None)  # of the steps that label items
        return self._ask(model, options, _examples(options, columns))

    def _ask(
        self, model: Any, options: Mapping[str, Any], examples: Iterable[_Example]
    ) -> list[Any]:
        """Ask each different prompt once; none where the text that it needs is blank."""
        options = {"step": self.name, "num_predict": BOUNDS[self.bound], **options}
        template = load_prompt(options.pop("prompt", self.prompt))
        prompts = []
        first_name: dict[str, str] = {}  # each different prompt, and the name of its first example
        for example in examples:
            prompt = self._prompt(template, example)
            prompts.append(prompt)
            if prompt:
                first_name.setdefault(prompt, example.name)
        label_of = {"": self.blank}
        if first_name:
            asked = [*first_name]
            replies = ask(model, asked, self.schema, ids=[*first_name.values()], **options)
            label_of |= self._labels(asked, replies, template)
        return [label_of[prompt] for prompt in prompts]

    def _prompt(self, template: str, example: _Example) -> str:
        """Write the prompt of an example; an empty one where the text that it needs is blank."""
        fields = {}
        for field, text in example.texts.items():
            fields[field] = LabelStep.context_text(text, f"{field} of {example.name}") or self.empty
        if self.items:
            fields |= {"count": str(len(example.items)), self.items: _numbered(example.items)}
        return fill_prompt(template, **fields) if fields[self.needs] else ""

    def _labels(
        self, prompts: Sequence[str], replies: Sequence[Reply], template: str
    ) -> dict[str, Any]:
        """Read each prompt's label; None where there is none, or one from the demonstration."""
        labels = {}
        leaked = 0
        for prompt, reply in zip(prompts, replies, strict=True):
            labels[prompt] = None
            if not reply.ok:
                continue
            if names_demonstration(reply.parsed.model_dump_json(), template, prompt):
                leaked += 1
            else:
                labels[prompt] = self.read(reply.parsed)
        if leaked:
            log.warning(
                "%s of %s labels (%s) name what only the demonstration of their prompt names, "
                "and are unread",
                leaked,
                len(prompts),
                self.name,
            )
        return labels

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
        examples = self._with_items(_examples(options, {self._item: items, **columns}))
        labels = self._ask_jointly(model, options, examples) if is_joint else {}
        alone = self._alone(examples, labels)
        labels |= zip(alone, self._ask(model, options, alone.values()), strict=True)
        labelled: list[tuple[Any, ...] | None] = []
        for place, listed in enumerate(items):
            of_list = tuple(labels[place, number] for number in range(len(listed or ())))
            labelled.append(None if listed is None else of_list)
        return labelled

    @property
    def _item(self) -> str:
        return self.items.removesuffix("s")

    def _with_items(self, examples: Iterable[_Example]) -> list[_Example]:
        """Take the lists of items out of the examples' texts; an empty one where it is None."""
        listed = []
        for example in examples:
            items = example.texts.pop(self._item) or ()
            checked = as_list(items, f"{self.items} of {example.name}", object)
            listed.append(replace(example, items=checked))
        return listed

    def _alone(self, examples: Sequence[_Example], labels: _Labels) -> dict[_Place, _Example]:
        """Return an example with one item for each item that has no label."""
        alone = {}
        for place, example in enumerate(examples):
            for number, item in enumerate(example.items):
                if (place, number) not in labels:
                    name = f"{example.name} {self._item} {number + 1}"
                    alone[place, number] = replace(example, name=name, items=[item])
        return alone

    def _ask_jointly(
        self, model: Any, options: Mapping[str, Any], examples: Sequence[_Example]
    ) -> _Labels:
        """Ask one prompt a list of two items and more; return the labels whose number was given
        once.
        """
        several = {place: one for place, one in enumerate(examples) if len(one.items) > 1}
        step = replace(self, schema=_joint_schema(self.schema), read=_by_number, bound="text")
        options = {"prompt": f"{self.prompt}_joint", **options}
        replies = step._ask(model, options, several.values())
        labels: _Labels = {}
        for (place, example), reply in zip(several.items(), replies, strict=True):
            for number in range(len(example.items)):
                if reply == self.blank:  # nothing to look in
                    labels[place, number] = self.blank
                elif number + 1 in (reply or {}):
                    labels[place, number] = reply[number + 1]
        return labels

    @staticmethod
    def context_text(context: Context, name: str) -> str:
        """Return a context as one text, passages a blank line apart.

        ``name`` : of the context, for the message where a passage is not a text.
        """
        passages = as_list([context] if isinstance(context, str) else context, name)
        return "\n\n".join(passage.strip() for passage in passages if passage.strip())


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
    fields: dict[str, Any] = {"number": (int, Field(ge=1)), "label": label}
    numbered = create_model("Numbered", __config__=closed, **fields)
    listed = (list[numbered], Field(max_length=MOST_ITEMS))  # type: ignore[valid-type]
    return create_model("JointLabels", __config__=closed, labels=listed)


def _by_number(reply: Any) -> dict[int, Any]:
    """Return the labels whose number stands once in a reply."""
    counts = Counter(row.number for row in reply.labels)
    return {row.number: row.label for row in reply.labels if counts[row.number] == 1}


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
