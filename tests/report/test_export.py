"""What leaves the workbench: the numbers are the run's, the LaTeX compiles, no secret leaves, no
file of others.
"""

import json
import os
import re
import shutil
import subprocess
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from experiment_parts import (
    Copier,
    Interrupted,
    JudgeDouble,
    Named,
    graded,
    live_rows,
    people,
    rows_of,
    whole,
)
from fake_ollama import DIGEST, FakeOllama
from hypothesis import given
from hypothesis import strategies as st
from label_replies import reply as label_reply
from PIL import Image

import ragbench as rb
from ragbench import plots
from ragbench.errors import ConfigError, DataError
from ragbench.experiment import load_manifest, load_rows
from ragbench.llm import Cassette, chat_model
from ragbench.metrics.table import METRICS, Metric
from ragbench.report import methods as methods_module
from ragbench.report.export import MARKER, check_target, export, export_scores
from ragbench.report.factors import factor_table, measured, run_tables
from ragbench.report.methods import Methods
from ragbench.report.tables import ReportTable, _in_latex
from ragbench.text.escape import in_csv, in_markdown
from tables import interval_table

DOCUMENT = r"""\documentclass{article}
\usepackage[T1]{fontenc}\usepackage{booktabs}\usepackage{longtable}
\begin{document}
TABLES
\end{document}"""


def problems(text):
    """What of a LaTeX text does not compile: braces, cells per row, characters that need a command."""
    found = []
    plain = re.sub(r"\\\\|\\[&%$#_{}]", "", text)
    if plain.count("{") != plain.count("}"):
        found.append("a brace too many or too few")
    for spec, body in re.findall(
        r"\\begin\{(?:tabular|longtable)\}\{([lr]+)\}(.*?)\\end", text, re.S
    ):
        rows = [line for line in body.splitlines() if line.endswith(r"\\") and "&" in line]
        found += [f"cells of {row}" for row in rows if len(re.split(r"(?<!\\)&", row)) != len(spec)]
        found += [f"argument {row}" for row in rows if row.startswith(("[", "*"))]
    words = re.sub(r"\\(label|cite|url)\{[^}]*\}", "", plain)
    return found + re.findall(r"(?<!\\)[#^_]|^[^$]*\$[^$]*$", words)


@pytest.mark.parametrize(
    "wrong", ["\\begin{tabular}{lr}\na & b & c \\\\\n\\end{tabular}", "{x", "50_x", "a $ b"]
)
def test_the_reader_of_latex_finds_what_does_not_compile(wrong):
    assert problems(wrong)


def compiles(folder):
    """Read every table; where pdflatex is installed, let it judge all of them."""
    names = sorted(path.stem for path in (folder / "tables").glob("*.tex"))
    for name in names:
        assert problems((folder / "tables" / f"{name}.tex").read_text(encoding="utf-8")) == [], name
    if shutil.which("pdflatex"):
        parts = "\n".join(rf"\input{{tables/{name}}}" for name in names)
        (folder / "all.tex").write_text(DOCUMENT.replace("TABLES", parts))
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all"]
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stdout[-1500:]


# -- text and tables


@given(st.text(alphabet="ab1 \\&%$#_{}~^<>|`-≥−[]*\"'", max_size=30))
def test_escaped_text_compiles_and_keeps_its_letters(text):
    made = _in_latex(text)
    assert problems(made) == []
    words = re.sub(r"\\text\w+\{\}|\$-\$", "", made)
    assert re.findall(r"[ab1≥'\"*]", words) == re.findall(r"[ab1≥'\"*]", text)


def test_line_breaks_and_control_characters_become_spaces():
    assert _in_latex("a\n\tb\x07c") == "a b c"
    assert _in_latex("pip --no-deps --- x") == "pip -{}-no-deps -{}-{}- x"


@pytest.fixture
def frame():
    columns = {"name_1": ["[a] & b", "x|y*", "50% <i>"], "mean": [0.12345678, -1.5, np.nan]}
    return pd.DataFrame(
        columns | {"n": pd.array([1200, None, 3], dtype="Int64"), "ok": [True, False, True]}
    )


def test_a_table_is_written_as_csv_markdown_and_latex(frame):
    made = ReportTable("s", "Means of 50% & more", frame).texts("table 3.1/ä")
    assert made["csv"].splitlines()[1] == "[a] & b,0.123457,1200,True"
    rows = [re.split(r" *(?<!\\)\| *", line)[1:-1] for line in made["md"].splitlines()[2:]]
    assert rows[:1] + rows[2:] == [
        ["name_1", "mean", "n", "ok"],
        ["[a] & b", "0.123", "1200", "yes"],
        [r"x\|y\*", "-1.500", "–", "no"],
        [r"50% \<i>", "–", "3", "yes"],
    ]
    tex = made["tex"]
    assert "\\caption{Means of 50\\% \\& more}\n\\label{tab:table-3.1-}" in tex
    assert r"\begin{tabular}{lrr" in tex
    assert r"name\_1 & mean & n & ok \\" in tex
    assert r"{[}a] \& b & 0.123 & 1200 & yes \\" in tex
    assert r"x\textbar{}y* & $-$1.500 & – & no \\" in tex
    assert problems(tex) == []


