"""smollm2 by ask() beside a bare httpx client, on the same server with the same prompts of about
700 tokens.

    python benchmarks/bench_local_model.py            # about six minutes, on a busy machine more
    python benchmarks/bench_local_model.py --quick

Target: at least 0.9 of the bare client's throughput. The two take turns in short blocks, the order
swapped each time, so that both see the same load; the server's prompt cache is off for both, or the
second would find the first's work. The last line is for two servers of one thread each, with the
same prompts, beside one.
"""

from __future__ import annotations

import argparse
import time

import httpx

from ragbench.data import load_minihop
from ragbench.llm import ask, chat_model

WRITTEN = 32
BLOCK = 2


def prompts(count: int) -> list[str]:
    """Make prompts that differ from the first word on, each of about 700 tokens."""
    documents = [document.text for document in load_minihop().documents]
    words = " ".join(documents).split()
    return [
        " ".join(words[i * 520 : (i + 1) * 520]) + "\nWhat is this about?" for i in range(count)
    ]


def model(number: int):
    return chat_model(
        "smollm2",
        host=str(number),
        num_ctx=2048,
        num_predict=WRITTEN,
        extra_body={"cache_prompt": False},
    )


def by_ask(models: list, asked: list[str]) -> int:
    replies = ask(models, asked, on_length="keep", progress=False)
    assert all(reply.ok for reply in replies)
    return sum(reply.usage.prompt_tokens + reply.usage.output_tokens for reply in replies)


def by_bare_client(url: str, key: str, asked: list[str]) -> int:
    tokens = 0
    with httpx.Client(
        headers={"Authorization": f"Bearer {key}"}, timeout=600, trust_env=False
    ) as client:
        for text in asked:
            body = {
                "messages": [{"role": "user", "content": text}],
                "max_tokens": WRITTEN,
                "temperature": 0,
                "seed": 0,
            }
            told = client.post(
                f"{url}/v1/chat/completions", json={**body, "cache_prompt": False}
            ).json()
            tokens += told["usage"]["total_tokens"]
    return tokens


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="three blocks in place of eight")
    blocks = 3 if parser.parse_args().quick else 8
    one = model(1)
    two = model(2)
    for each in (one, two):
        by_ask([each], ["Hi"])
    server = one._server
    url = f"http://127.0.0.1:{server.port()}"
    seconds = {"ask": 0.0, "bare": 0.0, "two": 0.0}
    total = dict.fromkeys(seconds, 0)
    ways = {
        "ask": lambda asked: by_ask([one], asked),
        "bare": lambda asked: by_bare_client(url, server.key, asked),
        "two": lambda asked: by_ask([one, two], asked),
    }
    texts = prompts(blocks * BLOCK)
    for block in range(blocks):
        asked = texts[block * BLOCK : (block + 1) * BLOCK]
        for way in list(ways)[:: 1 if block % 2 else -1]:
            start = time.perf_counter()
            total[way] += ways[way](asked)
            seconds[way] += time.perf_counter() - start
    assert len(set(total.values())) == 1, total
    speed = {way: total[way] / seconds[way] for way in ways}
    print(
        f"{blocks * BLOCK} prompts, {total['ask'] / blocks / BLOCK:.0f} tokens each, read and "
        "written"
    )
    print(
        f"ask, one server   {speed['ask']:7.1f} tokens/s   {speed['ask'] / speed['bare']:.2f} of "
        "the bare client"
    )
    print(f"bare client       {speed['bare']:7.1f} tokens/s")
    print(
        f"ask, two servers  {speed['two']:7.1f} tokens/s   {speed['two'] / speed['ask']:.2f} of "
        "one server"
    )


if __name__ == "__main__":
    main()
