"""Recordings of real models: the shipped one replays whole, and a small one made here shows what
each check finds.
"""

import gzip
import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pandas as pd
import pytest
from checks import load_script, refuse_servers
from fake_ollama import DIGEST
from notebook_parts import parts

import recorded
from ragbench import Dataset, Question
from ragbench.data import load_hotpotqa, load_minihop
from ragbench.data.files import read_jsonl
from ragbench.errors import ConfigError, DataError
from ragbench.llm import CallError, Cassette, local
from ragbench.metrics.lexical import contained
from ragbench.paths import packaged_data, project_root
from ragbench.records import Document
from ragbench.retrieval import BM25, MultiQuery
from recorded import DISTRACTED, EVIDENCE, GOLD

shipping = load_script("ship_recording")
NAMES = list(recorded.RECORDINGS)
DECOMPOSITIONS = recorded.GRIDS["decompositions"]


@pytest.fixture(autouse=True)
def _results_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.delenv("RAGBENCH_CASSETTE", raising=False)


@pytest.fixture
def no_model(monkeypatch):
    refuse_servers(monkeypatch)
    monkeypatch.setattr(
        local, "sha256_of", lambda *_, **__: pytest.fail("a replay read the weights")
    )


# -- what is shipped


@pytest.mark.parametrize("name", NAMES)
def test_every_prompt_of_a_shipped_recording_has_its_reply_and_no_reply_is_stale(name):
    assert shipping.verify(name) == []


@pytest.mark.parametrize("name", ["smollm2", "qwen"])
def test_shipped_rows_are_replays_of_the_covered_questions_and_start_no_server(name, no_model):
    plan = recorded.manifest(name)["grids"]["retrievers"]
    rows = recorded.rows(name, "retrievers")
    assert sorted(rows["question_id"].unique()) == sorted(plan["questions"])
    expected = {"LLM only": 0, GOLD: 1000} | dict.fromkeys(recorded.WITHOUT_MLQ, 300)
    counts = rows.groupby(["retriever", "N"]).size()
    assert counts.to_dict() == dict.fromkeys(expected.items(), plan["covered"])
    assert rows["cached"].all()
    assert rows["grade"].isna().all()
    assert set(rows["digest"]) == {recorded.manifest(name)["digest"]}
    gold = rows[rows["retriever"] == GOLD]
    assert gold["ir_score"].eq(1).all()
    assert gold["context_tokens"].lt(1000).all()  # no gold document was cut


def at_once(code, count, **environment):
    """Run a program in several processes that start together; return what each printed."""
    around = os.environ | {"PYTHONPATH": str(project_root() / "notebooks")}
    around |= {name: str(value) for name, value in environment.items()}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=around,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]
    printed = []
    for process in running:
        out, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
        printed.append(out)
    return printed


@pytest.mark.slow
def test_processes_replay_one_grid_at_once():
    code = "import recorded\n"
    code += "print(recorded.rows('qwen', 'thesis')[['question_id', 'answer']].to_csv())"
    first, second = at_once(code, 2)
    assert first == second
    assert len(first.splitlines()) > 300


def test_processes_import_one_recording_at_once(tmp_path):
    code = "import recorded\nprint(len(recorded.replay('qwen')))"
    counts = at_once(code, 3, RAGBENCH_CACHE=tmp_path / "cache")
    assert len({*counts}) == 1
    assert [*(tmp_path / "cache").rglob("*.part")] == []


def test_the_evidence_experiment_has_every_condition_for_both_models_and_starts_no_server(no_model):
    rows = recorded.evidence_rows()
    counts = rows.groupby(["model", "condition"])["question_id"].agg(["size", "nunique"])
    assert counts.eq(rows["question_id"].nunique()).all(axis=None)
    conditions = rows.groupby("model")["condition"].agg(set)
    plain = {"question alone", *EVIDENCE}
    # the second model's grid with namesakes covers no question
    assert sorted(conditions, key=len) == [plain, plain | {*DISTRACTED}]
    score = rows.groupby("condition")["ir_score"].mean()
    half = score[["first hop", "second hop"]].max()
    assert score["both hops"] == 1 > half > score["neither hop"]
    assert rows["cached"].all()


