"""Prompt files: by id or by path, hashed, and filled without surprises."""

from __future__ import annotations

import hashlib

import pytest

from ragbench.errors import ConfigError, DataError
from ragbench.prompts import fill_prompt, load_prompt, prompt_hash, prompt_ids


def test_every_prompt_that_ships_loads_and_has_a_field():
    ids = prompt_ids()
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
    unix, windows = tmp_path / "a.txt", tmp_path / "b.md"
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


def test_bad_prompts_are_named(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'multiquery_decomposition'"):
        load_prompt("multiquery_decompositon")
    with pytest.raises(DataError, match=r"cannot read the prompt file .*nowhere\.txt"):
        load_prompt(tmp_path / "nowhere.txt")
    with pytest.raises(DataError, match="cannot read the prompt file"):
        load_prompt("nowhere.txt")
    (tmp_path / "empty.txt").write_text(" \n", encoding="utf-8")
    with pytest.raises(DataError, match="is empty"):
        load_prompt(tmp_path / "empty.txt")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match="not UTF-8 at byte 3"):
        load_prompt(tmp_path / "latin.txt")
    with pytest.raises(ConfigError, match=r"no field \{question\}"):
        fill_prompt("Ask: {query}", question="why")
