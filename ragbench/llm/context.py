"""Does the prompt fit into the model's window? Estimated before sending, checked against the server's count after.

Ollama shortens a prompt that is too long and answers 200, and the ``prompt_eval_count`` it then gives is that of the
shortened prompt: about half the window when one message is too long (the tell-tale ``num_ctx / 2 + 2``), anything
below the window when whole messages were left out. Newer servers turn this into an error when asked with
``truncate: false``, which we always send; older ones ignore the field, so the counts are compared as well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from ragbench.llm.failures import CallError, failure, reworded

ESTIMATOR = "4 ASCII characters or 1 other character per token"
# No tokenizer makes fewer tokens than a third of the estimate from running text; below that we do not send.
SURELY = 3.0
# A shortened prompt stands out when the server counted less than this share of the estimate.
SHORTENED = 0.7
REPLY_ROOM = 512
# What llama.cpp is told is shared out among its slots.
START_WITH = "llama.cpp: -c of that times -np; vLLM: --max-model-len"


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text without a tokenizer: 4 ASCII characters or 1 other character per token.

    For English that is within about a quarter of the common BPE vocabularies.
    """
    plain = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
    return math.ceil(plain / 4) + len(text) - plain


def prompt_tokens(messages: Sequence[dict], count: Callable[[str], int] | None = None) -> int:
    """Estimate (or, with ``count``, count) the tokens of a list of messages, 4 more per message for the template."""
    count = count or estimate_tokens
    return sum(count(content_text(message)) + 4 for message in messages)


def content_text(message: dict) -> str:
    """Return the text of a message whose content is a string or a list of blocks."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "\n".join(part if isinstance(part, str) else str(part.get("text", "")) for part in content)


def enough(tokens: int, num_predict: int | None) -> int:
    """Return the num_ctx that holds a prompt of that many tokens and its reply: a multiple of 256 (1024 from 4096)."""
    room = num_predict if num_predict and num_predict > 0 else REPLY_ROOM
    total = tokens + room
    step = 256 if total <= 4096 else 1024
    return math.ceil(total / step) * step


def too_long(
    estimate: int, exact: bool, num_ctx: int | None, num_predict: int | None, who: tuple[str, str]
) -> CallError | None:
    """Return the CallError of kind ``context`` of a prompt that cannot fit, before it is sent; else None.

    ``exact``: its tokens were counted with the caller's tokenizer. ``who``: (host, model) for the message.
    """
    if num_ctx is None or estimate <= num_ctx * (1 if exact else SURELY):
        return None
    how = "counted with the given tokenizer" if exact else f"estimated: {ESTIMATOR}"
    return _error(f"not sent: the prompt has {estimate} tokens ({how})", estimate, num_ctx, num_predict, who)


def was_cut(
    estimate: int,
    counted: int | None,
    written: int | None,
    num_ctx: int | None,
    num_predict: int | None,
    who: tuple[str, str],
) -> CallError | None:
    """Return the CallError of kind ``context`` of a reply whose model did not see the whole prompt; else None.

    ``counted`` and ``written`` are the server's own counts of prompt and reply, None where it gives none. Where they
    exceed the window together, the model lost the prompt's beginning while writing.
    """
    if num_ctx is None:
        return None
    ours = f"our estimate is {estimate} ({ESTIMATOR})"
    if counted is None:
        if estimate <= num_ctx:
            return None
        return _error(f"the server gives no count of the prompt and {ours}", estimate, num_ctx, num_predict, who)
    halved = abs(counted - num_ctx // 2) <= 8 and counted < SHORTENED * estimate
    if counted >= num_ctx:
        what = f"the prompt fills the window: {counted} tokens"
    elif halved:
        what = f"the prompt was cut: the server counted {counted} tokens, half of the window; {ours}"
    elif estimate > num_ctx and counted < SHORTENED * estimate:
        what = f"the prompt was cut: the server counted {counted} tokens; {ours}"
    elif written is not None and counted + written > num_ctx:
        what = f"the reply ran past the window: {counted} tokens read and {written} written"
        return _error(what, counted, num_ctx, max(num_predict or 0, written), who)
    else:
        return None
    return _error(what, max(estimate, counted), num_ctx, num_predict, who)


def with_advice(error: CallError, estimate: int, num_predict: int | None) -> CallError:
    """Name the num_ctx that would do in a server's own refusal of a prompt, from its count or else from ours."""
    numbers = [int(number) for number in re.findall(r"\d+", error.got.partition(": ")[2].replace(",", ""))]
    counted = max((number for number in numbers if number < 10**8), default=0)
    return reworded(error, error.got, _advice(max(counted, estimate), num_predict, error.model))


def _advice(tokens: int, num_predict: int | None, model: str) -> str:
    size = enough(tokens, num_predict)
    if model.startswith("openai:"):  # its window is set where the server starts
        return (
            f"give each slot of the server {size} tokens ({START_WITH}) and set num_ctx={size}, or shorten the prompt"
        )
    return f"set num_ctx={size}, or shorten the prompt"


def _error(what: str, tokens: int, num_ctx: int, num_predict: int | None, who: tuple[str, str]) -> CallError:
    return failure("context", f"{what}; num_ctx is {num_ctx}", *who, do=_advice(tokens, num_predict, who[1]))
