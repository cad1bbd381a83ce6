"""ask() beside the `ollama` package in a loop, and replay from the cassette.

    python benchmarks/bench_llm.py            # about a minute
    python benchmarks/bench_llm.py --quick

The server is the fake Ollama of the tests, without latency and in a process of its own: what is
measured is the client. Targets: at most 2 x the package's wall clock and CPU (the digest is
asked for at the start and the end); 37,020 replies replayed in under 5 s.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import ollama

from ragbench.llm import Cassette, ask, chat_model
from ragbench.llm.cassette import Keys
from ragbench.llm.endpoints import Endpoint
from ragbench.llm.reply import Usage

FAKE = Path(__file__).resolve().parent.parent / "tests" / "fake_ollama.py"
DIGEST = "d" * 64
THESIS_GRADES = 37_020


@contextmanager
def server() -> Iterator[str]:
    """Run the fake Ollama in a process of its own; yield its address."""
    process = subprocess.Popen([sys.executable, str(FAKE)], stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of wall clock and of CPU."""
    wall = time.perf_counter()
    cpu = time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def overhead(count: int, rounds: int) -> None:
    """Print milliseconds per call, medians of rounds in turn."""
    options = {"temperature": 0, "seed": 0, "num_ctx": 8192}
    with server() as url, tempfile.TemporaryDirectory() as folder:
        client = ollama.Client(url)
        model = chat_model("ollama:llama3:8b", host=url)
        files = (Path(folder) / f"{number}.sqlite" for number in range(rounds))

        def package() -> None:
            for _ in range(count):
                said = [{"role": "user", "content": "Say hello."}]
                for _ in client.chat("llama3:8b", said, stream=True, options=options):
                    pass

        ways = {
            "ollama package": package,
            "ask": lambda: ask(model, ["Say hello."] * count, progress=False),
            "ask, recording": lambda: ask(
                model, [f"Say {n}." for n in range(count)], cassette=next(files), progress=False
            ),
        }
        seen: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                seen[name].append(timed(way))
    print(f"\nOverhead per call, server without latency ({count} calls, {rounds} rounds)")
    base = [statistics.median(values) for values in zip(*seen["ollama package"], strict=True)]
    for name, values in seen.items():
        wall, cpu = (statistics.median(each) for each in zip(*values, strict=True))
        ratios = f"{wall / base[0]:5.2f} x wall, {cpu / base[1]:5.2f} x CPU"
        print(f"  {name:<16}{wall / count * 1e3:7.2f} ms, CPU {cpu / count * 1e3:6.2f} ms {ratios}")


def replay(count: int, passages: int) -> None:
    """Print the time to replay a cassette of prompts with so many passages."""
    context = "A passage of the usual length, of which there are a thousand tokens. " * passages
    prompts = [f"Question {number}\n{context}" for number in range(count)]
    model = chat_model("ollama:llama3:8b", host="http://127.0.0.1:9")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "replies.sqlite"
        fill(path, model, prompts)
        cassette = Cassette(path, mode="replay")
        wall, cpu = timed(lambda: ask(model, prompts, cassette=cassette))
        _, plain = timed(lambda: read_plainly(path))
    print(f"\nReplay of {count:,} replies: {wall:.2f} s, CPU {cpu:.2f} s", end="")
    print(f"; plain SQLite and json {plain:.2f} s, {cpu / plain:.2f} x")


def read_plainly(path: Path) -> None:
    """Read each recorded answer by its key."""
    with closing(sqlite3.connect(path)) as db:
        for (key,) in db.execute("SELECT key FROM replies").fetchall():
            json.loads(db.execute("SELECT answer FROM replies WHERE key = ?", (key,)).fetchone()[0])


def fill(path: Path, model: object, prompts: list[str]) -> None:
    """Record an answer to every prompt."""
    endpoint = Endpoint.of(model, 2048)
    keys = Keys(endpoint.provider, endpoint.name, DIGEST, endpoint.options)
    text = "An answer of one sentence."
    answer = {"ok": True, "text": text, "raw": text, "finish": "stop", "seconds": 0.2}
    answer |= {"repairs": 0, "attempts": 1, "error": None, "usage": Usage(calls=1).to_dict()}
    with Cassette(path) as cassette:
        cassette.register(endpoint.provider, endpoint.name, DIGEST)
        for number, prompt in enumerate(prompts):
            messages = [{"role": "user", "content": prompt}]
            key = keys.key(messages)
            cassette.put(key, keys.request(messages), answer, prompt_id=str(number))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer calls and rounds")
    quick = parser.parse_args().quick
    overhead(40, 3 if quick else 9)
    replay(10_000, 1)
    replay(2000 if quick else THESIS_GRADES, 65)


if __name__ == "__main__":
    main()
