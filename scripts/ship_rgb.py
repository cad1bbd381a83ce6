"""Ask Qwen about RGB's counterfactual passages as docs/preregistration/memory.md plans, and ship what
the answers say.

    python scripts/ship_rgb.py FILE CASSETTE --ask   # FILE: RGB's en_fact.json; can be stopped and started
    python scripts/ship_rgb.py FILE CASSETTE         # writes data/recordings/memory.csv and .json

No text of RGB or of an answer is written: ids, what an answer says, counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ragbench import Answer, Question, generate
from ragbench.llm import Cassette
from ragbench.llm.endpoints import Endpoint
from ragbench.metrics.lexical import claim_overlap, contained
from ragbench.paths import packaged_data
from ragbench.prompts import prompt_hash
from ragbench.text.tokens import truncate

sys.path.append(str(Path(__file__).parents[1] / "notebooks"))
import recorded

N = 300  # tokens of passages
WARNED = "rgb_warned"
PLAIN = "thesis_with_documents"
# condition -> field of the passages, prompt
CONDITIONS = {
    "closed book": (None, PLAIN),
    "true passages": ("positive", PLAIN),
    "false passages": ("positive_wrong", PLAIN),
    "false passages, warned": ("positive_wrong", WARNED),
    "true passages, warned": ("positive", WARNED),
}
TURNS = (
    ("closed book", "true passages", "false passages"),
    *([name] for name in [*CONDITIONS][3:]),
)
ERRORS = "factual errors"  # RGB's code counts an answer with these words as a detection


def forms(value: str | Sequence[Any]) -> list[str]:
    """Return the strings of an answer field, which is a string or nested lists of them."""
    if isinstance(value, str):
        return [value]
    return [string for part in value for string in forms(part)]


def says(text: str, strings: Iterable[str]) -> bool:
    """Whether a text contains one of the strings."""
    return any(contained(text, string) for string in strings)


def passages(row: dict[str, Any], field: str | None) -> str | None:
    """Return the passages of a field, cut at N; None for none."""
    return None if field is None else truncate("\n\n".join(row[field]), N)


def tells(row: dict[str, Any]) -> bool:
    """Whether the strings of a question tell which passages an answer follows."""
    true, false = forms(row["answer"]), forms(row["fakeanswer"])
    right, wrong = passages(row, "positive"), passages(row, "positive_wrong")
    nested = says(" / ".join(true), false) or any(says(string, true) for string in false)
    clean = not says(right, false) and not says(wrong, true)
    return says(right, true) and says(wrong, false) and clean and not nested


def asked_rows(file: Path) -> list[dict[str, Any]]:
    """Return RGB's questions that are asked, in the random order of asking."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    order = np.random.default_rng(recorded.ORDER_SEED).permutation(len(rows))
    return [rows[place] for place in order if tells(rows[place])]


def answer(row: dict[str, Any], condition: str, cassette: Cassette) -> Answer:
    """Return the model's answer to a question in a condition."""
    field, prompt = CONDITIONS[condition]
    question = Question(str(row["id"]), row["query"], "")
    model = recorded.RECORDINGS["qwen"].chat_model()
    options = {"with_documents": prompt, "cassette": cassette, "on_miss": "reply"}
    return generate(
        model, [question], [passages(row, field)], concurrency=1, progress=False, **options
    )[0]


def numbers(row: dict[str, Any], condition: str, answered: Answer) -> dict[str, Any]:
    """Return what an answer says, and no text."""
    text = passages(row, CONDITIONS[condition][0])
    return {
        "id": row["id"],
        "condition": condition,
        "says_true": says(answered.text, forms(row["answer"])),
        "says_false": says(answered.text, forms(row["fakeanswer"])),
        "says_errors": ERRORS in answered.text,
        "words": len(answered.text.split()),
        "words_in_passages": np.nan if text is None else claim_overlap(answered.text, text, {}),
        "failed": answered.failure.kind if answered.failure else "",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="RGB's en_fact.json")
    parser.add_argument("cassette", type=Path)
    parser.add_argument("--ask", action="store_true", help="what is not recorded")
    options = parser.parse_args()
    asked = asked_rows(options.file)
    table = []
    with Cassette(options.cassette, "record" if options.ask else "replay") as cassette:
        for turn in TURNS:
            for row in asked:
                answers = {name: answer(row, name, cassette) for name in turn}
                missed = [one.failure and one.failure.kind == "miss" for one in answers.values()]
                if not any(missed):
                    table += [numbers(row, name, one) for name, one in answers.items()]
    if options.ask:
        return
    driver = Endpoint.of(recorded.RECORDINGS["qwen"].chat_model())
    rows = pd.DataFrame(table).round(6)
    about = {
        "model": driver.model,
        "digest": driver.pinned_digest,
        "options": driver.options,
        "prompts": {name: prompt_hash(name) for name in (PLAIN, "thesis_query_only", WARNED)},
        "order_seed": recorded.ORDER_SEED,
        "N": N,
        "planned": {name: len(asked) for name in CONDITIONS},
        "answers": rows["condition"].value_counts(sort=False).to_dict(),
        "machine": "llama.cpp on a processor, one thread, prompt cache on",
    }
    folder = packaged_data("recordings")
    rows.to_csv(folder / "memory.csv", index=False)
    (folder / "memory.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
