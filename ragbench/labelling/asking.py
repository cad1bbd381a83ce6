"""How every label is asked of a model: each different prompt once, and several items per prompt without guessing.

A kind of label is a `LabelStep` (one prompt per item) or a `JointStep` (several items of one text per prompt).
Functions that ask a model for labels take these ``options``: ``prompt``, the id or file of another prompt with the same
fields; ``ids``, names of the examples for messages; and those of `ragbench.llm.ask`.

The schema of a joint reply leaves the number of labels open (up to 2n, so that a runaway list ends): a schema of
exactly n makes servers with a grammar write n labels even where the model lost count. A reply with another number of
labels is not used, since nobody knows which item was left out; its items are asked again one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from ragbench.errors import ConfigError
from ragbench.llm import Reply, Usage, ask, label_schema
from ragbench.llm.models import BOUNDS
from ragbench.llm.structured import MOST_ITEMS
from ragbench.prompts import Prompt, fill_prompt, load_prompt

Context = str | Sequence[str]  # one text, or a list of passages


def one_line(text: str) -> str:
    """Put a text on one line, so that an item cannot pass for two numbered ones."""
    return " ".join(text.split())


def names_of(options: dict[str, Any], **columns: Sequence[Any] | None) -> list[str]:
    """Take ``ids`` of the examples (default: their numbers) out of the options, once all columns have one length."""
    ids = options.pop("ids", None)
    given = {name: values for name, values in {**columns, "ids": ids}.items() if values is not None}
    if single := [name for name, values in given.items() if isinstance(values, str)]:
        raise ConfigError(f"{single[0]} is one string", "a list, one entry per example", f"pass {single[0]}=[...]")
    if len({len(values) for values in given.values()}) > 1:
        lengths = ", ".join(f"{len(values)} {name}" for name, values in given.items())
        raise ConfigError(lengths, "as many of each", "pass one entry per example in every list")
    return [str(name) for name in (range(len(next(iter(given.values())))) if ids is None else ids)]


def context_text(context: Context, name: str) -> str:
    """Return a context as one text, passages a blank line apart; ``name`` tells the example in a message."""
    passages = [context] if isinstance(context, str) else context
    if not isinstance(passages, Iterable) or not all(isinstance(passage, str) for passage in passages):
        got = f"the context of {name} holds something else than texts"
        raise ConfigError(got, "a text or a list of texts", "pass chunk.text, not the chunk")
    return "\n\n".join(passage.strip() for passage in passages if passage.strip())


class _Unscored(NamedTuple):
    """An item ("q1 claim 3") without a usable reply: the kind of failure, what was wrong in words, the raw reply."""

    id: str
    kind: str
    detail: str
    raw: str


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
    joint: int = 0  # prompts about more than one item
    mismatches: int = 0  # joint replies with another number of labels than items
    unreadable: int = 0  # joint replies that could not be read
    rechecked: int = 0  # items of both, asked again one by one
    usage: Usage = field(default_factory=Usage)  # spent now
    failures: tuple[_Unscored, ...] = field(default=(), repr=False)

    @property
    def mismatch_rate(self) -> float:
        """Share of the joint prompts whose reply had the wrong number of labels; NaN without joint prompts."""
        return self.mismatches / self.joint if self.joint else float("nan")

    def __add__(self, other: StepReport) -> StepReport:
        sums = {name: getattr(self, name) + getattr(other, name) for name in self.__slots__ if name != "step"}
        return StepReport(self.step, **sums)


class _Request(NamedTuple):
    """One prompt: its text, the schema of the reply, and a name for messages."""

    prompt: str
    schema: type[BaseModel]
    id: str


def _send(
    model: Any, step: str, requests: Sequence[_Request], options: Mapping[str, Any], bound: str
) -> tuple[list[Reply], StepReport]:
    """Ask every different request once; return one reply per request, and what it took."""
    once: dict[Any, _Request] = {}
    for request in requests:
        once.setdefault(request[:2], request)
    if not once:
        return [], StepReport(step)
    prompts, schemas, ids = (list(column) for column in zip(*once.values(), strict=True))
    replies = ask(model, prompts, schema=schemas, ids=ids, **{"step": step, "num_predict": BOUNDS[bound], **options})
    reply_to = {request[:2]: reply for request, reply in zip(once, replies, strict=True)}
    now = [reply for reply in replies if not reply.cached]
    report = StepReport(
        step,
        prompts=len(replies),
        calls=sum(reply.attempts for reply in now),
        cached=len(replies) - len(now),
        repaired=sum(reply.repairs for reply in replies if reply.ok),
        usage=sum((reply.usage for reply in now), Usage()),
    )
    return [reply_to[request[:2]] for request in requests], report


def _unscored(name: str, reply: Reply) -> _Unscored:
    kind = reply.error.kind if reply.error is not None else "other"
    return _Unscored(name, kind, str(reply.error), reply.raw or reply.text)


@dataclass(frozen=True, slots=True)
class LabelResult:
    """A label per item, None where no reply could be read (see ``report.failures``), and what the step took.

    Of a `JointStep`: the labels of each request, in the shape of its items.
    """

    labels: tuple[Any, ...]
    report: StepReport


@dataclass(frozen=True, slots=True)
class LabelStep:
    """A label that takes one prompt per item."""

    name: str  # in the cassette and in reports
    prompt: Prompt
    schema: type[BaseModel]  # of the reply
    needs: str  # field of the prompt; an item where it is blank has the label ``blank`` and needs no call
    read: Callable[[Any], Any]  # the label that a reply holds, from its parsed object
    blank: Any = ()
    bound: str = "text"  # of a reply's length, in `ragbench.llm.models.BOUNDS`

    def ask(
        self, model: Any, names: Sequence[str], fields: Mapping[str, Sequence[str]], options: Mapping[str, Any]
    ) -> LabelResult:
        """Label every item; ``fields`` are texts of the items by field of the prompt."""
        options = dict(options)
        template, requests = load_prompt(options.pop("prompt", self.prompt)), {}
        for place, (name, *texts) in enumerate(zip(names, *fields.values(), strict=True)):
            row = dict(zip(fields, (text.strip() for text in texts), strict=True))
            if row[self.needs]:
                requests[place] = _Request(fill_prompt(template, **row), self.schema, name)
        replies, report = _send(model, self.name, list(requests.values()), options, self.bound)
        labels, failures = [self.blank] * len(names), []
        for place, reply in zip(requests, replies, strict=True):
            labels[place] = self.read(reply.parsed) if reply.ok else None
            failures += [] if reply.ok else [_unscored(names[place], reply)]
        counts = {"items": len(names), "settled": len(names) - len(requests), "unscored": len(failures)}
        return LabelResult(tuple(labels), replace(report, **counts, failures=tuple(failures)))


# The model answered, or would have, had the prompt been shorter: one item alone may fare better. After any other
# failure (no server, no model, no time) it would not.
_WORTH_A_SECOND_LOOK = frozenset({"unusable", "truncated"})


@dataclass(frozen=True, slots=True)
class LabelRequest:
    """Items to be labelled against one text. ``fields`` are the prompt's other fields."""

    id: str
    text: str
    items: tuple[str, ...]
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JointStep:
    """A label of each item of a text, several items per prompt."""

    name: str  # in the cassette and in reports
    prompt: Prompt  # has ``text``, ``items`` and count among its fields
    labels: tuple[str, ...]
    blank: str  # label of every item when the text is empty, where no model is needed
    text: str
    items: str
    item: str  # what an item is called in messages
    explain: bool = False  # whether a sentence that says why comes before each label

    def ask(
        self, model: Any, units: Sequence[LabelRequest | None], joint: int | None, options: Mapping[str, Any]
    ) -> LabelResult:
        """Label every item of every request, ``joint`` of them per prompt (None: all), and singly where that failed.

        Items of two texts never share a prompt: what is asked about one text does not depend on the rest of the run,
        and equal prompts of two systems are asked once. An empty text needs no prompt.
        """
        if joint is not None and joint < 1:
            raise ConfigError(f"joint={joint!r}", "items per prompt, at least 1, or None for all", "choose one")
        options = dict(options)
        template = load_prompt(options.pop("prompt", self.prompt))
        slices = []
        for n, unit in enumerate(units):
            if unit is not None and unit.text:
                count, size = len(unit.items), joint or max(len(unit.items), 1)
                slices += [(n, start, min(start + size, count)) for start in range(0, count, size)]
        requests = [self._request(template, units[n], start, stop) for n, start, stop in slices]
        one = "text" if self.explain else "label"  # a reason takes room
        replies, report = _send(model, self.name, requests, options, one if joint == 1 else "text")
        labels: list[Any] = [
            None if unit is None else [None if unit.text else self.blank] * len(unit.items) for unit in units
        ]
        again: dict[tuple[int, int], _Request] = {}
        failures: list[_Unscored] = []
        joint_prompts, mismatches, unreadable = set(), set(), set()
        for (n, start, stop), request, reply in zip(slices, requests, replies, strict=True):
            several = stop - start > 1
            if several:
                joint_prompts.add(request[:2])
            if reply.ok and len(verdicts := self._read(reply.parsed)) == stop - start:
                labels[n][start:stop] = verdicts
            elif several and (reply.ok or (reply.error is not None and reply.error.kind in _WORTH_A_SECOND_LOOK)):
                (mismatches if reply.ok else unreadable).add(request[:2])
                again |= {(n, i): self._request(template, units[n], i, i + 1) for i in range(start, stop)}
            else:
                failures += [_unscored(self._name(units[n], i, i + 1), reply) for i in range(start, stop)]
        singles, second = _send(model, self.name, list(again.values()), options, one)
        for ((n, i), request), reply in zip(again.items(), singles, strict=True):
            if reply.ok:
                (labels[n][i],) = self._read(reply.parsed)
            else:
                failures.append(_unscored(request.id, reply))
        given = [unit for unit in units if unit is not None]
        report = replace(
            report + second,
            items=sum(len(unit.items) for unit in given),
            settled=sum(len(unit.items) for unit in given if not unit.text),
            unscored=len(failures),
            joint=len(joint_prompts),
            mismatches=len(mismatches),
            unreadable=len(unreadable),
            rechecked=len(again),
            failures=tuple(failures),
        )
        return LabelResult(tuple(None if row is None else tuple(row) for row in labels), report)

    def _request(self, template: str, unit: Any, start: int, stop: int) -> _Request:
        lines = "\n".join(f"{n}. {one_line(item)}" for n, item in enumerate(unit.items[start:stop], 1))
        fields = {**unit.fields, self.text: unit.text, "count": str(stop - start), self.items: lines}
        schema = _reply_schema(stop - start, self.labels, self.explain)
        return _Request(fill_prompt(template, **fields), schema, self._name(unit, start, stop))

    def _name(self, unit: Any, start: int, stop: int) -> str:
        return f"{unit.id} {self.item} {start + 1}" + (f"-{stop}" if stop - start > 1 else "")

    def _read(self, parsed: Any) -> list[str]:
        return [label.verdict for label in parsed.labels] if self.explain else list(parsed.labels)


