"""ask() beside LangChain: overhead per call, throughput at concurrency 32, and replay from the
cassette.

    python benchmarks/bench_llm.py            # about two minutes
    python benchmarks/bench_llm.py --quick

The servers are the fake Ollama of the tests, each in a process of its own. Targets: overhead per
call at most 1.5 x ChatOllama.invoke; at least 95 % of a bare asynchronous client's throughput;
37,020 replies replayed in under 5 s. The bare client is one httpx.AsyncClient, whose pool looks at
all its connections for every request; on a busy machine ask, with a client per call under way, is
therefore faster. LangChain's SQLite cache needs ``langchain-community``, which is not among our
dependencies; without it that line is left out, and says so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from ragbench.llm import Cassette, ask, chat_model
from ragbench.llm.cassette import Keys
from ragbench.llm.endpoints import endpoint_of
from ragbench.llm.structured import json_schema_of

FAKE = Path(__file__).resolve().parent.parent / "tests" / "fake_ollama.py"
DIGEST = "d" * 64
THESIS_GRADES = 37_020


class Grade(BaseModel):
    grade: Literal["1", "2", "3", "4", "5"]


@contextmanager
def server(latency_s: float) -> Iterator[str]:
    """Run the fake Ollama in a process of its own; yield its address."""
    command = [sys.executable, str(FAKE), "--latency", str(latency_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def chat_ollama(url: str, at_once: int):
    """Make the plain LangChain model, with as many kept connections as the rest has."""
    import httpx
    from langchain_ollama import ChatOllama

    limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
    options = {"temperature": 0, "seed": 0, "num_ctx": 8192, "client_kwargs": {"limits": limits}}
    return ChatOllama(model="llama3:8b", base_url=url, **options)


def bare_client(url: str, prompts: list[str], at_once: int) -> float:
    """Time an asynchronous client that does nothing but send, read and parse."""
    import httpx

    async def run() -> float:
        limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
        async with httpx.AsyncClient(limits=limits, timeout=60) as client:
            todo = iter(prompts)

            async def worker() -> None:
                for prompt in todo:
                    body = {"model": "llama3:8b", "messages": [{"role": "user", "content": prompt}]}
                    body["options"] = {"temperature": 0, "seed": 0, "num_ctx": 8192}
                    async with client.stream("POST", f"{url}/api/chat", json=body) as response:
                        async for line in response.aiter_lines():
                            json.loads(line)

            start = time.perf_counter()
            await asyncio.gather(*(worker() for _ in range(at_once)))
            return time.perf_counter() - start

    return asyncio.run(run())


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def invoke_all(model, prompts: list[str]) -> None:
    for prompt in prompts:
        model.invoke(prompt)


def rounds(methods: dict[str, Callable[[], float]], count: int) -> dict[str, float]:
    """Run the methods in turn, several times (so that a busy machine troubles all alike);

    return the medians.
    """
    seen: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(count):
        for name, method in methods.items():
            seen[name].append(method())
    return {name: statistics.median(values) for name, values in seen.items()}


def overhead(count: int, times: int) -> None:
    """Print milliseconds per call against a server without latency."""
    prompts = [f"question {n}" for n in range(count)]
    with server(0) as url, tempfile.TemporaryDirectory() as folder:
        ours = chat_model("ollama:llama3:8b", host=url)
        plain = chat_ollama(url, 4)
        ask(ours, prompts[:5], progress=False)
        plain.invoke("warm")
        fresh = (Path(folder) / f"{n}.sqlite" for n in range(1000))
        found = rounds(
            {
                "ChatOllama.invoke": lambda: timed(lambda: invoke_all(plain, prompts)),
                "ChatOllama.batch, 4 threads": lambda: timed(
                    lambda: plain.batch(prompts, {"max_concurrency": 4})
                ),
                "ask, concurrency 1": lambda: timed(
                    lambda: ask(ours, prompts, concurrency=1, progress=False)
                ),
                "ask, concurrency 4": lambda: timed(
                    lambda: ask(ours, prompts, concurrency=4, progress=False)
                ),
                "ask, concurrency 4, recording": lambda: timed(
                    lambda: ask(ours, prompts, cassette=next(fresh), concurrency=4, progress=False)
                ),
            },
            times,
        )
    print(f"\nOverhead per call, server without latency ({count} calls, median of {times} rounds)")
    for name, seconds in found.items():
        ratio = seconds / found["ChatOllama.invoke"]
        print(f"  {name:<32}{seconds / count * 1e3:7.2f} ms   {ratio:5.2f} x invoke")


def throughput(count: int, times: int, at_once: int = 32, latency_s: float = 0.1) -> None:
    """Print calls per second against a model that takes 100 ms."""
    prompts = [f"question {n}" for n in range(count)]
    with server(latency_s) as url:
        ours = chat_model("ollama:llama3:8b", host=url)
        plain = chat_ollama(url, at_once)
        ask(ours, prompts[:at_once], concurrency=at_once, progress=False)
        config = {"max_concurrency": at_once}
        found = rounds(
            {
                "bare asynchronous client": lambda: bare_client(url, prompts, at_once),
                "ask": lambda: timed(
                    lambda: ask(ours, prompts, concurrency=at_once, progress=False)
                ),
                "ChatOllama.batch, 32 threads": lambda: timed(lambda: plain.batch(prompts, config)),
                "ChatOllama.abatch": lambda: timed(
                    lambda: asyncio.run(chat_ollama(url, at_once).abatch(prompts, config))
                ),
            },
            times,
        )
    print(
        f"\nThroughput, model of {latency_s * 1e3:.0f} ms, {at_once} at once ({count} calls, "
        f"median of {times} rounds)"
    )
    for name, seconds in found.items():
        ratio = found["bare asynchronous client"] / seconds
        print(f"  {name:<32}{count / seconds:7.1f} calls/s   {ratio:6.1%} of the bare client")


def replay(count: int) -> None:
    """Print the time to replay a thesis-sized cassette, and LangChain's SQLite cache beside it."""
    context = "A passage of the usual length, of which there are a thousand tokens. " * 65
    prompts = [f"Question {n}\n{context}" for n in range(count)]
    model = chat_model("ollama:llama3:8b", host="http://127.0.0.1:9")
    print(f"\nReplay of {count:,} replies, prompts of {len(prompts[0]) / 1e3:.1f} kB")
    with tempfile.TemporaryDirectory() as folder:
        for schema in (None, Grade):
            path = Path(folder) / f"{schema}.sqlite"
            wrote = timed(lambda path=path, schema=schema: fill(path, model, prompts, schema))
            cassette = Cassette(path, mode="replay")
            took = timed(
                lambda cassette=cassette, schema=schema: ask(
                    model, prompts, schema=schema, cassette=cassette
                )
            )
            name = "structured" if schema else "text"
            size = path.stat().st_size / 1e6
            print(
                f"  Cassette, {name:<12} replay {took:6.2f} s   (written one by one in "
                f"{wrote:.1f} s, {size:.0f} MB)"
            )
        langchain_cache(Path(folder) / "lc.sqlite", prompts[:2000], count)


