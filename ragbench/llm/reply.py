"""What a call to a model gives back: one Reply per prompt, and the Usage that is summed over them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ragbench.llm.failures import CallError

LOOP = "loop"  # our own: a reply that repeated itself and was not read to its end
CUT_SHORT = frozenset({LOOP, "length", "max_tokens", "MAX_TOKENS", "model_length"})


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, time and money of one or more calls. Add two with ``+``.

    Attributes
    ----------
    calls : requests that ended with a whole answer from the server (a repair try is a call of its own).
    prompt_tokens, output_tokens : as the server counted them.
    uncounted : calls for which the server gave no counts; they are missing from the two sums above.
    prompt_seconds, output_seconds : time for reading the prompt and for writing the reply, as the server says
        (0 where it does not say).
    seconds : wall-clock time of the calls, seen from here.
    cost : money in the currency of the price; NaN where no price is known.
    """

    calls: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    uncounted: int = 0
    prompt_seconds: float = 0.0
    output_seconds: float = 0.0
    seconds: float = 0.0
    cost: float = math.nan

    def __add__(self, other: Usage) -> Usage:
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "cost"}
        known = [part.cost for part in (self, other) if part.calls]
        cost = math.fsum(known) if known else math.nan
        return Usage(**sums, cost=math.nan if math.isnan(cost) else cost)  # the one NaN object, so that == works

    @property
    def tokens_per_second(self) -> float:
        """Output tokens per second of writing (of wall-clock time where the server gives no time); NaN without any."""
        seconds = self.output_seconds or self.seconds
        return self.output_tokens / seconds if seconds and self.output_tokens else math.nan

    @property
    def prompt_tokens_per_second(self) -> float:
        """Prompt tokens read per second, as the server says; NaN where it does not."""
        return self.prompt_tokens / self.prompt_seconds if self.prompt_seconds and self.prompt_tokens else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, an unknown cost as None."""
        return {**asdict(self), "cost": None if math.isnan(self.cost) else self.cost}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Usage:
        """Rebuild what ``to_dict`` gave."""
        return cls(**{**values, "cost": math.nan if values["cost"] is None else values["cost"]})


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome for one prompt: an answer (``ok``) or a typed failure (``error``), never nothing.

    Attributes
    ----------
    text : the answer, without a ``<think>`` part; with a schema, the JSON text that was accepted.
        Of a failure: whatever the model wrote last.
    parsed : the validated pydantic object, or None.
    ok : whether ``text`` may be used.
    error : why not; its ``kind`` is one of ``ragbench.llm.KINDS``.
    usage : tokens, seconds and money of the calls behind this reply (as recorded, if ``cached``).
    seconds : wall-clock time of the calls behind this reply, without waiting for a busy server.
    cached : served from a cassette, or from an equal prompt of the same ``ask``.
    id, step : the names given to ``ask``.
    raw : everything the model wrote, word for word.
    finish : why the server stopped, as it says (``"stop"``, ``"length"``, ...).
    form : the ``response_format`` an OpenAI-compatible server took the schema in: "json_schema", or the weaker
        "json_object", of which nothing is believed either before it is validated. "" elsewhere.
    repairs : 1 when a structured reply needed its second try.
    attempts : calls made, with those that ended in an error.
    model, digest, host, key : who answered, and the key on the cassette.
    """

    text: str = ""
    parsed: Any = None
    ok: bool = False
    error: CallError | None = None
    usage: Usage = field(default_factory=Usage)
    seconds: float = math.nan
    cached: bool = False
    id: str = ""
    step: str = ""
    raw: str = field(default="", repr=False)
    finish: str = ""
    form: str = ""
    repairs: int = 0
    attempts: int = 0
    model: str = ""
    digest: str = ""
    host: str = field(default="", repr=False)
    key: str = field(default="", repr=False)

    @property
    def cut(self) -> bool:
        """Whether this is an answer that ended at its limit of tokens (``ask(..., on_length="keep")``)."""
        return self.ok and self.finish in CUT_SHORT


def usage_by_step(replies: Iterable[Reply]) -> dict[str, dict[str, Any]]:
    """Sum usage by step, what was spent now apart from what came from the cassette.

    Returns
    -------
    dict from step name to a dict with ``replies``, ``failed``, ``cut``, ``cached``, ``repaired`` (counts), ``spent``
    (Usage of the calls made now) and ``recorded`` (Usage of the calls that cached replies once cost).
    """
    table: dict[str, dict[str, Any]] = {}
    for reply in replies:
        row = table.setdefault(
            reply.step,
            {"replies": 0, "failed": 0, "cut": 0, "cached": 0, "repaired": 0, "spent": Usage(), "recorded": Usage()},
        )
        row["replies"] += 1
        row["failed"] += not reply.ok
        row["cut"] += reply.cut
        row["cached"] += reply.cached
        row["repaired"] += reply.repairs
        row["recorded" if reply.cached else "spent"] += reply.usage
    return table
