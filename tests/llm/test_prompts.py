"""Prompt files: by id or by path, hashed, and filled without surprises."""

import hashlib
import json
import re
from importlib.resources import files

import pytest
from checks import refusals

from ragbench.errors import DataError
from ragbench.prompts import _prompt_ids, fill_prompt, load_prompt, prompt_hash


def test_every_prompt_that_ships_loads_and_has_a_field():
    ids = _prompt_ids()
    assert {"multiquery_perspectives", "multiquery_decomposition"} <= set(ids)
    for name in ids:
        text = load_prompt(name)
        assert text == text.strip()
        assert "{" in text
        assert prompt_hash(name) == hashlib.sha256(text.encode()).hexdigest()


def test_multi_query_prompts_ask_for_one_question_per_line():
    for name in ("multiquery_perspectives", "multiquery_decomposition"):
        assert "{question}" in load_prompt(name)
        assert "line of its own" in load_prompt(name)


def test_a_users_file_is_read_by_path_whatever_its_line_ends(tmp_path):
    unix = tmp_path / "a.txt"
    windows = tmp_path / "b.md"
    unix.write_bytes("Ask: é {question}\nnow\n".encode())
    windows.write_bytes(b"\xef\xbb\xbf" + "Ask: é {question}\r\nnow".encode())
    assert load_prompt(unix) == load_prompt(str(windows)) == "Ask: é {question}\nnow"
    assert prompt_hash(unix) == prompt_hash(windows)
    bare = tmp_path / "bare"
    bare.write_text("x", encoding="utf-8")
    assert load_prompt(bare) == load_prompt(str(bare)) == "x"