def test_a_rounded_zero_has_no_sign_and_a_long_table_repeats_its_head():
    made = ReportTable("s", "c", pd.DataFrame({"mean": [-0.0001, -0.0, -0.0006] * 20})).texts("l")
    assert re.findall(r"\| ([-\d.]+)", made["md"])[:3] == ["0.000", "0.000", "-0.001"]
    assert r"\endhead" in made["tex"]
    assert problems(made["tex"]) == []


def test_what_readers_see_may_differ_from_the_numbers_in_the_csv(frame):
    shown = pd.DataFrame({"mean": ["0.51 [0.48, 0.54]"]})
    made = ReportTable("s", "c", frame, shown).texts("l")
    assert "0.51 [0.48, 0.54]" in made["md"]
    assert "0.51 [0.48, 0.54]" not in made["csv"]


# -- a run


def reply(request):
    grade = 5 if "Person0 Lee born?" in request["messages"][0]["content"] else 1
    return graded(request, grade) or f"A reply of {len(request['messages'][-1]['content'])}."


def run_and_export(folder, *count, **changes):
    rows_of(folder / "r", *count, **changes)
    return export(folder / "r", folder / "o")


def methods_of(folder):
    return (folder / "methods.md").read_text(encoding="utf-8")


def answers_of(questions, systems):
    return [
        {"question_id": q, "question": q, "answer": "a", "reference": "a", "system": system}
        for q in questions
        for system in systems
    ]


def stems_of(made, folder):
    return {Path(name).stem for name in made.files if name.startswith(folder)}


def cited(folder):
    return set(re.findall(r"@\w+\{([^,]+),", (folder / "references.bib").read_text()))


@pytest.fixture(scope="module")
def live_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    with FakeOllama(reply=reply, window=2048) as server:  # lowers 4,096 in silence
        retrievers = {"a": Named, "b": lambda c: Named(c, broken="Person1")}
        live_rows(folder, server, 4, name="my_run", retriever=retrievers)
    return folder


@pytest.fixture
def undrawn(monkeypatch):
    """Without the figures, which take most of an export's time."""

    def unsaved(figure, name, *_, **__):
        return {}

    monkeypatch.setattr(plots, "save_figure", unsaved)


@pytest.fixture(scope="module")
def exported(live_run, tmp_path_factory):
    return export(live_run, tmp_path_factory.mktemp("out") / "thesis")


def test_an_export_has_every_part_and_says_what_it_wrote(exported):
    drawn = ["overview", "grades"]
    # of these no question differs
    compared = ["retriever_ir_score", "retriever_contained", "retriever_fully_right"]
    files = [
        "methods.md",
        "references.bib",
        "rows.csv",
        "manifest.json",
        "README.md",
        "cassette.jsonl",
    ]
    files += [f"figures/{stem}.{kind}" for stem in drawn for kind in ("png", "pdf", "csv")]
    tables = [*drawn, *compared, "worst", "audit"]
    files += [f"tables/{stem}.{kind}" for stem in tables for kind in ("csv", "md", "tex")]
    assert set(exported.files) == set(files)
    there = {str(p.relative_to(exported.folder)) for p in exported.folder.rglob("*") if p.is_file()}
    assert there - {".ragbench-export.lock"} == set(exported.files) | {MARKER}
    assert str(exported).startswith(f"{len(exported.files)} files in ")
    listed = (exported.folder / "README.md").read_text(encoding="utf-8")
    assert "\n\n\n" not in listed
    assert [name for name in exported.files if f"- `{name}`" not in listed] == []


def test_the_means_are_those_of_the_rows_with_counts_beside_them(live_run, exported):
    rows = measured(load_rows(live_run))
    tables = exported.folder / "tables"
    means = pd.read_csv(tables / "overview.csv").set_index(["metric", "retriever", "N"])
    for metric in ("ir_score", "seconds", "fully_right"):
        for cell, group in rows[rows["N"] > 0].groupby(["retriever", "N"]):
            mean, n, unscored = means.loc[(metric, *cell), ["mean", "n", "unscored"]]
            assert mean == pytest.approx(group[metric].mean(), rel=1e-5)
            assert (n, unscored) == (group[metric].count(), group[metric].isna().sum())
    # Person0 is right, the others are not; Person1 has no grade with b.
    assert means.loc[("fully_right", "a", 4), "mean"] == 0.25
    assert means.loc[("fully_right", "b", 4), "unscored"] == 1
    grades = pd.read_csv(tables / "grades.csv").set_index(["retriever", "N"])
    shares = grades.loc[("a", 4), ["grade 1", "grade 5", "n", "unscored"]]
    assert shares.tolist() == [0.75, 0.25, 4, 0]
    heads = (tables / "grades.md").read_text().splitlines()[2]
    assert [*plots.GRADE_NAMES.values()] == re.split(r" *\| *", heads)[5:10]