def test_shipped_recordings_are_small_and_say_whose_words_they_are():
    size = 0
    for name, recording in recorded.RECORDINGS.items():
        told = recorded.manifest(name)
        size += told["file"]["bytes"]
        assert told["options"]["max_completion_tokens"] == recording.options["num_predict"]
        assert [*told["grids"]] == [*recording.grids]
        assert {*told["licence"]} == {"weights", "texts in the prompts"}
        assert {*told["versions"]} >= {"ragbench", "xllamacpp"}
        assert told["output_tokens"] > 0
    assert size < 15e6


def test_the_order_of_the_questions_is_fixed_whatever_the_order_of_the_file():
    minihop = load_minihop()
    questions = minihop.shuffled(recorded.ORDER_SEED)
    turned = replace(minihop, questions=minihop.questions[::-1])
    assert turned.shuffled(recorded.ORDER_SEED) == questions
    ids = [q.id for q in questions]
    assert sorted(ids) == sorted(q.id for q in minihop.questions)
    # What is shipped was asked in this order: another seed would make its questions a choice.
    assert ids[:3] == [
        "places-mountains_capitals-007",
        "arts-remakes_and_brothers-007",
        "arts-composers-009",
    ]


def test_an_answer_keeps_its_first_label_and_labels_of_two_files_are_counted():
    every = recorded.every_label()
    assert len(every) == 2585
    pair = ["question_id", "answer"]
    one = recorded.with_reference_grades(every.drop_duplicates(pair))
    assert not one.duplicated(pair).any()
    assert every.groupby(pair, sort=False)["grade"].first().tolist() == one["grade"].tolist()
    twice = parts("13").graded_in_two_files(every)
    assert len(twice) == (every.groupby(pair).size() > 1).sum() == 219
    assert sorted(twice[twice["grade"] != twice["again"]]["question_id"]) == [
        "history-ships_explorers-001",
        "letters-writing_families-009",
        "places-mountains_capitals-007",
        "science-elements-005",
        "science-scientific_families-007",
    ]


def test_grades_are_joined_by_question_and_text():
    label = recorded.every_label().iloc[0]
    pairs = [(label.question_id, label.answer), (label.question_id, "?"), ("other", label.answer)]
    rows = pd.DataFrame(pairs, columns=["question_id", "answer"]).assign(grade=9)
    grades = recorded.with_reference_grades(rows)["grade"]
    assert grades.fillna(-1).tolist() == [label.grade, -1, -1]


# -- HotpotQA


@pytest.fixture
def hotpotqa(monkeypatch):
    monkeypatch.delenv("RAGBENCH_DATA", raising=False)
    return hotpotqa_rows()


def hotpotqa_rows():
    """The rows behind both tables, each once."""
    both = [recorded.thesis_rows(table) for table in ("Table 3.2", "Table 3.3")]
    return pd.concat(both).drop_duplicates(["question_id", "retriever", "N"], ignore_index=True)


def gold_documents(data):
    """The chunker and the retriever that give whole gold documents."""
    settings = recorded.GRIDS["retrievers"].settings(data)
    return settings["chunker"]["documents"], settings["retriever"][GOLD]


def test_hotpotqas_string_scores_follow_from_the_shipped_texts(hotpotqa):
    budgets = {("BM25", n) for n in recorded.thesis.CUTOFFS} | {("LLM only", 0)}
    assert hotpotqa.groupby(["retriever", "N"]).size().to_dict() == dict.fromkeys(
        budgets | {(name, 1000) for name in recorded.thesis.RETRIEVER_NAMES}, 200
    )
    for name, metric in recorded.STRING_METRICS.items():
        scores = list(map(metric, hotpotqa["answer"], hotpotqa["reference"]))
        assert hotpotqa[name].tolist() == pytest.approx(scores)
    assert hotpotqa["ir_score"].isna().equals(hotpotqa["N"].eq(0))


