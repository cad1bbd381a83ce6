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

import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from ragbench.data.ragchecker import Claim, claim_text
from ragbench.errors import ConfigError, DataError
from ragbench.llm import Reply, Usage, ask, label_schema
from ragbench.llm.models import BOUNDS
from ragbench.llm.structured import MOST_ITEMS
from ragbench.prompts import Prompt, fill_prompt, load_prompt

_ORDER_SEED = 20261126  # of the items of one prompt
Context = str | Sequence[str]  # one text, or a list of passages


def one_line(text: str) -> str:
    """Put a text on one line, so that an item cannot pass for two numbered ones."""
    return " ".join(text.split())


def names_of(options: dict[str, Any], **columns: Sequence[Any] | None) -> list[str]:
    """Take ``ids`` of the examples (default:

    their numbers) out of the options, once all columns have one length.
    """
    ids = options.pop("ids", None)
    given = {name: values for name, values in {**columns, "ids": ids}.items() if values is not None}
    if single := [name for name, values in given.items() if isinstance(values, str)]:
        raise ConfigError(
            f"{single[0]} is one string", "a list, one entry per example", f"pass {single[0]}=[...]"
        )
    if len({len(values) for values in given.values()}) > 1:
        lengths = ", ".join(f"{len(values)} {name}" for name, values in given.items())
        raise ConfigError(lengths, "as many of each", "pass one entry per example in every list")
    return [str(name) for name in (range(len(next(iter(given.values())))) if ids is None else ids)]


def context_text(context: Context, name: str) -> str:
    """Return a context as one text, passages a blank line apart;

    ``name`` tells the example in a message.
    """
    passages = [context] if isinstance(context, str) else context
    if not isinstance(passages, Iterable) or not all(
        isinstance(passage, str) for passage in passages
    ):
        got = f"the context of {name} holds something else than texts"
        raise ConfigError(got, "a text or a list of texts", "pass chunk.text, not the chunk")
    return "\n\n".join(passage.strip() for passage in passages if passage.strip())


class _Unscored(NamedTuple):
    """An item ("q1 claim 3") without a usable reply:

    the kind of failure, what was wrong in words, the raw reply.
    """

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
        """Share of the joint prompts whose reply had the wrong number of labels;

        NaN without joint prompts.
        """
        return self.mismatches / self.joint if self.joint else float("nan")

    def __add__(self, other: StepReport) -> StepReport:
        sums = {
            name: getattr(self, name) + getattr(other, name)
            for name in self.__slots__
            if name != "step"
        }
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
    replies = ask(
        model,
        prompts,
        schema=schemas,
        ids=ids,
        **{"step": step, "num_predict": BOUNDS[bound], **options},
    )
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
            labels[place] = self.read(reply.parsed) if reply.ok else None
            failures += [] if reply.ok else [_unscored(names[place], reply)]
        counts = {
            "items": len(names),
            "settled": len(names) - len(requests),
            "unscored": len(failures),
        }
        return LabelResult(tuple(labels), replace(report, **counts, failures=tuple(failures)))


