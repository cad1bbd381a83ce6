"""ask() in a real Jupyter kernel: in a cell, and under "Interrupt kernel"."""

import re
import time
from collections import Counter

import pytest
from fake_ollama import FakeOllama

pytestmark = pytest.mark.slow


@pytest.fixture
def kernel():
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run(client, code):
    """Run a cell; return (status, what it printed and returned)."""
    said = []

    def listen(message):
        content = message["content"]
        said.append(
            content.get("text")
            or content.get("data", {}).get("text/plain")
            or content.get("evalue")
            or ""
        )

    reply = client.execute_interactive(code, timeout=60, output_hook=listen)
    return reply["content"], "\n".join(said)


def test_a_cell_asks_shows_progress_and_survives_an_interrupt(kernel, tmp_path):
    manager, client = kernel
    with FakeOllama(latency_s=0.05) as fake:
        key = "sk-notebooksecret1"
        setup = f"""
            from ragbench.llm import ask, chat_model, Cassette
            model = chat_model("ollama:llama3:8b", host={fake.url!r}, api_key={key!r})
            cassette = Cassette({str(tmp_path / "c.sqlite")!r})
            prompts = [f"p{{n}}" for n in range(100)]
            model
        """
        content, said = run(client, "\n".join(line.strip() for line in setup.splitlines()))
        assert content["status"] == "ok", content
        assert "OllamaChat" in said
        assert key not in said
        content, said = run(
            client,
            (
                "replies = ask(model, prompts[:30], cassette=cassette)\n[r.ok for r in "
                "replies].count(True)"
            ),
        )
        assert content["status"] == "ok", content
        assert said.rstrip().endswith("30")
        assert re.search(r"ask|prompt", said)  # the bar (a widget, or its text)

        message = client.execute("replies = ask(model, prompts, cassette=cassette, concurrency=2)")
        while len(fake.calls) < 45:
            time.sleep(0.01)
        manager.interrupt_kernel()
        reply = client.get_shell_msg(timeout=120)
        while reply["parent_header"].get("msg_id") != message:
            reply = client.get_shell_msg(timeout=120)
        assert (reply["content"]["status"], reply["content"]["ename"]) == (
            "error",
            "KeyboardInterrupt",
        )
        done = int(
            re.match(
                r"(\d+) of 100 replies are done \(recorded on c.sqlite", reply["content"]["evalue"]
            )[1]
        )
        assert 40 <= done < 100
        time.sleep(1)  # a kernel throws away what it is sent just after an error
        content, said = run(
            client,
            "replies = ask(model, prompts, cassette=cassette)\n[r.ok for r in replies].count(True)",
        )
        assert said.rstrip().endswith("100")
        # At least what was done is asked once only; a call that the interrupt broke off may reach
        # the server late.
        asked = Counter(call.prompt for call in fake.calls)
        assert len(asked) == 100
        assert list(asked.values()).count(1) >= done
        assert asked.total() <= 100 + 2
