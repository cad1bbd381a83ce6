"""What a step took, and what it could not read: counts beside every result, and the raw replies that went unscored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ragbench.llm import Usage

if TYPE_CHECKING:
    from ragbench.llm import Reply


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


def spent(step: str, replies: Iterable[Reply]) -> StepReport:
    """Count prompts, calls and usage of the replies to different prompts."""
    replies = list(replies)
    now = [reply for reply in replies if not reply.cached]
    return StepReport(
        step,
        prompts=len(replies),
        calls=sum(reply.attempts for reply in now),
        cached=len(replies) - len(now),
        repaired=sum(reply.repairs for reply in replies if reply.ok),
        usage=sum((reply.usage for reply in now), Usage()),
    )


def unread(name: str, reply: Reply) -> Unscored:
    """Keep what came back for an item that stays unscored."""
    kind = reply.error.kind if reply.error is not None else "other"
    return Unscored(name, kind, str(reply.error), reply.raw or reply.text)
