"""Experiments whose generator and judge are models on a (made) Ollama server."""

import contextlib
import functools
import hashlib
import os
import re
import signal
import sqlite3

import pytest
from experiment_parts import (
    QUICK,
    Copier,
    Counting,
    JudgeDouble,
    Named,
    live,
    live_rows,
    rows_of,
    towns,
)
from fake_ollama import DIGEST, FakeOllama, Fault, at_call, dies_at

from ragbench.errors import ConfigError, ModelError
from ragbench.experiment import load_manifest, load_rows
from ragbench.generation import PROMPTS
from ragbench.llm import asking, chat_model
from ragbench.llm.cassette import Keys
from ragbench.prompts import prompt_hash
from ragbench.report.methods import Methods
from ragbench.retrieval import Dense


@pytest.fixture
def server():
    with FakeOllama(reply=towns) as fake:
        yield fake


def test_models_answer_and_grade_and_rows_say_who_they_were(tmp_path, server):
    rows = live_rows(tmp_path, server)
    assert (len(rows), len(server.calls)) == (6, 12)
    assert rows["answer"].str.split(",").str[0].tolist() == ["Ely"] * 3 + ["Rome"] * 3
    assert rows["grade"].eq(5).all()
    who = {
        "model": "ollama:llama3:8b",
        "digest": DIGEST,
        "seed": 3,
        "temperature": 0,
        "num_ctx": 4096,
    }
    for side in ("", "judge_"):
        for column, value in who.items():
            assert rows[side + column].eq(value).all(), column
    assert set(rows["prompt_sha256"]) == {prompt_hash(prompt) for prompt in PROMPTS.values()}
    assert set(rows["judge_prompt_sha256"]) == {prompt_hash("thesis_grade")}
    assert rows["prompt_tokens"].gt(0).all()
    assert rows["finish"].eq("stop").all()


def test_rerunning_asks_nothing_even_with_the_server_gone(tmp_path, server):
    first = live_rows(tmp_path, server)
    server.stop()
    again = live_rows(tmp_path, server)
    assert again.drop(columns="cached").equals(first.drop(columns="cached"))
    assert again["cached"].all()
    assert len(server.calls) == 12


def test_a_server_that_is_away_at_the_start_stops_the_run_before_the_first_row(tmp_path, server):
    server.stop()
    with pytest.raises(ModelError, match="ollama serve"):
        live_rows(tmp_path, server)
    assert not (tmp_path / "rows.jsonl").exists()


def test_the_prompts_of_a_question_follow_each_other_shortest_context_first(tmp_path, server):
    live_rows(tmp_path, server, 3, judge=None, N=(20, 0, 4), concurrency=1)
    asked = set()
    for start in (0, 3, 6):
        prompts = [call.prompt for call in server.calls[start : start + 3]]
        (name,) = {re.search(r"Person\d Lee born", prompt)[0] for prompt in prompts}
        asked.add(name)
        # The query alone, then each context before the one that continues it.
        assert prompts == sorted(prompts, key=len)
    assert len(asked) == 3
    assert server.most_at_once == 1


def test_several_questions_are_under_way_at_once_up_to_the_limit(tmp_path):
    with FakeOllama(reply=towns, latency_s=0.2) as server:
        live_rows(tmp_path, server, 9, judge=None, concurrency=3)
    assert server.most_at_once == 3


def test_failures_of_generator_and_judge_are_rows_and_can_be_tried_again(tmp_path, server):
    def fault(prompt, before):
        grading = "characters." in prompt
        if "Person1" in prompt and not grading:
            return Fault("400")
        return Fault("answer", "no JSON") if "Person2" in prompt and grading else None

    server.fault = fault
    rows = live_rows(tmp_path, server, 3, N=(4,)).set_index("question_id")
    assert rows[["status", "error_step", "error_kind"]].T.to_dict("list") == {
        "q0": ["ok", "", ""],
        "q1": ["failed", "generate", "unusable"],
        "q2": ["failed", "grade", "unusable"],
    }
    # rows are handed on, addresses not
    assert server.url.split("//")[1] not in (tmp_path / "rows.jsonl").read_text()
    last = rows.loc["q2"]
    assert last["answer"].startswith("Rome, after")
    assert (last["judge_raw"], last["judge_repairs"]) == ("no JSON", 1)
    server.fault = None
    before = len(server.calls)
    assert live_rows(tmp_path, server, 3, N=(4,))["status"].eq("ok").all()
    asked = [call.prompt for call in server.calls[before:]]
    assert len(asked) == 3  # q1: answer and grade; q2: its grade alone
    assert not any("Person0" in prompt for prompt in asked)