def test_hotpotqas_labels_are_a_census_of_the_planned_cells_of_the_first_60_questions(hotpotqa):
    graded = hotpotqa[hotpotqa["grade"].notna()]
    planned = {("LLM only", 0), *(("BM25", n) for n in (100, 300, 500))}
    planned |= {(name, 1000) for name in recorded.thesis.RETRIEVER_NAMES}
    planned |= {("BM25", 800), ("BM25", 900)}  # each answer there is one of N = 1000, too
    assert graded.groupby(["retriever", "N"]).size().to_dict() == dict.fromkeys(planned, 60)
    questions = pd.read_json(packaged_data("hotpotqa", "questions.jsonl"), lines=True)
    assert set(graded["question_id"]) == set(questions["question_id"][:60])
    labels = pd.read_json(packaged_data("hotpotqa", "grades.jsonl"), lines=True)
    assert labels["second_grade"].notna().sum() == 60
    assert not {"context", "supporting_facts"} & {*labels}


@pytest.mark.data
def test_the_200_questions_are_the_first_of_the_random_order_and_some_ir_scores_are_made_again(
    data_mirror,
):
    data = load_hotpotqa(data_mirror / "hotpotqa" / "hotpot_dev_distractor_subset.json.gz")
    order = data.shuffled(recorded.ORDER_SEED)[:200]
    rows = hotpotqa_rows()
    assert rows["question_id"].unique().tolist() == [q.id for q in order]
    few = replace(data, questions=tuple(order[:5]))
    again = recorded.thesis.experiment("Table 3.2", few, N=(100, 1000)).run(progress=False)
    scores = again.set_index(["question_id", "N"])["ir_score"]
    shipped = rows[rows["retriever"] == "BM25"].set_index(["question_id", "N"])["ir_score"]
    assert scores.tolist() == pytest.approx(shipped[scores.index].tolist(), abs=1e-9)


def test_a_table_of_the_thesis_is_replayed_without_a_model_and_says_who_made_it():
    rows = recorded.thesis_rows("Table 3.2")
    assert {*rows["retriever"]} == {"LLM only", "BM25"}
    assert {*recorded.thesis_rows("Table 3.3")["N"]} == {0, 1000}
    assert rows.attrs["graded"] == "reference labels"
    assert rows.attrs["generator"].startswith("gguf:Qwen")
    with pytest.raises(ConfigError, match=r"Table 3\.1"):
        recorded.thesis_rows("Table 3.1")


def test_shares_and_differences_of_grades_by_hand():
    rows = pd.DataFrame({"N": [1, 1, 2, 2] * 6, "grade": [5, 4, 5, 5] * 6})
    rows["cluster"] = rows.index // 4
    shares = recorded.grade_intervals(rows, "N").set_index(["N", "grade"])["share"]
    assert shares[[(1, "grade 5"), (2, "grade 5"), (1, "grade 4")]].tolist() == [0.5, 1.0, 0.5]
    difference = recorded.grade_difference(rows, [5], rows["N"].eq(2), rows["N"].eq(1))
    assert difference.estimate == pytest.approx(0.5)


# -- a small recording

TOWNS = tuple(
    Document(name, name, f"{name} lies on a river. {name} is old.", ())
    for name in ("Ely", "Ulm", "Riga")
)


def which(name, *towns):
    first, second = towns
    text = f"Which is older, {first} or {second}?"
    return Question(name, text, first, (f"{first} is old.",), meta={"doc_ids": towns})


QUESTIONS = (which("q0", "Ely", "Ulm"), which("q1", "Riga", "Ely"), which("q2", "Ulm", "Riga"))
DATA = Dataset("towns", QUESTIONS, TOWNS)


def ids_in_order():
    return [question.id for question in DATA.shuffled(recorded.ORDER_SEED)]


def told_of_grids(folder):
    return recorded.manifest("small", folder)["grids"]


