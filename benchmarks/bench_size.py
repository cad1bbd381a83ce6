"""Seconds and peak memory of a large run and of a large cassette, each step in a process of its
own.

    python benchmarks/bench_size.py [--questions 2000] [--replies 10000] [--folder FOLDER]

A run has one row per question and retriever, five of them. Retrievers, reader and grader are made
and cost nothing: what is measured is the harness. The issue's size is ``--questions 100000
--replies 1000000``; the limit is 1.5 GB.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from ragbench.chunking import Chunk
from ragbench.experiment import Experiment, load_rows
from ragbench.llm import Cassette
from ragbench.llm.cassette import Keys
from ragbench.records import Dataset, Document, Grade, Hit, Question

DOCUMENTS = 1000
HITS = 10
RETRIEVERS = 5
MODEL = ("ollama", "made:1b", "0" * 64, {"num_ctx": 8192, "temperature": 0.0, "seed": 0})


def made_data(questions: int) -> Dataset:
    facts = [f"Person {i} Lee was born in town {i % 97}." for i in range(DOCUMENTS)]
    documents = tuple(
        Document(f"d{i}", f"Person {i}", f"{fact} She sang.", (fact,))
        for i, fact in enumerate(facts)
    )
    asked = tuple(
        Question(f"q{i}", (f"In which town was Person {i % DOCUMENTS} Lee born, asked for the "
                          f"{i}th time?"),
                 f"town {i % DOCUMENTS % 97}", (facts[i % DOCUMENTS],), "bridge", "easy") for i in range(questions)
    )  # fmt: skip
    return Dataset("made", asked, documents)


class Made:
    """Finds the person's chunk at a place of its own, and nine others."""

    def __init__(self, chunks: list[Chunk], place: int) -> None:
        self.chunks = chunks
        self.place = place

    def settings(self) -> dict[str, Any]:
        return {"retriever": "made", "place": self.place}

    def search(self, queries: list[str], k: int) -> list[list[Hit]]:
        found = []
        for query in queries:
            number = int(query.split()[5])
            places = [(number + 1 + rank) % DOCUMENTS for rank in range(k)]
            if number % 7 > self.place:
                places[self.place] = number
            found.append(
                [Hit(self.chunks[p], 1.0 / rank, rank) for rank, p in enumerate(places, 1)]
            )
        return found


class MadeGrader:
    """Grades by the length of the answer."""

    name = "made grader"

    def settings(self) -> dict[str, Any]:
        return {"grader": "made"}

    def grade_all(self, questions: list[Question], answers: list[Any]) -> list[Grade]:
        return [Grade(a.question_id, 1 + (len(a.text) + len(q.id)) % 5, self.name)
                for q, a in zip(questions, answers, strict=True)]  # fmt: skip


def made_answer(question: str, context: str) -> str:
    return f"{context[:60]} That is what the text says of it, and nothing else."


def made_experiment(folder: Path, questions: int) -> Experiment:
    return Experiment(
        "made",
        data={"made": made_data(questions)},
        chunker={"whole": lambda documents: [Chunk(f"{d.id}#0", d.text, d.id, d.title) for d in documents]},
        retriever={f"made{place}": partial(Made, place=place) for place in range(RETRIEVERS)},
        k=HITS, N=100, generator={"made": made_answer}, judge={"made": MadeGrader()}, folder=folder,
    )  # fmt: skip


def fill(path: Path, replies: int) -> None:
    keys = Keys(*MODEL)
    words = random.Random(0)
    with Cassette(path) as cassette:
        for i in range(replies):
            prompt = f"{i} " + " ".join(
                words.choices(("lake", "hill", "river", "town", "mill"), k=150)
            )
            messages = [{"role": "user", "content": prompt}]
            usage = {"calls": 1, "prompt_tokens": 200, "output_tokens": 20, "seconds": 0.5}
            answer = {
                "ok": True,
                "text": f"The answer is {i}.",
                "raw": f"The answer is {i}.",
                "usage": usage,
            }
            cassette.put(
                keys.key(messages),
                keys.request(messages),
                answer,
                step="generate",
                prompt_id=f"q{i}",
            )


def look_up(path: Path) -> None:
    with Cassette(path, "replay") as cassette:
        keys = [row[0] for row in cassette.rows("SELECT key FROM replies LIMIT 10000")]
        for _ in range(2):
            begin = time.perf_counter()
            for key in keys:
                cassette.get([key])
            each = (time.perf_counter() - begin) / len(keys)
        print(f"    {1e3 * each:.3f} ms per reply, checksum compared", flush=True)


def verified(path: Path) -> None:
    with Cassette(path, "replay") as cassette:
        assert cassette.verify() == []


def exported(path: Path, lines: Path) -> None:
    with Cassette(path, "replay") as cassette:
        cassette.export(lines)


def imported(path: Path, lines: Path) -> None:
    with Cassette(path) as cassette:
        cassette.import_(lines)


def audited(run: Path) -> None:
    # here: with its imports it costs the other steps two seconds
    from ragbench.report.audit import audit

    audit(run)


def exported_run(run: Path, out: Path) -> None:
    from ragbench.report.export import export

    export(run, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=2000)
    parser.add_argument("--replies", type=int, default=10_000)
    parser.add_argument(
        "--folder", type=Path, help="where the files go, which then stay (default: a temporary one)"
    )
    parser.add_argument("--step", help="one step alone, in this process")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = told.folder or Path(temporary)
        run = folder / "run"
        tape = folder / "c.sqlite"
        lines = folder / "c.jsonl"
        steps = {
            "run": lambda: made_experiment(run, told.questions).run(progress=False),
            "load": lambda: load_rows(run),
            "resume": lambda: made_experiment(run, told.questions).run(progress=False),
            "audit": lambda: audited(run),
            "export": lambda: exported_run(run, folder / "out"),
            "cassette fill": lambda: fill(tape, told.replies),
            "cassette look-up": lambda: look_up(tape),
            "cassette verify": lambda: verified(tape),
            "cassette export": lambda: exported(tape, lines),
            "cassette import": lambda: imported(folder / "d.sqlite", lines),
        }
        if told.step:
            steps[told.step]()
            return
        print(
            f"{RETRIEVERS * told.questions:,} rows, {told.replies:,} replies; seconds with the "
            "start of Python"
        )
        for step in steps:
            begin = time.perf_counter()
            child = subprocess.Popen(
                [sys.executable, __file__, *sys.argv[1:], "--folder", folder, "--step", step]
            )
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            failed = "  FAILED" if child.returncode else ""
            seconds = time.perf_counter() - begin
            cpu = used.ru_utime + used.ru_stime
            print(
                f"{step:18s}{seconds:8.1f} s{cpu:8.1f} s CPU{used.ru_maxrss / 1e6:8.2f} GB{failed}",
                flush=True,
            )


if __name__ == "__main__":
    main()