@pytest.mark.parametrize(
    ("count", "healthy", "said"), [(1, 0, "3 of 3"), (60, 0, "24 of 24"), (60, 30, "42 of 72")]
)
def test_a_server_that_fails_most_prompts_ends_the_run_with_one_message(
    tmp_path, server, count, healthy, said, monkeypatch
):
    monkeypatch.setattr("ragbench.experiment.run.BLOCK_OF_ANSWERS", 24)
    server.fault = lambda prompt, before: Fault("500") if len(server.calls) > healthy else None
    grid = {"judge": None, "N": (0, 4, 20)}
    with pytest.raises(ModelError, match=f"{said}.* prompts failed at the server"):
        live_rows(tmp_path, server, count, **grid)
    if healthy:
        assert len(load_rows(tmp_path)) == 48  # the blocks before
    server.fault = None
    asked = len(server.calls)
    assert live_rows(tmp_path, server, count, **grid)["status"].eq("ok").all()
    assert len(server.calls) - asked == 3 * count - healthy


def test_one_prompt_can_grade_the_answers_of_all_systems(tmp_path, server):
    retrievers = {"a": Named, "b": lambda c: Named(c, broken="x")}
    grid = {"retriever": retrievers, "N": (0, 4), "per_prompt": "systems"}
    rows = live_rows(tmp_path, server, 1, **grid)
    assert rows["judge_shown"].tolist() == [3, 3, 3]
    assert sorted(rows["judge_position"]) == [1, 2, 3]
    gradings = [call for call in server.calls if call.body.get("format")]
    assert len(gradings) == 1


def test_an_object_grades_a_models_answers_and_the_other_way_round(tmp_path, server):
    rows = live_rows(tmp_path / "a", server, 1, judge={"e": JudgeDouble()})
    assert rows["grade"].notna().all()
    assert len(server.calls) == 3
    rows = live_rows(tmp_path / "b", server, 1, generator={"c": Copier()})
    assert len(server.calls) == 6
    assert rows["judge_model"].eq("ollama:llama3:8b").all()
    assert rows["model"].eq("copier").all()


def test_secrets_stand_in_no_file_of_the_run(tmp_path):
    secret = "sk-very-secret-0123456789"
    with FakeOllama(reply=towns, api_key=secret) as server:
        good = chat_model("ollama:llama3:8b", host=server.url, api_key=secret)
        axes = {"generator": {"llama": good}, "judge": {"llama": good}, "options": QUICK}
        leaky = {"named": lambda chunks: _Leaky(chunks, secret)}
        rows_of(tmp_path, 2, retriever=leaky, **axes)
        assert len(server.calls) == 12
    with sqlite3.connect(tmp_path / "cassette.sqlite") as db:
        assert secret not in str(db.execute("SELECT * FROM replies").fetchall())
    for path in tmp_path.iterdir():
        assert secret.encode() not in path.read_bytes(), path.name
    manifest = (tmp_path / "manifest.json").read_text()
    assert "[secret]" in manifest
    assert "an ordinary word" not in manifest


class _Leaky(Named):
    def __init__(self, chunks, secret):
        super().__init__(chunks)
        self.secret = secret

    def settings(self):
        return {
            "retriever": "leaky",
            "api_key": self.secret,
            "password": "an ordinary word",  # by its name alone
            "address": f"http://user:{self.secret}@host",
        }


