"""How every label is asked of a model: each different prompt once, and several items per prompt without guessing.

A joint prompt puts n items (claims, statements, keypoints) before the model. Its reply schema leaves the number of
labels open (up to 2n, so that a runaway list ends): a schema of exactly n makes servers with a grammar write n labels
even where the model lost count, which is padding in the model's name. A reply with another number is a mismatch; none
of its labels is used, since nobody knows which item was left out, and its items are asked again one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from ragbench.errors import ConfigError
from ragbench.llm import Reply, Step, Usage, ask, label_schema
from ragbench.llm.structured import MOST_ITEMS
from ragbench.prompts import Prompt, fill_prompt, load_prompt

# Inputs, checked

Context = str | Sequence[str]


def one_line(text: str) -> str:
    """Put a text on one line, so that an item cannot pass for two numbered ones."""
    return " ".join(text.split())


def check_joint(joint: int | None) -> None:
    """Raise ConfigError unless ``joint`` is None or a number of at least 1."""
    if joint is not None and (isinstance(joint, bool) or not isinstance(joint, int) or joint < 1):
        raise ConfigError(f"joint={joint!r}", "items per prompt, at least 1, or None for all of one text", "choose one")


def common_length(**columns: Sequence[Any] | None) -> int:
    """Return the common length of the columns; ConfigError for one string in place of a list, or unequal lengths."""
    sizes = {}
    for name, values in columns.items():
        if isinstance(values, str):
            raise ConfigError(f"{name} is one string", "a list, one entry per example", f"pass {name}=[...]")
        if values is not None:
            sizes[name] = len(values)
    if len(set(sizes.values())) > 1:
        lengths = ", ".join(f"{size} {name}" for name, size in sizes.items())
        raise ConfigError(lengths, "as many of each", "pass one entry per example in every list")
    return next(iter(sizes.values()), 0)


def names_of(ids: Sequence[Any] | None, **columns: Sequence[Any] | None) -> list[str]:
    """Return the given ids as texts, or numbers: one for each example of the columns, whose lengths are checked."""
    count = common_length(**columns)
    if ids is not None:
        common_length(ids=ids, examples=range(count))
    return [str(name) for name in (ids if ids is not None else range(count))]


def context_text(context: Context, name: str) -> str:
    """Return a context as one text, passages a blank line apart."""
    if isinstance(context, str):
        return context.strip()
    if not isinstance(context, Iterable) or not all(isinstance(passage, str) for passage in context):
        raise ConfigError(
            f"the context of {name} holds something else than texts",
            "a text or a list of texts",
            "pass chunk.text, not the chunk",
        )
    return "\n\n".join(passage.strip() for passage in context if passage.strip())


# Reports: what a step took, and the raw replies that went unscored


@dataclass(frozen=True, slots=True)
class Unscored:
    """Something the model was asked and no usable reply came back for.

    Attributes
    ----------
    id : what it was about: the id of the text, or of the text and the claim (``"q1 claim 3"``).
    kind : one of ``ragbench.llm.KINDS``.
    detail : what was wrong, in words.
    raw : the reply, word for word ("" when there was none).
    """

    id: str
    kind: str
    detail: str
    raw: str = ""


@dataclass(frozen=True, slots=True)
class StepReport:
    """Counts of one step. Add two reports of the same step with ``+``.

    Attributes
    ----------
    step : its name, as in the cassette.
    prompts : different prompts that were needed.
    calls : requests made for them now, repair tries and tries after a broken connection among them.
    cached : prompts that the cassette answered.
    repaired : prompts whose first reply did not fit and whose second one did.
    items : what was to be scored: texts, claims or pairs. settled : those that needed no model (an empty text entails
        nothing). unscored : those without a readable reply; each is in ``failures``.
    joint : prompts about more than one item.
    mismatches : joint replies with more or fewer labels than items. unreadable : joint replies that could not be read.
        No label of either is used: all their items are asked again one by one, ``rechecked`` in number.
    usage : tokens, time and money spent now.
    """

    step: str
    prompts: int = 0
    calls: int = 0
    cached: int = 0
    repaired: int = 0
    items: int = 0
    settled: int = 0
    unscored: int = 0
    joint: int = 0
    mismatches: int = 0
    unreadable: int = 0
    rechecked: int = 0
    usage: Usage = field(default_factory=Usage)
    failures: tuple[Unscored, ...] = field(default=(), repr=False)

    @property
    def mismatch_rate(self) -> float:
        """Share of the joint prompts whose reply had the wrong number of labels; NaN without joint prompts."""
        return self.mismatches / self.joint if self.joint else float("nan")

    def __add__(self, other: StepReport) -> StepReport:
        sums = {name: getattr(self, name) + getattr(other, name) for name in self.__slots__ if name != "step"}
        return StepReport(self.step, **sums)


def unread(name: str, reply: Reply) -> Unscored:
    """Keep what came back for an item that stays unscored."""
    kind = reply.error.kind if reply.error is not None else "other"
    return Unscored(name, kind, str(reply.error), reply.raw or reply.text)


# Requests

# The model answered, or would have, had the prompt been shorter: one item alone may fare better. After any other
# failure (no server, no model, no time) it would not.
_WORTH_A_SECOND_LOOK = frozenset({"invalid", "truncated", "empty", "refused", "context"})


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt: a name for messages, its text, and the schema of the reply."""

    id: str
    prompt: str
    schema: type[BaseModel]


