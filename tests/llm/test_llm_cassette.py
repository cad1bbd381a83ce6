"""The cassette: what makes a key, record / replay / off, failures, digests, files and processes."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
from collections import Counter

import pandas as pd
import pytest
from fake_ollama import DIGEST, FakeOllama, Fault
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import recorded as shipped
from ragbench.errors import ConfigError, DataError
from ragbench.llm import CallError, Cassette, ask
from ragbench.llm.cassette import Keys
from ragbench.paths import packaged_data

PROMPTS = ("p0", "p1", "p2")


class Word(BaseModel):
    word: str


class Other(BaseModel):
    other: str


@pytest.fixture(autouse=True)
def no_mode_from_outside(monkeypatch):
    monkeypatch.delenv("RAGBENCH_CASSETTE", raising=False)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "c.sqlite"


@pytest.fixture
def cassette(path):
    return Cassette(path)


@pytest.fixture
def recorded(fake, cassette):
    """A cassette with the replies to p0, p1 and p2."""
    run(fake, cassette)
    return cassette


@pytest.fixture
def lines(tmp_path):
    """A file of exported replies."""
    return tmp_path / "a.jsonl"


@pytest.fixture
def other(tmp_path):
    """A second cassette."""
    return Cassette(tmp_path / "b.sqlite")


def replaying(path):
    return Cassette(path, mode="replay")


def texts(replies):
    return [reply.text for reply in replies]


@pytest.fixture
def no_sockets(monkeypatch):
    """Call it, and no socket can be opened any more."""

    def refuse(*args, **kwargs):
        raise AssertionError("a socket was opened")

    def forbid():
        for name in ("connect", "connect_ex", "sendto"):
            monkeypatch.setattr(socket.socket, name, refuse)
        for name in ("create_connection", "getaddrinfo"):
            monkeypatch.setattr(socket, name, refuse)

    return forbid


def run(fake, cassette, prompts=PROMPTS, schema=None, **options):
    """Ask; return the replies and the number of calls."""
    before = len(fake.calls)
    replies = ask(fake.model(**options), list(prompts), schema=schema, cassette=cassette)
    return replies, len(fake.calls) - before


# -- the key


def test_the_key_is_the_sha256_of_the_canonical_request():
    keys = Keys("ollama", "m:1", "d1", {"options": {"seed": 0, "temperature": 0.0}})
    who = '{"digest":"d1","model":"m:1","options":{"options":{"seed":0,"temperature":0}},"provider":"ollama"}'
    text = f'ragbench-cassette-1\n{who}\n[{{"content":"hé","role":"user"}}]\n'
    key = keys.key([{"role": "user", "content": "hé"}])
    assert key == hashlib.sha256(text.encode()).hexdigest()
    value = {"b": 0.0, "a": [1.0, True, None, ("é", "\n")]}
    assert Keys.canonical(value) == '{"a":[1,true,null,["é","\\n"]],"b":0}'


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.1},
        {"seed": 1},
        {"num_ctx": 4096},
        {"num_predict": 100},
        {"top_p": 0.5},
        {"stop": ["x"]},
        {"reasoning": False},
        {"schema": Word},
        {"schema": Other},
        {"spec": "ollama:mistral:7b"},
        {"prompts": ("p0 ", "p1.", "P2")},
        {"prompts": [[("system", "Be brief."), ("user", p)] for p in PROMPTS]},
    ],
)
def test_anything_that_can_change_a_reply_is_a_miss(fake, change, cassette):
    fake.models["mistral:7b"] = "1" * 64
    run(fake, cassette, schema=Word if change.get("schema") is Other else None)
    assert run(fake, cassette, **change)[1] == 3
    assert run(fake, cassette, **change)[1] == 0


@pytest.mark.parametrize(
    ("spec", "own", "other"),
    [
        ("ollama:llama3:8b", {"keep_alive": "5m"}, {"keep_alive": -1}),
        ("openai:made", {"digest": "v1"}, {"digest": "v1"}),
    ],
)
def test_host_deadline_retries_and_concurrency_do_not_change_the_key(fake, path, spec, own, other):
    run(fake, path, spec=spec, **own)
    with FakeOllama() as elsewhere:
        model = elsewhere.model(spec, deadline_s=7, **other)
        more = {"retries": 9, "concurrency": 1, "deadline_s": 3, "step": "other", "progress": False}
        replies = ask(model, ["p2", "p0", "p1"], cassette=path, **more)
        assert all(reply.cached for reply in replies)
        assert not elsewhere.calls


messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "system"]), "content": st.text()}),
    max_size=3,
)


@settings(max_examples=100, deadline=None)
@given(messages, messages, st.floats(0, 2), st.floats(0, 2))
def test_keys_are_equal_exactly_when_the_requests_are(a, b, s, t):
    one = Keys("o", "m", "d", {"temperature": s})
    two = Keys("o", "m", "d", {"temperature": t})
    assert (one.key(a) == two.key(b)) == ((a, s) == (b, t))


@pytest.mark.parametrize("name", list(shipped.RECORDINGS))
def test_shipped_replies_are_found_by_the_keys_of_their_prompts(name, no_sockets):
    with gzip.open(packaged_data("recordings", f"{name}.jsonl.gz"), "rt") as file:
        lines = pd.DataFrame(map(json.loads, file))
    model = shipped.RECORDINGS[name].chat_model()
    cassette = shipped.replay(name)
    no_sockets()
    replies = ask(model, lines["request"].str["messages"], cassette=cassette, on_length="keep")
    assert [reply.key for reply in replies] == lines["key"].tolist()
    assert texts(replies) == lines["answer"].str["text"].tolist()
    assert all(reply.cached for reply in replies)


def test_any_text_can_be_recorded_and_replayed(fake, cassette):
    nasty = ["nul \x00 byte", "“quotes” 引号", "\u2028 line", ""]
    fake.reply = lambda body: "got: 引号 \x00 " + repr(body["messages"][0].get("content"))
    first, _ = run(fake, cassette, nasty)
    again, calls = run(fake, cassette, nasty)
    assert calls == 0
    assert texts(again) == texts(first)
    assert cassette.verify() == []


# -- modes


def test_replay_gives_the_same_replies_without_a_server_or_a_socket(fake, no_sockets, path):
    recorded, _ = run(fake, path)
    fake.stop()
    no_sockets()
    replayed, _ = run(fake, replaying(path))
    for one, other in zip(recorded, replayed, strict=True):
        assert (one.text, one.usage, one.seconds) == (other.text, other.usage, other.seconds)
        assert (other.cached, other.digest) == (True, DIGEST)


def test_a_miss_in_replay_names_the_prompt_and_the_command_that_records_it(
    fake, no_sockets, recorded, path
):
    no_sockets()
    cassette = Cassette(path, mode="replay", command="ragbench run thesis --live")
    prompts = ["p0", "new", "p1", "newer"]
    asked = {"ids": ["q0", "q17", "q1", "q18"], "cassette": cassette}
    with pytest.raises(CallError) as caught:
        ask(fake.model(), prompts, **asked)
    assert caught.value.kind == "miss"
    for words in ("2 of 4", "'q17', 'q18'", "RAGBENCH_CASSETTE=record ragbench run thesis --live"):
        assert words in str(caught.value)
    kept = ask(fake.model(), prompts, on_miss="reply", **asked)
    assert [reply.ok for reply in kept] == [True, False, True, False]
    assert kept[1].error.kind == "miss"


def test_the_environment_turns_a_replaying_script_into_a_recording_one(
    fake, monkeypatch, recorded, path
):
    monkeypatch.setenv("RAGBENCH_CASSETTE", "record")
    assert run(fake, replaying(path), ["p0", "new"])[1] == 1


@pytest.mark.parametrize("mode", ["replay", "record"])
def test_a_file_that_is_no_cassette_is_refused(tmp_path, mode):
    (tmp_path / "text.sqlite").write_text("this is not a database, " * 50)
    sqlite3.connect(tmp_path / "other.sqlite").execute("CREATE TABLE birds (name)")
    for name, words in (("text", "not a database"), ("other", "birds")):
        with pytest.raises(DataError, match=f"not readable as a cassette.*{words}"):
            Cassette(tmp_path / f"{name}.sqlite", mode=mode)
    with pytest.raises(DataError, match="no such cassette"):
        Cassette(tmp_path / "none.sqlite", mode="replay")
    with pytest.raises(ConfigError, match="unknown cassette mode"):
        Cassette(tmp_path / "none.sqlite", mode="reply")


def test_a_file_that_is_damaged_in_its_middle_gives_one_message(path):
    keys = Keys("ollama", "m", "d", {})
    with Cassette(path) as cassette:
        for n in range(300):
            asked = [{"role": "user", "content": f"{n} " * 50}]
            answer = {"ok": True, "text": str(n), "usage": {}}
            cassette.put(keys.key(asked), keys.request(asked), answer)
    content = path.read_bytes()
    half = len(content) // 2
    path.write_bytes(content[:half] + b"x" * half)
    cassette = replaying(path)
    for use in (cassette.verify, lambda: cassette.export(path)):
        with pytest.raises(DataError, match=r"not readable as a cassette .*malformed"):
            use()


def test_a_read_only_folder_can_be_replayed_from(fake, recorded, path, tmp_path):
    recorded.close()
    assert os.listdir(tmp_path) == ["c.sqlite"]
    tmp_path.chmod(0o555)
    try:
        replay = replaying(path)
        assert run(fake, replay)[1] == 0
        assert os.listdir(tmp_path) == ["c.sqlite"]  # a closed one is read without a log beside it
    finally:
        tmp_path.chmod(0o755)


# -- failures


@pytest.mark.parametrize("name", ["truncated", "400", "oom"])
def test_a_failure_is_recorded_as_one_asked_again_and_never_served_as_answer(
    fake, name, path, cassette
):
    fake.fault = lambda prompt, before: Fault(name)
    fake.reply = lambda body: "a long answer of many words"
    first = ask(fake.model(), ["p"], cassette=cassette, retries=0)[0]
    assert not first.ok
    assert len(cassette) == 0
    (replayed,) = run(fake, replaying(path), ["p"])[0]
    assert (replayed.ok, replayed.cached) == (False, True)
    for fact in ("kind", "model", "status"):
        assert getattr(replayed.error, fact) == getattr(first.error, fact)
    assert fake.url in str(first.error)  # told on the screen, and not stored
    assert str(replayed.error) == str(first.error).replace(fake.url, "the server")
    assert replayed.raw == first.raw
    fake.fault = None
    again, calls = run(fake, cassette, ["p"])
    assert (again[0].ok, calls) == (True, 1)
    assert cassette.rows("SELECT ok FROM replies") == [(1,)]


def test_an_answer_is_never_replaced_by_a_later_failure_or_answer(cassette):
    keys = Keys("ollama", "m", "d", {})
    request = keys.request([])
    key = keys.key([])
    names = ("raw", "finish", "seconds", "repairs", "attempts", "error")
    answer = {"ok": True, "text": "first", "usage": {}, **dict.fromkeys(names)}
    changes = ({}, {"ok": False}, {"text": "second"})
    assert [cassette.put(key, request, answer | one) for one in changes] == [True, False, False]
    assert cassette.get([key])[key]["text"] == "first"


# -- digests


def test_a_changed_digest_is_an_error_and_of_two_the_models_own_is_taken(
    fake, recorded, path, other, lines
):
    old, _ = run(fake, recorded)
    fake.models["llama3:8b"] = "f" * 64
    fake.reply = lambda body: "new weights speaking"
    with pytest.raises(CallError, match="two digests under one name") as caught:
        run(fake, recorded)
    assert caught.value.kind == "digest"
    assert DIGEST[:12] in str(caught.value)
    assert "ffffffffffff" in str(caught.value)
    new, _ = run(fake, other)
    other.export(lines)
    recorded.import_(lines)
    with pytest.raises(CallError, match="two digests under one name"):
        run(fake, replaying(path))
    for digest, replies in ((DIGEST, old), ("f" * 64, new)):
        assert texts(run(fake, replaying(path), digest=digest)[0]) == texts(replies)
    assert "2 digests under one name" in " ".join(Cassette(path).verify())


def test_nothing_is_recorded_while_nobody_can_say_whose_replies_they_would_be(cassette, fake):
    fake.stop()
    assert run(fake, cassette, ["p"])[0][0].error.kind == "down"
    assert cassette.rows("SELECT * FROM models") == []
    with FakeOllama(port=fake.port) as again:
        assert run(again, cassette)[0][0].ok
    assert cassette.rows("SELECT * FROM models") == [("ollama", "llama3:8b", DIGEST)]


def test_recorded_replies_are_served_while_the_server_is_down(fake, recorded):
    fake.stop()
    replies, _ = run(fake, recorded, ["p0", "new"])
    assert [(reply.ok, reply.cached) for reply in replies] == [(True, True), (False, False)]


# -- export, import, verify


def test_export_and_import_carry_every_reply_over(fake, cassette, other, lines, tmp_path):
    replies, _ = run(fake, cassette, schema=Word)
    assert cassette.export(lines) == 3
    exported = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [line["key"] for line in exported] == sorted(reply.key for reply in replies)
    assert {line["request"]["messages"][0]["content"] for line in exported} == {*PROMPTS}
    assert bool(other)  # one without replies is one all the same
    assert [other.import_(lines) for _ in range(2)] == [3, 0]
    assert other.verify() == []
    replay = replaying(other.path)
    with pytest.raises(DataError, match="record mode"):
        replay.import_(lines)
    other.export(tmp_path / "b.jsonl")
    assert (tmp_path / "b.jsonl").read_bytes() == lines.read_bytes()
    again, calls = run(fake, replay, schema=Word)
    assert calls == 0
    assert texts(again) == texts(replies)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"p1"', '"p9"', "does not belong to the request"),
        ('"ok": true, "text": "Answer', '"ok": true, "text": "Forged', "changed after recording"),
        ('{"key"', '{key"', "JSONDecodeError"),
        ('"digest"', '"digesd"', "KeyError"),
    ],
)
def test_import_refuses_a_damaged_line_by_file_and_line_and_takes_nothing(
    fake, recorded, lines, other, old, new, words
):
    recorded.export(lines)
    exported = lines.read_text().splitlines(keepends=True)
    exported.sort(key=lambda line: '"p1"' in line)  # p1 comes last, then is moved to line 2
    damaged = exported.pop()
    assert old in damaged
    exported.insert(1, damaged.replace(old, new))
    lines.write_text("".join(exported))
    with pytest.raises(DataError, match=rf"a\.jsonl, line 2: .*{words}"):
        other.import_(lines)
    assert len(other) == 0
    run(fake, other, ["new"])  # is no part of what was undone
    assert len(replaying(other.path)) == 1


def test_a_compressed_export_holds_the_chosen_rows_and_a_cut_one_is_refused(
    fake, tmp_path, cassette, other
):
    replies, _ = run(fake, cassette)
    chosen = {replies[0].key, replies[2].key}
    file = tmp_path / "a.jsonl.gz"
    packed = []
    for _ in range(2):
        assert cassette.export(file, chosen) == 2
        packed.append(file.read_bytes())
    assert packed[0] == packed[1]
    assert packed[0][:2] == b"\x1f\x8b"
    assert other.import_(file) == 2
    assert set(other.get(reply.key for reply in replies)) == chosen
    file.write_bytes(packed[0][:-20])
    with pytest.raises(DataError, match=r"a\.jsonl\.gz, line \d: EOFError"):
        other.import_(file)


def test_verify_finds_a_changed_answer_and_a_changed_request(recorded):
    assert recorded.verify() == []
    recorded.rows(
        "UPDATE replies SET answer = replace(answer, 'Answer', 'Forged') WHERE prompt_id = '0'"
    )
    recorded.rows("UPDATE replies SET request = replace(request, 'p1', 'p9') WHERE prompt_id = '1'")
    answer, request = sorted(recorded.verify())
    assert re.search("prompt '0'.*changed after recording", answer)
    assert re.search("prompt '1'.*does not belong", request)


# -- processes

CHILD = """
import json, sys
from ragbench.llm import Cassette, ask, chat_model
url, path = sys.argv[1:]
model = chat_model("ollama:llama3:8b", host=url)
replies = ask(model, [f"p{n}" for n in range(120)], cassette=Cassette(path), concurrency=4)
print(json.dumps([reply.text for reply in replies if reply.ok]))
"""


def child_of(fake, path):
    command = [sys.executable, "-c", CHILD, fake.url, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_three_processes_share_a_cassette_and_agree(fake, path):
    numbers = itertools.count()
    fake.reply = lambda body: f"answer {next(numbers)} to {body['messages'][0]['content']}"
    fake.latency_s = 0.02
    children = [child_of(fake, path) for _ in range(3)]
    one, two, three = (json.loads(child.communicate(timeout=120)[0]) for child in children)
    assert len(one) == 120
    assert one == two == three  # all return the reply that was recorded
    asked = Counter(call.prompt for call in fake.calls)
    assert len(asked) == 120
    assert asked.total() <= 360  # two may both ask; the first reply stays
    cassette = Cassette(path)
    assert (len(cassette), cassette.verify()) == (120, [])