# The model answered, or would have, had the prompt been shorter: one item alone may fare better.
# After any other failure (no server, no model, no time) it would not.
_WORTH_A_SECOND_LOOK = frozenset({"unusable", "truncated"})


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
        columns = {self.text: texts, **others}
        names = names_of(
            options,
            **{self.items: items},
            **{name + "s": column for name, column in columns.items()},
        )
        if joint is not None and joint < 1:
            raise ConfigError(
                f"joint={joint!r}", "items per prompt, at least 1, or None for all", "choose one"
            )
        template = load_prompt(options.pop("prompt", self.prompt))
        labels: list[Any] = [None] * len(names)
        rows: dict[
            int, tuple[dict[str, str], tuple[str, ...]]
        ] = {}  # fields of the prompt, and the items
        slices: list[tuple[int, int, int]] = []  # row, first item, end
        for n, (name, some, text, *fields) in enumerate(
            zip(names, items, texts, *others.values(), strict=True)
        ):
            if some is not None:
                listed = _item_texts(some, name, self.items[:-1])
                text = context_text(text, name)
                labels[n] = [None if text else self.blank] * len(listed)
                rows[n] = (
                    dict(zip(others, map(str.strip, fields), strict=True)) | {self.text: text},
                    listed,
                )
                size = joint or max(len(listed), 1)
                slices += [
                    (n, i, min(i + size, len(listed))) for i in range(0, len(listed), size) if text
                ]

        def place(n: int, start: int, stop: int) -> str:
            return f"{names[n]} {self.items[:-1]} {start + 1}" + (
                f"-{stop}" if stop - start > 1 else ""
            )

        def request(n: int, start: int, stop: int) -> _Request:
            fields, listed = rows[n]
            shown = [listed[item] for item in _order(listed, start, stop)]
            lines = "\n".join(f"{number}. {one_line(item)}" for number, item in enumerate(shown, 1))
            filled = fill_prompt(
                template, **fields, **{"count": str(stop - start), self.items: lines}
            )
            return _Request(
                filled,
                _reply_schema(stop - start, self.labels, self.explain),
                place(n, start, stop),
            )

        single = "text" if self.explain else "label"  # a reason takes room
        bound = single if joint == 1 else "text"
        report = StepReport(self.name)
        rechecked = 0
        failures: list[_Unscored] = []
        several = set()
        mismatches = set()
        unreadable = set()
        while slices:  # at most twice: what is asked again is asked singly
            requests = list(itertools.starmap(request, slices))
            replies, sent = _send(model, self.name, requests, options, bound)
            again = []
            for (n, start, stop), asked, reply in zip(slices, requests, replies, strict=True):
                joined = stop - start > 1
                if joined:
                    several.add(asked[:2])
                if reply.ok and len(verdicts := self._read(reply.parsed)) == stop - start:
                    for item, verdict in zip(
                        _order(rows[n][1], start, stop), verdicts, strict=True
                    ):
                        labels[n][item] = verdict
                elif joined and (
                    reply.ok
                    or (reply.error is not None and reply.error.kind in _WORTH_A_SECOND_LOOK)
                ):
                    (mismatches if reply.ok else unreadable).add(asked[:2])
                    again += [(n, i, i + 1) for i in range(start, stop)]
                else:
                    failures += [_unscored(place(n, i, i + 1), reply) for i in range(start, stop)]
            slices = again
            bound = single
            report += sent
            rechecked += len(again)
        report = replace(
            report,
            items=sum(len(listed) for _, listed in rows.values()),
            settled=sum(len(listed) for fields, listed in rows.values() if not fields[self.text]),
            unscored=len(failures),
            joint=len(several),
            mismatches=len(mismatches),
            unreadable=len(unreadable),
            rechecked=rechecked,
            failures=tuple(failures),
        )
        return LabelResult(tuple(None if row is None else tuple(row) for row in labels), report)

    def _read(self, parsed: Any) -> list[str]:
        return [label.verdict for label in parsed.labels] if self.explain else list(parsed.labels)


def _order(listed: Sequence[str], start: int, stop: int) -> list[int]:
    """Return the places of the items of one prompt in the order in which it shows them."""
    places = list(range(start, stop))
    random.Random(f"{_ORDER_SEED} {listed[start:stop]}").shuffle(places)
    return places


def _item_texts(items: Sequence[Claim], name: str, what: str) -> tuple[str, ...]:
    """Return claims, or the like, as texts; an error names the place of what is none."""
    if isinstance(items, str):
        raise ConfigError(
            f"the {what}s of {name} are one string", f"a list of {what}s", "put it in a list"
        )
    for place, item in enumerate(items, 1):
        parts = [item] if isinstance(item, str) else item
        triple = isinstance(parts, (list, tuple)) and len(parts) in (1, 3)
        if not (
            triple
            and all(isinstance(part, str) for part in parts)
            and any(part.strip() for part in parts)
        ):
            got = f"{what} {place} of {name} is {item!r:.60}"
            expected = "a sentence, or a triple of texts"
            raise DataError(got, expected, "mend it, or extract the claims again")
    return tuple(map(claim_text, items))


# Schemas. Their names and fields are a part of recorded requests


@lru_cache(maxsize=1024)
def _reply_schema(count: int, labels: tuple[str, ...], explain: bool = False) -> type[BaseModel]:
    """Make the schema of a reply about ``count`` items:

    exactly one label for one, an open number for more.
    """
    if count == 1 and not explain:
        return label_schema(1, labels)
    one: Any = Literal[labels]
    if explain:
        one = create_model(
            "Verdict", __config__=ConfigDict(extra="forbid"), why=(str, ...), verdict=(one, ...)
        )
    least, most = (1, 1) if count == 1 else (0, 2 * count)
    many = (list[one], Field(min_length=least, max_length=most))
    return create_model(f"LabelsFor{count}", __config__=ConfigDict(extra="forbid"), labels=many)


@lru_cache(maxsize=64)
def texts_schema(field: str, count: int | None = None, parts: int = 1) -> type[BaseModel]:
    """Make the schema of a list of texts, none of them blank: ``count`` of them, or up to
    ``MOST_ITEMS``.

    With ``parts`` above 1 each entry is itself a list of so many texts.
    """

    def not_blank(text: str) -> str:
        if not text.strip():
            raise ValueError("a text of white space alone")
        return text.strip()

    one: Any = Annotated[str, Field(min_length=1), AfterValidator(not_blank)]
    if parts > 1:
        one = Annotated[list[one], Field(min_length=parts, max_length=parts)]
    sized = (
        Field(max_length=MOST_ITEMS) if count is None else Field(min_length=count, max_length=count)
    )
    name = field.title() + (f"Of{parts}" if parts > 1 else "")
    return create_model(name, __config__=ConfigDict(extra="forbid"), **{field: (list[one], sized)})
