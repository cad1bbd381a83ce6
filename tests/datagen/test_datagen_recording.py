"""The shipped recording of RAGEval's pipeline: its manifest fits, and it is replayed without a
server.
"""

import hashlib
import json
import socket

import pytest

import ragbench as rb
from ragbench.datagen import KINDS, generate_set
from ragbench.datagen.questions import _check_answer, _check_keypoints
from ragbench.paths import packaged_data
from ragbench.prompts import prompt_hash
from ragbench.recordings import RECORDINGS

MANIFEST = json.loads(packaged_data("recordings", "rageval_set.json").read_text(encoding="utf-8"))
FILE = packaged_data("recordings", MANIFEST["file"]["name"])


@pytest.fixture
def replayed(tmp_path, monkeypatch):
    """The set, replayed where no socket can be opened, and the cassette."""
    with rb.Cassette(tmp_path / "set.sqlite") as cassette:
        assert cassette.import_(FILE) == MANIFEST["replies"]

    def refuse(*_, **__):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    seeds = [
        seed.text for seed in rb.data.load_documents(packaged_data("recordings", "rageval_seeds"))
    ]
    options = MANIFEST["options"]
    model = RECORDINGS["qwen"].chat_model(
        num_ctx=options["num_ctx"], num_predict=options["max_completion_tokens"]
    )
    with rb.Cassette(tmp_path / "set.sqlite", "replay") as cassette:
        asked = [MANIFEST[name] for name in ("documents", "kinds")]
        yield generate_set(model, MANIFEST["domain"], seeds, *asked, cassette=cassette)


def test_the_manifest_names_the_file_the_weights_and_the_prompts_as_they_are():
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() == MANIFEST["file"]["sha256"]
    assert MANIFEST["digest"] == RECORDINGS["qwen"].options["digest"]
    assert MANIFEST["prompts"] == {name: prompt_hash(name) for name in MANIFEST["prompts"]}
    assert set(MANIFEST["kinds"]) <= set(KINDS)


def test_no_reply_of_the_recording_is_missing_and_what_passed_has_no_fault(replayed):
    assert 0 < len(replayed.documents) <= MANIFEST["documents"]
    assert replayed.questions
    texts = {document.id: document for document in replayed.documents}
    for question in replayed.questions:
        if question.kind != "unanswerable":
            _check_answer(question)
        _check_keypoints(question)
        for reference in question.references:
            assert reference.text in texts[reference.doc_id].text
    assert all(one.reason for one in replayed.rejected)
    assert not {question.id for question in replayed.questions} & {
        one.id for one in replayed.rejected
    }
