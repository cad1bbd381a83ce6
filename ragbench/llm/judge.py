"""Is what came back a whole answer? The last gate before a reply counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ragbench.llm.context import was_cut
from ragbench.llm.driver import FINISHED, Driver, Wire
from ragbench.llm.reply import CUT_SHORT
from ragbench.llm.structured import read, without_thinking


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer's text (and object), or what is wrong with a structured one and may be repaired."""

    text: str = ""
    parsed: Any = None
    problem: str = ""


def judge(driver: Driver, wire: Wire, schema: Any, estimate: int, keep_cut: bool = False) -> Verdict:
    """Judge one reply as it came over the wire.

    Parameters
    ----------
    driver : who was asked.
    wire : what came back.
    schema : pydantic model the reply must fit, or None.
    estimate : tokens of the prompt by our own estimate.
    keep_cut : whether a text that ended at its limit of tokens is an answer.

    Returns
    -------
    Verdict.

    Raises
    ------
    CallError : ``context`` (the model did not see the whole prompt), ``truncated``, ``refused``, ``unfinished``,
        ``empty``. A structured reply that is cut off or does not fit is no error yet: it has its repair try.
    """
    error = was_cut(estimate, wire.prompt_tokens, wire.output_tokens, driver.num_ctx, driver.num_predict, driver.who)
    if error is not None:
        error.raw = wire.text
        raise error
    if wire.finish in CUT_SHORT and not (keep_cut and schema is None):
        limits = f"num_predict={driver.num_predict}, num_ctx={driver.num_ctx}"
        what = f"the reply was cut off after {wire.output_tokens} tokens ({limits})"
        if schema is None:
            raise driver.fail("truncated", what, raw=wire.text)
        return Verdict(problem=what)
    if wire.finish not in FINISHED | CUT_SHORT:
        kind = "refused" if "filter" in wire.finish or wire.finish == "refusal" else "unfinished"
        raise driver.fail(kind, f"the server stopped for the reason {wire.finish!r}", raw=wire.text)
    text = without_thinking(wire.text)
    if not text:
        what = "nothing but an unfinished thinking part" if text is None else "an empty answer"
        raise driver.fail("empty", what, raw=wire.text)
    if schema is None:
        return Verdict(text)
    parsed, text, problem = read(wire.text, schema)
    return Verdict(text, parsed, problem)