def test_fields_are_filled_in_one_pass_and_other_braces_stay():
    assert fill_prompt('{"json": 1} {a}-{b}-{a}', a="{b}", b="{a}") == '{"json": 1} {b}-{a}-{b}'
    assert fill_prompt(r"{q}", q=r"\1 \g<0>") == r"\1 \g<0>"
    assert fill_prompt("{x}") == "{x}"
    assert fill_prompt("{a}|{b}", a=" x ", b="y\n") == " x |y\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"cannot read the prompt file .*p\.txt"),
        (b" \n", "is empty"),
        (b"caf\xe9", "not UTF-8 at byte 3"),
        (b"---\nFollows: nothing.\n", r"header of .*p\.txt has no end"),
        (b"---\nFollows: nothing.\n---\n", "is empty"),
    ],
)
def test_a_file_that_holds_no_prompt_is_named(tmp_path, content, message):
    if content is not None:
        (tmp_path / "p.txt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_prompt(tmp_path / "p.txt")


test_a_wrong_name_or_field_is_named = refusals(
    (lambda: load_prompt("nowhere.txt"), DataError, "cannot read the prompt file"),
    (lambda: fill_prompt("Ask: {query}", question="why"), r"no field \{question\}"),
)


def header(name):
    """What stands between the two marks at the top of one of our own prompts."""
    text = (files("ragbench.prompts") / f"{name}.txt").read_text(encoding="utf-8")
    return text.split("---\n")[1].strip()


PAPERS = (
    r"(thesis, section \d|RAGChecker, (section \d|App\. [A-Z])|RAGAS, section \d|RAGEval, "
    r"sections? \d|MTRAG, the people|AutoNuggetizer, section \d|RGB, Figure \d)"
)


@pytest.mark.parametrize("name", _prompt_ids())
def test_every_prompt_says_which_section_it_follows_and_where_it_departs_in_a_header_that_is_not_sent(
    name,
):
    sources, _, scale = header(name).partition("\nScale:\n")
    follows, departs, *points = sources.split("\n")
    assert all(re.fullmatch(r"\d: .{4,}", grade) for grade in scale.splitlines())
    assert re.match(rf"Follows: (none of the papers|{PAPERS})", follows)
    assert departs == "Departs:"
    assert points
    assert all(re.fullmatch(r"- .{15,}", point) for point in points)
    text = load_prompt(name)
    assert text
    assert not any(line in text for line in ("---", follows, departs, *points))


def test_a_hash_covers_what_is_sent_and_not_the_header(tmp_path):
    def made(text):
        (tmp_path / "p.txt").write_text(text, encoding="utf-8")
        return load_prompt(tmp_path / "p.txt"), prompt_hash(tmp_path / "p.txt")

    bare = made("Ask: {q}\n---\nnow")
    assert bare[0] == "Ask: {q}\n---\nnow"
    assert made("---\nFollows: nothing.\n---\n\nAsk: {q}\n---\nnow\n") == bare
    assert made("---\r\nFollows: us.\r\n---\r\nAsk: {q}\n---\nnow")[1] == bare[1]
    assert made("Ask: {q}\n---\nthen")[1] != bare[1]


def sent(name):
    return load_prompt(name).casefold()


def test_the_thesis_prompts_ask_for_what_figure_2_4_asks_and_no_more():
    assert "only" in sent("thesis_with_documents")
    for text in (sent("thesis_with_documents"), sent("thesis_query_only")):
        assert "one sentence" in text
        # Asking to admit missing facts raises the share of grade 1.
        assert not re.search("say so|do not hold|do not know", text)


def test_the_grading_prompt_has_the_five_criteria_of_section_2_4_and_widens_none():
    criteria = re.findall(r"^([1-5]) - (.+)$", load_prompt("thesis_grade"), flags=re.M)
    assert [number for number, _ in criteria] == list("12345")
    texts = [text.casefold() for _, text in criteria]
    assert "not enough information in the documents" in texts[0]
    assert "(hallucination)" in texts[1]
    assert "incomplete" in texts[2]
    assert texts[3:] == ["fully incorrect (hallucination).", "fully correct."]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("ragas_statements_as_run", 3),
        ("ragas_verdicts_as_run", 1),
        ("ragas_question_as_run", 1),
        ("multiquery_as_run", 6),
        ("multiquery_released", 6),
    ],
)
def test_a_prompt_as_run_has_as_many_worked_examples_as_the_released_one(name, count):
    text = load_prompt(name)
    assert re.findall(r"(?m)^Example (\d)\.", text) == [str(n + 1) for n in range(count)]
    replies = [json.loads(line) for line in re.findall(r'(?m)^\{".+\}$', text)]
    named = re.findall(r'field "(\w+)"', text)
    assert all([*reply] == named and all(reply.values()) for reply in replies)
    assert len(replies) == (0 if name.startswith("multiquery") else count)


@pytest.mark.parametrize(
    "name", ["steps_statements", "steps_verdicts", "steps_questions", "steps_sentences"]
)
def test_ragas_prompts_hold_a_demonstration_whose_form_is_the_replys(name):
    field, *rest = re.findall(r'object whose field "(\w+)"', load_prompt(name))
    (shown,) = re.findall(r'^\{".+\}$', load_prompt(name), flags=re.M)
    (value,) = json.loads(shown).items()
    assert (rest, value[0]) == ([], field)
    assert value[1]


def test_ragchecker_prompts_ask_for_the_answer_between_tags_after_context_and_question():
    for name in ("ragchecker_default", "ragchecker_optimised"):
        parts = ("<context>", "{documents}", "</context>", "{query}", "<answer>")
        places = [sent(name).index(part) for part in parts]
        assert places == sorted(places)


def test_rageval_keypoints_come_with_examples_in_both_languages_and_one_that_cannot_be_answered():
    shown = re.findall(r'^\{".+\}$', load_prompt("rageval_keypoints"), flags=re.M)
    points = [json.loads(text)["keypoints"] for text in shown]
    assert all(3 <= len(own) <= 5 for own in points)
    assert any("cannot be answered" in own[-1] for own in points)
    assert any(re.search(r"[\u4e00-\u9fff]", own[0]) for own in points)
