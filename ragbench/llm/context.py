"""Does the prompt fit into the model's window? Estimated before sending, checked against the server's count after.

Ollama shortens a prompt that is too long and answers 200, and the ``prompt_eval_count`` it then gives is that of the
shortened prompt: about half the window when one message is too long (the tell-tale ``num_ctx / 2 + 2``), anything
below the window when whole messages were left out. Newer servers turn this into an error when asked with
``truncate: false``, which we always send; older ones ignore the field, so the counts are compared as well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from ragbench.llm.drivers import Driver
from ragbench.llm.failures import CallError, reworded

ESTIMATOR = "4 ASCII characters or 1 other character per token"
# No tokenizer makes fewer tokens than a third of the estimate from running text; below that we do not send.
SURELY = 3.0
# A shortened prompt stands out when the server counted less than this share of the estimate.
SHORTENED = 0.7
REPLY_ROOM = 512
# What llama.cpp is told is shared out among its slots.
START_WITH = "llama.cpp: -c of that times -np; vLLM: --max-model-len"


def estimate_tokens(text: str) -> int:
    """Estimate tokens: 4 ASCII characters or 1 other each. For English within a quarter of common vocabularies."""
    plain = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
    return math.ceil(plain / 4) + len(text) - plain


def prompt_tokens(messages: Sequence[dict]) -> int:
    """Estimate the tokens of a list of messages, 4 more per message for the template."""
    total = 0
    for message in messages:
        content = message["content"]
        if not isinstance(content, str):
            content = "\n".join(part if isinstance(part, str) else str(part.get("text", "")) for part in content)
        total += estimate_tokens(content) + 4
    return total


def enough(tokens: int, num_predict: int | None) -> int:
    """Return the num_ctx that holds a prompt of that many tokens and its reply: a multiple of 256 (1024 from 4096)."""
    total = tokens + (num_predict if num_predict and num_predict > 0 else REPLY_ROOM)
    step = 256 if total <= 4096 else 1024
    return math.ceil(total / step) * step


def too_long(driver: Driver, estimate: int) -> CallError | None:
    """Return the error of a prompt that cannot fit, before it is sent; else None."""
    if driver.num_ctx is None or estimate <= driver.num_ctx * SURELY:
        return None
    return _error(driver, f"not sent: the prompt has {estimate} tokens (estimated: {ESTIMATOR})", estimate)


def was_cut(driver: Driver, estimate: int, counted: int | None, written: int | None) -> CallError | None:
    """Return the error of a reply whose model did not see the whole prompt; else None.

    ``counted`` and ``written`` are the server's own counts of prompt and reply, None where it gives none. Where they
    exceed the window together, the model lost the prompt's beginning while writing.
    """
    num_ctx = driver.num_ctx
    if num_ctx is None:
        return None
    ours = f"our estimate is {estimate} ({ESTIMATOR})"
    if counted is None:
        what = f"the server gives no count of the prompt and {ours}"
        return None if estimate <= num_ctx else _error(driver, what, estimate)
    shortened = counted < SHORTENED * estimate
    if counted >= num_ctx:
        what = f"the prompt fills the window: {counted} tokens"
    elif shortened and abs(counted - num_ctx // 2) <= 8:
        what = f"the prompt was cut: the server counted {counted} tokens, half of the window; {ours}"
    elif shortened and estimate > num_ctx:
        what = f"the prompt was cut: the server counted {counted} tokens; {ours}"
    elif written is not None and counted + written > num_ctx:
        what = f"the reply ran past the window: {counted} tokens read and {written} written"
        return _error(driver, what, counted, written)
    else:
        return None
    return _error(driver, what, max(estimate, counted))


def with_advice(driver: Driver, error: CallError, estimate: int) -> CallError:
    """Name the num_ctx that would do in a server's own refusal of a prompt, from its count or else from ours."""
    numbers = [int(number) for number in re.findall(r"\d+", error.got.partition(": ")[2].replace(",", ""))]
    counted = max((number for number in numbers if number < 10**8), default=0)
    return reworded(error, error.got, _advice(driver, max(counted, estimate)))


def _error(driver: Driver, what: str, tokens: int, written: int = 0) -> CallError:
    return driver.fail("context", f"{what}; num_ctx is {driver.num_ctx}", do=_advice(driver, tokens, written))


def _advice(driver: Driver, tokens: int, written: int = 0) -> str:
    size = enough(tokens, max(driver.num_predict or 0, written))
    if driver.provider != "openai":
        return f"set num_ctx={size}, or shorten the prompt"
    # Its window is set where the server starts.
    return f"give each slot of the server {size} tokens ({START_WITH}) and set num_ctx={size}, or shorten the prompt"
