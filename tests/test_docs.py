"""README and docs/: their commands work, their links lead somewhere, and no key of an experiment
file is left out.
"""

import ast
import doctest
import importlib
import inspect
import json
import re
import runpy
import shlex
import sys
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pandas as pd
import pytest
import yaml
from onnx_parts import classifier, rows

import ragbench as rb
from ragbench import cli, data
from ragbench.chunking import CHUNKERS
from ragbench.data import DATASETS
from ragbench.experiment import Experiment, load_rows
from ragbench.experiment.axes import AXES
from ragbench.metrics.table import METRICS
from ragbench.notebooks import find
from ragbench.paths import packaged_data, project_root
from ragbench.retrieval import RETRIEVERS
from ragbench.scoring import LABELS

ROOT = project_root()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", text_of(page), re.DOTALL)


@pytest.fixture(autouse=True)
def _own_entries_leave():
    """What a page's code adds to the tables is gone afterwards."""
    before = [(table, dict(table)) for table in (CHUNKERS, DATASETS, METRICS, RETRIEVERS, LABELS)]
    yield
    for table, entries in before:
        table.clear()
        table.update(entries)


@pytest.fixture
def own_files(tmp_path, monkeypatch):
    """A folder with the manual's question and a document that answers it."""
    (tmp_path / "questions.jsonl").write_text(blocks("docs/experiment.md", "json")[0])
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "mill.txt").write_text(
        "Ada Ruck founded the mill in 1841. It burnt down later."
    )
    (tmp_path / "docs" / "lake.txt").write_text("The lake is deep and cold.")
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path / "results"))
    return tmp_path


def test_the_manuals_experiment_has_under_ten_lines_and_runs(own_files, capsys):
    (text,) = (
        block
        for block in blocks("docs/experiment.md", "yaml")
        if "first-look" in block and "mine:" in block
    )
    assert len(text.splitlines()) <= 10
    (own_files / "experiment.yaml").write_text(text)
    assert cli.main(["plan", str(own_files / "experiment.yaml")]) == 0
    assert cli.main(["run", str(own_files / "experiment.yaml")]) == 0
    rows = load_rows("first-look")
    assert set(rows["status"]) == {"ok"}
    assert set(rows["retriever"]) == {"BM25", "SIM", "Hybrid"}
    assert rows.loc[rows["N"] == 300, "ir_score"].tolist() == [1.0, 1.0, 1.0]
    assert cli.main(["export", "first-look", "--to", str(own_files / "report")]) == 0
    assert (own_files / "report" / "methods.md").is_file()


# Words of a block that is only compiled, and why it cannot run here.
NOT_RUN = {
    'chat_model("smollm2")': "takes the small model: tests/faults/test_real_model.py asks it",
    "tcp://head": "names a Dask cluster",
    "mlflow.start_run": "mlflow is not in the environment: twenty packages for a recipe",
    "rb.measure_judge(": "tests/ollama/test_week.py runs the page on a real Ollama",
    'load_rows("results/first-look")': "the same",
    'grade_label("mine.txt")': "changes the tables of names: tests/test_scoring.py does the same",
}
FOUNDED = "Ada Ruck founded it."
ANSWERED = {"question": "Who?", "answer": "Ada", "reference": "Ada", "N": 300}
ANSWERED |= {"chunks": [FOUNDED], "context": FOUNDED, "references": [FOUNDED]}
SYSTEMS = (
    {"system": "one", "retriever": "BM25", "chunker": "small"},
    {"system": "two", "retriever": "SIM", "chunker": "large"},
)
ROWS = [
    ANSWERED
    | system
    | {"question_id": f"q{n}", "topic": f"t{n // 10}", "grade": n % 5 + 1, "ir_score": n % 7 / 6}
    for n in range(400)
    for system in SYSTEMS
]


@dataclass
class Sample:
    """A row of another tool: ragas' names."""

    user_input: str = "Who?"
    response: str = "Ada"
    reference: str = "Ada"


def two_runs():
    for name in ("first-look", "second-look"):
        mine = {"mine": {"questions": "questions.jsonl", "documents": "docs"}}
        Experiment(
            name, data=mine, chunker="token_chunks", retriever=["BM25", "SIM"], k=1, N=50
        ).run(progress=False)
    return {"rows": load_rows(name)}