@pytest.fixture
def small(monkeypatch, tmp_path, fake):
    """Three questions, recorded from a made server; returns the folder they are exported to."""
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(recorded, "load_minihop", lambda: DATA)
    bm25 = recorded.thesis.retrievers()["BM25"]
    monkeypatch.setattr(recorded.thesis, "retrievers", lambda: {"BM25": bm25})
    monkeypatch.setattr(recorded, "WITHOUT_MLQ", ("BM25",))
    monkeypatch.setattr(recorded.thesis, "TOP_K", {"BM25": 2})
    grids = {
        name: replace(recorded.GRIDS[name], questions=n)
        for name, n in (("retrievers", 3), ("budgets", 2))
    }
    monkeypatch.setattr(recorded, "GRIDS", grids)
    recording = replace(
        recorded.RECORDINGS["smollm2"],
        model="ollama:llama3:8b",
        licence="none",
        options={"host": fake.url, "digest": DIGEST, "num_predict": 50},
        grids=tuple(grids),
    )
    monkeypatch.setitem(recorded.RECORDINGS, "small", recording)
    return tmp_path / "shipped"


@pytest.fixture
def shipped(small, monkeypatch):
    """The same, exported, and what is shipped with the package as far as these tests see."""
    shipping.ship("small", shipping.record("small"), small)
    monkeypatch.setattr(recorded, "packaged_data", lambda folder, name: small / name)
    return small


@pytest.fixture
def reworded(monkeypatch):
    """Word the first question anew, once called."""
    words = (replace(QUESTIONS[0], text="Which is the older of Ely and Ulm?"), *QUESTIONS[1:])
    data = replace(DATA, questions=words)
    return lambda: monkeypatch.setattr(recorded, "load_minihop", lambda: data)


def copy_without(cassette, path, unwanted):
    """Copy a cassette but for the prompts whose id holds a text."""
    query = f"SELECT key FROM replies WHERE prompt_id NOT LIKE '%{unwanted}%'"
    return copy_of(cassette, path, query)


def copy_of(cassette, path, query):
    """Copy the replies whose keys a query finds."""
    lines = path.with_suffix(".jsonl")
    with Cassette(cassette) as old, Cassette(path) as new:
        old.export(lines, [key for (key,) in old.rows(query)])
        new.import_(lines)
    return path


def test_a_recording_goes_on_is_exported_whole_and_verifies(small, fake):
    cassette = shipping.record("small")
    asked = len(fake.calls)
    shipping.record("small")
    assert len(fake.calls) == asked
    first = shipping.ship("small", cassette, small).read_bytes()
    assert shipping.ship("small", cassette, small).read_bytes() == first
    told = recorded.manifest("small", small)
    covered = {grid: plan["covered"] for grid, plan in told["grids"].items()}
    assert covered == {"retrievers": 3, "budgets": 2}
    assert told["replies"] == len(gzip.decompress(first).splitlines()) > 0
    assert told["digest"] == DIGEST
    fake.stop()
    assert shipping.verify("small", small) == []


def test_questions_are_shipped_up_to_the_first_without_all_its_answers(small, tmp_path):
    first, second, _ = ids_in_order()
    part = copy_without(shipping.record("small"), tmp_path / "part.sqlite", f"{second}/none/")
    file = shipping.ship("small", part, small)
    asked = {grid: plan["questions"] for grid, plan in told_of_grids(small).items()}
    assert asked == {"retrievers": [first], "budgets": [first]}
    assert shipping.verify("small", small) == []
    lines = pd.read_json(file, lines=True)
    assert set(lines["prompt_id"].str.partition("/")[0]) == {first}
    nothing = copy_without(part, tmp_path / "nothing.sqlite", "q")
    with pytest.raises(DataError, match="covers no question"):
        shipping.ship("small", nothing, small)


def test_questions_that_were_shipped_in_another_order_stay_shipped(shipped, tmp_path):
    first, *others = ids_in_order()
    told = recorded.manifest("small", shipped)
    told["grids"]["retrievers"]["questions"] = others
    (shipped / "small.json").write_text(json.dumps(told))
    part = copy_without(shipping.working_file("small"), tmp_path / "part.sqlite", f"{first}/none/")
    shipping.ship("small", part, shipped)
    plan = {"planned": 3, "covered": 2, "questions": others}
    assert told_of_grids(shipped)["retrievers"] == plan
    assert shipping.verify("small", shipped) == []


def test_verify_finds_prompts_without_a_reply_and_replies_without_a_prompt(shipped, reworded):
    reworded()
    problems = shipping.verify("small", shipped)
    said = "\n".join(problems)
    assert re.search("^retrievers: miss: no reply to q0, gold documents, N = ", said, re.M)
    assert re.search("^stale: no prompt asks for the reply to 'q0/", said, re.M)
    assert not re.search("q1|q2", said)