def test_each_factor_is_compared_within_every_setting_of_the_others(live_run, exported):
    tables = exported.folder / "tables"
    told = pd.read_csv(tables / "retriever_ir_score.csv")
    assert told[["N", "pair", "n"]].to_numpy().tolist() == [[4, "a - b", 3], [20, "a - b", 3]]
    rows = measured(load_rows(live_run))
    expected = rb.compare(rows[rows["N"] > 0], "retriever", "ir_score", by="N")
    assert told["p_holm"].tolist() == pytest.approx(expected["p_holm"].tolist(), rel=1e-5)
    assert (tables / "retriever_ir_score.md").read_text().count("equal in every question") == 3
    assert "a against b: " in (tables / "retriever_ir_score.md").read_text()
    assert r"with 95\% intervals" in (tables / "retriever_ir_score.tex").read_text()


def test_a_test_of_retrieval_stands_once_however_many_prompts_and_judges_there_are(tmp_path):
    grid = {"retriever": {"a": Named, "b": Named}, "N": (4, 20)}
    people_of = {"generator": {"x": Copier(), "y": Copier(broken="Person1")}}
    judges = {"judge": {"one": JudgeDouble(), "two": JudgeDouble()}}
    rows = measured(rows_of(tmp_path, 4, **grid, **people_of, **judges))
    pairs = {"ir_score": 2, "contained": 4, "fully_right": 8}
    for measure, count in pairs.items():
        assert len(factor_table(rows, "retriever", measure, "t").frame) == count
    assert factor_table(rows, "generator", "ir_score", "t") is None
    assert factor_table(rows, "k", "contained", "t") is None
    prompts = factor_table(rows, "generator", "contained", "t")
    assert prompts.finding.startswith("generator, prompt: x against y: ")


def test_a_factor_of_which_no_setting_has_two_values_has_no_table(tmp_path):
    rows = rows_of(
        tmp_path,
        2,
        retriever={"a": Named, "b": Named},
        chunker={"x": whole, "y": whole},
        keep=lambda cell: (cell.chunker == "x") == (cell.retriever == "a"),
    )
    assert factor_table(measured(rows), "retriever", "ir_score", "t") is None


def test_the_finding_names_the_value_that_is_ahead():
    questions = [f"q{number}" for number in range(12)]
    retrievers = pd.DataFrame({"retriever": ["worse", "better"], "ir_score": [0.0, 1.0]})
    rows = pd.DataFrame({"question_id": questions})
    rows = retrievers.merge(rows, how="cross")
    cell = {"data": "d", "chunker": "c", "k": 2, "N": 10, "generator": "none", "judge": "none"}
    rows = rows.assign(**cell, answer=None, grade=None)
    table = factor_table(rows, "retriever", "ir_score", "t")
    assert table.finding == "retriever: worse against better: better higher in 1 of 1"
    assert table.frame["difference"].tolist() == [-1.0]
    assert [points.get_xdata()[0] for points in table.figure.axes[0].lines[:1]] == [-1.0]
    label = table.figure.axes[0].get_xlabel().replace("\n", " ")
    assert label == "difference in ir score; filled: p by Holm below .05"
    rows["ir_score"] = 0.5
    same = factor_table(rows, "retriever", "ir_score", "t")
    assert same.finding == "retriever: worse against better: equal in every question"
    assert same.shown["difference [95%]"].tolist() == ["equal in every question"]
    assert same.figure is None
    clusters = "Clusters: each question is on its own"
    assert table.caption == f"{table.title}. {table.finding}. {clusters}."


def test_the_worst_questions_of_the_best_system_come_with_their_texts(live_run, exported):
    worst = pd.read_csv(exported.folder / "tables" / "worst.csv")
    assert worst["fully_right"].tolist() == [0, 0]  # not those that are right
    assert worst["system"].tolist() == ["b@4"] * 2
    words = (exported.folder / "tables" / "worst.md").read_text()
    assert words.startswith("my_run: the 2 questions that b@4 does worst")
    assert set(worst["question"]) <= set(load_rows(live_run)["question"])
    assert {"reference", "answer", "ir_score", "contained", "grade"} <= set(worst)


def test_the_ceiling_is_no_system_that_does_questions_worst(live_run):
    rows = measured(load_rows(live_run).replace({"retriever": {"b": "Gold"}}))
    (worst,) = [table for table in run_tables(rows, "r") if table.stem == "worst"]
    assert set(worst.frame["system"]) == {"a@4"}
    gold = rows[rows["retriever"] == "Gold"]
    assert "worst" not in [table.stem for table in run_tables(gold, "r")]


def test_answers_without_documents_are_one_row_under_two_prompts_with_documents(live_run):
    rows = load_rows(live_run)
    (generator,) = set(rows["generator"])
    both = measured(pd.concat([rows, rows.assign(generator="other")], ignore_index=True))
    alone = both["N"] == 0
    assert both.loc[alone, "generator"].tolist() == [f"{generator}, other"] * 4
    assert both.loc[~alone, "generator"].value_counts().to_dict() == {generator: 16, "other": 16}


def test_rows_that_all_have_documents_are_measured_without_a_warning(live_run):
    rows = load_rows(live_run)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(measured(rows[rows["N"] > 0])["generator"]) == set(rows["generator"])


