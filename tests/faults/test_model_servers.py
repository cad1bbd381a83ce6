"""What a server says of its model, its limits and itself: known, recorded and shown, and never
believed too far.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from urllib.parse import unquote

import pytest
from experiment_parts import QUICK, experiment, graded
from fake_ollama import FakeOllama, Fault
from pydantic import BaseModel, field_validator
from test_odd_servers import LIMITS, served, with_content

from ragbench.cli import main
from ragbench.errors import ModelError
from ragbench.experiment import load_rows
from ragbench.llm import ask, chat_model
from ragbench.llm.endpoints import endpoint_of
from ragbench.report.audit import audit, render


def grades(body):
    """The reply of a judge that gives a 5 to whatever it is shown, else an answer."""
    return graded(body) or f"Ely, after {len(body['messages'][-1]['content'])} characters."


def judged(folder, spec, server, count=2, **changes):
    """An experiment whose answers and grades come from one server."""
    model = chat_model(
        spec, host=server.url + ("/v1" if spec.startswith("openai") else ""), num_ctx=4096
    )
    settings = {
        "generator": {"llama": model},
        "judge": {"llama": model},
        "N": (0,),
        "options": QUICK,
    }
    return experiment(folder, count, **(settings | changes))


def checked(frame, check):
    """(rows, of) of one check of an audit."""
    row = frame[frame["check"] == check].iloc[0]
    return int(row["rows"]), int(row["of"])


# -- whose replies they are
# --------------------------------------------------------------------------------------------


def test_where_a_server_tells_nothing_of_its_model_the_rows_say_so(tmp_path):
    with FakeOllama(reply=grades) as fake:
        rows = judged(tmp_path / "nothing", "openai:llama3:8b", fake).run(progress=False)
        known = judged(tmp_path / "digest", "ollama:llama3:8b", fake).run(progress=False)
    assert set(rows["digest"]) == set(rows["judge_digest"]) == {"not told"}
    assert "not told" not in set(known["digest"])


# -- how a schema is sent


def test_the_form_of_the_schema_stands_in_the_reply_the_cassette_and_the_row(tmp_path):
    with FakeOllama(reply=grades) as fake:
        rows = judged(tmp_path / "run", "openai:llama3:8b", fake).run(progress=False)
        assert set(rows["judge_form"]) == {"json_schema"}
        asked = len(fake.calls)
        recorded = {"cassette": tmp_path / "run" / "cassette.sqlite"}
        again = judged(tmp_path / "again", "openai:llama3:8b", fake, **recorded)
        assert set(again.run(progress=False)["judge_form"]) == {"json_schema"}
        assert len(fake.calls) == asked


# -- streams and loops
# -------------------------------------------------------------------------------------------------

LOOP = '{"answer": "' + "the lake and the hill and " * 3000


def test_a_loop_is_no_cut_prompt_in_the_audit(tmp_path):
    def fault(prompt, before):
        return Fault("answer", LOOP) if "Person0" in prompt and "Ely, after" in prompt else None

    def looped_once(prompt, before):
        return (
            Fault("answer", LOOP)
            if "Person1" in prompt and "Ely, after" in prompt and before == 0
            else None
        )

    with FakeOllama(reply=grades, fault=lambda *call: fault(*call) or looped_once(*call)) as fake:
        rows = judged(tmp_path, "ollama:llama3:8b", fake, 3).run(progress=False)
    assert rows["error_kind"].tolist() == ["truncated", "", ""]
    assert rows["judge_repairs"].tolist() == [1, 1, 0]
    told = audit(tmp_path)
    assert checked(told, "truncated grades")[0] == 1
    assert "the judge repeated itself" in render(told)


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
        return (
            Fault("finish", "stopped" + CODES)
            if "Person1" in prompt
            else Fault("error_line", "no" + CODES)
        )

    models = {"llama3:8b": "d" * 8 + CODES, "other" + CODES: "e" * 64}
    with FakeOllama(models=models, fault=fault, reply=lambda body: "Ely.") as fake:
        axes = {"generator": {"llama": fake.model()}, "judge": None, "N": (0,), "options": QUICK}
        rows = experiment(tmp_path / "run", 3, **axes).run(progress=False)
        absent = ask(fake.model("ollama:absent"), ["p"], **LIMITS)[0]
        monkeypatch.setenv("OLLAMA_HOST", fake.url)
        main(["doctor", "--model", "ollama:llama3:8b"])
        main(["doctor", "--model", "ollama:absent"])
    assert set(rows["error_kind"]) == {"server", "unusable"}
    main(["export", str(tmp_path / "run"), "--to", str(tmp_path / "export")])
    shown = capsys.readouterr()
    told = [
        shown.out,
        shown.err,
        caplog.text,
        str(absent.error),
        rows.to_csv(),
        load_rows(tmp_path / "run").to_csv(),
    ]
    written = (".csv", ".md", ".txt", ".tex", ".json", ".jsonl")
    told += [
        path.read_text() for path in (tmp_path / "export").rglob("*") if path.suffix in written
    ]
    assert len(told) > 10
    assert [OBEYED.search(text) for text in told] == [None] * len(told)
    assert r"no\x1b[2J" in rows["error"][0]
    assert r"it has: llama3:8b, other\x1b[2j" in str(absent.error)


@pytest.mark.parametrize("spec", ["ollama:llama3:8b", "openai:llama3:8b"])
@pytest.mark.parametrize("user", ["anna:p4ssw0rd", "user:pw", "anna:p%40ss%2Fw0rd-which-is-long"])
def test_user_and_password_in_an_address_are_sent_and_stand_nowhere(
    spec, user, tmp_path, capsys, caplog
):
    pair = base64.b64encode(unquote(user).encode()).decode()
    hidden = [user, unquote(user), unquote(user).partition(":")[2], pair]
    hidden = [word for word in hidden if len(word) > 2]
    with FakeOllama(reply=grades, api_key="another") as refusing, FakeOllama(reply=grades) as fake:
        # the second one repeats what it was sent in its words of refusal
        for server in (fake, refusing):
            host = server.url.replace("//", f"//{user}@") + (
                "/v1" if spec.startswith("openai") else ""
            )
            model = chat_model(spec, host=host)
            ask(model, ["p"], cassette=tmp_path / f"{server.port}.sqlite", **LIMITS)
            with contextlib.suppress(Exception):  # the client's own errors are not ours
                model.invoke("p")
            assert {call.headers["authorization"] for call in server.calls} == {f"Basic {pair}"}
            told = [
                repr(model),
                str(model),
                str(getattr(model, "base_url", "")),
                str(endpoint_of(model).options),
            ]
            told.append(repr(ask(model, ["p"], **LIMITS)))
            main(["doctor", "--model", spec, "--options", f"host={host}"])
            axes = {"generator": {"llama": model}, "judge": None, "N": (0,), "options": QUICK}
            try:
                experiment(tmp_path / f"run-{server.port}", 2, **axes).run(progress=False)
            except ModelError as error:
                told.append(str(error))
            shown = capsys.readouterr()
            for text in (*told, shown.out, shown.err, caplog.text):
                assert not [word for word in hidden if word in text.replace(f"{server.url}", "")], (
                    text
                )
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert not [word for word in hidden if word.encode() in path.read_bytes()], path


class Weight(BaseModel):
    weight: float


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e400", '"NaN"', "9" * 400]
)
def test_a_number_that_is_none_fits_no_float(number):
    replies = ask(
        served("openai", lambda p: with_content("openai", f'{{"weight": {number}}}')),
        ["p"],
        schema=Weight,
        **LIMITS,
    )
    assert replies[0].error.kind == "unusable"
    assert ("is no JSON number" in str(replies[0].error)) == (number != '"NaN"')
