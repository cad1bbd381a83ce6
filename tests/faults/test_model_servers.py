"""What a server says of its model, its limits and itself: known, recorded and shown, and never believed too far."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import time
from urllib.parse import unquote

import httpx
import pytest
from experiment_parts import QUICK, experiment, graded
from fake_ollama import FakeOllama, Fault
from pydantic import BaseModel, field_validator
from test_odd_servers import CHAT, LARGE, LIMITS, MODELS, SMALL, Said, llama_cpp, mocked, served, with_content

from ragbench.cli import main
from ragbench.errors import ModelError
from ragbench.experiment import load_rows
from ragbench.llm import CallError, Cassette, ask, chat_model, fitness
from ragbench.llm.drivers import Received, driver_for
from ragbench.llm.facts import model_facts
from ragbench.llm.structured import without_thinking
from ragbench.report.audit import audit, render


def grades(body):
    """The reply of a judge that gives a 5 to whatever it is shown, else an answer."""
    return graded(body) or f"Ely, after {len(body['messages'][-1]['content'])} characters."


def judged(folder, spec, server, count=2, **changes):
    """An experiment whose answers and grades come from one server."""
    model = chat_model(spec, host=server.url + ("/v1" if spec.startswith("openai") else ""), num_ctx=4096)
    settings = {"generator": {"llama": model}, "judge": {"llama": model}, "N": (0,), "options": QUICK}
    return experiment(folder, count, **(settings | changes))


def checked(frame, check):
    """(rows, of) of one check of an audit."""
    row = frame[frame["check"] == check].iloc[0]
    return int(row["rows"]), int(row["of"])


# -- whose replies they are --------------------------------------------------------------------------------------------


def test_where_a_server_tells_nothing_of_its_model_the_rows_say_so(tmp_path):
    with FakeOllama(reply=grades) as fake:
        rows = judged(tmp_path / "nothing", "openai:llama3:8b", fake).run(progress=False)
        known = judged(tmp_path / "digest", "ollama:llama3:8b", fake).run(progress=False)
    assert set(rows["digest"]) == set(rows["judge_digest"]) == {"not told"}
    assert "not told" not in set(known["digest"])


def test_a_server_that_says_one_thing_and_then_nothing_gives_no_more_replies(tmp_path):
    model = llama_cpp({"entry": SMALL, "then": {}})
    replies = ask(model, [f"p{n}" for n in range(10)], **{**LIMITS, "concurrency": 1, "outage_s": 30})
    assert [reply.ok for reply in replies] == [n < 5 or n == 9 for n in range(10)][:5] + [False] * 5
    assert {reply.error.kind for reply in replies[5:]} == {"server_error"}
    assert "no longer tells which model it has" in str(replies[5].error)


def props_of(answers):
    """A llama.cpp server with lists of (status, JSON) to give for a GET, by path; the last one again and again."""

    def handle(request):
        if request.method == "GET":
            left = answers.get(request.url.path, [(404, {})])
            status, body = left.pop(0) if len(left) > 1 else left[0]
            return httpx.Response(status, json=body)
        return httpx.Response(200, json=CHAT)

    return mocked(handle)


LISTED = {"data": [{"id": "m.gguf", **SMALL}]}
SLOT = {"default_generation_settings": {"n_ctx": 2048}, "total_slots": 2}


def test_a_server_that_still_loads_its_model_is_waited_for_and_not_taken_for_another(tmp_path):
    loading = {"data": [{"id": "m.gguf", "meta": None}]}
    for first in ((503, {"error": {"message": "Loading model"}}), (200, loading)):
        models = {"/v1/models": [first, (200, LISTED)], "/props": [(200, SLOT)]}
        reply = ask(props_of(models), ["p"], cassette=tmp_path / f"{first[0]}.sqlite", **{**LIMITS, "retries": 1})[0]
        assert reply.ok
        assert reply.digest.startswith("told-")


def test_a_server_without_props_is_known_by_what_its_list_says():
    digests = {
        path: ask(props_of({"/v1/models": [(200, LISTED)], **more}), ["p"], **LIMITS)[0].digest
        for path, more in {"props": {"/props": [(200, SLOT)]}, "none": {}}.items()
    }
    assert all(digest.startswith("told-") for digest in digests.values())
    assert len(set(digests.values())) == 2


@pytest.mark.parametrize("break_", ["dropped", "503"])
def test_a_server_that_was_started_anew_in_between_is_asked_again_who_it_is(break_):
    state = {"entry": SMALL}
    plain = driver_for(llama_cpp(state))._client_options["transport"].handler

    def handle(request):
        if request.method == "POST" and b'"p5"' in request.content and state["entry"] is SMALL:
            state["entry"] = LARGE
            if break_ == "503":
                return httpx.Response(503, json={"error": {"message": "Loading model"}})
            raise httpx.ReadError("broken")
        return plain(request)

    model = mocked(handle)
    with pytest.raises(CallError, match="two digests under one name"):
        ask(model, [f"p{n}" for n in range(10)], **{**LIMITS, "concurrency": 1, "retries": 1})


# -- how a schema is sent ----------------------------------------------------------------------------------------------


def test_a_weaker_form_of_the_schema_stands_in_the_reply_the_cassette_and_the_row(tmp_path):
    with FakeOllama(reply=grades, openai_schema="json_object") as weak, FakeOllama(reply=grades) as strong:
        for name, fake, form in (("weak", weak, "json_object"), ("strong", strong, "json_schema")):
            folder = tmp_path / name
            rows = judged(folder, "openai:llama3:8b", fake).run(progress=False)
            assert set(rows["judge_form"]) == {form}
            with Cassette(folder / "cassette.sqlite", mode="replay") as cassette:
                forms = cassette.rows("SELECT json_extract(answer, '$.form') FROM replies WHERE step = 'grading'")
            assert set(forms) == {(form,)}
            asked = len(fake.calls)
            recorded = {"cassette": folder / "cassette.sqlite"}
            again = judged(tmp_path / f"{name}-again", "openai:llama3:8b", fake, **recorded).run(progress=False)
            assert set(again["judge_form"]) == {form}
            assert len(fake.calls) == asked


def test_the_weaker_form_is_kept_for_one_host_and_not_for_another():
    with FakeOllama(openai_schema="json_object") as weak, FakeOllama() as strong:
        models = [chat_model("openai:llama3:8b", host=f"{fake.url}/v1") for fake in (weak, strong)]
        replies = ask(models, [f"p{n}" for n in range(12)], schema=Said, **{**LIMITS, "concurrency": 1})
        assert {reply.form for reply in replies if reply.host.startswith(weak.url)} == {"json_object"}
        assert {reply.form for reply in replies if reply.host.startswith(strong.url)} == {"json_schema"}
        assert {call.body["response_format"]["type"] for call in strong.calls} == {"json_schema"}


@pytest.mark.parametrize("text", ['{"answer": 3}', '{"answer": "x", "answer": null}', "{}", "[]", "Ely"])
def test_what_comes_in_the_weaker_form_is_validated_as_strictly(text):
    with FakeOllama(openai_schema="json_object", reply=lambda body: text) as fake:
        reply = ask(chat_model("openai:llama3:8b", host=f"{fake.url}/v1"), ["p"], schema=Said, **LIMITS)[0]
        assert fake.calls[-1].body["response_format"]["type"] == "json_object"
    assert (reply.ok, reply.error.kind, reply.repairs) == (False, "invalid", 1)


# -- streams and loops -------------------------------------------------------------------------------------------------

LOOP = '{"answer": "' + "the lake and the hill and " * 3000


@pytest.mark.parametrize("spec", MODELS.values())
def test_a_structured_reply_that_repeats_itself_is_cut_early_wherever_it_streams(spec):
    with FakeOllama(models={"llama3:8b": "d", "made": "d"}, fault=lambda p, n: Fault("answer", LOOP)) as fake:
        model = chat_model(spec, host=fake.url + "/v1" * spec.startswith("openai"), num_ctx=4096, num_predict=10_000)
        reply = ask(model, ["p"], schema=Said, **LIMITS)[0]
        repair = fake.calls[1].body["messages"]
    assert len(fake.calls) == 2
    assert reply.error.kind == "truncated"
    assert "repeats itself" in str(reply.error)
    assert "num_ctx=" not in str(reply.error)
    assert 4000 <= len(reply.raw) < 20_000
    assert sum(len(message["content"]) for message in repair) < 5_000


def test_a_long_answer_that_does_not_repeat_itself_is_read_to_its_end():
    long = json.dumps({"answer": " ".join(map(str, range(20_000)))})
    with FakeOllama(models={"made": "d"}, fault=lambda p, n: Fault("answer", long)) as fake:
        reply = ask(fake.model("openai:made"), ["p"], schema=Said, **LIMITS)[0]
    assert (reply.raw, reply.usage.uncounted) == (long, 0)


def test_a_loop_is_no_cut_prompt_in_the_audit(tmp_path):
    def fault(prompt, before):
        return Fault("answer", LOOP) if "Person0" in prompt and "Ely, after" in prompt else None

    def looped_once(prompt, before):
        return Fault("answer", LOOP) if "Person1" in prompt and "Ely, after" in prompt and before == 0 else None

    with FakeOllama(reply=grades, fault=lambda *call: fault(*call) or looped_once(*call)) as fake:
        rows = judged(tmp_path, "ollama:llama3:8b", fake, 3).run(progress=False)
    assert rows["error_kind"].tolist() == ["truncated", "", ""]
    assert rows["judge_repairs"].tolist() == [1, 1, 0]
    told = audit(tmp_path)
    assert checked(told, "truncated grades")[0] == 1
    assert "the judge repeated itself" in render(told)


STREAMS = {"counted": [True] * 3, "uncounted": [True, False, False], "refused": [True, False, False, False]}


@pytest.mark.parametrize("how", STREAMS)
def test_a_server_that_takes_no_stream_or_counts_none_is_asked_for_one_answer(how):
    with FakeOllama(models={"made": "d"}, openai_stream=how) as fake:
        model = fake.model("openai:made")
        replies = ask(model, ["a", "b", "c"], schema=Said, **{**LIMITS, "concurrency": 1})
        assert [bool(call.body.get("stream")) for call in fake.calls] == STREAMS[how]
        plain = ask(model, ["d"], **LIMITS)[0]
        assert "stream" not in fake.calls[-1].body
    assert plain.ok
    assert [reply.parsed for reply in replies] == [Said(answer="x")] * 3
    assert [reply.usage.uncounted for reply in replies] == [int(how == "uncounted"), 0, 0]


def test_a_stream_is_recorded_as_one_answer_is(tmp_path):
    keys = set()
    for how in ("counted", "ignored"):
        with FakeOllama(models={"made": "d"}, openai_stream=how) as fake:
            model = fake.model("openai:made")
            reply = ask(model, ["a"], schema=Said, cassette=tmp_path / f"{how}.sqlite", **LIMITS)[0]
        keys.add((reply.key, reply.raw, reply.finish, reply.usage.prompt_tokens, reply.usage.output_tokens))
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault("dropped"), "dropped"),
        (Fault("no_end_mark"), "unfinished"),
        (Fault("error_line", "CUDA out of memory"), "out_of_memory"),
        (Fault("finish", "content_filter"), "refused"),
        (Fault("drip", 0.05), "slow"),
    ],
)
def test_failures_inside_a_stream_have_their_names(fault, kind):
    with FakeOllama(models={"made": "d"}, fault=lambda p, n: fault, reply=lambda body: '{"answer": "x y z"}') as fake:
        reply = ask(fake.model("openai:made"), ["p"], schema=Said, **LIMITS, deadline_s=1.0)[0]
    assert reply.error.kind == kind, reply.error


# -- the window --------------------------------------------------------------------------------------------------------


def test_the_doctor_goes_on_after_a_reply_that_was_cut(capsys):
    with FakeOllama(fault=lambda prompt, before: None if "Statement" in prompt else Fault("truncated")) as fake:
        found = fitness(fake.model())
    assert (found.asked, found.window_works) == (4, True)
    thinking = Fault("answer", "<think>hm, let me see")
    with FakeOllama(fault=lambda prompt, before: thinking if "one to ten" in prompt else None) as fake:
        found = fitness(fake.model(num_predict=3), probe_context=False)
    assert found.asked == 4


def test_the_doctors_command_takes_a_window(capsys, monkeypatch):
    with FakeOllama(context_length=2048) as fake:
        main(["doctor", "--model", "ollama:llama3:8b", "--host", fake.url, "--num-ctx", "1024"])
        assert "num_ctx 1024, model made for 2048, read whole: yes" in capsys.readouterr().out
        assert {call.body["options"]["num_ctx"] for call in fake.calls} == {1024}
        main(["doctor", "--model", "ollama:llama3:8b", "--host", fake.url, "--num-ctx", "4096"])
        assert "num_ctx=4096 is longer than the model was made for (2048)" in capsys.readouterr().out


@pytest.mark.parametrize(("given", "used"), [(None, 2048), (4096, 4096)])
def test_the_doctor_knows_the_window_of_one_slot(given, used):
    model = props_of({"/v1/models": [(200, LISTED)], "/props": [(200, SLOT)]})
    model.num_ctx = driver_for(model).num_ctx = given
    found = fitness(model)
    assert (found.num_ctx, found.context_length) == (used, 2048)
    words = "num_ctx=4096, and the server reads 2048 tokens at most: pass num_ctx=2048, or give each of its slots 4096"
    assert any(words in problem for problem in found.problems) == (given is not None)


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("provider", MODELS)
def test_a_reply_of_200_mb_is_refused_by_a_named_limit_and_not_read_to_its_end(provider, status, tmp_path):
    sent = []

    async def endless():
        for _ in range(200):
            sent.append(1)
            yield b" " * 1_000_000
            await asyncio.sleep(0)

    model = mocked(lambda _: httpx.Response(status, content=endless()), MODELS[provider], digest="d")
    reply = ask(model, ["p"], cassette=tmp_path / "c.sqlite", **LIMITS)[0]
    assert reply.error.kind == "oversized"
    assert "more than 64 MiB" in str(reply.error)
    assert "ragbench.llm.drivers.MOST_BYTES" in str(reply.error)
    assert len(sent) < 70
    assert (tmp_path / "c.sqlite").stat().st_size < 1_000_000


def test_a_list_of_models_has_the_same_limit(monkeypatch):
    monkeypatch.setattr("ragbench.llm.drivers.MOST_BYTES", 1000)
    with (
        FakeOllama(models={f"model-{n}": "e" * 64 for n in range(9)}) as fake,
        pytest.raises(ModelError, match="more than"),
    ):
        model_facts([fake.model()])


class Touchy(BaseModel):
    answer: str

    @field_validator("answer")
    @classmethod
    def breaks(cls, value):
        return {"x": value}[value]  # a KeyError is nothing that pydantic, or anybody else, expects here


def test_what_breaks_while_a_reply_is_read_is_the_failure_of_its_prompt_alone():
    def reply(prompt):
        return with_content("openai", json.dumps({"answer": "boom" if prompt == "p3" else "x"}))

    replies = ask(served("openai", reply), [f"p{n}" for n in range(8)], schema=Touchy, **LIMITS)
    assert [reply.ok for reply in replies] == [n != 3 for n in range(8)]
    assert (replies[3].error.kind, "KeyError" in str(replies[3].error)) == ("other", True)


def test_twenty_thousand_opening_tags_do_not_hold_up_the_others():
    """While one reply is read, the loop serves everybody else."""
    body = with_content("openai", "<think>" * 20_000 + '{"answer": "x"}')
    model = served("openai", lambda prompt: body if prompt == "p0" else with_content("openai", '{"answer": "x"}'))
    start = time.monotonic()
    replies = ask(model, [f"p{n}" for n in range(8)], schema=Said, **LIMITS)
    assert time.monotonic() - start < 10
    assert [reply.ok for reply in replies] == [False] + [True] * 7
    assert replies[0].error.kind == "empty"
    start = time.process_time()
    for text in (
        "<think>" * 20_000,
        "<think></think>" * 20_000,
        "</think>" * 20_000,
        "<think>a" * 20_000 + "</think>b",
    ):
        without_thinking(text)
    assert without_thinking("<think>" * 20_000 + "hm") is None
    assert without_thinking("a</think>b<think>c</think>d") == "bd"
    assert time.process_time() - start < 1


def test_one_line_without_an_end_is_read_in_linear_time():
    driver = driver_for(chat_model("ollama:llama3:8b"))
    received, start = Received(), time.process_time()
    for _ in range(20_000):
        assert received.lines(driver.counted(b"x" * 3000, received)) == []
    assert [len(line) for line in received.lines(b"\n")] == [60_000_000]
    assert time.process_time() - start < 2


# -- words -------------------------------------------------------------------------------------------------------------

CODES = "\x1b[2J\x1b]0;title\x07\r\x9b31m\u202e"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def test_control_codes_of_a_server_reach_neither_terminal_nor_tables(tmp_path, capsys, caplog, monkeypatch):
    def fault(prompt, before):
        return Fault("finish", "stopped" + CODES) if "Person1" in prompt else Fault("error_line", "no" + CODES)

    models = {"llama3:8b": "d" * 8 + CODES, "other" + CODES: "e" * 64}
    with FakeOllama(models=models, fault=fault, reply=lambda body: "Ely.") as fake:
        axes = {"generator": {"llama": fake.model()}, "judge": None, "N": (0,), "options": QUICK}
        monkeypatch.setattr("ragbench.experiment.run._count", lambda *counts: None)  # every prompt fails here
        rows = experiment(tmp_path / "run", 3, **axes).run(progress=False)
        absent = ask(fake.model("ollama:absent"), ["p"], **LIMITS)[0]
        monkeypatch.setenv("OLLAMA_HOST", fake.url)
        main(["doctor", "--model", "ollama:llama3:8b"])
        main(["doctor", "--model", "ollama:absent"])
    assert set(rows["error_kind"]) == {"server_error", "unfinished"}
    main(["export", str(tmp_path / "run"), "--to", str(tmp_path / "export")])
    shown = capsys.readouterr()
    told = [shown.out, shown.err, caplog.text, str(absent.error), rows.to_csv(), load_rows(tmp_path / "run").to_csv()]
    written = (".csv", ".md", ".txt", ".tex", ".json", ".jsonl")
    told += [path.read_text() for path in (tmp_path / "export").rglob("*") if path.suffix in written]
    assert len(told) > 10
    assert [OBEYED.search(text) for text in told] == [None] * len(told)
    assert r"no\x1b[2J" in rows["error"][0]
    assert r"it has: llama3:8b, other\x1b[2J" in str(absent.error)


@pytest.mark.parametrize("spec", ["ollama:llama3:8b", "openai:llama3:8b"])
@pytest.mark.parametrize("user", ["anna:p4ssw0rd", "user:pw", "anna:p%40ss%2Fw0rd-which-is-long"])
def test_user_and_password_in_an_address_are_sent_and_stand_nowhere(spec, user, tmp_path, capsys, caplog):
    pair = base64.b64encode(unquote(user).encode()).decode()
    hidden = [user, unquote(user), unquote(user).partition(":")[2], pair]
    hidden = [word for word in hidden if len(word) > 2]
    with FakeOllama(reply=grades, api_key="another") as refusing, FakeOllama(reply=grades) as fake:
        for server in (fake, refusing):  # the second one repeats what it was sent in its words of refusal
            host = server.url.replace("//", f"//{user}@") + ("/v1" if spec.startswith("openai") else "")
            model = chat_model(spec, host=host)
            ask(model, ["p"], cassette=tmp_path / f"{server.port}.sqlite", **LIMITS)
            with contextlib.suppress(CallError):
                model.invoke("p")
            assert {call.headers["authorization"] for call in server.calls} == {f"Basic {pair}"}
            told = [repr(model), str(model), str(getattr(model, "base_url", "")), str(driver_for(model).options())]
            told.append(repr(ask(model, ["p"], **LIMITS)))
            main(["doctor", "--model", spec, "--host", host])
            axes = {"generator": {"llama": model}, "judge": None, "N": (0,), "options": QUICK}
            try:
                experiment(tmp_path / f"run-{server.port}", 2, **axes).run(progress=False)
            except ModelError as error:
                told.append(str(error))
            shown = capsys.readouterr()
            for text in (*told, shown.out, shown.err, caplog.text):
                assert not [word for word in hidden if word in text.replace(f"{server.url}", "")], text
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert not [word for word in hidden if word.encode() in path.read_bytes()], path


class Weight(BaseModel):
    weight: float


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e400", '"NaN"', "9" * 400])
def test_a_number_that_is_none_fits_no_float(number):
    replies = ask(
        served("openai", lambda p: with_content("openai", f'{{"weight": {number}}}')), ["p"], schema=Weight, **LIMITS
    )
    assert replies[0].error.kind == "invalid"
    assert ("is no JSON number" in str(replies[0].error)) == (number != '"NaN"')