def test_verify_finds_what_the_manifest_says_wrongly(shipped):
    wrong = {
        "digest": "0" * 64,
        "options": {},
        "prompts": {"thesis_with_documents": "0"},
        "order_seed": 1,
    }
    (shipped / "small.json").write_text(json.dumps(recorded.manifest("small", shipped) | wrong))
    problems = shipping.verify("small", shipped)
    kinds = {problem.partition(" the manifest says ")[0] for problem in problems}
    assert kinds >= {f"{key}:" for key in wrong}
    assert f"digest: ollama:llama3:8b is recorded with {DIGEST}" in problems


def test_replies_that_are_not_the_manifests_are_refused(small):
    file = shipping.ship("small", shipping.record("small"), small)
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes())[:-10]))
    with pytest.raises(DataError, match=r"small\.jsonl\.gz has sha256"):
        shipping.verify("small", small)


def test_a_replay_with_a_miss_stops(shipped, reworded):
    assert recorded.rows("small", "retrievers")["status"].eq("ok").all()
    reworded()
    with pytest.raises(CallError, match="prompts are not on small-") as caught:
        recorded.rows("small", "retrievers")
    assert "python scripts/ship_recording.py small --record" in str(caught.value)


def test_another_model_can_be_asked_what_the_recording_was(shipped, fake, tmp_path):
    before = len(fake.calls)
    assert recorded.rows("small", "budgets")["cached"].all()
    assert len(fake.calls) == before
    another = {"generator": {"mine": fake.model()}, "folder": tmp_path / "mine"}
    rows = recorded.grid_experiment("small", "budgets", **another).run(progress=False)
    # equal prompts are asked once
    assert len(fake.calls) - before == (~rows["cached"].astype(bool)).sum() > 0
    assert set(rows["generator"]) == {"mine"}


def test_the_questions_that_a_model_derives_are_recorded_and_replayed(small, fake, monkeypatch):
    def mlq(chunks, decompose=None):
        return MultiQuery(BM25(chunks), decompose, k_each=1)

    def settings(data):
        axes = {"data": {"towns": data}, "chunker": {"documents": gold_documents(data)[0]}}
        return axes | {"retriever": {"MLQ": mlq}, "k": 2, "N": (5, 100)}

    grid = replace(DECOMPOSITIONS, questions=3, settings=settings)
    monkeypatch.setitem(recorded.GRIDS, "decompositions", grid)
    whole = replace(recorded.RECORDINGS["small"], grids=("retrievers", "decompositions"))
    monkeypatch.setitem(recorded.RECORDINGS, "small", whole)
    # A list that is cut at the limit of tokens is one still: what was written of it counts.
    # One that holds no question fails its rows, and is a reply all the same.
    lists = {
        "Ely or Ulm": "Here it is:",
        "Riga or Ely": "1. Riga\n2. Ulm",
        "Ulm or Riga": "Ely\n" + "Ulm " * 60,
    }
    fake.reply = lambda body: next(
        v for k, v in lists.items() if k in body["messages"][-1]["content"]
    )
    cassette = shipping.record("small")
    shipping.ship("small", cassette, small)
    assert told_of_grids(small)["decompositions"]["covered"] == 3
    fake.stop()
    monkeypatch.setattr(recorded, "packaged_data", lambda folder, name: small / name)
    rows = recorded.rows("small", "decompositions").set_index(["question_id", "N"])
    assert set(rows.loc["q0", "error_kind"]) == {"ModelError"}
    assert rows.loc[["q1", "q2"], "status"].eq("ok").all()
    assert rows.loc[("q1", 5), "retrieved"] == ["Riga", "Ulm"]
    assert rows.loc[("q2", 100), "retrieved"] == ["Ely", "Ulm"]
    assert shipping.verify("small", small) == []
    query = "SELECT key FROM replies WHERE step != 'decompose'"
    shipping.ship("small", copy_of(cassette, small / "answered.sqlite", query), small)
    assert told_of_grids(small)["decompositions"]["covered"] == 0