def prompt_file(folder, text):
    folder.mkdir(exist_ok=True)
    path = folder / "mine.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_plan_counts_as_recorded_what_the_run_would_find(tmp_path, server):
    live_rows(tmp_path, server)
    asked = len(server.calls)
    mine = prompt_file(tmp_path, "From {documents} tell: {query}")
    # two questions at N = 0, 4 and 20; without documents the prompt is the thesis's in any case
    changes = {
        "nothing": ({}, 6),
        "a prompt": ({"prompts": {"llama": mine}}, 2),
        "N": ({"N": (0, 5, 20)}, 4),
        "the model": ({"generator": {"llama": server.model(seed=4, num_ctx=4096)}}, 0),
    }
    for change, cached in changes.values():
        counts = {
            (step.name, step.calls, step.cached) for step in live(tmp_path, server, **change).plan()
        }
        assert counts >= {("generation", 6, cached), ("grading", 6, cached)}
    assert len(server.calls) == asked


def test_a_plan_counts_a_recorded_answer_once_however_many_judges_there_are(tmp_path, server):
    judges = {str(seed): server.model(seed=seed, num_ctx=4096) for seed in (3, 9)}
    live_rows(tmp_path, server, judge=judges)
    plan = live(tmp_path, server, judge=judges).plan()
    assert (plan["generation"].cached, plan["generation"].calls) == (6, 6)
    assert plan["grading"].cached == plan["grading"].calls
    changed = live(tmp_path, server, judge=judges, N=(0, 5, 20)).plan()
    assert (changed["generation"].cached, changed["generation"].calls) == (4, 6)


def test_a_bar_moves_with_each_reply_while_a_block_is_under_way(tmp_path, server, capsys):
    server.latency_s = 0.2
    live(tmp_path, server, 5, judge=None, N=(4,)).run()
    shown = re.findall(r"generation: .*? (\d)/5 \[\d+:\d+<", capsys.readouterr().err)
    assert {"1", "2", "3", "4"} <= set(shown)  # of one block, with the time that is left


