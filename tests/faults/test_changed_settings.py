"""A run that is stopped, and gone on with under other settings: every row is of the settings that
the manifest says, nothing that can be used again is asked again, and the plan had counted that.
"""

import hashlib

import pytest
from experiment_parts import live, people
from fake_ollama import FakeOllama, at_call, press_ctrl_c

from ragbench.chunking import Chunk
from ragbench.experiment import load_manifest, load_rows
from ragbench.llm import Cassette
from ragbench.llm.wire import OllamaServer
from ragbench.prompts import fill_prompt, load_prompt

PEOPLE = 8
STOPPED_AT = 11  # of 16 calls
ANSWERS = {"judge": None, "N": (4, 20)}
MINE = "From {documents} tell: {query}"


def told(request):
    """A reply that says of which model, options and prompt it is."""
    options = {name: request["options"].get(name) for name in ("temperature", "num_ctx", "seed")}
    return stamp(request["model"], options, request["messages"][-1]["content"])


def stamp(model, options, prompt):
    digest = hashlib.sha256(prompt.encode()).hexdigest()
    return f"{OllamaServer.full_name(model)} {sorted(options.items())} {digest}"


def halves(documents):
    """Cut each document in two."""
    chunks = []
    for document in documents:
        middle = document.text.index(". ") + 2
        for number, text in enumerate((document.text[:middle], document.text[middle:])):
            chunks.append(Chunk(f"{document.id}#{number}", text, document.id, document.title))
    return chunks


# What is changed, and the answers of the stopped run that hold still.
CHANGES = {
    "nothing": ({}, 16),
    "temperature 0 to 0.9": ({"temperature": 0.9}, 0),
    "num_ctx 4096 to 8192": ({"num_ctx": 8192}, 0),
    "another model": ({"model": "mistral:7b"}, 0),
    "N 4, 20 to 4, 5": ({"N": (4, 5)}, 8),
    "another prompt file": ({"prompt": MINE}, 0),
    "chunks of half a document": ({"chunker": {"whole": halves}}, 8),
}


def grid(folder, server, model="llama3:8b", prompt=None, **changes):
    options = {"seed": 3, "num_ctx": 4096}
    options |= {name: changes.pop(name) for name in ("temperature", "num_ctx") if name in changes}
    changes["generator"] = {"llama": server.model(f"ollama:{model}", **options)}
    if prompt is not None:
        folder.mkdir(exist_ok=True)
        (folder / "mine.txt").write_text(prompt)
        changes["prompts"] = {"llama": folder / "mine.txt"}
    return live(folder, server, PEOPLE, **ANSWERS | changes)


def of_other_settings(folder, prompt):
    """Count the rows that are not of the settings that the manifest says."""
    manifest = load_manifest(folder)
    model = manifest["axes"]["generator"]["llama"]
    options = {
        name: model["options"]["options"][name] for name in ("temperature", "num_ctx", "seed")
    }
    texts = {question.id: question.text for question in people(PEOPLE).questions}
    wrong = 0
    for row in load_rows(folder).itertuples():
        template = prompt or load_prompt("thesis_with_documents")
        asked = fill_prompt(template, documents=row.context, query=texts[row.question_id])
        right = row.answer == stamp(model["model"], options, asked)
        wrong += not (right and row.N in manifest["parameters"]["N"])
    return wrong


@pytest.mark.posix
@pytest.mark.parametrize("name", CHANGES)
def test_a_stopped_run_goes_on_under_other_settings_and_every_row_is_of_them(
    name, tmp_path, record_property
):
    changes, most_used = CHANGES[name]
    models = {"llama3:8b": "a" * 64, "mistral:7b": "b" * 64}
    with FakeOllama(models=models, reply=told) as server:
        stop = at_call(STOPPED_AT, press_ctrl_c)
        server.reply = lambda request: stop(request) and told(request)
        server.latency_s = 0.02
        with pytest.raises(KeyboardInterrupt):
            grid(tmp_path, server).run(progress=False)
        server.reply = told
        server.latency_s = 0.0
        first = Cassette(tmp_path / "cassette.sqlite")
        kept_before = len(first)
        first.close()
        before = len(server.calls)
        planned = grid(tmp_path, server, **changes).plan()["generation"].remaining
        rows = grid(tmp_path, server, **changes).run(progress=False)
        again = len(server.calls) - before
    with Cassette(tmp_path / "cassette.sqlite") as cassette:
        kept = len(cassette)
    counts = {
        "asked": len(server.calls),
        "kept": kept,
        "lost": 2 * PEOPLE - int((rows["status"] == "ok").sum()),
        "wrong setting": of_other_settings(tmp_path, changes.get("prompt")),
    }
    for what, count in counts.items():
        record_property(what, count)
    print(f"| {name} | {' | '.join(map(str, counts.values()))} |")
    assert kept_before >= STOPPED_AT - 2
    assert kept == kept_before + again  # what the first run kept is not asked again
    assert again == planned
    assert again >= 2 * PEOPLE - min(most_used, kept_before)
    assert (counts["lost"], counts["wrong setting"]) == (0, 0)
    assert len(rows) == 2 * PEOPLE
