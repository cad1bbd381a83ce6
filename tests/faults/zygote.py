"""Imports once, then forks a child for each line on stdin; the child runs the whole ask and is
there to be killed.
"""

import os
import sys

import langchain_ollama  # noqa: F401  (the slow import, once for all children)

from ragbench.llm import Cassette, ask, chat_model


def main():
    url = sys.argv[1]
    path = sys.argv[2]
    count = int(sys.argv[3])
    concurrency = int(sys.argv[4])
    print("ready", flush=True)
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            prompts = [f"prompt {n}" for n in range(count)]
            model = chat_model("ollama:llama3:8b", host=url)
            replies = ask(model, prompts, cassette=Cassette(path), concurrency=concurrency)
            os._exit(0 if all(reply.ok for reply in replies) else 3)
        print(pid, flush=True)
        print(os.waitpid(pid, 0)[1], flush=True)


if __name__ == "__main__":
    main()
