"""Mistakes of the first hour: each is refused in one message, with what was got, what is expected,
what to do.
"""

import os
from pathlib import Path

import pandas as pd
import pytest

import ragbench as rb
from ragbench import cli
from ragbench.prompts import load_prompt

EXPERIMENT = {
    "name": "t",
    "data": "{mine: {questions: q.jsonl, documents: docs}}",
    "chunker": "token_chunks",
}
EXPERIMENT |= {"retriever": "BM25"}
CHUNK = rb.Chunk("1", "Ely has a mill.", "d")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with one question, one document, one answer and some files that are not quite right."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    files = {
        "q.jsonl": (
            '{"question": "Where is Ely?", "answer": "here", "references": ["Ely is here."]}\n'
        ),
        "docs/a.txt": "Ely is here.",
        "half.jsonl": '{"question": "Where is Ely?"\n',
        "empty.csv": "",
        "head.csv": "question,answer,references\n",
        "other.csv": "vraag,answer,references\nWo?,da,Ely is here.\n",
        "answers.csv": "question,answer,reference\nWhere is Ely?,here,here\n",
        "half.yaml": "name: t\ndata: {mine: \n",
        "belege.csv": "question,answer,Bronnen\nWhere is Ely?,here,Ely is here.\n",
        "blank.csv": (
            "question,answer,references\nWhere is Ely?,here,Ely is here.\n,there,Wye is there.\n"
        ),
        "dots.csv": "question,answer,reference\nWhere is Ely?,here,...\n",
        "twice.csv": "id,question,answer,reference\n1,a,b,c\n1,d,e,f\n",
        "both.csv": "question,answer,response,reference\na,b,c,d\n",
        "full/mine.txt": "mine",
        "list.yaml": "- name\n- data\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "nothing").mkdir()
    (tmp_path / "latin.csv").write_bytes("question,answer\nWo ist Köln?,hier\n".encode("latin-1"))
    for name, line in {
        "close": "k:5",
        "tab": "\tk: 5",
        "indented": "  k: 5",
        "word": "k: five",
        "commas": "retriever: BM25, SIM",
        "own": "retriever: SharedWords",
        "numbers": "N: 100, 300",
        "decimal": "chunker: {use: token_chunks, overlap: 0,2}",
    }.items():
        mine = line.partition(":")[0]
        keys = {key: value for key, value in EXPERIMENT.items() if key != mine}
        head = "".join(f"{key}: {value}\n" for key, value in keys.items())
        (tmp_path / f"{name}.yaml").write_text(f"{head}{line}\n")


def experiment(**changes):
    """Plan the experiment with some keys changed; those that are None are left out."""
    keys = {key: value for key, value in (EXPERIMENT | changes).items() if value is not None}
    with open("experiment.yaml", "w") as file:
        file.write("".join(f"{key}: {value}\n" for key, value in keys.items()))
    rb.Experiment.from_yaml("experiment.yaml").plan()


def told(call, capsys):
    """What is said of a call, or of a command line, which must be refused."""
    if isinstance(call, str):
        with pytest.raises(SystemExit) as ended:
            raise SystemExit(cli.main(call.split()))
        assert ended.value.code == 2
        return capsys.readouterr().err
    with pytest.raises((rb.errors.RagbenchError, AttributeError)) as caught:
        call()
    return str(caught.value)


