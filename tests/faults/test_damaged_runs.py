"""The folder of a run after something damaged one of its files: an error that names the file."""

import json

import pytest

import ragbench as rb
from ragbench.experiment.rows import folder_name
from ragbench.report.export import export


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    question = rb.Question("q1", "Who founded the mill?", "Ada Ruck", ("Ada Ruck founded it.",))
    document = rb.Document("d1", "Mill", "Ada Ruck founded it.")
    data = rb.Dataset("mills", (question,), (document,))
    cut = {"chunker": "token_chunks", "retriever": "BM25", "N": [30]}
    rb.Experiment("mills", data=data, folder=folder, **cut).run(progress=False)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def changed(record, **values):
    return json.dumps(json.loads(record) | values).encode() + b"\n"


DAMAGES = {
    "empty": lambda text: b"",
    "half": lambda text: text[: len(text) // 2] + b"\n",
    "noise": lambda text: bytes(range(256)),
    "no object": lambda text: b"null\n",
    "deep": lambda text: b"[" * 100_000 + b"\n",
    "a number as text": lambda text: changed(text, k="many", runs="many"),
    "a text as a list": lambda text: changed(text, generator=["a"], prompts=[1]),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["rows.jsonl", "manifest.json"])
def test_a_damaged_file_of_a_run_is_named_and_no_traceback(whole, tmp_path, name, damage):
    run = tmp_path / "run"
    run.mkdir()
    for file, content in whole.items():
        (run / file).write_bytes(DAMAGES[damage](content) if file == name else content)
    with pytest.raises(rb.errors.RagbenchError, match=name.partition(".")[0]):
        export(run, tmp_path / "out")


def test_names_that_a_file_system_folds_have_folders_of_their_own():
    names = ["a-b", "a\\b", "a:b", "llama3:8b", "llama3-8b", "con", "con-", "x.", "x"]
    folders = {folder_name(name) for name in names}
    assert len(folders) == len(names)
    assert not folders & {"con", "x."}
    assert not any(set('<>:"|?*\\') & set(folder) for folder in folders)