# What a page's blocks take for given.
GIVEN = {
    "experiment.md": two_runs,
    "coming-from.md": lambda: {"samples": [Sample(), Sample("When?")]},
    "writing.md": lambda: {"rows": pd.DataFrame(ROWS)},
    "data.md": lambda: {"rows": ROWS[:2]},
}
# tests/project/test_study.py runs study.md in a new folder
WITH_PYTHON = [page for page in PAGES if blocks(page, "python") and page.name != "study.md"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_the_python_of_a_page_runs_from_its_first_block_to_its_last(
    page, own_files, monkeypatch, fake
):
    monkeypatch.chdir(own_files)
    monkeypatch.setenv("OLLAMA_HOST", fake.url)
    (own_files / "answers.csv").write_text(
        "question,answer,reference,chunks\nWho?,Ada,Ada,Ada did it.\n"
    )
    accepted = {
        "kind": "draft",
        "item": "line-1",
        "aspect": "draft",
        "label": "accept",
        "annotator": "ab",
    }
    rb.append_labels("drafts.csv", [accepted])
    names = {"rb": rb}
    for number, block in enumerate(blocks(page, "python")):
        code = compile(block, f"{page.name}, block {number}", "exec")
        if any(words in block for words in NOT_RUN):
            continue
        if "rows" not in names or "labels=" in block:
            names |= GIVEN.get(page.name, dict)()
        exec(code, names)
    if page.name == "data.md":
        assert set(names["grid"].run(progress=False)["ir_score"]) == {1.0}
        assert data.load_questions("accepted.jsonl").questions[0].meta["accepted_by"] == "ab"


def test_every_block_that_is_not_run_is_there():
    text = "".join(block for page in PAGES for block in blocks(page, "python"))
    assert [words for words in NOT_RUN if words not in text] == []


def commands():
    lines = "\n".join(block for page in PAGES for block in blocks(page, "sh"))
    parts = {part.split("#")[0].strip() for part in re.split("\n|&&", lines)}
    return sorted(part for part in parts if part.startswith("ragbench "))


# What a command of the docs takes for given, beside the files of a new folder.
FILES = {
    "answers.csv": "question,answer,reference,chunks\nWho?,Ada,Ada,Ada did it.\n",
    "mine.py": next(
        block for block in blocks("docs/extending.md", "python") if "reference_words" in block
    ).split("rows =")[0]
    + 'METRICS["words_right"] = METRICS["reference_words"]\n',
    "questions.jsonl": (
        '{"question": "Who?", "answer": "Ada", "references": ["Ada built it.", "It is deep."]}\n'
    ),
    "documents.jsonl": (
        '{"title": "mill", "text": "Ada built it."}\n{"title": "lake", "text": "It is deep."}\n'
    ),
    "questions.csv": "query,gold,references\nWho?,Ada,Ada built it.\n",
    "docs/mill.txt": "Ada built it.",
    "examples/mill.txt": "The mill of Ely was built by Ada Ruck in 1841. It burnt down in 1902.",
    "examples/bridge.txt": "The bridge at Tarn was built by Sven Lund in 1899. It stands.",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_docs_runs_as_it_stands(command, tmp_path, monkeypatch, fake, capsys):
    """The server is the test double: tests/ollama has a real one."""
    monkeypatch.setenv("OLLAMA_HOST", fake.url)
    monkeypatch.chdir(tmp_path)
    verb = command.split()[1]
    of_a_run = verb == "export" or "results/" in command
    if verb in ("plan", "run") or of_a_run:
        cli.main(["init", "study"])
        monkeypatch.chdir("study")
    if of_a_run:
        cli.main(["run"])
    if verb in ("score", "validate", "data"):
        for name, text in FILES.items():
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(text)
        if "--to questions.jsonl" in command:
            Path("questions.jsonl").unlink()
    status = cli.main(shlex.split(command)[1:])
    said = capsys.readouterr()
    # The double's replies are no schema: the commands say so.
    refused = {"doctor": "NO  labels", "data": "take a larger model"}.get(verb, "")
    assert status == 0 or (refused and refused in said.out + said.err), said
    assert "Traceback" not in said.err
    assert said.out + said.err


def test_a_command_that_a_sentence_names_exists_with_its_flags():
    for page in PAGES:
        for said in re.findall(r"`ragbench ([a-z][^`]*)`", text_of(page)):
            words = said.split()
            name = " ".join(words[:2]) if words[0] == "data" else words[0]
            assert name in cli._COMMANDS, said
            known = inspect.signature(cli._COMMANDS[name]).parameters
            flags = {word[2:].replace("-", "_") for word in words if word.startswith("--")}
            assert flags <= {*known}, said


def test_every_make_target_that_is_named_exists():
    targets = set(re.findall(r"^\.PHONY: (.*)$", text_of("Makefile"), re.M)[0].split())
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", "\n".join(map(text_of, PAGES)), re.M))
    assert {"setup", "test", "reproduce"} <= named <= targets


def test_every_key_of_an_experiment_file_is_documented_and_no_other():
    keys, axes = text_of("docs/experiment.md").split("## Axes")
    row = re.compile(r"^\| `(\w+)` \| ([^|]*) \|", re.M)
    documented = set(dict(row.findall(keys)))
    assert documented == {*Experiment.model_fields} - {"keep", "paths_from"} | {"code"}
    names = dict(row.findall(axes))
    assert set(names) == set(AXES)
    for axis, table in (("chunker", CHUNKERS), ("retriever", RETRIEVERS), ("data", DATASETS)):
        assert set(re.findall(r"`(\w+)`", names[axis])) == set(table)


@pytest.mark.parametrize("page", [page.name for page in PAGES if page.parent == ROOT / "docs"])
def test_yaml_in_the_docs_is_read_without_an_error(page, tmp_path):
    # the folder that docs/models.md names
    classifier(tmp_path / "models" / "cross-encoder", rows(1), rows(1))
    (tmp_path / "short.txt").write_text("{documents} {query}")
    grading = ROOT / "ragbench" / "prompts" / "thesis_grade.txt"
    (tmp_path / "my-grade.txt").write_text(grading.read_text(encoding="utf-8"), encoding="utf-8")
    for block in blocks(f"docs/{page}", "yaml"):
        keys = re.findall(r"^(\w+):", block, re.M)  # a key that is written twice shows two ways
        for told in [block] if len(keys) == len({*keys}) else block.splitlines():
            needed = {"name": "t", "data": "minihop"}
            needed |= {"chunker": "token_chunks", "retriever": "BM25"}
            lacking = [key for key in needed if not re.search(rf"^{key}:", told, re.M)]
            rest = "".join(f"{key}: {needed[key]}\n" for key in lacking)
            (tmp_path / "e.yaml").write_text(f"{rest}{told}\n")
            Experiment.from_yaml(tmp_path / "e.yaml")
            assert isinstance(yaml.safe_load(told), dict)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_a_file_and_a_heading(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.M)
            assert anchor in [
                re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings
            ]


def test_the_site_has_every_page_of_the_manual():
    site = yaml.safe_load(text_of("mkdocs.yml"))
    pages = re.findall(r"[\w./-]+\.md\b", json.dumps(site["nav"]))
    assert set(pages) >= {str(page.relative_to(ROOT)) for page in PAGES}
    assert [page for page in pages if not (ROOT / page).is_file()] == []
    assert len(pages) == len(set(pages))


def test_every_path_and_name_of_contributing_exists():
    text = text_of("CONTRIBUTING.md")
    package = Path(rb.__file__).parent
    missing = []
    for quoted in set(re.findall(r"`([\w./]+)`", text)) - {".venv", "RAGBENCH_DATA", "_search"}:
        places = [ROOT / quoted, package / quoted, package / f"{quoted}.py"]
        is_there = any(place.exists() for place in places)
        module, _, name = quoted.rpartition(".")
        if not is_there and module and "/" not in quoted:
            is_there = hasattr(importlib.import_module(f"ragbench.{module}"), name)
        if not is_there:
            missing.append(quoted)
    assert missing == []
    rooms = {path.name for path in package.iterdir() if (path / "__init__.py").exists()}
    modules = {path.stem for path in package.glob("[a-z]*.py")}
    unnamed = [room for room in sorted(rooms | modules) if not re.search(rf"`{room}\b", text)]
    assert unnamed == []


def test_the_workflow_runs_the_tests_that_the_readme_names():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    commands = [step.get("run") for step in workflow["jobs"]["test"]["steps"]]
    assert "make test" in commands
    assert "`make test`" in text_of("README.md")


def test_the_api_page_has_every_name_of_the_package_and_no_other():
    assert len(API_NAMES) == len({*API_NAMES})
    assert {name for name in API_NAMES if "." not in name} == {*rb.__all__} - {
        "GRADES",
        "__version__",
    }


API_NAMES = re.findall(r"^- `rb\.([\w.]+)`$", text_of("docs/api.md"), re.M)
# Their example reads files that no package may hold.
FROM_FILES = {f"data.load_{name}" for name in ("hotpotqa", "clapnq", "wikieval", "dragonball")}
FROM_FILES |= {"data.load_refchecker"}


def examples_of(name):
    shown = inspect.unwrap(attrgetter(name)(rb))
    module = vars(importlib.import_module(shown.__module__))
    docstring = shown.__dict__["__doc__"] if isinstance(shown, type) else shown.__doc__
    return doctest.DocTestParser().get_doctest(
        docstring or "", {**module, "rb": rb}, name, None, None
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.data] * (name in FROM_FILES)) for name in API_NAMES],
)
def test_the_example_of_a_name_of_the_api_page_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = []
    runner = doctest.DocTestRunner(verbose=False)
    assert runner.run(examples_of(name), out=told.append).failed == 0, "".join(told)