def test_methods_tell_data_settings_models_digests_seeds_and_prompts(live_run, exported):
    told = methods_of(exported.folder)
    manifest = load_manifest(live_run)
    for text in (
        '"my_run"', manifest["git"]["revision"][:12], "4 questions over 4 documents",
        manifest["axes"]["data"]["people"]["questions_sha256"][:12], "people/whole (4 chunks, whole)", "k = 2",
        "N = 4 and 20 tokens", "N = 0 asks without documents.", "longest common substring", "characters composed (NFC)",
        "llama3:8b", DIGEST[:12],
        "seed = 3", "temperature = 0.0",
        "num_ctx = 2048", manifest["prompts"]["thesis_grade"][:12], manifest["prompts"]["thesis_with_documents"][:12],
        "Student's t", "2 of 20 rows failed", f"Python {manifest['python']}",
    ):  # fmt: skip
        assert text in told, text
    assert "thesis_grade" not in told.split("Answers were graded")[0]


def test_every_citation_has_its_entry_and_every_entry_is_cited(exported):
    bib = (exported.folder / "references.bib").read_text()
    marked = re.findall(r"@([\w:.-]+)[\];]", methods_of(exported.folder))
    keys = {"ragbench", "elyagouby2024", "ollama", "manski1990bounds", "clopper1934", "korn1998"}
    assert cited(exported.folder) == set(marked) == keys
    assert f"Version {rb.__version__}" in bib
    assert problems(bib) == []


def test_rows_cassette_and_manifest_are_the_runs_own(live_run, exported, tmp_path):
    out = pd.read_csv(exported.folder / "rows.csv", keep_default_na=False)
    place = ["retriever", "N", "question_id"]
    out = out.sort_values(place)
    rows = load_rows(live_run).sort_values(place)
    assert out["answer"].tolist() == rows["answer"].fillna("").tolist()
    assert [json.loads(value) for value in out["hits"] if value] == [
        v for v in rows["hits"] if isinstance(v, list)
    ]
    assert json.loads((exported.folder / "manifest.json").read_text()) == load_manifest(live_run)
    with Cassette(tmp_path / "c.sqlite") as tape:
        tape.import_(exported.folder / "cassette.jsonl")
        assert len(tape) == 24
        assert tape.verify() == []


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")
def test_the_tables_compile(exported, tmp_path):
    shutil.copytree(exported.folder, tmp_path / "o")
    compiles(tmp_path / "o")
    assert (tmp_path / "o" / "all.pdf").read_bytes().startswith(b"%PDF")


def test_two_exports_of_a_run_differ_in_no_byte(live_run, exported, tmp_path):
    again = export(live_run, tmp_path / "again")
    assert again.files == exported.files
    for name in [*again.files, MARKER]:
        assert (again.folder / name).read_bytes() == (exported.folder / name).read_bytes(), name


def test_pictures_fit_a_page_and_have_their_words_and_fonts(exported):
    for path in (exported.folder / "figures").glob("*.pdf"):
        data = path.read_bytes()
        assert b"/FontFile2" in data, path.name
        assert b"/Type3" not in data, path.name
    for path in (exported.folder / "figures").glob("*.png"):
        with Image.open(path) as picture:
            assert picture.width <= plots.WIDEST * 300
            assert picture.text["Description"].startswith("my_run")


def test_an_export_of_a_stopped_run_says_how_many_rows_are_missing(tmp_path, undrawn, monkeypatch):
    monkeypatch.setattr("ragbench.experiment.run.BLOCK_OF_ANSWERS", 6)
    with pytest.raises(KeyboardInterrupt):
        rows_of(tmp_path / "r", judge=None, retriever={"named": Interrupted})
    there = len(load_rows(tmp_path / "r"))
    missing = 18 - there
    made = export(tmp_path / "r", tmp_path / "o")
    assert f"the run was stopped: {missing} rows are not made yet" in str(made)
    stopped = (
        f"0 of {there} rows failed; the run was stopped, {missing} of 18 rows are not made yet."
    )
    assert stopped in methods_of(made.folder)
    made = run_and_export(tmp_path, judge=None)
    assert "not made yet" not in str(made) + methods_of(made.folder)


def test_methods_name_nothing_twice_and_objects_that_answer_and_grade_by_their_names(
    tmp_path, undrawn
):
    data = {"mine": replace(people(2), name="file")}
    told = methods_of(run_and_export(tmp_path, data=data, retriever={"BM25": rb.BM25}).folder)
    assert "Data: mine (data set 'file', 2 questions over 2 documents; SHA-256" in told
    assert "Retrievers: BM25 [@robertson2009bm25] (b = 0.75" in told
    assert "Answers were given by copier." in told
    assert "[@elyagouby2024], by double" in told


def test_methods_list_several_of_everything_as_a_sentence_does(tmp_path, undrawn):
    data = {"one": people(2), "two": people(3)}
    people_of = {
        "generator": {"x": Copier(), "y": Copier()},
        "judge": {"j": JudgeDouble(), "k": JudgeDouble()},
    }
    cuts = {"chunker": {"whole": whole, "again": whole}, "retriever": {"a": Named, "b": Named}}
    told = methods_of(run_and_export(tmp_path, data=data, **people_of, **cuts).folder)
    assert not re.search(r"\s[;,.:)]", told)
    assert told.count("; two/again (") == 1


