"""What a server says of its model, its limits and itself: known, recorded and shown, and never
believed too far.
"""

from __future__ import annotations

import json
import re

import pytest
from experiment_parts import QUICK, graded, live_rows, rows_of
from fake_ollama import FakeOllama, Fault
from pydantic import BaseModel, field_validator
from test_odd_servers import LIMITS, served, with_content

from ragbench.cli import main
from ragbench.doctor import checks
from ragbench.embedding import make_embedder
from ragbench.errors import ModelError
from ragbench.experiment import load_rows
from ragbench.llm import ask
from ragbench.report.audit import audit


def grades(body):
    """The reply of a judge that gives a 5 to whatever it is shown, else an answer."""
    return graded(body) or f"Ely, after {len(body['messages'][-1]['content'])} characters."


def judged(folder, spec, server, count=2):
    """Rows whose answers and grades come from one server."""
    model = server.model(spec, num_ctx=4096)
    both = {"generator": {"llama": model}, "judge": {"llama": model}}
    return rows_of(folder, count, N=(0,), options=QUICK, **both)


# -- whose replies they are
# --------------------------------------------------------------------------------------------


def test_where_a_server_tells_nothing_of_its_model_the_rows_say_so(tmp_path):
    with FakeOllama(reply=grades) as fake:
        rows = judged(tmp_path / "nothing", "openai:llama3:8b", fake)
        known = judged(tmp_path / "digest", "ollama:llama3:8b", fake)
    assert set(rows["digest"]) == set(rows["judge_digest"]) == {"not told"}
    assert "not told" not in set(known["digest"])


# Status and body of what should list the models; kind, words and remedy of the embedder's error.
NO_OLLAMA = {
    "a page": (200, b"<html>Sign in</html>", "unusable", "JSONDecodeError", "an Ollama server"),
    "a list": (200, ["a"], "unusable", "TypeError", "an Ollama server"),
    "another list": (200, {"data": []}, "unusable", "KeyError: 'models'", "an Ollama server"),
    "a model without a name": (200, {"models": [{}]}, "unusable", "KeyError", "an Ollama server"),
    "no such path": (404, b"no such path", "no_model", "no such path", "ollama pull letters"),
    "a refusal": (500, {"error": "boom"}, "server", "boom", "the server's log"),
}


@pytest.mark.parametrize("name", NO_OLLAMA)
def test_a_server_that_answers_but_is_no_ollama_is_said_by_embedder_and_doctor(
    name, fake, monkeypatch
):
    status, body, kind, words, remedy = NO_OLLAMA[name]
    fake.others["/api/tags"] = lambda _: (status, body)
    with pytest.raises(ModelError) as caught:
        make_embedder("ollama:letters", host=fake.url).embedder.embed_array(["a"])
    assert caught.value.kind == kind
    assert caught.value.got.startswith(f"ollama:letters at 127.0.0.1:{fake.port}: ")
    assert words in caught.value.got
    assert remedy in caught.value.do
    monkeypatch.setenv("OLLAMA_HOST", fake.url)
    check = checks()[-1]
    assert (check.name, check.ok, check.optional) == ("Ollama", False, True)
    assert re.match(rf"no Ollama answers \(.*{words}.*\); retrieval", check.what)
    assert "`ollama serve`" in check.do


# -- streams and loops
# -------------------------------------------------------------------------------------------------

LOOP = '{"answer": "' + "the lake and the hill and " * 3000


def test_a_loop_is_no_cut_prompt_in_the_audit(tmp_path):
    def fault(prompt, before):
        looped_once = "Person1" in prompt and before == 0
        if "Ely, after" in prompt and ("Person0" in prompt or looped_once):
            return Fault("answer", LOOP)

    with FakeOllama(reply=grades, fault=fault) as fake:
        rows = judged(tmp_path, "ollama:llama3:8b", fake, 3)
    assert rows["error_kind"].tolist() == ["truncated", "", ""]
    assert rows["judge_repairs"].tolist() == [1, 1, 0]
    told = audit(tmp_path)
    truncated = told.set_index("check").loc["truncated grades"]
    assert truncated["rows"] == 1
    assert "the judge repeated itself" in truncated["detail"]


class Touchy(BaseModel):
    answer: str

    @field_validator("answer")
    @classmethod
    def breaks(cls, value):
        # a KeyError is nothing that pydantic, or anybody else, expects here
        return {"x": value}[value]


def test_what_breaks_while_a_reply_is_read_is_the_failure_of_its_prompt_alone():
    def reply(prompt):
        return with_content("openai", json.dumps({"answer": "boom" if prompt == "p3" else "x"}))

    replies = ask(served("openai", reply), [f"p{n}" for n in range(8)], schema=Touchy, **LIMITS)
    assert [reply.ok for reply in replies] == [n != 3 for n in range(8)]
    assert (replies[3].error.kind, "KeyError" in str(replies[3].error)) == ("unusable", True)


# -- words
# -------------------------------------------------------------------------------------------------------------

CODES = "\x1b[2J\x1b]0;title\x07\r\x9b31m\u202e"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def test_control_codes_of_a_server_reach_neither_terminal_nor_tables(
    tmp_path, capsys, caplog, monkeypatch
):
    def fault(prompt, before):
        if "Person1" in prompt:
            return Fault("finish", "stopped" + CODES)
        return Fault("error_line", "no" + CODES)

    models = {"llama3:8b": "d" * 8 + CODES, "other" + CODES: "e" * 64}
    with FakeOllama(models=models, fault=fault, reply=lambda body: "Ely.") as fake:
        rows = live_rows(tmp_path / "run", fake, 3, judge=None, N=(0,))
        absent = ask(fake.model("ollama:absent"), ["p"], **LIMITS)[0]
        monkeypatch.setenv("OLLAMA_HOST", fake.url)
        main(["doctor", "--model", "ollama:llama3:8b"])
        main(["doctor", "--model", "ollama:absent"])
    assert set(rows["error_kind"]) == {"server", "unusable"}
    main(["export", str(tmp_path / "run"), "--to", str(tmp_path / "export")])
    shown = capsys.readouterr()
    told = [*shown, caplog.text, str(absent.error)]
    told += [rows.to_csv(), load_rows(tmp_path / "run").to_csv()]
    written = (".csv", ".md", ".txt", ".tex", ".json", ".jsonl")
    told += [
        path.read_text() for path in (tmp_path / "export").rglob("*") if path.suffix in written
    ]
    assert len(told) > 10
    assert [OBEYED.search(text) for text in told] == [None] * len(told)
    assert r"no\x1b[2J" in rows["error"][0]
    assert r"it has: llama3:8b, other\x1b[2j" in str(absent.error)