# A call or a command, and words that the message must hold: what was got, what is expected, what to
# do.
MISTAKES = [
    ("run none.yaml", "there is no file none.yaml", "the folder holds", "check the path"),
    ("run nothing", "there is no file nothing/experiment.yaml", "check the path"),
    ("run half.yaml", "half.yaml", "line", "correct"),
    ("plan list.yaml", "list.yaml", "list", "name and data"),
    ("rum experiment.yaml", "invalid choice: 'rum'", "'run'"),
    ("plan list.yaml --verbose", "unrecognized arguments: --verbose"),
    ("run list.yaml --retry", "unrecognized arguments: --retry"),
    ("plan close.yaml", "close.yaml, line ", "correct that line"),
    ("plan tab.yaml", "tab.yaml, line 5: found character '\\t'", "correct that line"),
    ("plan indented.yaml", "indented.yaml, line ", "correct that line"),
    ("plan commas.yaml", "unknown retriever 'BM25, SIM'", "write a list: [BM25, SIM]"),
    ("plan own.yaml", "unknown retriever 'SharedWords'", "code: mine.py"),
    ("plan numbers.yaml", "N is '100, 300'", "N: [10, 100]"),
    ("plan decimal.yaml", "decimal.yaml, line 4", "decimal comma", "such as 0.2"),
    ("run word.yaml", "word.yaml, line 5: k is 'five'", "whole numbers of at least 1", "k: 10"),
    ("reproduce thesys", "invalid choice: 'thesys'", "'thesis'"),
    ("init docs", "docs", "new or empty folder", "choose another name"),
    ("lab nowhere", "there is no folder", "nowhere", "ragbench init"),
    ("export nowhere --to out", "no run 'nowhere'", "ragbench run experiment.yaml"),
    ("export nowhere", "required: --to"),
    (
        "validate none.jsonl docs",
        "there is no file none.jsonl",
        "the folder holds",
        "check the path",
    ),
    ("validate q.jsonl dox", "there is no file or folder", "/dox", "check the path"),
    ("validate q.jsonl nothing", "nothing", "it is empty", "one text file per document"),
    ("validate empty.csv docs", "empty.csv is empty", "at least one record"),
    ("validate head.csv docs", "head.csv holds no record", "at least one"),
    (
        "validate half.jsonl docs",
        "half.jsonl, line 1",
        "one JSON object per line",
        "correct that place",
    ),
    ("validate docs/a.txt docs", "unknown kind of file '.txt'", ".csv", ".jsonl"),
    ("validate other.csv docs", "other.csv", "no field 'question'", "vraag"),
    ("validate other.csv docs", "--columns question='your column'"),
    ("validate blank.csv docs", "blank.csv, line 3: 'question' is empty", "correct that record"),
    (
        "validate latin.csv docs",
        "latin.csv, line 2: byte 0xf6 is not UTF-8",
        "CSV UTF-8",
    ),
    (
        "validate q.jsonl docs --columns question=query",
        "--columns names the column 'query'",
        "references",
    ),
    ("data draft docs --model smollm --to q2.jsonl", "provider 'smollm'", "smollm2"),
    ("data draft dox --model smollm2 --to q2.jsonl", "no file or folder", "/dox", "check the path"),
    ("validate other.csv docs --columns frage", "--columns frage", "OURS=YOURS"),
    ("score none.csv --metrics f1 --to out", "there is no file none.csv", "check the path"),
    (
        "score answers.csv --metrics rogue_l --to out",
        "unknown metric 'rogue_l'",
        "did you mean 'rouge_l'",
    ),
    (
        "score answers.csv --metrics faithfulness --to out",
        "no column 'chunks'",
        "question, answer",
        "add it",
    ),
    (
        "score answers.csv --metrics bertscore --to out",
        "no metric 'bertscore'",
        "token_f1 or rouge_l",
        "README",
    ),
    (
        "score answers.csv --metrics faithfulness,ragchecker --to out",
        "no column 'chunks', needed by 'ragchecker'",
    ),
    (
        "score answers.csv --metrics f1 --to full",
        "full is not empty (there is mine.txt)",
        "choose another folder",
    ),
    ("score answers.csv --metrics exact_match", "no --to", "add for instance --to report/"),
    (
        "score answers.csv --metrics bleu --to o --columns reference=gold",
        "--columns names the column 'gold'",
        "correct --columns",
    ),
    (
        "score both.csv --metrics bleu --to out",
        "'answer' and 'response' both mean",
        "--columns answer=response",
    ),
    ("score twice.csv --metrics bleu --to out", "line 3", "--columns system=model"),
    (
        "score other.csv --metrics bleu --to out",
        "no column 'reference'",
        "--columns reference=YOURS",
    ),
    (
        "score answers.csv --metrics f1 --labels llama3 --to out",
        "provider 'llama3'",
        "write 'ollama:llama3'",
    ),
    (lambda: experiment(data=None), "'data'", "name, data, chunker, retriever"),
    (lambda: experiment(name="figures"), "'figures'", "choose another name"),
    (lambda: experiment(retreiver="SIM"), "retreiver", "retriever"),
    (
        lambda: experiment(retriever="BM26"),
        "unknown retriever 'BM26'",
        "SIM",
        "did you mean 'BM25'",
    ),
    (
        lambda: experiment(chunker="token_chunk"),
        "unknown chunker 'token_chunk'",
        "did you mean 'token_chunks'",
    ),
    (lambda: experiment(data="minihopp"), "'minihopp'", "hotpotqa", "did you mean 'minihop'"),
    (lambda: experiment(k="five"), "k", "five"),
    (lambda: experiment(k=0), "k", "0", "at least 1"),
    (lambda: experiment(N="[some]"), "N", "some"),
    (lambda: experiment(generator="llama3"), "generator", "'llama3'", "ollama:NAME"),
    (lambda: experiment(generator="smollm"), "generator", "'smollm'", "did you mean 'smollm2'"),
    (
        lambda: experiment(generator="smollm2", judge="grader"),
        "judge",
        "'grader'",
        "ollama:llama3:8b",
        "smollm2",
    ),
    (lambda: experiment(retriever="[BM25, MLQ]"), "MLQ", "sub-questions", "decompose", "smollm2"),
    (
        "score answers.csv --metrics keypoints --to out",
        "no model is named",
        "(needs keypoints, keypoint_verdicts)",
        "--labels ollama:llama3:8b",
        "smollm2",
    ),
    (lambda: rb.measure_judge(None), "no judge is named", "ollama:llama3:8b", "smollm2"),
    (
        lambda: experiment(data="{mine: {questions: q.jsonl, documents: dox}}"),
        "no file or folder",
        "dox",
    ),
    (lambda: rb.chat_model("olama:llama3"), "'olama'", "did you mean 'ollama"),
    (lambda: rb.chat_model("ollama:"), "model 'ollama:'", "'ollama:llama3:8b'"),
    (lambda: rb.Cassette("none.sqlite", "replay"), "none.sqlite: no such cassette", "record it"),
    (
        lambda: rb.Cassette("none.sqlite", "play"),
        "unknown cassette mode 'play'",
        "did you mean 'replay'",
    ),
    (lambda: rb.BM25([]), "no chunks", "at least one", "check that the documents have text"),
    (
        lambda: rb.BM25(["Ely has a mill."]),
        "Ely has a mill",
        "ragbench.Chunk",
        "token_chunks(documents)",
    ),
    (
        lambda: rb.BM25([CHUNK]).search("Where?", 5),
        "queries is str",
        "a list of str",
        "pass [query]",
    ),
    (lambda: rb.BM25([CHUNK]).search(["Where?"], "5"), "k='5'", "a whole number", "k=10"),
    (
        lambda: rb.token_chunks([rb.Document("d", "", "Ely")], size=0),
        "size=0",
        "at least 1",
        "size=250",
    ),
    (
        lambda: rb.token_chunks([rb.Document("d", "", "Ely")], overlap=20),
        "overlap=20",
        "a share in [0, 1)",
    ),
    (
        lambda: rb.ir_score(["Ely"], "Ely", match="subsring"),
        "unknown match 'subsring'",
        "did you mean 'substring'",
    ),
    (
        lambda: rb.widgets.RetrievalExplorer([], {}),
        "retrievers is {}",
        "at least one",
        "pass for instance",
    ),
    (lambda: rb.BM52, "no attribute 'BM52'", "did you mean 'BM25'"),
    (
        lambda: rb.audit_rows(pd.DataFrame({"score": [1]}), "scor"),
        "unknown column 'scor'",
        "did you mean 'score'",
    ),
    (
        lambda: load_prompt("thesis_grad"),
        "unknown prompt 'thesis_grad'",
        "did you mean 'thesis_grade'",
    ),
    (lambda: rb.papers.published("thesis", "Table 9"), "unknown item", "Table 3.1", "choose one"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake[1])
def test_a_mistake_of_the_first_hour_is_told_in_one_message(mistake, capsys):
    call, *words = mistake
    said = told(call, capsys)
    assert [word for word in words if word not in said] == [], said
    assert "Traceback" not in said


def test_a_prompt_without_a_server_says_how_to_start_one():
    (reply,) = rb.ask(rb.chat_model("ollama:llama3:8b"), ["hello"], retries=0)
    said = str(reply.error)
    assert all(words in said for words in ("127.0.0.1:9", "no connection", "ollama serve"))


def test_a_message_names_the_page_of_the_manual_that_is_there(capsys):
    assert "docs/experiment.md" in told("plan list.yaml", capsys)
    cli.main(["init", "mine"])
    os.chdir("mine")  # the fixture goes back
    Path("list.yaml").write_text("- name\n")
    assert "help/experiment.md" in told("plan list.yaml", capsys)


def test_a_plan_says_that_evidence_is_not_found_and_that_no_server_answers(capsys):
    with open("q.jsonl", "a") as file:
        file.write('{"question": "Who?", "answer": "Ada", "references": ["Ely is hre."]}\n')
    experiment(generator="ollama:llama3:8b")
    assert cli.main(["plan"]) == 0
    said = capsys.readouterr().out
    words = (
        "1 problem",
        "'Ely is hre.'",
        "ragbench validate",
        "127.0.0.1:9",
        "ollama serve",
    )
    assert [word for word in words if word not in said] == [], said


# A command that goes on, and what its note must say.
NOTES = [
    (
        "plan belege.yaml",
        "has supporting texts, so there is no IR score",
        "fields: {references: Bronnen}",
    ),
    ("run belege.yaml", "Columns that were not read: Bronnen", "fields: {references: Bronnen}"),
    (
        "validate belege.csv docs",
        "Columns that were not read: Bronnen",
        "--columns references=Bronnen",
    ),
    (
        "score dots.csv --metrics token_f1 --to out",
        "dots.csv, line 2",
        "'...' holds no word",
        "write it in words",
    ),
]


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note[0])
def test_what_may_be_a_mistake_is_told_and_the_command_goes_on(note):
    command, *words = note
    with open("belege.yaml", "w") as file:
        keys = EXPERIMENT | {"data": "{mine: {questions: belege.csv, documents: docs}}"}
        file.write("".join(f"{key}: {value}\n" for key, value in keys.items()))
    with pytest.warns(UserWarning, match=r"supporting texts|holds no word") as caught:
        cli.main(command.split())
    said = " ".join(cli._as_flags(str(each.message), "yaml" in command) for each in caught)
    assert [word for word in words if word not in said] == [], said


def test_a_plan_needs_no_folder_commas_part_metrics_and_a_page_is_written(capsys):
    assert (
        cli.main(
            [
                "score",
                "answers.csv",
                "--metrics",
                "keypoints",
                "--labels",
                "ollama:llama3:8b",
                "--plan",
            ]
        )
        == 0
    )
    assert "total" in capsys.readouterr().out
    assert (
        cli.main(["score", "answers.csv", "--metrics", "exact_match,token_f1", "--to", "out"]) == 0
    )
    with open("out/methods.md", encoding="utf-8") as file:
        text = file.read()
    assert all(word in text for word in ("exact match", "token f1", "What may be claimed"))