def test_rows_are_on_disk_after_fifty_answers(tmp_path, server):
    server.reply = at_call(70, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        live_rows(tmp_path, server, 40, judge=None)
    assert 48 <= len(load_rows(tmp_path)) < 70


def test_manifest_and_methods_name_version_and_quantisation(tmp_path, server):
    live_rows(tmp_path, server)
    manifest = load_manifest(tmp_path)
    for axis in ("generator", "judge"):
        model = manifest["axes"][axis]["llama"]
        assert (model["server"], model["weights"]) == ("Ollama 0.24.0", "8.0B, Q4_0")
    told = Methods.of_run(manifest, {"rows": 6, "failed": 0, "missing": 0}).markdown
    assert re.search(r"llama, 8.0B, Q4_0, .*, \d+ of \d+ answers by Ollama 0.24.0 on 20\d\d-", told)


def test_answers_are_counted_by_the_server_that_gave_them(tmp_path, server):
    server.window = 2048
    server.modelfile = "num_predict 24"
    for version, count in (("0.24.0", 2), ("0.25.1", 6), ("0.26.0", 6)):  # the last asks nothing
        server.version = version
        rows = live_rows(tmp_path, server, count)
    for side in ("", "judge_"):
        assert rows[f"{side}num_ctx"].eq(2048).all()  # as held, not as asked for
    manifest = load_manifest(tmp_path)
    for axis in ("generator", "judge"):
        model = manifest["axes"][axis]["llama"]
        counts = [(name, count) for name, _, count in model["servers"]]
        assert counts == [("Ollama 0.24.0", 6), ("Ollama 0.25.1", 12)]
        assert (model["num_ctx"], model["num_predict"]) == (2048, 24)
        sent = model["options"]["options"]
        assert (sent["num_ctx"], "num_predict" in sent) == (4096, False)
    told = Methods.of_run(manifest, {"rows": 18, "failed": 0, "missing": 0}).markdown
    assert told.count("12 of 18 answers by Ollama 0.25.1 on 20") == 2
    assert "num_predict = 24" in told


def test_two_runs_that_share_a_cassette_count_their_own_answers(tmp_path, server):
    for name, count in (("a", 2), ("b", 6)):
        live_rows(tmp_path / name, server, count, cassette=tmp_path / "shared.sqlite")
    ((_, _, counted),) = load_manifest(tmp_path / "a")["axes"]["judge"]["llama"]["servers"]
    assert counted == 6


def test_what_the_server_shows_of_a_model_is_in_the_manifest(tmp_path, server):
    server.template = "{{ .System }} {{ .Prompt }}"
    server.system = "You are kind."
    server.modelfile = "temperature 0.3"
    server.parent_model = "llama3:70b"
    live_rows(tmp_path, server, 1)
    model = load_manifest(tmp_path)["axes"]["generator"]["llama"]
    modelfile = model["modelfile"]
    assert modelfile.pop("sha256") == hashlib.sha256(Keys.canonical(modelfile).encode()).hexdigest()
    assert modelfile == {
        "template": server.template,
        "system": "You are kind.",
        "parameters": "temperature 0.3",
    }
    assert model["family"] == "llama"
    told = Methods.of_run(load_manifest(tmp_path), {"rows": 3, "failed": 0, "missing": 0}).markdown
    assert "made here of llama3:70b, nobody can pull it" in told


def test_a_first_night_that_ends_in_its_first_block_is_among_the_runs(
    tmp_path, server, monkeypatch
):
    monkeypatch.setattr(asking, "OUTAGE_S", 0.5)
    server.fault = dies_at(1, server)
    with pytest.raises(ModelError):
        live_rows(tmp_path, server, 3)
    server.fault = None
    server.start()
    live_rows(tmp_path, server, 3)
    first, second = load_manifest(tmp_path)["runs"]
    assert (first["rows_made"], second["rows_made"]) == (0, 9)
    assert first["ended"] is not None


class Stopped(Counting):
    """Is stopped by Ctrl-C while it embeds."""

    def embed_documents(self, texts):
        raise KeyboardInterrupt


def test_a_night_that_ends_while_chunks_are_embedded_is_among_the_runs(tmp_path, server):
    for embedder in (Stopped(), Counting()):
        engine = functools.partial(Dense, embedder=embedder)
        with contextlib.suppress(KeyboardInterrupt):
            live_rows(tmp_path, server, 1, retriever={"SIM": engine})
    assert [entry["rows_made"] for entry in load_manifest(tmp_path)["runs"]] == [0, 3]


def test_one_model_under_two_names_compares_two_prompts(tmp_path, server):
    mine = prompt_file(tmp_path, "From {documents} tell: {query}")
    model = server.model(seed=3, num_ctx=4096)
    people = {"generator": {"plain": model, "mine": model}, "judge": None}
    grid = live(tmp_path / "run", server, 1, **people, prompts={"mine": mine})
    assert grid.plan()["generation"].calls == 6
    rows = grid.run(progress=False)
    assert sum(call.prompt.startswith("From Person") for call in server.calls) == 2
    prompts = rows[rows["N"] > 0].groupby("generator")["prompt_sha256"].agg(set).to_dict()
    usual = prompt_hash(PROMPTS["with_documents"])
    assert prompts == {"mine": {prompt_hash(mine)}, "plain": {usual}}
    assert load_manifest(tmp_path / "run")["prompts"]["mine.txt"] == prompt_hash(mine)


def test_prompts_that_cannot_work_are_named(tmp_path, server):
    # a label of generator and judge is named once
    once = r"chat model in prompts 'lama'\n  expected: one of llama\n"
    same = {"generator": {"llama": server.model()}, "judge": {"llama": server.model()}}
    usual = PROMPTS["with_documents"]
    with pytest.raises(ConfigError, match=once):
        live(tmp_path, server, **same, prompts={"lama": usual})
    with pytest.raises(ConfigError, match=r"no field \{documents\}"):
        live(tmp_path, server, prompts={"llama": prompt_file(tmp_path, "Say: {query}")})
    with pytest.raises(ConfigError, match="chat model in prompts 'copier'"):
        live(tmp_path, server, generator={"copier": Copier()}, prompts={"copier": usual})
