"""How every label is asked of a model: each different prompt once, and several items per prompt
without guessing.

A kind of label is a `LabelStep` (one prompt per item) or a `JointStep` (several items of one text
per prompt). Functions that ask a model for labels take these ``options``: ``prompt``, the id or
file of another prompt with the same fields; ``ids``, names of the examples for messages; and those
of `ragbench.llm.ask`.

The schema of a joint reply leaves the number of labels open (up to 2n, so that a runaway list
ends): a schema of exactly n makes servers with a grammar write n labels even where the model lost
count. A reply with another number of labels is not used, since nobody knows which item was left
out; its items are asked again one by one. Small models label by place (the first item of a prompt
Neutral, the second Contradiction), so the items of a prompt stand in an order drawn by a fixed
seed, the same for equal prompts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from ragbench.data.ragchecker import Claim, claim_text
from ragbench.errors import ConfigError
from ragbench.llm import Reply, Usage, ask, label_schema
from ragbench.llm.models import BOUNDS
from ragbench.llm.structured import MOST_ITEMS
from ragbench.prompts import Prompt, fill_prompt, load_prompt
from ragbench.stats.inputs import as_list, same_length

_ORDER_SEED = 20261126  # of the items of one prompt
Context = str | Sequence[str]  # one text, or a list of passages


def names_of(options: dict[str, Any], **columns: Sequence[Any] | None) -> list[str]:
    """Take ``ids`` of the examples (default: their numbers) out of the options.

    DataError unless all columns are lists of one length.
    """
    ids = options.pop("ids", None)
    lists = {
        name: as_list(values, name, object)
        for name, values in {**columns, "ids": ids}.items()
        if values is not None
    }
    same_length(**lists)
    length = len(next(iter(lists.values())))
    return [str(name) for name in lists.get("ids", range(length))]


def context_text(context: Context, name: str) -> str:
    """Return a context as one text, passages a blank line apart.

    ``name`` : of the example, for the message where a passage is no text.
    """
    passages = as_list([context] if isinstance(context, str) else context, f"context of {name}")
    return "\n\n".join(passage.strip() for passage in passages if passage.strip())


class Unscored(NamedTuple):
    """An item ("q1 claim 3") without a usable reply."""

    id: str
    kind: str  # of failure, in `ragbench.llm.KINDS`
    detail: str  # what was wrong, in words
    raw: str  # the reply


@dataclass(frozen=True, slots=True)
class StepReport:
    """Counts of one step. Add two reports of the same step with ``+``."""

    step: str
    prompts: int = 0  # different ones that were needed
    calls: int = 0  # requests made for them now, repair tries among them
    cached: int = 0  # prompts answered by the cassette
    repaired: int = 0  # prompts whose first reply did not fit
    items: int = 0
    settled: int = 0  # items that needed no model (an empty text entails nothing)
    unscored: int = 0  # items without a readable reply; each is in ``failures``
    mismatches: int = 0  # replies about several items with another number of labels
    rechecked: int = 0  # their items, and those of unreadable replies, asked again one by one
    usage: Usage = field(default_factory=Usage)  # spent now
    failures: tuple[Unscored, ...] = field(default=(), repr=False)

    def __add__(self, other: StepReport) -> StepReport:
        counts = [name for name in self.__slots__ if name != "step"]
        sums = {name: getattr(self, name) + getattr(other, name) for name in counts}
        return StepReport(self.step, **sums)


class _Request(NamedTuple):
    """One prompt: its text, the schema of the reply, and a name for messages."""

    prompt: str
    schema: type[BaseModel]
    id: str

    @property
    def key(self) -> tuple[str, type[BaseModel]]:
        """What equal requests share, which are sent once."""
        return self.prompt, self.schema


def _send(
    model: Any, step: str, requests: Sequence[_Request], options: Mapping[str, Any], bound: str
) -> tuple[list[Reply], StepReport]:
    """Ask every different request once; return one reply per request, and what it took."""
    once: dict[Any, _Request] = {}
    for request in requests:
        once.setdefault(request.key, request)
    if not once:
        return [], StepReport(step)
    replies = ask(
        model,
        [request.prompt for request in once.values()],
        schema=[request.schema for request in once.values()],
        ids=[request.id for request in once.values()],
        **{"step": step, "num_predict": BOUNDS[bound], **options},
    )
    reply_to = dict(zip(once, replies, strict=True))
    now = [reply for reply in replies if not reply.cached]
    report = StepReport(
        step,
        prompts=len(replies),
        calls=sum(reply.attempts for reply in now),
        cached=len(replies) - len(now),
        repaired=sum(reply.repairs for reply in replies if reply.ok),
        usage=sum((reply.usage for reply in now), Usage()),
    )
    return [reply_to[request.key] for request in requests], report


def _unscored(name: str, reply: Reply) -> Unscored:
    kind = reply.error.kind if reply.error is not None else "other"
    return Unscored(name, kind, str(reply.error), reply.raw or reply.text)


@dataclass(frozen=True, slots=True)
class LabelResult:
    """A label per item, None where no reply could be read (see ``report.failures``), and what the
    step took.

    Of a `JointStep`: the labels of each list of items, in its shape.
    """

    labels: tuple[Any, ...]
    report: StepReport


@dataclass(frozen=True, slots=True)
class LabelStep:
    """A label that takes one prompt per item."""

    name: str  # in the cassette and in reports
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
    ) -> LabelResult:
        """Label every item; ``fields`` are texts of the items by field of the prompt."""
        options = dict(options)
        template = load_prompt(options.pop("prompt", self.prompt))
        requests = {}
        for place, (name, *texts) in enumerate(zip(names, *fields.values(), strict=True)):
            row = dict(zip(fields, (text.strip() for text in texts), strict=True))
            if row[self.needs]:
                requests[place] = _Request(fill_prompt(template, **row), self.schema, name)
        replies, report = _send(model, self.name, list(requests.values()), options, self.bound)
        labels = [self.blank] * len(names)
        failures = []
        for place, reply in zip(requests, replies, strict=True):
            if reply.ok:
                labels[place] = self.read(reply.parsed)
            else:
                labels[place] = None
                failures.append(_unscored(names[place], reply))
        report = replace(
            report,
            items=len(names),
            settled=len(names) - len(requests),
            unscored=len(failures),
            failures=tuple(failures),
        )
        return LabelResult(tuple(labels), report)


# The model answered, or would have, had the prompt been shorter: one item alone may fare better.
# After any other failure (no server, no model, no time) it would not.
_WORTH_A_SECOND_LOOK = frozenset({"unusable", "truncated"})


@dataclass(frozen=True, slots=True)
class _ItemList:
    """The items of one text, and the fields of their prompts."""

    name: str
    items: tuple[str, ...]
    text: str
    fields: Mapping[str, str]


class _Span(NamedTuple):
    """Neighbouring items of one list that share a prompt."""

    row: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    def single(self) -> list[_Span]:
        return [_Span(self.row, item, item + 1) for item in range(self.start, self.stop)]


@dataclass(frozen=True, slots=True)
class JointStep:
    """A label of each item of a text, several items per prompt."""

    name: str  # in the cassette and in reports
    prompt: Prompt  # has ``text``, ``items`` and count among its fields
    labels: tuple[str, ...]
    blank: str  # label of every item when the text is empty, where no model is needed
    text: str
    items: str  # a plural: an item is called so without its s
    explain: bool = False  # whether a sentence that says why comes before each label

    def ask(
        self,
        model: Any,
        items: Sequence[Sequence[Claim] | None],
        texts: Sequence[Context],
        joint: int | None,
        options: dict[str, Any],
        **others: Sequence[str],
    ) -> LabelResult:
        """Label lists of items, each against its own text, ``joint`` per prompt (None: all), singly
        where that failed.

        ``items`` : None where a list is not known. ``others`` : texts of the prompt's other fields,
        by field. Items of two texts never share a prompt: what is asked about one text does not
        depend on the rest of the run, and equal prompts of two systems are asked once. An empty
        text needs no prompt.
        """
        if joint is not None and joint < 1:
            raise ConfigError(f"joint={joint!r}", "items per prompt, at least 1, or None for all")
        columns = {f"{name}s": texts_of for name, texts_of in {self.text: texts, **others}.items()}
        names = names_of(options, **{self.items: items}, **columns)
        template = load_prompt(options.pop("prompt", self.prompt))
        lists = self._item_lists(names, items, texts, others)
        labels: list[list[Any] | None] = [None] * len(names)
        for row, listed in lists.items():
            labels[row] = [None if listed.text else self.blank] * len(listed.items)
        single = "text" if self.explain else "label"  # a reason takes room

        def label(spans: Sequence[_Span], bound: str) -> tuple[list[_Span], StepReport]:
            requests = [self._request(template, lists[span.row], span) for span in spans]
            replies, report = _send(model, self.name, requests, options, bound)
            return self._place_labels(labels, lists, spans, requests, replies, report)

        again, report = label(_spans(lists, joint), single if joint == 1 else "text")
        if again:
            report += label(again, single)[1]
        report = replace(
            report,
            items=sum(len(listed.items) for listed in lists.values()),
            settled=sum(len(listed.items) for listed in lists.values() if not listed.text),
        )
        return LabelResult(tuple(None if row is None else tuple(row) for row in labels), report)

    def _item_lists(
        self,
        names: Sequence[str],
        items: Sequence[Sequence[Claim] | None],
        texts: Sequence[Context],
        others: Mapping[str, Sequence[str]],
    ) -> dict[int, _ItemList]:
        """Return the lists that are known, by place."""
        lists = {}
        for row, (name, listed) in enumerate(zip(names, items, strict=True)):
            if listed is None:
                continue
            text = context_text(texts[row], name)
            fields = {field: column[row].strip() for field, column in others.items()}
            claims = as_list(listed, f"{self.items} of {name}", object)
            fields[self.text] = text
            lists[row] = _ItemList(name, tuple(map(claim_text, claims)), text, fields)
        return lists

    def _request(self, template: str, listed: _ItemList, span: _Span) -> _Request:
        lines = [
            # on one line: one number, one item
            f"{number}. {' '.join(listed.items[place].split())}"
            for number, place in enumerate(_order(listed, span), 1)
        ]
        fields = {**listed.fields, "count": str(span.size), self.items: "\n".join(lines)}
        schema = _reply_schema(span.size, self.labels, self.explain)
        return _Request(fill_prompt(template, **fields), schema, self._name(listed, span))

    def _name(self, listed: _ItemList, span: _Span) -> str:
        name = f"{listed.name} {self.items.removesuffix('s')} {span.start + 1}"
        if span.size > 1:
            name += f"-{span.stop}"
        return name

    def _place_labels(
        self,
        labels: Sequence[Any],
        lists: Mapping[int, _ItemList],
        spans: Sequence[_Span],
        requests: Sequence[_Request],
        replies: Sequence[Reply],
        report: StepReport,
    ) -> tuple[list[_Span], StepReport]:
        """Put the labels of replies in their places; return what to ask again, and the counts."""
        again: list[_Span] = []
        failures: list[Unscored] = []
        mismatched = set()
        for span, request, reply in zip(spans, requests, replies, strict=True):
            listed = lists[span.row]
            verdicts = self._verdicts(reply)
            if len(verdicts) == span.size:
                for place, verdict in zip(_order(listed, span), verdicts, strict=True):
                    labels[span.row][place] = verdict
            elif span.size > 1 and _may_fare_better_alone(reply):
                again += span.single()
                if reply.ok:
                    mismatched.add(request.key)
            else:
                failures += [_unscored(self._name(listed, one), reply) for one in span.single()]
        report = replace(
            report,
            unscored=len(failures),
            mismatches=len(mismatched),
            rechecked=len(again),
            failures=tuple(failures),
        )
        return again, report

    def _verdicts(self, reply: Reply) -> list[str]:
        if not reply.ok:
            return []
        if self.explain:
            return [label.verdict for label in reply.parsed.labels]
        return list(reply.parsed.labels)


def _spans(lists: Mapping[int, _ItemList], joint: int | None) -> list[_Span]:
    """Cut the lists whose text is not empty into prompts of ``joint`` items (None: all)."""
    spans = []
    for row, listed in lists.items():
        count = len(listed.items) if listed.text else 0
        size = joint or max(count, 1)
        spans += [_Span(row, at, min(at + size, count)) for at in range(0, count, size)]
    return spans


def _may_fare_better_alone(reply: Reply) -> bool:
    return reply.error is None or reply.error.kind in _WORTH_A_SECOND_LOOK


def _order(listed: _ItemList, span: _Span) -> list[int]:
    """Return the places of the items of one prompt in the order in which it shows them."""
    places = list(range(span.start, span.stop))
    shown = listed.items[span.start : span.stop]
    random.Random(f"{_ORDER_SEED} {shown}").shuffle(places)
    return places


# Schemas. Their names and fields are a part of recorded requests


@lru_cache(maxsize=1024)
def _reply_schema(count: int, labels: tuple[str, ...], explain: bool = False) -> type[BaseModel]:
    """Make the schema of a reply about ``count`` items.

    Exactly one label for one, an open number for more.
    """
    if count == 1 and not explain:
        return label_schema(1, labels)
    label: Any = Literal[labels]
    if explain:
        fields: dict[str, Any] = {"why": (str, ...), "verdict": (label, ...)}
        label = create_model("Verdict", __config__=ConfigDict(extra="forbid"), **fields)
    sized = Field(min_length=0, max_length=2 * count)
    if count == 1:
        sized = Field(min_length=1, max_length=1)
    name = f"LabelsFor{count}"
    return create_model(name, __config__=ConfigDict(extra="forbid"), labels=(list[label], sized))


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