def test_each_name_of_the_api_page_has_an_example_of_at_most_eight_lines():
    for name in API_NAMES:
        examples = examples_of(name).examples
        assert 0 < sum(part.source.count("\n") for part in examples) <= 9, name
    skipped = {
        name
        for name in API_NAMES
        if any(part.options.get(doctest.SKIP) for part in examples_of(name).examples)
    }
    assert skipped == {"Experiment", "measure_judge", "data.load_ragchecker_benchmark"}


def test_the_site_lists_every_notebook():
    site = yaml.safe_load(text_of("mkdocs.yml"))
    named = re.findall(r"notebooks/(\w+)\.ipynb", json.dumps(site["nav"]))
    assert named == [path.stem for path in find()]


def test_the_readme_lists_every_notebook():
    assert re.findall(r"^\| `(\d\d\w+)` \|", text_of("README.md"), re.M) == [
        path.stem for path in find()
    ]


def test_the_first_notebook_leads_to_every_paper_and_to_ones_own_data():
    names = {path.name for path in find()}
    (first,) = (path for path in find() if path.stem == "00_start_here")
    linked = set(re.findall(r"\((\w+\.ipynb)\)", first.read_text(encoding="utf-8")))
    assert linked <= names
    assert {name[:2] for name in linked} >= {"10", "20", "30", "40", "91", "93"}