def fill(path: Path, model, prompts: list[str], schema: type[BaseModel] | None) -> None:
    endpoint = endpoint_of(model)
    keys = Keys(endpoint.provider, endpoint.name, DIGEST, endpoint.options)
    text = "An answer of one sentence." if schema is None else '{"grade": "5"}'
    usage = {
        "calls": 1,
        "prompt_tokens": 1000,
        "output_tokens": 7,
        "uncounted": 0,
        "prompt_seconds": 0.1,
    }
    usage |= {"output_seconds": 0.1, "seconds": 0.2}
    answer = {
        "ok": True,
        "text": text,
        "raw": text,
        "finish": "stop",
        "usage": usage,
        "seconds": 0.2,
    }
    answer |= {"repairs": 0, "attempts": 1, "error": None}
    wanted = json_schema_of(schema) if schema else ""
    with Cassette(path) as cassette:
        cassette.register(endpoint.provider, endpoint.name, DIGEST)
        for number, prompt in enumerate(prompts):
            messages = [{"role": "user", "content": prompt}]
            cassette.put(
                keys.key(messages, wanted),
                keys.request(messages, wanted),
                answer,
                prompt_id=str(number),
            )


def langchain_cache(path: Path, prompts: list[str], count: int) -> None:
    try:
        from langchain_community.cache import SQLiteCache
    except ImportError:
        print("  LangChain's SQLiteCache: langchain-community is not installed, not measured")
        return
    import warnings

    from langchain_core.globals import set_llm_cache
    from langchain_core.language_models.fake_chat_models import FakeListChatModel

    model = FakeListChatModel(responses=["An answer of one sentence."])
    warnings.simplefilter("ignore")  # one per reply, of the peer's own deprecations
    set_llm_cache(SQLiteCache(database_path=str(path)))
    try:
        model.batch(prompts, {"max_concurrency": 1})
        took = timed(lambda: model.batch(prompts, {"max_concurrency": 1}))
    finally:
        set_llm_cache(None)
    print(
        f"  LangChain's SQLiteCache  replay {took / len(prompts) * count:6.2f} s   (from "
        f"{len(prompts)} replies)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer calls, one round")
    quick = parser.parse_args().quick
    overhead(100 if quick else 500, 1 if quick else 7)
    throughput(320 if quick else 1600, 1 if quick else 5)
    replay(2000 if quick else THESIS_GRADES)


if __name__ == "__main__":
    main()
