"""The notebooks that name a model run on a real Ollama with the smallest one, and then from the
cassette without it.

SmolLM2's answers are bad on purpose: empty lists, one class alone and unreadable labels must not
break a cell.
"""

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest
import serve_ollama

from ragbench.data.dragonball import ANSWERS_FILE
from ragbench.llm import Cassette
from ragbench.notebooks import _shared_kernel, execute, find

pytestmark = [pytest.mark.ollama, pytest.mark.slow]
SMALL = {"use": "ollama:smollm2", "num_predict": 96, "num_ctx": 4096}
TINY = SMALL | {"num_predict": 48, "num_ctx": 2048}
SETTINGS = {"SOURCE": "dragonball", "PER_KIND": 1, "LIMIT": 1, "RESAMPLES": 20}
# One question or two each: a prompt of a thousand tokens takes seconds on one core.
NOTEBOOKS = {
    "11_thesis_ir_score": {"DATA": "minihop", "LIMIT": 2, "MODEL": SMALL},
    "12_thesis_context_budget": {"DATA": "minihop", "LIMIT": 2, "MODEL": SMALL},
    "13_thesis_grades": {"DATA": "minihop", "LIMIT": 2, "MODEL": SMALL},
    "14_thesis_thresholds": {"DATA": "minihop", "LIMIT": 1, "MODEL": SMALL},
    "41_rageval_dragonball": {"MODEL": TINY, "LIMIT": 1},
}
# What `make drills` leaves out: more than 50 calls each. 22 and 23 read the sets of `recorded`.
COSTLY = {
    "22_ragchecker_systems": {"LIMIT": 1, "MODEL": TINY, "RESAMPLES": 20},
    "23_ragchecker_diagnosis": {**SETTINGS, "MODEL": TINY},
    "30_ragas_wikieval": {"LIMIT": 1, "MODEL": TINY, "QUESTIONS": 1},
    "40_rageval_generate": {"DOCUMENTS": 2, "MODEL": TINY},
    "93_score_your_answers": {"LABELS": TINY},
}
ANSWERED = {
    "domain": "Finance",
    "language": "en",
    "query": {"query_id": 1, "query_type": "Factual Question", "content": "Did Tarn grow?"},
    "ground_truth": {
        "doc_ids": [4],
        "content": "Yes.",
        "references": ["Tarn grew."],
        "keypoints": ["Tarn grew."],
    },
    "prediction": {"content": "Tarn shrank.", "references": ["(Company: Tarn)Tarn grew."]},
}