def test_the_manual_says_what_every_metric_is_for():
    table = text_of("docs/metrics.md").split("| question | metric |")[1].split("\n\n")[0]
    named = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(METRICS)


def test_the_docs_give_the_measured_scores_of_the_embedders():
    table = text_of("docs/models.md").split("**Other languages.**")[1]
    named = {
        "english": "| English questions",
        "german": "German questions",
        "french": "; French",
        "chinese": "; Chinese",
    }
    rows = pd.read_csv(ROOT / "figures" / "44_languages.csv")
    scores = rows.groupby(["question in", "retriever"])["mean"].first()
    for (language, retriever), score in scores.drop(("english", "Hybrid")).items():
        if language == "english" or retriever != "MiniLM":
            assert printed(score) in table.split(named[language])[1][:250]
    recorded = pd.read_csv(packaged_data("recordings", "rageval_dense.csv.gz"))
    five = recorded[recorded["setting"] == "TopK 5"]
    line = table.split("| Chinese questions")[1].split("\n")[0]
    for part in (five, five[five["kind"] == "numerical comparison"]):
        for retriever, score in part.groupby("retriever")["recall"].mean().items():
            assert printed(score) in line, retriever


def printed(score):
    return f"{score:.3f}".lstrip("0")


@pytest.mark.parametrize("metric", ["grade", "fully_right", "ragas", "ragchecker"])
def test_the_manual_names_the_columns_that_a_metric_needs(metric):
    words = {"true answers": "reference", "supporting texts": "references"}
    words |= {"retrieved chunks": "chunks", "retrieved text": "context"}
    (row,) = re.findall(rf"^\|.*`{metric}`.*", text_of("docs/metrics.md"), re.M)
    told = {column for said, column in words.items() if said in row.split("|")[4]}
    table = rb.metric_table()
    (needs,) = set(table.loc[table["metric"] == metric, "needs"])
    assert told == set(needs.split(", ")) & set(words.values())


def strings_of_the_code():
    """Every string of the package that is no docstring."""
    strings = []
    for path in Path(rb.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
        strings += [str(node.value) for node in constants if id(node) not in docstrings]
    return "\n".join(strings)


def test_what_a_page_puts_in_double_quotes_is_said_by_the_code():
    """In prose double quotes are for messages; what texts say is in backticks or italics. Every
    row of docs/tried.md is run by a test of its own.
    """
    code = strings_of_the_code()
    quoted = {}
    for page in PAGES:
        prose = re.sub(r"```.*?```|`[^`]*`", "", text_of(page), flags=re.DOTALL)
        quoted |= {words: page.name for words in re.findall(r'"([^"\n]*)"', prose) if " " in words}
    messages = {words: page for words, page in quoted.items() if page != "tried.md"}
    assert len(messages) >= 3
    assert {words: page for words, page in messages.items() if words not in code} == {}


def test_the_sites_search_shows_questions_before_names_and_notebooks(monkeypatch):
    monkeypatch.setitem(sys.modules, "jupyter_server_mathjax", ModuleType("of the site alone"))
    hooks = runpy.run_path(str(ROOT / "scripts" / "site_hooks.py"))
    boosts = []
    for uri in ("docs/questions.md", "docs/study.md", "docs/api.md", "notebooks/20.ipynb"):
        page = SimpleNamespace(file=SimpleNamespace(src_uri=uri), meta={})
        hooks["on_page_content"]("<p>", page)
        boosts.append(page.meta.get("search", {"boost": 1})["boost"])
    assert boosts == [4, 1, 0.2, 0.2]