def test_a_run_of_retrieval_alone_has_no_tables_of_answers(tmp_path):
    made = run_and_export(tmp_path, 3, generator=None, judge=None)
    assert stems_of(made, "tables") == {"overview", "audit"}
    assert "Answers" not in methods_of(made.folder)
    assert "ollama" not in cited(made.folder)
    compiles(made.folder)


def test_questions_without_references_have_no_empty_picture_of_the_ir_score(tmp_path):
    data = people(3)
    bare = replace(data, questions=tuple(replace(q, references=()) for q in data.questions))
    made = run_and_export(tmp_path, data={"people": bare})
    stems = stems_of(made, "tables") | stems_of(made, "figures")
    assert stems == {"overview", "grades", "audit"}
    assert box_of(made.folder)[0].startswith("Grades were given by double; checked by a person: 0.")
    compiles(made.folder)


def test_a_paper_is_cited_as_far_as_its_data_are_used(live_run, exported):
    papers = {"yang2018hotpotqa", "zhu2024rageval", "es2024ragas", "ru2024ragchecker"}
    assert not cited(exported.folder) & papers
    manifest = load_manifest(live_run)
    manifest["axes"]["data"]["people"]["name"] = "HotpotQA"
    made = Methods.of_run(manifest, {"rows": 1, "failed": 0, "missing": 0})
    assert "(data set 'HotpotQA', 4 questions" in made.markdown
    assert "yang2018hotpotqa" in made.bibliography


# -- whose folder, whose secrets


@pytest.fixture
def run(tmp_path, undrawn):
    rows_of(tmp_path / "run", 2, N=(4,), judge=None)
    return tmp_path / "run"


@pytest.fixture
def out(run, tmp_path):
    """The folder of an export of that run."""
    return export(run, tmp_path / "out").folder


def test_a_folder_with_files_of_others_is_refused_and_stays_as_it_was(run, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "chapter.tex").write_text("text")
    with pytest.raises(ConfigError, match=r"not empty \(there is chapter\.tex\)"):
        export(run, mine)
    assert [p.name for p in mine.iterdir()] == ["chapter.tex"]
    with pytest.raises(ConfigError, match="not empty"):
        export(run, run)
    with pytest.raises(ConfigError, match="is a file"):
        export(run, mine / "chapter.tex")


def test_an_earlier_export_is_replaced_and_what_others_put_there_stays(run, out, tmp_path):
    export(run, out, by="kind")  # a table that the next export has not
    (out / "chapter.tex").write_text("text")
    (out / "tables" / "mine.csv").write_text("text")
    rows_of(tmp_path / "bare", 3, N=(4,), generator=None, judge=None)
    made = export(tmp_path / "bare", out)
    assert (out / "chapter.tex").read_text() == "text"
    assert len(pd.read_csv(out / "rows.csv")) == 3
    assert "seconds" not in (out / "tables" / "overview.csv").read_text()
    (out / "tables" / "mine.csv").unlink()
    assert sorted(path.name for path in (out / "tables").iterdir()) == [
        Path(name).name for name in made.files if name.startswith("tables/")
    ]
    assert not [*tmp_path.glob(".out.*")]


def test_a_file_that_was_edited_in_an_export_is_named_and_not_overwritten(run, out):
    methods = out / "methods.md"
    written = methods.read_text()
    methods.write_text(f"{written} My own sentence.")
    for write in (lambda: export(run, out), lambda: check_target(out)):
        with pytest.raises(ConfigError, match=r"edited since the export into .*: methods\.md"):
            write()
    assert methods.read_text().endswith("My own sentence.")
    methods.rename(out / "my_methods.md")
    export(run, out)
    assert methods.read_text() == written
    assert (out / "my_methods.md").exists()


def test_a_file_of_ones_own_under_the_name_of_a_new_table_is_not_overwritten(run, out):
    mine = out / "tables" / "overview_by_kind.csv"
    assert not mine.exists()
    mine.write_text("my numbers")
    before = {path: path.read_bytes() for path in out.rglob("*.*")}
    with pytest.raises(ConfigError, match=r"files of your own .*: tables/overview_by_kind\.csv\n"):
        export(run, out, by="kind")
    assert {path: path.read_bytes() for path in out.rglob("*.*")} == before


