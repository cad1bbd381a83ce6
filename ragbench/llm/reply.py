"""What a call to a model gives back: one Reply per prompt, and the Usage that is summed over
them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Any

from ragbench.llm.failures import CallError

CUT_SHORT = frozenset({"length", "max_tokens", "MAX_TOKENS", "model_length"})
FINISHED = frozenset({"stop", "end_turn", "stop_sequence", "eos", "eos_token", "STOP", "load"})


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and time of one or more calls. Add two with ``+``.

    Attributes
    ----------
    calls : requests that ended with a whole answer from the server (a repair try is a call of its
        own).
    prompt_tokens, output_tokens : as the server counted them; ``uncounted`` calls are missing from
        both sums.
    prompt_seconds, output_seconds : for reading the prompt and writing the reply, as the server
        says (else 0).
    seconds : of the calls: the sum of these two, or wall-clock time where the server says neither.

    >>> usage = rb.Usage(calls=2, prompt_tokens=80, output_tokens=30)
    >>> usage.calls, usage.output_tokens
    (2, 30)
    """

    calls: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    uncounted: int = 0
    prompt_seconds: float = 0.0
    output_seconds: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(sum, zip(_counts_of(self), _counts_of(other), strict=True)))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return dict(zip(_COUNTS, _counts_of(self), strict=True))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Usage:
        """Rebuild what ``to_dict`` gave; older recordings have a field for money, which is left
        out.
        """
        return cls(*_counts_in(values))


_COUNTS = tuple(Usage.__annotations__)
_counts_of = attrgetter(*_COUNTS)
_counts_in = itemgetter(*_COUNTS)


@dataclass(slots=True)
class Reply:
    """The outcome for one prompt: an answer (``ok``) or a typed failure (``error``), never nothing.

    Attributes
    ----------
    text : the answer, without a ``<think>`` part; with a schema, the JSON text that was accepted.
        Of a failure: whatever the model wrote last.
    parsed : the validated pydantic object, or None.
    usage, seconds : of the calls behind this reply (as recorded, if ``cached``), without waiting
        for a busy server.
    cached : served from a cassette, or from an equal prompt of the same ``ask``.
    id, step : the names given to ``ask``.
    raw : everything the model wrote, word for word.
    finish : why the server stopped, as it says (``"stop"``, ``"length"``, ...).
    repairs : 1 when a structured reply needed its second try.
    attempts : calls made, with those that ended in an error.
    held : what held while it was made, beside what was sent (which is on the cassette): ``server``
        (name and version), ``num_ctx``, ``num_predict``, ``think`` (as it was asked to),
        ``at`` (date and time).
    model, digest, key : who answered, and the key on the cassette.

    >>> reply = rb.Reply(text="Ada", ok=True)
    >>> reply.text, reply.ok, reply.cached
    ('Ada', True, False)
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
    repairs: int = 0
    attempts: int = 0
    held: Mapping[str, Any] = field(default_factory=dict, repr=False)
    model: str = ""
    digest: str = ""
    key: str = field(default="", repr=False)
