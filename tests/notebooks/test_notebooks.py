"""Every notebook runs from top to bottom with small parameters, and leaves its figures and ledger
rows.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import nbformat
import pandas as pd
import pytest
from fake_ollama import FakeOllama
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from ragbench import notebooks
from ragbench.errors import DataError, RagbenchError
from ragbench.experiment import Experiment
from ragbench.metrics.table import Metric
from ragbench.notebooks import _shared_kernel, execute, find, run_all
from ragbench.paths import project_root, shared_data
from ragbench.prompts import load_prompt
from recorded import RECORDINGS, manifest


@dataclass(frozen=True)
class Book:
    """A notebook: small parameters, the figures it leaves, and its measured rows in the ledger, by
    item.

    Rows of the recorded models are counted apart, since they grow with the recordings. ``live``
    names, by such an item, the parts that one switch makes live; ``recorded`` is one that has none.
    """

    small: dict
    figures: str = ""
    ledger: dict | None = None
    recorded: str = ""
    live: dict = field(default_factory=dict)


BOOKS = {
    "00_start_here": Book({"LIMIT": 20}),
    "10_thesis_corpus_and_chunks": Book(
        {"LIMIT": 40, "SAMPLE": 60}, "10_chunk_lengths 10_figure_2.6_as_run 10_figure_2.6_paper"
    ),
    "11_thesis_ir_score": Book(
        {"LIMIT": 20},
        "11_table_3.1 11_reorder 11_by_type",
        {},
        live={"Table 3.1": ("decomposer",)},
    ),
    "12_thesis_context_budget": Book(
        {"LIMIT": 20, "RESAMPLES": 50},
        "12_table_3.2 12_filled",
        {"Section 3.2.1": 2},
        recorded="Table 3.2",
    ),
    "13_thesis_grades": Book(
        {"LIMIT": 20, "RESAMPLES": 50},
        "13_table_3.3 13_table_3.3_published",
        {},
        live={"Table 3.3": ("decomposer", "generator", "judge")},
    ),
    "14_thesis_thresholds": Book(
        {"LIMIT": 60, "RESAMPLES": 50},
        "14_figure_3.1 14_agreement 14_figure_3.2",
        {},
        live={
            "Figure 3.1": ("generator", "judge"),
            "Figure 3.2": ("decomposer",),
            "Equation 3.1": ("decomposer", "generator", "judge"),
        },
    ),
    "15_thesis_related_protocols": Book({"RESAMPLES": 50}),
    "16_which_retrieval_number": Book({"SHUFFLES": 20}, "16_auc"),
    "20_ragchecker_metrics": Book({"CLAIMS": 200}),
    "21_ragchecker_meta_evaluation": Book({"RESAMPLES": 50}, "21_table_5_published"),
    "22_ragchecker_systems": Book({"RESAMPLES": 50}, "22_systems 22_in_retrieved"),
    "23_ragchecker_diagnosis": Book(
        {"SOURCE": "minihop", "PER_KIND": 2, "ALL_DOCUMENTS": False, "RESAMPLES": 20},
        "23_figure_6 23_figure_7 23_figure_8 23_figure_10 23_equal_budget",
        {"Section 4.4": 16, "Figure 6": 12, "Figure 7": 12, "Figure 10": 12},
        recorded="Section 4.4",
    ),
    "24_ragchecker_published": Book({}, "24_table_3 24_tables_6_15 24_correlation_with_f1"),
    "25_ragchecker_fitted": Book({"RESAMPLES": 50}),
    "30_ragas_wikieval": Book({"LIMIT": 12}, "30_table_1 30_pairs"),
    "40_rageval_generate": Book({"DOCUMENTS": 2}),
    "41_rageval_dragonball": Book({"RESAMPLES": 20}, "41_rouge_l"),
    "42_rageval_experiments": Book({"DOCUMENTS": 4, "RESAMPLES": 20}),
    "43_rageval_printed": Book({}, "43_table_3"),
    "44_rageval_languages": Book(
        {"LIMIT": 8, "RESAMPLES": 20}, "44_by_type 44_languages", {"Table 4": 2, "Table 5": 12}
    ),
    "50_people_and_metrics": Book({"QUESTIONS": 4, "RESAMPLES": 20}, "50_metrics_and_people"),
    "51_nuggets": Book({"DRAWS": 5}, "51_runs"),
    "52_judge_moved": Book({"RESAMPLES": 50}, "52_moved"),
    "90_concordance": Book({"RESAMPLES": 10}, "90_grade_agreement 90_correlations"),
    "91_your_experiment": Book({}, "91_retriever 91_chunker"),
    "92_workbench": Book({"LABELLED": 8}),
    "93_score_your_answers": Book({"METRICS": ["lexical", "ir_score", "ragchecker"]}, "93_scores"),
    "94_half_the_evidence": Book(
        {"RESAMPLES": 50}, "94_evidence 94_evidence_smollm2 94_half_minus"
    ),
    "95_what_labels_buy": Book({"DRAWS": 5, "SIZES": [60]}, "95_labels"),
    "96_questions_without_answer": Book({}, "96_no_answer"),
    "97_which_errors": Book({"QUESTIONS": 12}, "97_crash"),
    "98_stop_when_decided": Book({"RUNS": 20, "GROUPS": 60}, "98_run 98_stop"),
    "99_cheats": Book({}, "99_cheats"),
}


(TEMPLATE,) = (path for path in find() if path.stem.startswith("91"))


def parameters(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return next(
        "".join(c["source"]) for c in cells if "parameters" in c["metadata"].get("tags", [])
    )


def by_a_recorded_model(ledger):
    names = "|".join(re.escape(manifest(name)["model"]) for name in RECORDINGS)
    return ledger["ours_by"].str.contains(names, na=False)


def test_every_notebook_has_small_parameters():
    assert set(BOOKS) == {p.stem for p in find()}


def mixed_replies(request):
    """Sub-questions, answers, and grades that vary from prompt to prompt."""
    if not request.get("format"):
        return "Where was the author born?"
    (name, spec), *_ = request["format"]["properties"].items()
    start = len(request["messages"][-1]["content"])
    return json.dumps({name: [1 + (start + 2 * i) % 5 for i in range(spec["minItems"])]})


@pytest.fixture(scope="session")
def process(tmp_path_factory):
    """One process for the notebooks, as in `run_all`, the folder that it writes to, and the server
    that it may ask.
    """
    folder = tmp_path_factory.mktemp("notebooks")
    with FakeOllama(reply=mixed_replies) as server, _shared_kernel() as kernel:
        yield kernel, folder, server


@pytest.fixture
def run(process, monkeypatch):
    """Run a notebook in that process; return the folder with all it wrote, and the calls that
    reached the server.
    """
    kernel, out, server = process
    shutil.rmtree(out)
    out.mkdir()
    # full size on the recorded data: test_ledger.py
    monkeypatch.delenv("RAGBENCH_DATA", raising=False)
    for name, value in {
        "RAGBENCH_FIGURES": out,
        "RAGBENCH_RESULTS": out,
        "OLLAMA_HOST": server.url,
    }.items():
        monkeypatch.setenv(name, str(value))

    def run(path, parameters):
        before = len(server.calls)
        execute(path, parameters, out / path.name, timeout_s=300, kernel=kernel)
        return out, server.calls[before:]

    return run


@pytest.mark.slow
@pytest.mark.parametrize("path", find(), ids=lambda p: p.stem)
def test_notebook_runs_and_leaves_its_figures_and_ledger_rows(path, run):
    book = BOOKS[path.stem]
    small = dict(book.small)
    if "DATA = " in parameters(path):
        small["DATA"] = "minihop"
    out, calls = run(path, small)
    assert calls == []
    for name in book.figures.split():
        for kind in ("png", "csv"):
            assert (out / f"{name}.{kind}").stat().st_size > 0, f"{name}.{kind}"
    if book.ledger is not None:
        ledger = pd.read_csv(out / "ledger.csv")
        by_model = by_a_recorded_model(ledger)
        assert set(ledger.loc[by_model, "item"]) == {*book.live, book.recorded} - {""}
        assert ledger.loc[by_model, "n"].gt(0).all()
        ledger = ledger[~by_model]
        measured = ledger[ledger["ours_by"].notna() & ledger["ours"].notna()]
        counts = measured.groupby("item").size().to_dict()
        if shared_data("hotpotqa") is None:
            assert counts == book.ledger
        else:  # recorded data sets add cells
            assert all(counts.get(item, 0) >= n for item, n in book.ledger.items())
        assert measured["n"].dropna().gt(0).all()


def shares_a_recording(path):
    cells = nbformat.read(path, 4).cells
    return any("recorded.rows(" in cell.source for cell in cells)


@pytest.mark.slow
@pytest.mark.ledger
@pytest.mark.parametrize("attempt", range(3))
def test_notebooks_that_share_a_recording_run_at_once(attempt, tmp_path, monkeypatch):
    monkeypatch.delenv("RAGBENCH_DATA", raising=False)
    monkeypatch.delenv("RAGBENCH_FIGURES", raising=False)
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    books = [path for path in find() if shares_a_recording(path)]
    assert len(books) > 5
    with ThreadPoolExecutor(len(books)) as pool:
        running = []
        for path in books:
            small = dict(BOOKS[path.stem].small)
            running.append(pool.submit(execute, path, small, tmp_path / path.name))
        for book in running:
            book.result()


def tracked_files():
    return {
        str(p): hashlib.sha256(p.read_bytes()).hexdigest()
        for folder in [project_root() / "figures", project_root() / "notebooks"]
        for p in sorted(folder.iterdir())
        if p.is_file()
    }


@pytest.mark.slow
def test_a_run_of_ones_own_leaves_the_checkout_as_it_is_and_a_second_one_writes_the_same_bytes(
    run, tmp_path, monkeypatch
):
    (path,) = (path for path in find() if path.stem.startswith("13"))
    again, _ = run(path, {"RESAMPLES": 50})  # in the process that is there
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    monkeypatch.delenv("RAGBENCH_FIGURES", raising=False)
    monkeypatch.setattr(notebooks, "find", lambda series: [path])
    before = tracked_files()
    assert list(run_all(parameters={"RESAMPLES": 50, "NOBODY": 1})) == [path.stem]
    written = [*(tmp_path / "figures").glob("13_*")]
    assert len(written) == 2 * 2  # two figures, each with its numbers
    assert [
        made.name for made in written if made.read_bytes() != (again / made.name).read_bytes()
    ] == []
    one, both = (
        (folder / "ledger.csv").read_text().splitlines() for folder in (again, tmp_path / "figures")
    )
    # a run of one's own begins with the published rest
    measured = {line for line in one if "reference labels" in line}
    assert len(measured) > 30
    assert measured <= set(both)
    assert (tmp_path / "notebooks" / path.name).is_file()
    assert tracked_files() == before


def test_the_first_notebook_that_fails_ends_the_run_and_is_named(monkeypatch, tmp_path):
    ran = []

    def execute(path, parameters, out, kernel):
        ran.append(path.stem)
        if len(ran) == 1:
            raise RagbenchError("cell 3", "a clean run", "read it")
        time.sleep(0.2)

    monkeypatch.setattr(notebooks, "execute", execute)
    with pytest.raises(RagbenchError, match="cell 3"):
        run_all()
    assert len(ran) <= 2


def test_notebooks_of_a_paper_run_in_order_and_publishing_writes_in_place(monkeypatch, capsys):
    ran = []

    def execute(path, parameters, out, kernel):
        ran.append((path, out, kernel))

    monkeypatch.setattr(notebooks, "execute", execute)
    run_all(publish=True)
    assert sorted(path for path, _, _ in ran) == find()
    assert all(path == out for path, out, _ in ran)
    for digit in "012349":
        mine = [(path.stem, kernel) for path, _, kernel in ran if path.stem[0] == digit]
        assert [stem for stem, _ in mine] == sorted(stem for stem, _ in mine)
        assert len({kernel for _, kernel in mine}) == 1
    # packages are loaded once for each of two lanes
    assert len({kernel for _, _, kernel in ran}) <= 2
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [path.stem for path, _, _ in ran]
    assert lines[-1].endswith("all done")


def test_published_notebooks_of_one_paper_share_a_process_in_their_order(monkeypatch):
    ran = []

    def execute(path, parameters, out, kernel):
        ran.append((path, kernel))
        time.sleep(0.05)  # a second lane would take one meanwhile

    monkeypatch.setattr(notebooks, "execute", execute)
    run_all("thesis", publish=True)
    assert [path for path, _ in ran] == find("thesis")
    assert len({kernel for _, kernel in ran}) == 1


def notebook(path, *cells):
    """Write a notebook; a text is a code cell."""
    nbformat.write(
        new_notebook(cells=[new_code_cell(c) if isinstance(c, str) else c for c in cells]), path
    )
    return path


def said(path):
    """What each code cell printed or returned."""
    return [
        "".join(o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.outputs)
        for cell in nbformat.read(path, 4).cells
        if cell.cell_type == "code"
    ]


@pytest.fixture
def book(tmp_path):
    parameters = new_code_cell("LIMIT = 5\nNAME = 'x'", metadata={"tags": ["parameters"]})
    shown = "import sys\nprint('bar', file=sys.stderr)\nprint(LIMIT * 2)"
    return notebook(tmp_path / "12_made.ipynb", new_markdown_cell("# Made"), parameters, shown)


def test_a_notebook_runs_with_other_parameters_and_stays_as_it_was(book, tmp_path):
    before = book.read_bytes()
    assert said(execute(book, {"LIMIT": 21}, tmp_path / "out.ipynb"))[-1] == "42\n"
    assert book.read_bytes() == before


def test_an_executed_notebook_has_no_times_of_its_cells(run, process, book):
    """Two runs give the same file: what a git diff shows has changed."""
    run(book, None)
    cells = nbformat.read(process[1] / book.name, 4).cells
    assert [dict(cell.metadata) for cell in cells] == [{}, {"tags": ["parameters"]}, {}]


def test_each_notebook_of_a_run_gets_the_parameters_that_it_has(book, tmp_path, monkeypatch):
    bare = notebook(tmp_path / "13_bare.ipynb", "print(LIMIT)")
    got = {}
    monkeypatch.setattr(notebooks, "find", lambda series: [book, bare])
    monkeypatch.setattr(
        notebooks, "execute", lambda path, parameters, out, kernel: got.update({path: parameters})
    )
    run_all("thesis", parameters={"LIMIT": 2, "SIZES": [1]})
    assert got == {book: {"LIMIT": 2}, bare: {}}


def test_an_unknown_parameter_is_named(book, tmp_path):
    with pytest.raises(DataError, match=r"12_made\.ipynb has no parameter LIMITS"):
        execute(book, {"LIMITS": 3}, tmp_path / "out.ipynb")


def test_a_failing_cell_is_named_and_the_copy_kept(run, process, tmp_path):
    book = notebook(
        tmp_path / "12_made.ipynb", new_markdown_cell("# Made"), "10", "print(10)", "1 / 0"
    )
    with pytest.raises(
        RagbenchError, match=r"12_made\.ipynb, cell 3: ZeroDivisionError: division by zero"
    ):
        run(book, None)
    assert said(process[1] / book.name)[:2] == ["10", "10\n"]


def test_notebooks_are_found_by_paper_and_in_order():
    every = [p.stem for p in find()]
    assert (every, every[0]) == (sorted(every), "00_start_here")
    assert all(p.stem.startswith("1") for p in find("thesis"))


def test_notebooks_of_one_kernel_share_its_process_but_no_name_or_option_of_tables_even_after_a_failure(
    tmp_path,
):
    wide = "import pandas; pandas.options.display.max_colwidth = 7"
    first = notebook(tmp_path / "1.ipynb", f"{wide}; import os; left = 3; os.getpid()", "1 / 0")
    kept = "('left' in globals(), __import__('pandas').options.display.max_colwidth)"
    second = notebook(tmp_path / "2.ipynb", "import os; os.getpid()", kept)
    with _shared_kernel() as kernel:
        with pytest.raises(RagbenchError, match="ZeroDivisionError"):
            execute(first, out=first, kernel=kernel)
        execute(second, out=second, kernel=kernel)
        assert kernel.has_kernel
    assert not kernel.has_kernel
    assert said(second) == [said(first)[0], "(False, 50)"]
    assert [cell.execution_count for cell in nbformat.read(second, 4).cells] == [1, 2]


@pytest.mark.slow
def test_a_readers_own_plot_shows_after_ours(run, tmp_path):
    ours = (
        "import pandas as pd\nfrom ragbench import plots\ntable = pd.DataFrame({'a': ['x'], "
        "'b': [1.0], 'c': ['y']})"
    )
    ours += "\nplots.dots(table, 'a', 'b', 'c', xlabel='b', title='title')"
    out, _ = run(notebook(tmp_path / "own.ipynb", ours, "table['b'].plot();"), None)
    cells = nbformat.read(out / "own.ipynb", 4).cells
    assert [["image/png" in output.data for output in cell.outputs] for cell in cells] == [
        [True],
        [True],
    ]


def test_styled_tables_have_the_same_ids_at_each_run_and_each_its_own(run, tmp_path):
    styled = "import pandas\nfor _ in 'ab':\n    display(pandas.DataFrame({'a': [1]}).style)"
    path = notebook(tmp_path / "styled.ipynb", styled)
    first, second = ((run(path, None)[0] / path.name).read_text() for _ in range(2))
    assert first == second
    assert set(re.findall(r"T_\w+(?=_row0_col0)", first)) == {"T_00_0", "T_00_1"}


@pytest.mark.posix
def test_interrupting_the_run_of_all_ends_the_notebooks_in_flight_at_once(tmp_path, monkeypatch):
    begun = tmp_path / "begun"
    long = notebook(
        tmp_path / "2_long.ipynb",
        (
            f"print('on its way', flush=True); open({str(begun)!r}, 'w').close(); import time; "
            "time.sleep(200)"
        ),
    )
    # papers run in another order than their numbers
    never = notebook(tmp_path / "1_never.ipynb", "1")
    monkeypatch.setattr(notebooks, "find", lambda series: [long, never])
    monkeypatch.setattr("ragbench.onnx_models.cores", lambda: 1)
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    start = time.monotonic()

    def press_ctrl_c():
        while not begun.exists() and time.monotonic() < start + 120:
            time.sleep(0.05)
        time.sleep(1)  # what was printed reaches the notebook
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press_ctrl_c).start()
    with pytest.raises(KeyboardInterrupt):
        run_all()
    assert time.monotonic() - start < 180
    written = tmp_path / "notebooks"
    assert "on its way" in (written / long.name).read_text()
    assert not (written / never.name).exists()


def own_files(folder, **settings):
    """Write two questions, a document and an experiment over them; return the file of the
    experiment.
    """
    (folder / "q.csv").write_text(
        "question,answer\nWho founded the mill?,Ada Ruck\nWhere is it?,in Ely\n"
    )
    (folder / "docs").mkdir()
    (folder / "docs" / "mill.txt").write_text(
        "Ada Ruck founded the mill in 1841. It stands in Ely."
    )
    given = {
        "name": "mine",
        "data": {"mine": {"questions": "q.csv", "documents": "docs"}},
        "chunker": "token_chunks",
    }
    # JSON is YAML
    (folder / "mine.yaml").write_text(json.dumps(given | {"k": 1, "N": [50]} | settings))
    return str(folder / "mine.yaml")


@pytest.mark.slow
def test_the_template_goes_on_where_there_is_nothing_to_compare(run, tmp_path):
    file = own_files(
        tmp_path, retriever=["BM25"], generator="ollama:llama3:8b", judge="ollama:llama3:8b"
    )
    out, calls = run(TEMPLATE, {"EXPERIMENT": file, "EXPORT": True})
    words = "".join(said(out / "91_your_experiment.ipynb"))
    assert len(calls) >= 4  # two answers, two grades
    assert "one system: nothing to compare" in words
    assert "files in " in words  # the export, at its end


@pytest.mark.slow
@pytest.mark.parametrize("others", ["", "ir_score"])
def test_the_template_says_what_a_measure_needs(run, tmp_path, others):
    file = own_files(tmp_path, retriever=["BM25"])
    if others:  # the rows have a number, of another measure
        questions = "question,answer,references\nWhere is it?,in Ely,It stands in Ely.\n"
        (tmp_path / "q.csv").write_text(questions)
    with pytest.raises(RagbenchError, match="no row has a number in contained"):
        run(TEMPLATE, {"EXPERIMENT": file, "MEASURE": "contained"})


@pytest.mark.slow
def test_the_template_compares_a_run_with_an_earlier_one(run, tmp_path):
    file = own_files(tmp_path, retriever=["BM25"], generator="ollama:llama3:8b")
    earlier = Experiment.from_yaml(file).model_copy(update={"name": "earlier"})
    earlier.run(progress=False)
    out, _ = run(TEMPLATE, {"EXPERIMENT": file, "OTHER": str(earlier.home)})
    assert "OTHER names no run" not in "".join(said(out / "91_your_experiment.ipynb"))
    words = (out / "91_your_experiment.ipynb").read_text()
    assert "this run" in words
    assert str(earlier.home) in words


@pytest.mark.slow
def test_the_template_compares_prompts_as_a_factor_by_grades(run, tmp_path):
    (tmp_path / "short.txt").write_text("Answer in one word. {query} {documents}")
    file = own_files(
        tmp_path,
        retriever=["BM25", "SIM"],
        generator=dict.fromkeys(("plain", "short"), "ollama:llama3:8b"),
        judge="ollama:llama3:8b",
        prompts={"short": str(tmp_path / "short.txt")},
    )
    out, _ = run(TEMPLATE, {"EXPERIMENT": file})
    words = (out / "91_your_experiment.ipynb").read_text()
    assert "Generator, prompt" in words
    assert "fully right" in words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metrics", "numbers"), [(["lexical", "ragchecker"], ["lexical"]), (["bleu"], ["bleu"])]
)
def test_answers_of_ones_own_go_through_the_notebook_that_scores_them(
    metrics, numbers, run, tmp_path
):
    mine = {
        "Question": ["Who founded it?", "Where is it?"],
        "Response": ["Ada Ruck.", None],
        "Contexts": [["Ada Ruck founded the mill in 1841."], ["It stands in Ely.", "It rains."]],
    }
    mine["Reference"] = ["Ada Ruck founded the mill.", "The mill stands in Ely."]
    pd.DataFrame(mine).to_csv(tmp_path / "mine.csv", index=False)
    changed = {"ANSWERS": str(tmp_path / "mine.csv"), "METRICS": metrics}
    out, _ = run(next(p for p in find() if p.stem.startswith("93")), changed)
    cells = json.loads((out / "93_score_your_answers.ipynb").read_text())["cells"]
    shown = "".join(
        str(o.get("data", o.get("text"))) for cell in cells for o in cell.get("outputs", [])
    )
    # no model: RAGChecker's are left out
    assert f"2 answers, {len(Metric.find(numbers))} numbers each" in shown
    assert "one system: nothing to compare" in shown


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, book in BOOKS.items() if book.live])
def test_one_switch_makes_every_part_of_a_thesis_notebook_live_and_the_ledger_names_it(
    name, run, tmp_path
):
    path = next(p for p in find() if p.stem == name)
    live = {
        "DATA": "minihop",
        "LIMIT": 6,
        "MODEL": "ollama:llama3:8b",
        "CASSETTE": str(tmp_path / "c.sqlite"),
    }
    out, calls = run(path, live)
    opening = load_prompt("multiquery_decomposition").partition("{")[0]
    assert sum(opening in call.prompt for call in calls) == live["LIMIT"]  # once a question
    ledger = pd.read_csv(out / "ledger.csv")
    replayed = by_a_recorded_model(ledger)
    ledger = ledger[ledger["ours"].notna() & (ledger["item"] != "Section 3.2.1") & ~replayed]
    assert set(ledger["item"]) == set(BOOKS[name].live)
    for item, parts in BOOKS[name].live.items():
        told = ledger[ledger["item"] == item]["ours_by"].unique()
        for part in parts:
            assert any(f"{part} ollama:llama3:8b" in by for by in told)
        assert not any("None" in by for by in told)


@pytest.mark.slow
def test_a_live_run_on_fewer_questions_than_the_thesis_leaves_no_row_of_the_model(run):
    (path,) = (path for path in find() if path.stem.startswith("12"))
    live = {"DATA": "minihop", "LIMIT": 2, "MODEL": "ollama:llama3:8b", "RESAMPLES": 50}
    out, calls = run(path, live)
    plain = [call for call in calls if call.prompt.startswith("Answer the query")]
    judged = [call for call in calls if "candidate" in call.prompt]
    assert len(plain) == len(judged) == live["LIMIT"]
    # from one chunk up to all that the documents of two questions have
    assert len(calls) - len(plain) - len(judged) > 7 * live["LIMIT"]
    assert not pd.read_csv(out / "ledger.csv")["ours_by"].str.contains("ollama", na=False).any()


# what the parameter cell says of Qwen, as docs/models.md and the notebook's own outputs have it
@pytest.mark.parametrize(
    ("number", "done", "measured"),
    [
        ("22", "takes claims out (9 of 20 right)", ("models.md", r"\| claims .*\| 9;")),
        ("30", "takes statements out (12 of 20 right)", ("models.md", r"\| statements .*\| 12 \|")),
        ("41", "finds .94 of the key points in the true answers", ("41", r"judge .*0\.94 \[")),
        ("41", ", and .72 in those of", ("41", r"judge .*0\.72 \[")),
    ],
)
def test_the_parameter_cell_says_what_the_model_in_the_box_cannot(number, done, measured):
    (path,) = (path for path in find() if path.stem.startswith(number))
    words = re.sub(r"\s*\n# ?", " ", parameters(path))
    assert "smollm2, in the box, " in words
    assert done in words
    # the smallest that can: there is none
    assert "No model that was measured can" in words
    place, pattern = measured
    source = (
        "".join(said(path)) if place == number else (project_root() / "docs" / place).read_text()
    )
    assert re.search(pattern, source)