@pytest.mark.parametrize("moved", range(4))
def test_an_export_that_was_killed_while_files_moved_is_no_edit(run, out, monkeypatch, moved):
    move, files = os.replace, []

    def killed(source, target):
        if f".{out.name}." in str(source):
            files.append(target)
            if len(files) > moved:
                raise KeyboardInterrupt
        move(source, target)

    with monkeypatch.context() as patch:
        patch.setattr("ragbench.report.export.os.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            export(run, out, by="kind")
    assert files
    written = export(run, out, by="kind").files
    assert all((out / name).is_file() for name in written)


@pytest.mark.parametrize(
    "wrong", ["=", "=1+1", "=\nHYPERLINK(1)", "@SUM(A1)", "-2+3", "+cmd|x", "\t=1", "\r=1", "＝1"]
)
def test_no_cell_and_no_head_of_a_csv_is_a_formula(wrong):
    safe = in_csv(pd.DataFrame({wrong: [wrong, "fine"], "n": [-1.5, 2]}))
    assert safe.columns[0].startswith("'")
    assert safe.iloc[0, 0].startswith("'")
    assert safe.iloc[1, 0] == "fine"
    assert safe["n"].tolist() == [-1.5, 2]
    numbers = ["-0.5", "+3", "-1e-9", "-0.022 [-0.061, 0.017]"]
    assert in_csv(pd.DataFrame({"n": numbers}))["n"].tolist() == numbers


def test_a_system_with_an_odd_name_works_everywhere(tmp_path):
    odd = {"Cash$$Bot": Named, "$x$ vs $y$": Named, "=a/b*_c_<i>": Named}
    made = run_and_export(tmp_path, 3, retriever=odd)
    names = set(pd.read_csv(made.folder / "tables" / "overview.csv")["retriever"])
    assert names == {"Cash$$Bot", "$x$ vs $y$", "'=a/b*_c_<i>", "no documents"}
    told = methods_of(made.folder)
    assert all(in_markdown(name) in told for name in odd)
    compiles(made.folder)


def test_a_sum_of_floats_a_little_above_one_stays_in_the_picture(tmp_path):
    table = rb.score(answers_of(["x", "y"], ["A", "B"]), ["bleu"])
    table["bleu"] = 1.0000000000000004
    export_scores(table, tmp_path / "o", "mine")
    assert (tmp_path / "o" / "figures" / "means.png").exists()


def test_odd_ids_and_systems_keep_their_names_between_score_and_export(tmp_path):
    (tmp_path / "rows.jsonl").write_text("")
    table = rb.score(answers_of(["NA", "null"], ["=A", "007"]), ["exact_match"])
    table.save_beside(tmp_path)
    again = rb.Scores.beside(tmp_path)
    assert again["system"].tolist() == table["system"].tolist()
    assert again["question_id"].tolist() == table["question_id"].tolist()
    assert again.numbers == ["exact_match"]
    (tmp_path / "rows.jsonl").write_text("{}\n")
    assert rb.Scores.beside(tmp_path) is None  # of other rows


@pytest.mark.parametrize(
    "odd", ["@klein", "&lt;b&gt;", "10^2^", "&amp;", "~~x~~", "![x](y)", "| a", "# b"]
)
def test_markdown_shows_an_odd_name_as_it_is(odd):
    made = in_markdown(odd)
    assert re.sub(r"\\([^\w\s])", r"\1", made) == odd
    assert made != odd


def test_code_of_a_received_run_is_never_executed(run, tmp_path):
    (run / "mine.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    (run / "experiment.yaml").write_text(
        "name: t\ndata: minihop\nchunker: sentences\nretriever: BM25\ncode: mine.py\n"
    )
    export(run, tmp_path / "o")
    rb.score(str(run), ["token_f1"])
    assert not (tmp_path / "executed").exists()


def test_without_a_cassette_in_the_runs_folder_the_export_says_so(live_run, tmp_path, undrawn):
    copy = tmp_path / "copy"
    shutil.copytree(live_run, copy)
    made = export(copy, tmp_path / "o")
    assert "changed or damaged" in (made.folder / "tables" / "audit.csv").read_text()
    assert "24 replies" in str(made)
    (copy / "cassette.sqlite").unlink()
    made = export(copy, tmp_path / "o")  # and nothing of the other stays
    assert not (made.folder / "cassette.jsonl").exists()
    assert "copy yours there as cassette.sqlite" in str(made)
    assert "changed or damaged" not in (made.folder / "tables" / "audit.csv").read_text()


def test_an_empty_run_is_named(tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "rows.jsonl").write_text("")
    with pytest.raises(DataError, match="has no rows"):
        export(tmp_path / "r", tmp_path / "o")
    assert not (tmp_path / "o").exists()


# -- references and the ledger


def test_references_are_whole():
    bib = Path(methods_module.__file__).with_name("references.bib").read_text(encoding="utf-8")
    keys = re.findall(r"^@\w+\{([^,]+),", bib, re.MULTILINE)
    for key in keys:
        entry = Methods((f"See ⟦{key}⟧.",), ()).bibliography
        kind = re.match(r"@(\w+)", entry)[1]
        fields = dict(re.findall(r"^  (\w+) = \{(.*)\},?$", entry, re.MULTILINE))
        assert kind in ("mastersthesis", "inproceedings", "article", "book", "misc")
        assert {"author", "title"} <= set(fields), key
        assert key == "ollama" or re.fullmatch(r"(19|20)\d\d", fields["year"]), key
        assert problems(" ".join(fields.values())) == [], key
    assert len(keys) == 17


def test_a_marked_key_becomes_a_citation_of_pandoc_and_the_text_around_it_is_escaped():
    text = "BM25* ⟦robertson2009bm25,liu2024lost⟧ ($k$)."
    made = Methods((text,), ()).markdown
    assert r"BM25\* [@robertson2009bm25; @liu2024lost] (\$k\$)." in made


def test_an_interval_stands_small_beside_its_mean_and_the_order_is_that_of_the_rows():
    cells = [
        ("recall", "SIM", 0.5, 0.4, 0.6),
        ("recall", "BM25", 0.25, 0.2, 0.3),
        ("f1", "SIM", None, None, None),
        ("f1", "BM25", 1.0, None, None),
    ]
    means = pd.DataFrame(cells, columns=["metric", "system", "mean", "low", "high"])
    shown = interval_table(means, "metric", "system")
    assert shown.data.to_dict() == {
        "SIM": {"recall": "0.50\u00a0<small>[0.40,\u00a00.60]</small>", "f1": "-"},
        "BM25": {"recall": "0.25\u00a0<small>[0.20,\u00a00.30]</small>", "f1": "1.00"},
    }
    assert list(shown.data.index) == ["recall", "f1"]
    assert list(shown.data.columns) == ["SIM", "BM25"]
    assert shown.to_html() == interval_table(means, "metric", "system").to_html()
    odd = interval_table(means.replace("SIM", "<i>"), "metric", "system", decimals=1)
    assert "&lt;i&gt;" in odd.to_html()
    assert "0.5" in odd.to_html()
    sets = interval_table(means.assign(set=["b", "b", "a", "b"]), "metric", ["set", "system"])
    assert sets.data.columns.tolist() == [("b", "SIM"), ("b", "BM25"), ("a", "SIM")]
    assert sets.data.loc["recall", ("a", "SIM")] == ""


def box_of(folder):
    """What may be claimed, of an export's methods."""
    (box,) = methods_of(folder).split("## What may be claimed\n\n")[1:]
    claims = [line.removeprefix("- ") for line in box.strip().splitlines()]
    heads = [claim.partition(":")[0] for claim in claims[1:]]
    assert heads == ["Population", "Clustered", "Not tested"]
    return claims


def test_the_box_of_a_run_says_who_graded_and_which_questions(exported):
    who, population, clustered, _ = box_of(exported.folder)
    assert who.startswith("Grades were given by llama3:8b; checked by a person: 0.")
    assert "the 4 of people" in population
    assert "means and comparisons, each question is on its own." in clustered


def test_without_a_judge_nothing_may_be_claimed_about_right_answers(out):
    assert box_of(out)[0].startswith("No answer was graded: nothing may be claimed")


@pytest.mark.parametrize(
    ("given", "metric", "words"),
    [
        ({}, "exact_match", "No label was made: nothing may be claimed about right answers"),
        ({}, "completeness", "Labels were given by llama3:8b; checked by a person: 0."),
        ({"keypoint_verdicts": ["covered"]}, "completeness", "Labels came with the answers; who"),
    ],
)
def test_the_box_of_scores_says_who_labelled(given, metric, words, tmp_path):
    row = {"answer": "Ada Ruck.", "reference": "Ada Ruck.", "keypoints": ["Ada Ruck founded it."]}
    rows = [
        row | given | {"question": f"Who founded mill {i}?", "system": system}
        for i in range(2)
        for system in ("A", "B")
    ]
    with FakeOllama(reply=label_reply) as server:
        model = chat_model("ollama:llama3:8b", host=server.url)
        asks = metric == "completeness" and not given
        table = rb.score(rows, [metric], labels=model if asks else None)
    who, population, _, untested = box_of(export_scores(table, tmp_path / "o", "mine").folder)
    assert who.startswith(words)
    assert "questions like these 2;" in population
    assert "not asked the same questions" in untested
    one = table[table["system"] == "A"].drop(columns="system")
    (*_, untested) = box_of(export_scores(one, tmp_path / "one", "mine").folder)
    assert untested == "Not tested: any difference."


def test_languages_and_changed_settings_are_in_methods_and_in_what_may_be_claimed(tmp_path):
    german = "Die Mühle der Stadt wurde von Ada Ruck gegründet, und sie ist nicht die älteste."
    texts = (
        "Wer hat die Mühle der Stadt gegründet, und wann wurde sie gebaut?",
        "Who founded the mill of the town?",
    )
    asked = tuple(rb.Question(text, text, "Ada Ruck", (german,)) for text in texts)
    data = rb.Dataset("mills", asked, (rb.Document("d", "Mühle", german),))
    axes = {"chunker": "token_chunks", "retriever": "BM25", "N": 100, "tokenizer": None}
    made = run_and_export(tmp_path, data=data, order=7, **axes)
    methods, claims = methods_of(made.folder).replace("\\", "").split("## What may be claimed")
    assert "Settings that are not ragbench's defaults: order = 7." in methods
    foreign = "at least 1 of the 2 questions of mills (German 1) and 1 of the 1 documents of mills (German 1)"
    assert f"Language: {foreign} are not in English." in claims
    assert "only where order = 7 there too" in claims


def test_methods_name_the_intervals_that_the_tables_have(live_run):
    rows = pd.DataFrame({"x": [0.1, 0.4, 0.5], "right": [True, False, True]})
    kinds = [rb.means(rows, [], name).attrs["intervals"] for name in rows]
    effective = "exact binomial for the effective number of values"
    assert {*kinds[0], *kinds[1]} == {effective, "exact binomial"}
    manifest = load_manifest(live_run)
    counts = {"rows": 1, "failed": 0, "missing": 0}
    frame = pd.DataFrame({"mean": [1.0]})
    frame.attrs = {"intervals": ["Student's t", "percentile bootstrap"], "clusters": "12 by topic"}
    tables = [ReportTable("means", "m", frame), ReportTable("audit", "a", pd.DataFrame())]
    words = Methods.of_run(manifest, counts, tables).markdown
    kinds = "Student's t; percentile bootstrap [@efron1993bootstrap] (2,000 resamples, seed 0)."
    assert f"Means have 95% intervals: {kinds}" in words
    assert "Clusters of questions: 12 by topic. A cluster is resampled" in words
    assert "Clustered: means and comparisons, 12 by topic." in words
    assert "95% intervals" not in Methods.of_run(manifest, counts).markdown


def test_the_audit_of_scores_takes_the_worst_and_the_best_value_of_each_metric(
    tmp_path, monkeypatch
):
    words = Metric(("answer",), lambda answer: len(answer.split()), "mine", (0, 100))
    worse = replace(words, lower_is_better=("extra",))
    monkeypatch.setitem(METRICS, "words", words)
    monkeypatch.setitem(METRICS, "extra", worse)
    table = rb.score([{"answer": "a b"}, {"answer": None}], ["words", "extra"])
    export_scores(table, tmp_path / "r", "mine")
    audited = pd.read_csv(tmp_path / "r" / "tables" / "audit.csv").set_index(["table", "check"])
    ends = ["if_worst", "if_best"]
    assert audited.loc[("words", "unscored"), ends].tolist() == [1.0, 51.0]
    assert audited.loc[("extra", "unscored"), ends].tolist() == [51.0, 1.0]


def test_exported_rows_of_several_systems_are_scored_again_and_what_is_not_known_is_not_0(
    tmp_path,
):
    data = {"m": {"use": "minihop", "limit": 3}}
    chunker = {"c": {"use": "token_chunks", "size": 60}}
    grid = rb.Experiment(
        "e", data=data, chunker=chunker, retriever="BM25", N=[30, 60], folder=tmp_path / "e"
    )
    grid.run(progress=False)
    export(tmp_path / "e", tmp_path / "r")
    first = rb.score(tmp_path / "e", ["ir_score", "eir"])
    again = rb.score(tmp_path / "r" / "rows.csv", ["ir_score", "eir"])
    # without a generator the texts of the largest N alone are kept
    assert first["ir_score"].isna().tolist() == [True, False] * 3
    for column in ("question_id", "system", "ir_score", "eir", "unscored", "reason"):
        assert again[column].fillna(-1).tolist() == first[column].fillna(-1).tolist()


def test_missing_and_empty_answers_of_an_export_are_the_same_when_scored_again(tmp_path):
    answers = {"a": ["Ely"] * 3 + [None, ""], "b": ["Ely"] * 2 + ["Ulm"] * 3}
    rows = [
        {
            "question": f"Where is mill {place}?",
            "reference": "Ely",
            "system": name,
            "answer": answer,
        }
        for name, texts in answers.items()
        for place, answer in enumerate(texts)
    ]
    table = rb.score(rows, ["contained"])
    export_scores(table, tmp_path / "r", "mine")
    frame = pd.read_csv(tmp_path / "r" / "rows.csv")
    for kind, write in {
        "csv": frame.to_csv,
        "jsonl": partial(frame.to_json, orient="records", lines=True),
        "parquet": frame.to_parquet,
    }.items():
        write(tmp_path / f"again.{kind}")
    first = rb.means(table, "system", "contained")
    assert first[["mean", "n", "unscored"]].to_numpy().tolist() == [[0.75, 4, 1], [0.4, 5, 0]]
    files = [tmp_path / "r" / "rows.csv", *tmp_path.glob("again.*")]
    assert len(files) == 4
    for source in [*files, frame]:
        again = rb.score(source, ["contained"])
        pd.testing.assert_frame_equal(rb.means(again, "system", "contained"), first)


def test_methods_name_the_source_of_a_metric_of_ones_own_and_of_a_scale_of_ones_own(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(METRICS, "words", Metric(("answer",), len, "Ruck 1841"))
    scale = {0: "wrong", 1: "right"}
    table = rb.score([{"answer": "a", "grade": 1, "judge_scale": scale}], ["words", "grade"])
    monkeypatch.delitem(METRICS, "words")  # the export of a run does not load its code
    export_scores(table, tmp_path / "r", "mine")
    methods = (tmp_path / "r" / "methods.md").read_text()
    assert "Metrics (Ruck 1841): words." in methods
    assert "(thesis §2.4) [@elyagouby2024]: grade 0 and grade 1." in methods


def test_systems_of_which_one_answered_a_question_twice_are_exported_without_a_comparison(
    tmp_path, undrawn
):
    rows = [{"question": "w", "answer": "x", "reference": "x", "system": name} for name in "ssu"]
    with pytest.warns(UserWarning, match="repeat a question"):
        table = rb.score(rows, ["exact_match"])
    made = export_scores(table, tmp_path / "out", "mine")
    assert not (made.folder / "tables" / "comparison.csv").exists()
    assert "too many" not in methods_of(made.folder)
