"""What a run of the papers' notebooks with a model of one's own will take, before the first call.

``data/papers/live_calls.csv`` has the calls that a notebook makes about each question, at most, and
the questions that it asks; calls that depend on how many claims an answer makes are means. Prompts
that two notebooks share are asked once and stand with the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from ragbench.llm import Cassette, Plan, chat_model, plan
from ragbench.paths import packaged_data


def plan_notebooks(
    notebooks: list[str], parameters: Mapping[str, Any], seconds_per_call: float = 1.0
) -> Plan:
    """Count the prompts of a live run by notebook and step; ``print`` shows them with hours and
    sum.

    Parameters
    ----------
    notebooks : their names, such as "13_thesis_grades".
    parameters : MODEL and JUDGE are names of models (JUDGE: by default MODEL), LIMIT the first so
        many questions, CASSETTE a file; what is recorded in it of a model gives its speed.
    seconds_per_call : of a model of which the cassette has nothing.
    """
    file = parameters.get("CASSETTE")
    tape = Cassette(file) if file and Path(file).is_file() else None
    known = {"seconds_per_call": seconds_per_call, "recorded": 0}
    whole = Plan(notes=(f"a model that the cassette does not know: {seconds_per_call:g} s a call",))
    for row in _calls(notebooks, parameters.get("LIMIT")).to_dict("records"):
        model = parameters.get(row["asked"]) or parameters.get("MODEL")
        if model is None:  # only a judge is named, and this step asks none
            continue
        timed = chat_model(model) if tape else None  # no server is asked
        (step,) = plan({row["step"]: int(row["total"])}, timed, tape, **known)
        whole += Plan((replace(step, name=f"{row['notebook']}: {row['step']}, {model}"),))
    return whole


def _calls(notebooks: list[str], limit: int | None) -> pd.DataFrame:
    """Return the notebooks' steps, and of each the calls that it makes at most."""
    calls = pd.read_csv(packaged_data("papers", "live_calls.csv"))
    questions = calls["questions"].clip(upper=limit or None)
    calls = calls.assign(total=calls["calls"] * questions)
    return calls[calls["notebook"].isin(notebooks)]