# Schemas. Their names and fields are a part of recorded requests


@lru_cache(maxsize=1024)
def _reply_schema(count: int, labels: tuple[str, ...], explain: bool = False) -> type[BaseModel]:
    """Make the schema of a reply about ``count`` items: exactly one label for one, an open number for more."""
    if count == 1 and not explain:
        return label_schema(1, labels)
    one: Any = Literal[labels]
    if explain:
        one = create_model("Verdict", __config__=ConfigDict(extra="forbid"), why=(str, ...), verdict=(one, ...))
    least, most = (1, 1) if count == 1 else (0, 2 * count)
    many = (list[one], Field(min_length=least, max_length=most))
    return create_model(f"LabelsFor{count}", __config__=ConfigDict(extra="forbid"), labels=many)


@lru_cache(maxsize=64)
def texts_schema(field: str, count: int | None = None, parts: int = 1) -> type[BaseModel]:
    """Make the schema of a list of texts, none of them blank: ``count`` of them, or up to ``MOST_ITEMS``.

    With ``parts`` above 1 each entry is itself a list of so many texts.
    """

    def not_blank(text: str) -> str:
        if not text.strip():
            raise ValueError("a text of white space alone")
        return text.strip()

    one: Any = Annotated[str, Field(min_length=1), AfterValidator(not_blank)]
    if parts > 1:
        one = Annotated[list[one], Field(min_length=parts, max_length=parts)]
    sized = Field(max_length=MOST_ITEMS) if count is None else Field(min_length=count, max_length=count)
    name = field.title() + (f"Of{parts}" if parts > 1 else "")
    return create_model(name, __config__=ConfigDict(extra="forbid"), **{field: (list[one], sized)})