def test_the_filled_arm_has_whole_questions_of_the_random_order_and_their_numbers():
    rows = [row for _, row in read_jsonl(packaged_data("hotpotqa", "filled.jsonl.gz"))]
    asked = [row for _, row in read_jsonl(packaged_data("hotpotqa", "questions.jsonl"))]
    true = {row["question_id"]: row["answer"] for row in asked}
    facts = json.loads(packaged_data("hotpotqa", "filled.json").read_text())
    assert [row["N"] for row in rows] == [100, 300, 500, 1000] * facts["questions"]
    order = list(dict.fromkeys(row["question_id"] for row in rows))
    assert order == [row["question_id"] for row in asked[: facts["questions"]]]
    right = dict.fromkeys(facts["N"], 0)
    for row in rows:
        assert row["context_tokens"] == row["N"]  # the text fills it
        assert row["contained"] == contained(row["answer"], true[row["question_id"]])
        right[row["N"]] += row["contained"]
    drawn = pd.read_csv(project_root() / "figures" / "12_filled.csv")
    drawn = drawn[drawn["share"] == "contained, text fills N"].set_index("N")["mean"]
    for n, count in right.items():
        assert drawn[n] == pytest.approx(count / facts["questions"])


def test_the_ceiling_has_the_first_questions_of_the_random_order_and_their_numbers():
    rows = [row for _, row in read_jsonl(packaged_data("hotpotqa", "gold.jsonl.gz"))]
    asked = [row for _, row in read_jsonl(packaged_data("hotpotqa", "questions.jsonl"))]
    true = {row["question_id"]: row["answer"] for row in asked}
    facts = json.loads(packaged_data("hotpotqa", "gold.json").read_text())
    for unit, count in facts["questions"].items():
        of_unit = [row for row in rows if row["retriever"] == unit]
        assert [row["question_id"] for row in of_unit] == [*true][:count]
        assert {row["ir_score"] for row in of_unit} == {1}  # all of the evidence is in the text
        right = [contained(row["answer"], true[row["question_id"]]) for row in of_unit]
        assert [row["contained"] for row in of_unit] == right


def test_the_bounds_of_notebooks_13_and_22_are_counted_anew():
    counts = {"13": {}, "22": {}}
    true = {q.id: q.answer for q in load_minihop().questions}
    for row in recorded.rows("qwen", "retrievers").itertuples():
        said = counts["22"].setdefault(row.retriever, [])
        said.append(contained(row.answer, true[row.question_id]))
    for _, row in read_jsonl(packaged_data("hotpotqa", "gold.jsonl.gz")):
        counts["13"].setdefault(row["retriever"], []).append(row["contained"])
    assert {*counts["13"]} == {"Gold, sentences", "Gold, documents"}
    assert {"LLM only", GOLD} <= {*counts["22"]}
    for start, of_system in counts.items():
        (path,) = (project_root() / "notebooks").glob(f"{start}_*.ipynb")
        printed = json.loads(path.read_text(encoding="utf-8"))["cells"]
        outputs = [output for cell in printed for output in cell.get("outputs", [])]
        tables = "".join("".join(o.get("data", {}).get("text/plain", [])) for o in outputs)
        for system, said in of_system.items():
            share = f"{sum(said) / len(said):.2f}"
            line = f"{system} +(200 +)?{share} \\["
            assert re.search(line, tables), (start, system, share)


def test_gold_documents_come_in_the_order_of_the_hops_and_at_most_k():
    questions = (
        Question("a", "a?", "", meta={"doc_ids": ("Ulm", "Ely")}),
        Question("b", "b?", "", meta={"doc_ids": ("Riga",)}),
    )
    data = Dataset("towns", questions, TOWNS)
    chunker, build = gold_documents(data)
    gold = build(chunker(TOWNS)).of(data)
    of_b, of_a = gold.search(["b?", "a?"], 10)
    assert [(hit.chunk.text[:3], hit.rank) for hit in of_b] == [("Rig", 1)]
    assert [(hit.chunk.text[:3], hit.rank) for hit in of_a] == [("Ulm", 1), ("Ely", 2)]
    assert list(map(len, gold.search(["a?"], 1))) == [1]
