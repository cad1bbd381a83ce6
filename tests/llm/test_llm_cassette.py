"""The cassette: what makes a key, record / replay / off, failures, digests, files and processes."""

from __future__ import annotations

import gzip
import json
import os
import socket
import sqlite3
import subprocess
import sys

import pytest
from fake_ollama import DIGEST, FakeOllama, Fault
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from ragbench import recordings
from ragbench.errors import ConfigError, DataError
from ragbench.llm import CallError, Cassette, ask
from ragbench.llm.cassette import Keys, canonical
from ragbench.paths import packaged_data


@pytest.fixture(autouse=True)
def no_mode_from_outside(monkeypatch):
    monkeypatch.delenv("RAGBENCH_CASSETTE", raising=False)


class Word(BaseModel):
    word: str


class Other(BaseModel):
    other: str


@pytest.fixture
def path(tmp_path):
    return tmp_path / "c.sqlite"


@pytest.fixture
def recorded(fake, path):
    """A cassette with the replies to p0, p1 and p2."""
    cassette = Cassette(path)
    run(fake, cassette)
    return cassette


def run(fake, cassette, prompts=("p0", "p1", "p2"), schema=None, **options):
    before = len(fake.calls)
    replies = ask(fake.model(**options), list(prompts), schema=schema, cassette=cassette)
    return replies, len(fake.calls) - before


# -- the key
# -----------------------------------------------------------------------------------------------------------


def test_the_key_is_the_sha256_of_the_canonical_request():
    import hashlib

    keys = Keys("ollama", "m:1", "d1", {"options": {"seed": 0, "temperature": 0.0}})
    who = '{"digest":"d1","model":"m:1","options":{"options":{"seed":0,"temperature":0}},"provider":"ollama"}'
    text = f'ragbench-cassette-1\n{who}\n[{{"content":"hé","role":"user"}}]\n'
    assert (
        keys.key([{"role": "user", "content": "hé"}]) == hashlib.sha256(text.encode()).hexdigest()
    )


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
        {"prompts": [[("system", "Be brief."), ("user", p)] for p in ("p0", "p1", "p2")]},
    ],
)
def test_anything_that_can_change_a_reply_is_a_miss(fake, change, path):
    fake.models["mistral:7b"] = "1" * 64
    cassette = Cassette(path)
    run(fake, cassette, schema=Word if change.get("schema") is Other else None)
    assert run(fake, cassette, **change)[1] == 3
    assert run(fake, cassette, **change)[1] == 0


def test_host_deadline_retries_and_concurrency_do_not_change_the_key(fake, path):
    cassette = Cassette(path)
    run(fake, cassette, keep_alive="5m")
    with FakeOllama() as elsewhere:
        model = elsewhere.model(deadline_s=7, keep_alive=-1)
        more = {"retries": 9, "concurrency": 1, "deadline_s": 3, "step": "other", "progress": False}
        replies = ask(model, ["p2", "p0", "p1"], cassette=cassette, **more)
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


def test_equal_numbers_are_written_alike_and_texts_as_they_are():
    value = {"b": 0.0, "a": [1.0, True, None, ("é", "\n")]}
    assert canonical(value) == '{"a":[1,true,null,["é","\\n"]],"b":0}'


