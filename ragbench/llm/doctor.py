"""Is a model fit to be a judge? Five questions, a dozen short calls."""

from __future__ import annotations

import asyncio
import itertools
import math
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from ragbench.llm import loop
from ragbench.llm.asking import ask
from ragbench.llm.context import START_WITH
from ragbench.llm.drivers import Driver, driver_for
from ragbench.llm.failures import CallError
from ragbench.llm.models import NUM_CTX, chat_model
from ragbench.llm.reply import Reply

_SAME = 3
_WROTE = ("empty", "truncated")  # the model wrote something, so that the other questions can be asked
_STATEMENTS = (
    ("A river flows from a lake to the sea.", "Water moves from a lake towards the sea.", "yes"),
    ("The library opens at nine.", "The library is closed all day.", "no"),
    ("Anna sold her bicycle to Ben.", "Ben owns the bicycle that was Anna's.", "yes"),
    ("The tower has four floors.", "The tower has more than ten floors.", "no"),
)
_QUESTION = (
    "Text: {text}\nStatement: {statement}\nDoes the statement follow from the text? Answer with JSON alone: "
    '{{"follows": "yes"}} or {{"follows": "no"}}.'
)
_FILLING = ("lake", "hill", "tree", "road", "bird", "wind", "moon")


@dataclass(frozen=True, slots=True)
class Fitness:
    """What ``fitness`` found out about a model.

    Attributes
    ----------
    calls, failed : calls made, and those without a usable reply.
    latency_s : median seconds of a short reply. tokens_per_second : speed of writing.
    deterministic : the same prompt three times gave the same text; None when it could not be tried.
    obeyed, repaired, asked : structured replies that fit the schema at once, after a repair try, and all.
    right : yes/no verdicts that were right (out of ``asked``): a weak model obeys and still cannot judge.
    num_ctx, context_length : the window in use, and the longest the model was made for; of an OpenAI-compatible server
        the longest it gives to one request (None: not said).
    window_works : a prompt that fills two thirds of num_ctx was read whole; None when it was not tried.
    problems : what speaks against the model as a judge; empty when it is fit.
    """

    model: str
    host: str
    digest: str
    calls: int
    failed: int
    latency_s: float
    tokens_per_second: float
    deterministic: bool | None
    obeyed: int
    repaired: int
    asked: int
    right: int
    num_ctx: int | None
    context_length: int | None
    window_works: bool | None
    problems: tuple[str, ...]

    @property
    def fit(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.problems

    def __str__(self) -> str:
        same = {True: "yes", False: "NO", None: "not tried"}
        verdict = "fit" if self.fit else "NOT FIT: " + "; ".join(self.problems)
        return f"""{self.model} at {self.host} (digest {self.digest[:12] or "none"})
  latency        {self.latency_s:.2f} s, {self.tokens_per_second:.1f} tokens/s
  deterministic  {same[self.deterministic]} ({_SAME} calls)
  schema         {self.obeyed} of {self.asked} at once, {self.repaired} after a repair try; {self.right} right
  context        num_ctx {self.num_ctx}, model made for {self.context_length or "unknown"}, \
read whole: {same[self.window_works]}
  verdict        {verdict}"""


def fitness(model: Any, *, probe_context: bool = True) -> Fitness:
    """Try whether a model can serve as a judge (what ``ragbench doctor --model ollama:NAME`` prints).

    ``probe_context``: also send a prompt that fills two thirds of num_ctx (slow on a machine without GPU). Failures of
    the server are ``problems``, not exceptions.
    """
    from pydantic import BaseModel, ConfigDict

    class Verdict(BaseModel):
        model_config = ConfigDict(extra="forbid")
        follows: Literal["yes", "no"]

    model = chat_model(model) if isinstance(model, str) else model
    driver = driver_for(model)
    settings: dict[str, Any] = {"concurrency": 1, "retries": 3, "progress": False}
    asked = ["Write the numbers from one to ten as words, separated by commas."] * _SAME
    same = ask(model, asked, on_length="keep", **settings)
    errors = [reply.error for reply in same if reply.error is not None]
    problems = [f"{len(errors)} of {len(same)} plain calls failed ({errors[0].kind}): {errors[0]}"] if errors else []
    verdicts: list[Reply] = []
    window: bool | None = None
    longest, num_ctx = None, driver.num_ctx
    if any(reply.error is None or reply.error.kind in _WROTE for reply in same):
        longest = _context_length(driver)
        num_ctx = num_ctx or (longest and min(longest, NUM_CTX))
        asked = [_QUESTION.format(text=text, statement=statement) for text, statement, _ in _STATEMENTS]
        verdicts = ask(model, asked, schema=Verdict, **settings)
        if probe_context and num_ctx:
            trouble = _probe(model, num_ctx, settings)
            window, problems = not trouble, problems + ([trouble] if trouble else [])

    good = [reply for reply in same if reply.ok]
    texts = {reply.text for reply in good}
    obeyed = sum(reply.ok and not reply.repairs for reply in verdicts)
    repaired = sum(reply.ok and bool(reply.repairs) for reply in verdicts)
    unusable = len(verdicts) - obeyed - repaired
    right = sum(r.ok and r.parsed.follows == truth for r, (*_, truth) in zip(verdicts, _STATEMENTS, strict=False))
    if len(good) == _SAME and len(texts) > 1:
        problems.append(f"the same prompt gave {len(texts)} different replies in {_SAME} calls")
    if unusable:
        problems.append(f"{unusable} of {len(verdicts)} structured replies unusable")
    elif right < len(verdicts):
        problems.append(f"only {right} of {len(verdicts)} plain verdicts are right")
    if longest is not None and driver.num_ctx is not None and driver.num_ctx > longest:
        problem = f"num_ctx={driver.num_ctx} is longer than the model was made for ({longest})"
        if driver.provider == "openai":
            problem = (
                f"num_ctx={driver.num_ctx}, and the server reads {longest} tokens at most: pass num_ctx={longest}, or "
                f"give each of its slots {driver.num_ctx} ({START_WITH})"
            )
        problems.append(problem)
    replies = [*same, *verdicts]
    speeds = [reply.usage.tokens_per_second for reply in good if not math.isnan(reply.usage.tokens_per_second)]
    return Fitness(
        model=driver.model,
        host=driver.host,
        digest=next((reply.digest for reply in replies if reply.digest), ""),
        calls=sum(reply.attempts for reply in replies) + (window is not None),
        failed=sum(not reply.ok for reply in replies) + (window is False),
        latency_s=median(reply.seconds for reply in good) if good else math.nan,
        tokens_per_second=median(speeds) if speeds else math.nan,
        deterministic=len(texts) == 1 if len(good) == _SAME else None,
        obeyed=obeyed,
        repaired=repaired,
        asked=len(verdicts),
        right=right,
        num_ctx=num_ctx,
        context_length=longest,
        window_works=window,
        problems=tuple(problems),
    )


def _probe(model: Any, num_ctx: int, settings: dict[str, Any]) -> str:
    """Fill two thirds of the window with words of one token each; say what is wrong if the server does not read all."""
    words = num_ctx * 2 // 3
    text = " ".join(itertools.islice(itertools.cycle(_FILLING), words))
    asked = [f"{text}\nHow many words are there above? Answer with a number alone."]
    reply = ask(model, asked, on_length="keep", **settings)[0]
    if reply.error is not None:
        return f"a prompt of two thirds of num_ctx={num_ctx} fails ({reply.error.kind}): {reply.error}"
    counted = reply.usage.prompt_tokens
    cut = not reply.usage.uncounted and counted < words
    return f"of a prompt of {words} words the server read {counted} tokens, with num_ctx={num_ctx}" if cut else ""


def _context_length(driver: Driver) -> int | None:
    try:
        return loop.run(asyncio.wait_for(driver.context_length(), 20.0))
    except (CallError, TimeoutError):
        return None