TEXTS = {
    ("Finance", "en"): (
        "Tarn Mills",
        "Tarn Mills was founded in 1841. In March 2020 it bought a ferry for 3 million.",
        1841,
    ),
    ("Law", "en"): (
        "Court of Tarn",
        "The Court of Tarn heard the case of the ferry. On 5 May 2021 it fined the owner.",
        2021,
    ),
    ("Medical", "en"): (
        "Tarn Clinic, A. Reed",
        "A. Reed came to Tarn Clinic in 2019 with a cough. He was well in a week.",
        2019,
    ),
    ("Finance", "zh"): (
        "塔恩磨坊",
        "塔恩磨坊成立于1841年。2020年3月,它以三百万元购买了一艘渡轮。",
        1841,
    ),
    ("Law", "zh"): ("塔恩法院", "塔恩法院审理了渡轮一案。2021年5月5日,法院对船主处以罚款。", 2021),
    ("Medical", "zh"): ("塔恩诊所李明", "李明于2019年因咳嗽来到塔恩诊所。一周后他痊愈了。", 2019),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder RAGBENCH_DATA with ClapNQ and DRAGONBall in their own forms: a text and a question
    of each kind.
    """
    folder = tmp_path_factory.mktemp("data")
    documents = []
    asked = []
    passages = []
    for number, ((domain, language), (title, text, year)) in enumerate(TEXTS.items()):
        place = {"domain": domain, "language": language}
        name = {"Finance": "company_name", "Law": "court_name", "Medical": "hospital_patient_name"}[
            domain
        ]
        documents.append(place | {"doc_id": number, name: title, "content": text})
        kind = "Factual Question"
        question = f"In which year? {title}"
        if language == "zh":
            kind = "事实性问题"
            question = f"{title}是哪一年?"
        sentence = next(part for part in re.split(r"(?<=[.。])\s*", text) if str(year) in part)
        truth = {
            "doc_ids": [number],
            "content": str(year),
            "references": [sentence],
            "keypoints": [sentence],
        }
        query = {"query_id": number, "query_type": kind, "content": question}
        asked.append(place | {"query": query, "ground_truth": truth})
        passages.append({"title": title, "text": text})
    output = [
        {
            "answer": "It was founded in 1841.",
            "selected_sentences": ["Tarn Mills was founded in 1841."],
        }
    ]
    clapnq = [
        {
            "id": "1",
            "input": "When was Tarn Mills founded?",
            "passages": passages[:3],
            "output": output,
        }
    ]
    files = {"rageval/dragonball_docs": documents, "rageval/dragonball_queries": asked}
    for name, rows in (files | {"clapnq/clapnq_dev_answerable": clapnq}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        text = "\n".join(json.dumps(row) for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def places(ollama, recorded, tmp_path_factory):
    """For each mode a process, which keeps the environment that it was started with, and that
    environment.
    """
    nobody = f"http://127.0.0.1:{serve_ollama.free_port()}"
    with _shared_kernel() as live, _shared_kernel() as replaying:
        kernels = {"record": live, "replay": replaying}
        hosts = {"record": ollama, "replay": nobody}
        places = {}
        for mode, kernel in kernels.items():
            out = tmp_path_factory.mktemp(mode)
            places[mode] = (
                kernel,
                out,
                {"RAGBENCH_FIGURES": out, "RAGBENCH_RESULTS": out, "OLLAMA_HOST": hosts[mode]},
            )
            places[mode][2]["RAGBENCH_DATA"] = recorded
        places["replay"][2]["RAGBENCH_CASSETTE"] = "replay"
        yield places


@pytest.mark.parametrize(
    "name", [*NOTEBOOKS, *(pytest.param(name, marks=pytest.mark.costly) for name in COSTLY)]
)
def test_a_notebook_runs_live_and_replays_without_a_server(
    name, places, recorded, tmp_path, monkeypatch
):
    path = next(path for path in find() if path.stem == name)
    numbers = {}
    given = (NOTEBOOKS | COSTLY)[name] | {"CASSETTE": str(tmp_path / "replies.sqlite")}
    if name == "41_rageval_dragonball":  # judges recorded answers, which are not shipped
        given["FOLDER"] = str(recorded / "rageval")
        with gzip.open(recorded / "rageval" / ANSWERS_FILE, "wt", encoding="utf-8") as file:
            file.write(json.dumps(ANSWERED))
    if name == "93_score_your_answers":  # its own answers have labels
        given["ANSWERS"] = str(tmp_path / "answers.jsonl")
        answer = {"question": "Did Tarn grow?", "answer": "It shrank.", "reference": "Yes."}
        answer |= {"references": ["Tarn grew."], "chunks": ["Tarn grew in 2019."]}
        Path(given["ANSWERS"]).write_text(json.dumps(answer), encoding="utf-8")
    for mode, (kernel, out, environment) in places.items():
        shutil.rmtree(out)
        out.mkdir()
        for variable, value in environment.items():
            monkeypatch.setenv(variable, str(value))
        execute(path, given, out / path.name, timeout_s=900, kernel=kernel)
        # The data of every figure and table, and the ledger; an export's rows.csv has seconds.
        files = [csv for csv in sorted(out.rglob("*.csv")) if csv.name != "rows.csv"]
        numbers[mode] = {csv.name: csv.read_text(encoding="utf-8") for csv in files}
    assert numbers["record"] == numbers["replay"]
    with Cassette(tmp_path / "replies.sqlite", "replay") as cassette:
        assert len(cassette) > 0