@pytest.mark.parametrize("name", list(recordings.RECORDINGS))
def test_shipped_replies_are_found_by_the_keys_of_their_prompts(name, monkeypatch):
    with gzip.open(packaged_data("recordings", f"{name}.jsonl.gz"), "rt") as file:
        lines = [json.loads(line) for line in file]
    lines = lines[:: len(lines) // 16][:16]
    model = recordings.RECORDINGS[name].chat_model()
    cassette = recordings.replay(name)
    no_sockets(monkeypatch)
    prompts = [line["request"]["messages"] for line in lines]
    replies = ask(
        model,
        prompts,
        cassette=cassette,
        on_length="keep",
        ids=[line["prompt_id"] for line in lines],
    )
    assert [(reply.key, reply.text) for reply in replies] == [
        (line["key"], line["answer"]["text"]) for line in lines
    ]
    assert all(reply.cached for reply in replies)
    assert len(replies) == 16


def test_any_text_can_be_recorded_and_replayed(fake, path):
    nasty = ["nul \x00 byte", "“quotes” 引号", "\u2028 line", ""]
    fake.reply = lambda body: "got: 引号 \x00 " + repr(body["messages"][0].get("content"))
    cassette = Cassette(path)
    first = ask(fake.model(), nasty, cassette=cassette)
    again = ask(fake.model(), nasty, cassette=cassette)
    assert all(reply.cached for reply in again)
    assert [reply.text for reply in again] == [reply.text for reply in first]
    assert cassette.verify() == []


# -- modes
# -------------------------------------------------------------------------------------------------------------


def no_sockets(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a socket was opened")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_replay_gives_the_same_replies_without_a_server_or_a_socket(fake, monkeypatch, path):
    recorded, _ = run(fake, Cassette(path))
    fake.stop()
    no_sockets(monkeypatch)
    replayed = ask(fake.model(), ["p0", "p1", "p2"], cassette=Cassette(path, mode="replay"))
    assert [r.text for r in replayed] == [r.text for r in recorded]
    assert [r.usage for r in replayed] == [r.usage for r in recorded]
    assert [(r.cached, r.digest, r.seconds) for r in replayed] == [
        (True, DIGEST, r.seconds) for r in recorded
    ]


def test_a_miss_in_replay_names_the_prompt_and_the_command_that_records_it(
    fake, monkeypatch, recorded, path
):
    no_sockets(monkeypatch)
    cassette = Cassette(path, mode="replay", command="ragbench run thesis --live")
    with pytest.raises(CallError) as caught:
        ask(
            fake.model(),
            ["p0", "new", "p1", "newer"],
            ids=["q0", "q17", "q1", "q18"],
            cassette=cassette,
        )
    told = str(caught.value)
    assert caught.value.kind == "miss"
    assert "2 of 4 prompts are not on c.sqlite: prompt 'q17', 'q18'" in told
    assert "RAGBENCH_CASSETTE=record ragbench run thesis --live" in told
    kept = ask(fake.model(), ["p0", "new"], ids=["q0", "q17"], cassette=cassette, on_miss="reply")
    assert [reply.ok for reply in kept] == [True, False]
    assert kept[1].error.kind == "miss"
    assert "'q17'" in str(kept[1].error)


def test_the_environment_turns_a_replaying_script_into_a_recording_one(
    fake, monkeypatch, recorded, path
):
    monkeypatch.setenv("RAGBENCH_CASSETTE", "record")
    assert run(fake, Cassette(path, mode="replay"), ["p0", "new"])[1] == 1


def test_off_neither_reads_nor_writes(fake, tmp_path):
    path = tmp_path / "c.sqlite"
    assert run(fake, Cassette(path, mode="off"))[1] == 3
    assert not path.exists()
    run(fake, Cassette(path))
    assert run(fake, Cassette(path, mode="off"))[1] == 3
    assert len(Cassette(path)) == 3


def test_a_path_is_a_cassette_in_record_mode(fake, tmp_path):
    assert run(fake, tmp_path / "new" / "c.sqlite")[1] == 3
    assert run(fake, str(tmp_path / "new" / "c.sqlite"))[1] == 0


@pytest.mark.parametrize("mode", ["replay", "record"])
def test_a_file_that_is_no_cassette_is_refused(tmp_path, mode):
    (tmp_path / "text.sqlite").write_text("this is not a database, " * 50)
    sqlite3.connect(tmp_path / "other.sqlite").execute("CREATE TABLE birds (name)")
    with pytest.raises(DataError, match="not readable as a cassette"):
        Cassette(tmp_path / "text.sqlite", mode=mode)
    with pytest.raises(DataError, match="tables birds"):
        Cassette(tmp_path / "other.sqlite", mode=mode)


def test_a_file_that_is_damaged_in_its_middle_gives_one_message(path):
    keys = Keys("ollama", "m", "d", {})
    with Cassette(path) as cassette:
        for n in range(300):
            asked = [{"role": "user", "content": f"{n} " * 50}]
            cassette.put(
                keys.key(asked), keys.request(asked), {"ok": True, "text": str(n), "usage": {}}
            )
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = b"x" * (len(content) // 2)
    path.write_bytes(content)
    cassette = Cassette(path, mode="replay")
    for use in (cassette.verify, lambda: cassette.export(path)):
        with pytest.raises(DataError, match=r"not readable as a cassette .*malformed"):
            use()


def test_a_missing_file_or_mode_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.sqlite: no such cassette"):
        Cassette(tmp_path / "none.sqlite", mode="replay")
    with pytest.raises(ConfigError, match="unknown cassette mode 'reply'"):
        Cassette(tmp_path / "none.sqlite", mode="reply")


def test_a_read_only_folder_can_be_replayed_from(fake, recorded, path, tmp_path):
    recorded.close()
    assert os.listdir(tmp_path) == ["c.sqlite"]
    tmp_path.chmod(0o555)
    try:
        assert ask(fake.model(), ["p0"], cassette=Cassette(path, mode="replay"))[0].cached
    finally:
        tmp_path.chmod(0o755)


# -- failures
# ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["truncated", "400", "oom"])
def test_a_failure_is_recorded_as_one_asked_again_and_never_served_as_answer(fake, name, path):
    fake.fault = lambda prompt, before: Fault(name)
    fake.reply = lambda body: "a long answer of many words"
    options = {"retries": 0, "progress": False}
    cassette = Cassette(path)
    first = ask(fake.model(), ["p"], cassette=cassette, **options)[0]
    assert not first.ok
    assert len(cassette) == 0
    replayed = ask(fake.model(), ["p"], cassette=Cassette(path, mode="replay"))[0]
    assert (replayed.ok, replayed.cached, replayed.error.kind) == (False, True, first.error.kind)
    assert (replayed.error.model, replayed.error.status) == (first.error.model, first.error.status)
    assert fake.url in str(first.error)  # told on the screen, and not stored
    assert (str(replayed.error), replayed.raw) == (
        str(first.error).replace(fake.url, "the server"),
        first.raw,
    )
    assert (
        json.loads(cassette.rows("SELECT answer FROM replies")[0][0])["error"]["kind"]
        == first.error.kind
    )
    fake.fault = None
    again = ask(fake.model(), ["p"], cassette=cassette, **options)[0]
    assert (again.ok, again.cached) == (True, False)
    assert cassette.rows("SELECT ok FROM replies") == [(1,)]


def test_an_answer_is_never_replaced_by_a_later_failure_or_answer(path):
    cassette = Cassette(path)
    keys = Keys("ollama", "m", "d", {})
    request = keys.request([])
    key = keys.key([])
    answer = {"ok": True, "text": "first", "usage": {}}
    assert cassette.put(key, request, answer)
    assert not cassette.put(key, request, {**answer, "ok": False})
    assert not cassette.put(key, request, {**answer, "text": "second"})
    assert cassette.get([key])[key]["text"] == "first"


# -- digests
# -----------------------------------------------------------------------------------------------------------


def test_a_changed_digest_on_the_server_is_an_error_that_says_so(fake, recorded):
    fake.models["llama3:8b"] = "f" * 64
    with pytest.raises(CallError) as caught:
        run(fake, recorded)
    assert caught.value.kind == "digest"
    assert (
        f"two digests under one name: c.sqlite was recorded with {DIGEST[:12]}..., the server "
        "now has ffffffffffff"
    ) in str(caught.value)
    assert len(fake.calls) == 3


def test_another_digest_chosen_by_name_is_a_miss_and_both_can_be_replayed(fake, tmp_path):
    path = tmp_path / "c.sqlite"
    old, _ = run(fake, Cassette(path))
    fake.models["llama3:8b"] = "f" * 64
    fake.reply = lambda body: "new weights speaking"
    new, calls = run(fake, Cassette(path, digest="f" * 64))
    assert calls == 3
    with pytest.raises(CallError, match="two digests under one name"):
        ask(fake.model(), ["p0"], cassette=Cassette(path, mode="replay"))
    for digest, replies in ((DIGEST, old), ("f" * 64, new)):
        cassette = Cassette(path, mode="replay", digest=digest)
        assert ask(fake.model(), ["p0"], cassette=cassette)[0].text == replies[0].text
    assert "2 digests under one name" in " ".join(Cassette(path).verify())


def test_nothing_is_recorded_while_nobody_can_say_whose_replies_they_would_be(path, fake):
    fake.stop()
    cassette = Cassette(path)
    replies = ask(fake.model(), ["p"], cassette=cassette, backoff_s=0.01)
    assert replies[0].error.kind == "down"
    assert cassette.rows("SELECT * FROM models") == []
    fake = FakeOllama(port=fake.port)
    with fake:
        assert run(fake, cassette)[0][0].ok
    assert cassette.rows("SELECT * FROM models") == [("ollama", "llama3:8b", DIGEST)]


def test_recorded_replies_are_served_while_the_server_is_down(fake, recorded):
    fake.stop()
    replies = ask(fake.model(), ["p0", "new"], cassette=recorded, retries=0)
    assert [(reply.ok, reply.cached) for reply in replies] == [(True, True), (False, False)]


# -- export, import, stats, verify
# -------------------------------------------------------------------------------------


def test_export_and_import_carry_every_reply_over(fake, tmp_path):
    cassette = Cassette(tmp_path / "a.sqlite")
    replies, _ = run(fake, cassette, schema=Word)
    assert cassette.export(tmp_path / "a.jsonl") == 3
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [line["key"] for line in lines] == sorted(reply.key for reply in replies)
    assert {line["request"]["messages"][0]["content"] for line in lines} == {"p0", "p1", "p2"}
    other = Cassette(tmp_path / "b.sqlite")
    assert bool(other)  # one without replies is one all the same
    assert (other.import_(tmp_path / "a.jsonl"), other.import_(tmp_path / "a.jsonl")) == (3, 0)
    assert other.verify() == []
    with pytest.raises(ConfigError, match="record mode"):
        Cassette(tmp_path / "b.sqlite", mode="replay").import_(tmp_path / "a.jsonl")
    other.export(tmp_path / "b.jsonl")
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()
    fake.stop()
    replay = Cassette(tmp_path / "b.sqlite", mode="replay")
    again = ask(fake.model(), ["p0", "p1", "p2"], schema=Word, cassette=replay)
    assert [reply.text for reply in again] == [reply.text for reply in replies]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"p1"', '"p9"', "line 2: ValueError: the key does not belong to the request"),
        (
            '"ok": true, "text": "Answer',
            '"ok": true, "text": "Forged',
            "the answer was changed after recording",
        ),
        ('{"key"', '{key"', "JSONDecodeError"),
        ('"digest"', '"digesd"', "KeyError"),
    ],
)
def test_import_refuses_a_damaged_line_by_file_and_line_and_takes_nothing(
    fake, recorded, tmp_path, old, new, words
):
    recorded.export(tmp_path / "a.jsonl")
    lines = (tmp_path / "a.jsonl").read_text().splitlines(keepends=True)
    lines.sort(key=lambda line: '"p1"' in line)  # p1 comes last, then is moved to line 2
    lines.insert(1, lines.pop())
    assert old in lines[1]
    lines[1] = lines[1].replace(old, new)
    (tmp_path / "a.jsonl").write_text("".join(lines))
    other = Cassette(tmp_path / "b.sqlite")
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: ") as caught:
        other.import_(tmp_path / "a.jsonl")
    assert words in str(caught.value)
    assert len(other) == 0
    run(fake, other, ["new"])  # is no part of what was undone
    assert len(Cassette(tmp_path / "b.sqlite", mode="replay")) == 1


def test_a_compressed_export_holds_the_chosen_rows_and_a_cut_one_is_refused(fake, tmp_path, path):
    cassette = Cassette(tmp_path / "a.sqlite")
    replies, _ = run(fake, cassette)
    chosen = {replies[0].key, replies[2].key}
    assert cassette.export(tmp_path / "a.jsonl.gz", chosen) == 2
    packed = (tmp_path / "a.jsonl.gz").read_bytes()
    assert packed[:2] == b"\x1f\x8b"
    assert cassette.export(tmp_path / "a.jsonl.gz", chosen) == 2
    assert (tmp_path / "a.jsonl.gz").read_bytes() == packed
    other = Cassette(tmp_path / "b.sqlite")
    assert other.import_(tmp_path / "a.jsonl.gz") == 2
    assert set(other.get(reply.key for reply in replies)) == chosen
    (tmp_path / "a.jsonl.gz").write_bytes(packed[:-20])
    with pytest.raises(DataError, match=r"a\.jsonl\.gz, line \d: EOFError"):
        Cassette(path).import_(tmp_path / "a.jsonl.gz")


def test_verify_finds_a_changed_answer_and_a_changed_request(fake, recorded, path):
    assert recorded.verify() == []
    recorded.close()
    db = sqlite3.connect(path)
    db.execute(
        "UPDATE replies SET answer = replace(answer, 'Answer', 'Forged') WHERE prompt_id = '0'"
    )
    db.execute("UPDATE replies SET request = replace(request, 'p1', 'p9') WHERE prompt_id = '1'")
    db.commit()
    db.close()
    problems = Cassette(path, mode="replay").verify()
    assert len(problems) == 2
    assert any(
        "prompt '0'" in problem and "changed after recording" in problem for problem in problems
    )
    assert any("prompt '1'" in problem and "does not belong" in problem for problem in problems)


# -- processes
# ---------------------------------------------------------------------------------------------------------

CHILD = """
import sys
from ragbench.llm import Cassette, ask, chat_model
url, path, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
prompts = [f"p{n}" for n in range(first, last)]
replies = ask(chat_model("ollama:llama3:8b", host=url), prompts, cassette=Cassette(path), concurrency=4)
print(sum(reply.ok for reply in replies), "|".join(reply.text for reply in replies), sep="|")
"""


def child(fake, path, first, last):
    command = [sys.executable, "-c", CHILD, fake.url, str(path), str(first), str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_processes_write_the_same_cassette_and_agree(fake, tmp_path):
    from itertools import count

    numbers = count()
    fake.reply = lambda body: f"answer {next(numbers)} to {body['messages'][0]['content']}"
    fake.latency_s = 0.005
    path = tmp_path / "c.sqlite"
    one = child(fake, path, 0, 150)
    two = child(fake, path, 50, 200)
    first = one.communicate(timeout=60)[0].strip().split("|")
    second = two.communicate(timeout=60)[0].strip().split("|")
    assert (first[0], second[0]) == ("150", "150")
    cassette = Cassette(path)
    assert (len(cassette), cassette.verify()) == (200, [])
    replayed = ask(
        fake.model(), [f"p{n}" for n in range(200)], cassette=Cassette(path, mode="replay")
    )
    texts = [reply.text for reply in replayed]
    assert first[1:] == texts[:150]  # where both asked, both return the reply that was recorded
    assert second[1:] == texts[50:]