@dataclass(frozen=True, slots=True)
class Unit:
    """Items to be judged against one text. ``fields`` are the prompt's other fields."""

    id: str
    text: str
    items: tuple[str, ...]
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A kind of judgement.

    Attributes
    ----------
    step : name of the step. template : text of the prompt. labels : the words to choose from.
    blank : label of every item when the text is empty, where no model is needed.
    text_field, items_field : names of the prompt's fields.
    item : what an item is called in messages.
    explain : whether each label comes with a sentence that says why.
    """

    step: str
    template: str
    labels: tuple[str, ...]
    blank: str
    text_field: str
    items_field: str
    item: str
    explain: bool = False

    def request(self, unit: Unit, start: int, stop: int) -> Request:
        """Make the prompt about the items start..stop-1 of a unit."""
        shown = unit.items[start:stop]
        text = fill_prompt(
            self.template,
            **{
                **unit.fields,
                self.text_field: unit.text,
                "count": str(len(shown)),
                self.items_field: "\n".join(f"{n}. {one_line(item)}" for n, item in enumerate(shown, 1)),
            },
        )
        name = f"{unit.id} {self.item} {start + 1}" + (f"-{stop}" if len(shown) > 1 else "")
        return Request(name, text, reply_schema(len(shown), self.labels, self.explain))

    def read(self, parsed: Any) -> list[str]:
        """Take the labels out of a good reply."""
        return [label.verdict for label in parsed.labels] if self.explain else list(parsed.labels)


@dataclass(frozen=True, slots=True)
class Judged:
    """Labels in the shape of the items; None where no reply could be read, and in place of a unit that is None."""

    labels: tuple[tuple[str | None, ...] | None, ...]
    report: StepReport


@lru_cache(maxsize=1024)
def reply_schema(count: int, labels: tuple[str, ...], explain: bool = False) -> type[BaseModel]:
    """Make the schema of a reply about ``count`` items: exactly one label for one, an open number for more."""
    if count == 1 and not explain:
        return label_schema(1, labels)
    one: Any = Literal[labels]
    if explain:
        one = create_model("Verdict", __config__=ConfigDict(extra="forbid"), why=(str, ...), verdict=(one, ...))
    least, most = (1, 1) if count == 1 else (0, 2 * count)
    many = (list[one], Field(min_length=least, max_length=most))
    return create_model(f"LabelsFor{count}", __config__=ConfigDict(extra="forbid"), labels=many)


def requests_for(
    names: Sequence[str], prompt: Prompt, schema: type[BaseModel], needed: str, **fields: Sequence[str]
) -> list[Request | None]:
    """Fill a prompt for each row of its fields' texts; None where the field ``needed`` is blank."""
    template = load_prompt(prompt)
    columns = {field: [text.strip() for text in texts] for field, texts in fields.items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [
        Request(name, fill_prompt(template, **row), schema) if row[needed] else None
        for name, row in zip(names, rows, strict=True)
    ]


def distinct(requests: Sequence[Request | None]) -> list[Request]:
    """Return the different requests, in order: the same prompt with the same schema is asked once."""
    once: dict[Any, Request] = {}
    for request in requests:
        if request is not None:
            once.setdefault((request.prompt, request.schema), request)
    return list(once.values())


def as_step(name: str, requests: Sequence[Request | None]) -> Step:
    """Make the step that a plan takes: its prompts are those that the run will send."""
    once = distinct(requests)
    return Step(name, prompts=[r.prompt for r in once], schema=[r.schema for r in once])


def send(
    model: Any, step: str, requests: Sequence[Request], options: Mapping[str, Any]
) -> tuple[list[Reply], StepReport]:
    """Ask every different request once; return one reply per request, and what it took."""
    once = distinct(requests)
    if not once:
        return [], StepReport(step)
    replies = ask(
        model,
        [r.prompt for r in once],
        schema=[r.schema for r in once],
        ids=[r.id for r in once],
        **{"step": step, **options},
    )
    reply_to = {(r.prompt, r.schema): reply for r, reply in zip(once, replies, strict=True)}
    now = [reply for reply in replies if not reply.cached]
    report = StepReport(
        step,
        prompts=len(replies),
        calls=sum(reply.attempts for reply in now),
        cached=len(replies) - len(now),
        repaired=sum(reply.repairs for reply in replies if reply.ok),
        usage=sum((reply.usage for reply in now), Usage()),
    )
    return [reply_to[r.prompt, r.schema] for r in requests], report


def batches(units: Sequence[Unit | None], joint: int | None) -> list[tuple[Unit, int, int, int]]:
    """Cut every unit into (unit, its number, start, stop); units with an empty text or without items need none.

    Items of two units never share a prompt: what is asked about one text does not depend on the rest of the run, and
    equal prompts of two systems are asked once.
    """
    check_joint(joint)
    cut = []
    for number, unit in enumerate(units):
        if unit is not None and unit.text.strip():
            count = len(unit.items)
            size = joint or max(count, 1)
            cut += [(unit, number, i, min(i + size, count)) for i in range(0, count, size)]
    return cut


def task_step(task: Judgement, units: Sequence[Unit | None], joint: int | None) -> Step:
    """Make the step of a plan from units whose items are known."""
    return as_step(task.step, [task.request(unit, a, b) for unit, _, a, b in batches(units, joint)])


def judge_items(
    model: Any, task: Judgement, units: Sequence[Unit | None], joint: int | None, options: Mapping[str, Any]
) -> Judged:
    """Label every item of every unit, jointly where asked for, and one by one where that went wrong."""
    cut = batches(units, joint)
    known = [unit for unit in units if unit is not None]
    labels: list[Any] = [
        None if unit is None else [None if unit.text.strip() else task.blank] * len(unit.items) for unit in units
    ]
    requests = [task.request(unit, a, b) for unit, _, a, b in cut]
    replies, report = send(model, task.step, requests, options)
    again: dict[tuple[int, int], Request] = {}
    failures: list[Unscored] = []
    mismatches, unreadable, joints = set(), set(), set()
    for (unit, n, a, b), request, reply in zip(cut, requests, replies, strict=True):
        prompt = (request.prompt, request.schema)
        if b - a > 1:
            joints.add(prompt)
        if reply.ok and len(verdicts := task.read(reply.parsed)) == b - a:
            labels[n][a:b] = verdicts
            continue
        if b - a > 1 and (reply.ok or (reply.error is not None and reply.error.kind in _WORTH_A_SECOND_LOOK)):
            (mismatches if reply.ok else unreadable).add(prompt)
            again.update({(n, i): task.request(unit, i, i + 1) for i in range(a, b)})
        else:
            failures += [unread(f"{unit.id} {task.item} {i + 1}", reply) for i in range(a, b)]
    singles, more = send_some(model, task.step, list(again.values()), options)
    for (n, i), parsed in zip(again, singles, strict=True):
        if parsed is not None:
            (labels[n][i],) = task.read(parsed)
    failures += more.failures
    counts = {
        "items": sum(len(u.items) for u in known),
        "settled": sum(len(u.items) for u in known if not u.text.strip()),
        "unscored": len(failures),
        "joint": len(joints),
        "mismatches": len(mismatches),
        "unreadable": len(unreadable),
        "rechecked": len(again),
        "failures": tuple(failures),
    }
    return Judged(tuple(None if row is None else tuple(row) for row in labels), replace(report + more, **counts))


def send_some(
    model: Any, step: str, requests: Sequence[Request | None], options: Mapping[str, Any]
) -> tuple[list[Any], StepReport]:
    """Ask what there is to ask; each reply as its schema reads it (None: unscored, or no request), and the report."""
    sent = [request for request in requests if request is not None]
    replies, report = send(model, step, sent, options)
    failures = [unread(request.id, reply) for request, reply in zip(sent, replies, strict=True) if not reply.ok]
    counts = {"items": len(requests), "settled": len(requests) - len(sent), "unscored": len(failures)}
    parsed = iter([reply.parsed if reply.ok else None for reply in replies])
    values = [None if request is None else next(parsed) for request in requests]
    return values, replace(report, **counts, failures=tuple(failures))


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
