"""Notebook 40: RAGEval's pipeline replayed without a server, and live on a double of one."""

import hashlib
import json
import re
import socket

import pytest
from fake_ollama import FakeOllama
from notebook_parts import run_up_to

import ragbench as rb
from ragbench.paths import packaged_data
from ragbench.prompts import prompt_hash
from recorded import RECORDINGS

MANIFEST = json.loads(packaged_data("recordings", "rageval_set.json").read_text(encoding="utf-8"))
FILE = packaged_data("recordings", MANIFEST["file"]["name"])
ENDS = "save_questions(questions"


def test_the_manifest_names_the_file_the_weights_and_the_prompts_as_they_are():
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() == MANIFEST["file"]["sha256"]
    assert MANIFEST["digest"] == RECORDINGS["qwen"].options["digest"]
    assert MANIFEST["prompts"] == {name: prompt_hash(name) for name in MANIFEST["prompts"]}


def test_the_recorded_set_replays_without_a_socket_and_what_passed_has_no_fault(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    book = run_up_to("40", ENDS)
    documents, passed, rejected = (book[name] for name in ("documents", "passed", "rejected"))
    assert (len(documents), len(passed), len(rejected)) == (9, 7, 39)
    for question in passed.values():
        assert (
            question["kind"] == "unanswerable"
            or book["answer_fault"](question, book["SHARED"]) is None
        )
        for name, text in question["references"]:
            assert text in book["document_text"](documents[name])
    assert not passed.keys() & {row["id"] for row in rejected}


class Script:
    """A model's replies by the step, which the first words of a prompt tell."""

    def __init__(self, **replies):
        self.replies = replies
        self.prompts = []

    def __call__(self, body):
        prompt = body["messages"][-1]["content"]
        self.prompts.append(prompt)
        for words, reply in self.replies.items():
            if words.replace("_", " ") in prompt:
                reply = reply(prompt) if callable(reply) else reply
                return reply if isinstance(reply, str) else json.dumps(reply, ensure_ascii=False)
        raise AssertionError(prompt[:200])

    def of(self, words):
        return [prompt for prompt in self.prompts if words in prompt]


SCHEMA = {
    "subject": "company",
    "sections": {"Results": ["revenue", "cause", "plan"], "Events": ["chairman", "meeting_date"]},
    "subdomains": ["fishing", "publishing"],
}


def filled(prompt):
    """Each value is its field's name after the industry; the plan is a placeholder."""
    industry = re.search(r"^Industry: (.*)$", prompt, re.M)[1]
    names = re.search(r"Its fields: (.*)\.$", prompt, re.M)[1].split(", ")
    values = {name.replace(" ", "_"): f"{industry} {name}" for name in names}
    return values | {"plan": "TBD"}


def section(prompt):
    facts = re.findall(r"^- (.+?): (.+)$", prompt.split("Facts:")[1], flags=re.M)
    text = " ".join(f"The {name} is {value}." for name, value in facts)
    return text + " It sold 700 books."


def question(prompt):
    (names,) = re.findall(r'with the words "For (.*),"', prompt)
    first = names.split(" and ")[0]
    text = f"For {names}, what is the plan?" if "Missing" in prompt else f"For {names}, who?"
    return {
        "question": text,
        "statements": [f"The company is {first}.", "It is rich.", "So it is."],
    }


def refine(prompt):
    supported = {"statement": 3, "sentence": 0}
    missing = ["The cause is fishing cause.", "The revenue is 700 million."]
    return {"unsupported": [{"statement": 2, "sentence": 0}, supported], "missing": missing}


REPLIES = {
    "You_fill_in_a_record": filled,
    "You_write_one_section": section,
    "You_write_a_question": question,
    "You_look_for_evidence": {"sentences": [1, 2]},
    "You_compare_an_answer": refine,
    "take_the_key_points": {"keypoints": ["A company.", "A cause.", "A point."]},
}


@pytest.fixture
def live(tmp_path, monkeypatch):
    def run(script, **parameters):
        with FakeOllama(reply=script) as server:
            monkeypatch.setenv("OLLAMA_HOST", server.url)
            values = {"MODEL": "ollama:llama3:8b", "DOCUMENTS": 2, "OUT": str(tmp_path / "set")}
            return run_up_to("40", ENDS, **values | parameters)

    return run


def test_a_live_run_ends_in_files_that_load_with_values_by_rule_and_the_papers_rules(
    live, tmp_path
):
    script = Script(**REPLIES)
    rules = {"date": {"years": [2015, 2015]}, "revenue": {"between": [7, 7], "unit": "crowns"}}
    kinds = ["factual", "temporal sequence", "unanswerable"]
    book = live(script, SCHEMA=SCHEMA, RULES=rules, KINDS=kinds)
    assert script.of("Its fields: company, cause, plan, chairman.")  # none that a rule draws
    values = book["configurations"]["finance-01"]
    assert values["revenue"] == "7 crowns"
    assert re.fullmatch(r"\d+ \w+ 2015", values["meeting_date"])
    assert book["documents"]["finance-01"]["lost"] == ["plan"]
    reasons = {(row["step"], row["reason"]) for row in book["rejected"]}
    assert reasons >= {
        ("configuration", "a placeholder"),
        ("document", "a sentence with an invented number"),
        ("question", "needs a second document"),
        ("refine", "no reference of a document"),  # both sentences are of the first
    }
    factual = book["passed"]["finance-01 factual"]
    supplemented = "The cause is fishing cause."
    assert factual["statements"] == ["The company is fishing company.", supplemented]
    assert {"removed: It is rich.", f"supplemented: {supplemented}"} <= {*factual["changes"]}
    loaded = rb.data.load_questions(
        *(tmp_path / "set" / f"{name}.jsonl" for name in ("questions", "documents"))
    )
    assert {q.id for q in loaded.questions} == {*book["passed"]}
    assert all(problem.note for problem in rb.data.validate(loaded))
    assert loaded.questions[0].meta["keypoints"] == ["A company.", "A cause.", "A point."]


def test_a_chinese_set_compares_characters(live):
    values = {"company": "塔恩渔业", "revenue": "八千万元", "cause": "鱼价上涨", "plan": "新建港口"}
    values |= {"chairman": "李明", "meeting_date": "2020年5月4日"}
    replies = REPLIES | {
        "You_fill_in_a_record": values,
        "You_write_one_section": "塔恩渔业收入八千万元。原因是鱼价上涨。公司计划新建港口。",
        "You_write_a_question": {
            "question": "For 塔恩渔业，收入是多少？",
            "statements": [
                "塔恩渔业收入八千万元。",
                "原因是鱼价上涨。",
                "完全不同内容没有提到过。",
            ],
        },
        "You_compare_an_answer": {"unsupported": [], "missing": []},
    }
    one = live(Script(**replies), SCHEMA=SCHEMA, LANGUAGE="Chinese", DOCUMENTS=1, KINDS=["factual"])
    document = one["documents"]["finance-01"]
    assert document["lost"] == ["chairman", "meeting_date"]
    assert document["sentences"][0] == "塔恩渔业收入八千万元。"
    assert [row["reason"] for row in one["rejected"]] == [
        "a statement with few words of the references"
    ]


def test_a_schema_that_cannot_be_used_does_not_end_the_notebook(live):
    few = {"about": "company", "sections": [{"heading": "Events", "keys": ["cause"] * 4}] * 2}
    replies = {"Design_a_record": few | {"subdomains": ["fishing"] * 10}, **REPLIES}
    book = live(Script(**replies), DOCUMENTS=1)
    assert ("schema", "too few fields") in {(r["step"], r["reason"]) for r in book["rejected"]}
    assert book["schema"]["subject"] == "company"
