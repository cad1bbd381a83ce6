"""A Reply as it is stored on a cassette, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragbench.llm.driver import Driver
from ragbench.llm.failures import CallError
from ragbench.llm.reply import CUT_SHORT, Reply, Usage
from ragbench.llm.structured import read


def to_answer(reply: Reply) -> dict[str, Any]:
    """Return what is stored of a reply; what the key says already (model, options ...) is not repeated."""
    error = None
    if reply.error is not None:
        told = reply.error
        error = {"kind": told.kind, "got": told.got, "expected": told.expected, "do": told.do, "status": told.status}
    return {
        "ok": reply.ok,
        "text": reply.text,
        "raw": reply.raw,
        "finish": reply.finish,
        "usage": reply.usage.to_dict(),
        "seconds": reply.seconds,
        "repairs": reply.repairs,
        "attempts": reply.attempts,
        "error": error,
    }


def from_answer(answer: Mapping[str, Any], driver: Driver, schema: Any, keep_cut: bool = False, **names: str) -> Reply:
    """Rebuild a reply; a structured one is validated again, so that a schema's new validators hold for old replies.

    Parameters
    ----------
    answer : from ``Cassette.get``.
    driver : whose reply it is.
    schema : pydantic model the reply must fit, or None.
    keep_cut : whether a text that ended at its limit of tokens is an answer.
    names : ``id``, ``step``, ``digest`` and ``key`` of the Reply.
    """
    error = None
    parsed = None
    if not answer["ok"]:
        told = answer["error"]
        error = CallError(told["got"], told["expected"], told["do"])
        error.kind, error.model, error.status = told["kind"], driver.model, told["status"]
    elif schema is not None:
        parsed, _, problem = read(answer["text"], schema)
        if problem:
            error = driver.fail("invalid", f"the recorded reply does not fit the schema: {problem}", do="record anew")
    elif answer["finish"] in CUT_SHORT and not keep_cut:
        error = driver.fail("truncated", "the recorded reply was cut off", raw=answer["raw"])
    return Reply(
        text=answer["text"],
        parsed=parsed,
        ok=error is None,
        error=error,
        usage=Usage.from_dict(answer["usage"]),
        seconds=answer["seconds"],
        cached=True,
        raw=answer["raw"],
        finish=answer["finish"],
        repairs=answer["repairs"],
        attempts=answer["attempts"],
        model=driver.model,
        **names,
    )
