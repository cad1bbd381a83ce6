"""What leaves the workbench: the numbers are the run's, the LaTeX compiles, no secret leaves, no
file of others.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from experiment_parts import (
    Copier,
    Interrupted,
    JudgeDouble,
    Named,
    experiment,
    graded,
    live,
    people,
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
from ragbench.report.export import MARKER, export, export_scores
from ragbench.report.factors import compare_factor, factor_sentence, measured
from ragbench.report.methods import intervals_of, methods, references, with_citations
from ragbench.report.scores import load_scores, save_scores
from ragbench.report.tables import ReportTable, interval_table, label_of
from ragbench.text.escape import in_csv, in_latex, in_markdown

COMMANDS = {
    r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", r"\textless{}": "<",
    r"\textgreater{}": ">", r"\textbar{}": "|", r"\textasciigrave{}": "`", 
    "$-$": "−", r"\&": "&", r"\%": "%", r"\$": "$", r"\#": "#", r"\_": "_",
    r"\textbraceleft{}": "{", r"\textbraceright{}": "}", "-{}-": "--",
}  # fmt: skip


def problems(text: str) -> list[str]:
    """A plain reader of LaTeX: braces, environments, cells per row, characters that need a command."""
    found = []
    body = re.sub(r"(?<!\\)%.*", "", text)
    depth = 0
    for token in re.finditer(r"\\.|[{}]", body, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth < 0:
            found.append("a brace too many")
            depth = 0
    if depth:
        found.append(f"{depth} braces open")
    stack: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", body):
        if kind == "begin":
            stack.append(name)
        elif not stack or stack.pop() != name:
            found.append(f"end of {name} without its beginning")
    found += [f"{name} is not ended" for name in stack]
    for _, spec, inner in re.findall(
        r"\\begin\{(tabular|longtable)\}\{((?:[lcr]|p\{[\d.]+\\linewidth\})+)\}(.*?)\\end\{\1\}",
        body,
        re.DOTALL,
    ):
        columns = len(re.sub(r"\{[^}]*\}", "", spec))
        for row in re.split(r"\\\\", inner):
            rules = r"\\(caption(\[\])?|label)\{.*?\}|\\(top|mid|bottom)rule|\\end(first|last)?(head|foot)"
            plain = re.sub(rules, "", row)
            if r"\multicolumn" in plain or not plain.strip():
                continue
            cells = len(re.findall(r"(?<!\\)&", plain)) + 1
            if cells != columns:
                found.append(f"{cells} cells for {columns} columns: {plain.strip()[:60]}")
            if re.match(r"\s*[\[*]", plain):
                found.append(f"a row begins with a bracket or star: {plain.strip()[:30]}")
    words = re.sub(
        r"\\(input|includegraphics|label|ref|cite|url|bibliography|usepackage)(\[[^]]*\])?\{+[^}]*\}+",
        "",
        body,
    )
    if odd := re.findall(r"(?<!\\)[#^_]", words):
        found.append(f"bare {odd[0]}")
    if len(re.findall(r"(?<!\\)\$", words)) % 2:
        found.append("an odd dollar")
    return found


def compiles(folder: Path, name: str = "all") -> None:
    """Read every .tex file; where pdflatex is installed, let it judge too."""
    for path in folder.rglob("*.tex"):
        assert problems(path.read_text(encoding="utf-8")) == [], path.name
    if shutil.which("pdflatex"):
        for command in (
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", name],
            ["bibtex", name],
        ):
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=120
            )
            assert done.returncode == 0, done.stdout[-1500:]


@pytest.mark.parametrize(
    "wrong",
    [
        r"\begin{tabular}{lr}a & b \\ c \\\end{tabular}", r"{\textbf{x}", r"a}", r"\begin{table}", "50_x", "a $ b",
        r"\begin{table}\end{tabular}", ("\\begin{tabular}{lr}a & b \\\\\n[0.1] & c "
                                       "\\\\\\end{tabular}"),
    ],
)  # fmt: skip
def test_the_reader_of_latex_finds_what_does_not_compile(wrong):
    assert problems(wrong)


# -- text and tables
# ---------------------------------------------------------------------------------------------------


@given(st.text(alphabet="ab1 \\&%$#_{}~^<>|`-≥−[]*\"'", max_size=30))
def test_escaped_text_reads_as_the_text_and_compiles(text):
    made = in_latex(text)
    assert problems(made) == []
    back = ""
    rest = made
    while rest:
        command = next((c for c in COMMANDS if rest.startswith(c)), None)
        step = command or rest[0]
        # A run of hyphens: -{}-{}- overlaps itself.
        if command == "-{}-":
            back = back + "-"
            rest = rest[3:]
            continue
        back = back + (COMMANDS[command] if command else rest[0])
        rest = rest[len(step) :]
    assert back == text


def test_a_brace_in_a_name_does_not_close_or_open_a_field_of_bibtex():
    entry = re.sub(r"\\text\w+\{\}", "", in_latex("my{model}}"))
    assert "{" not in entry
    assert "}" not in entry


def test_line_breaks_and_control_characters_become_spaces():
    assert in_latex("a\n\tb\x07c") == "a b c"
    assert in_latex("pip --no-deps --- x") == "pip -{}-no-deps -{}-{}- x"
    assert label_of("tab:my run_1/ä") == "tab:my-run-1"


@pytest.fixture
def frame():
    columns = {"name_1": ["[a] & b", "x|y*", "50% <i>"], "mean": [0.12345678, -1.5, np.nan]}
    return pd.DataFrame(
        columns | {"n": pd.array([1200, None, 3], dtype="Int64"), "ok": [True, False, True]}
    )


def test_a_table_is_written_as_csv_markdown_and_latex(frame):
    made = ReportTable("s", "Means of 50% & more", frame, notes=["n: answers"]).texts("table_3.1")
    assert made["csv"].splitlines()[1] == "[a] & b,0.123457,1200,True"
    assert made["md"] == (
        "Means of 50% & more\n\n"
        "| name_1 | mean | n | ok |\n| --- | ---: | ---: | --- |\n"
        "| [a] & b | 0.123 | 1200 | yes |\n"
        "| x\\|y\\* | -1.500 | – | no |\n"
        "| 50% \\<i> | – | 3 | yes |\n\nn: answers\n"
    )
    tex = made["tex"]
    assert tex.splitlines()[0].startswith("% needs \\usepackage[T1]{fontenc}")
    assert "\\caption{Means of 50\\% \\& more}\n\\label{tab:table-3.1}" in tex
    assert r"\begin{tabular}{lrrl}" in tex
    assert r"name\_1 & mean & n & ok \\" in tex
    assert r"{[}a] \& b & 0.123 & 1200 & yes \\" in tex
    assert r"x\textbar{}y* & $-$1.500 & – & no \\" in tex
    assert [tex.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert problems(tex) == []


def test_a_rounded_zero_has_no_sign():
    made = ReportTable("s", "c", pd.DataFrame({"mean": [-0.0001, -0.0, -0.0006]})).texts("l")
    assert "| 0.000 |\n| 0.000 |\n| -0.001 |" in made["md"]


def test_a_table_longer_than_a_page_repeats_its_head():
    tex = ReportTable("s", "c", pd.DataFrame({"n": range(60)})).texts("l")["tex"]
    assert r"\endhead" in tex
    assert problems(tex) == []


def test_an_index_with_a_name_and_columns_in_levels_are_kept():
    wide = pd.DataFrame(
        [[1, 2]],
        index=pd.Index(["a"], name="row"),
        columns=pd.MultiIndex.from_tuples([("x", "mean"), ("x", "")]),
    )
    made = ReportTable("s", "c", wide).texts("l")
    assert made["csv"] == 'row,"x, mean",x\na,1,2\n'
    categories = pd.DataFrame({"k": ["a", "b"], "c": pd.Categorical(["u", "v"]), "v": [1.0, 2.0]})
    pivoted = categories.pivot(index="k", columns="c", values="v")
    assert ReportTable("s", "c", pivoted).texts("l")["csv"] == "k,u,v\na,1,\nb,,2\n"


def test_what_readers_see_may_differ_from_the_numbers_in_the_csv(frame):
    shown = pd.DataFrame({"mean": ["0.51 [0.48, 0.54]"]})
    made = ReportTable("s", "c", frame, shown).texts("l")
    assert "0.51 [0.48, 0.54]" in made["md"]
    assert "0.51 [0.48, 0.54]" not in made["csv"]
    assert "0.123457" in made["csv"]


def test_a_table_without_caption_or_columns_is_refused(frame):
    with pytest.raises(ConfigError, match="empty caption"):
        ReportTable("s", " ", frame).texts("l")
    with pytest.raises(ConfigError, match="without columns"):
        ReportTable("s", "c", pd.DataFrame()).texts("l")


# -- a run
# -------------------------------------------------------------------------------------------------------------


def reply(request):
    grade = 5 if "Person0 Lee born?" in request["messages"][0]["content"] else 1
    return graded(request, grade) or f"A reply of {len(request['messages'][-1]['content'])}."


def run_and_export(folder, *count, **changes):
    experiment(folder / "r", *count, **changes).run(progress=False)
    return export(folder / "r", folder / "o")


def cited(folder: Path) -> set[str]:
    return set(re.findall(r"@\w+\{([^,]+),", (folder / "references.bib").read_text()))


@pytest.fixture(scope="module")
def live_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    with FakeOllama(reply=reply, window=2048) as server:  # lowers 4,096 in silence
        retrievers = {"a": Named, "b": lambda c: Named(c, broken="Person1")}
        live(folder, server, 4, name="my_run", retriever=retrievers).run(progress=False)
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
    compared = {"retriever_ir_score", "retriever_contained", "retriever_fully_right"}
    tables = {"overview", "grades", "worst", "audit"} | compared
    wanted = {f"tables/{stem}.{kind}" for stem in tables for kind in ("csv", "md", "tex")}
    wanted |= {
        f"figures/{s}.{k}" for s in {"ir_score", "grades"} | compared for k in ("png", "pdf", "csv")
    }
    wanted |= {
        "methods.md",
        "methods.tex",
        "references.bib",
        "all.tex",
        "rows.csv",
        "manifest.json",
        "README.md",
    }
    assert set(exported.files) == wanted | {"cassette.jsonl"}
    there = {str(p.relative_to(exported.folder)) for p in exported.folder.rglob("*") if p.is_file()}
    assert there == set(exported.files) | {MARKER}
    assert str(exported).startswith(f"{len(exported.files)} files in ")
    listed = (exported.folder / "README.md").read_text(encoding="utf-8")
    assert [name for name in exported.files if f"- `{name}`" not in listed] == []


def test_the_means_are_those_of_the_rows_with_counts_beside_them(live_run, exported):
    rows = load_rows(live_run)
    tables = exported.folder / "tables"
    means = pd.read_csv(tables / "overview.csv")
    for metric in ("ir_score", "seconds"):
        cells = means[means["metric"] == metric].set_index(["retriever", "N"])
        for cell, group in rows[rows["N"] > 0].groupby(["retriever", "N"]):
            assert cells.loc[cell, "mean"] == pytest.approx(group[metric].mean(), rel=1e-5)
            n = group[metric].count()
            assert cells.loc[cell, ["n", "unscored"]].tolist() == [n, 4 - n]
    assert r"\label{tab:my-run:overview}" in (tables / "overview.tex").read_text()
    right = means[means["metric"] == "fully_right"].set_index(["retriever", "N"])
    # Person0 is right, the others are not; Person1 has no grade with b.
    assert right.loc[("a", 4), ["mean", "n", "unscored"]].tolist() == [0.25, 4, 0]
    assert right.loc[("b", 4), ["n", "unscored"]].tolist() == [3, 1]
    words = (tables / "grades.md").read_text()
    assert "| no answer | partly wrong | incomplete | wrong | right |" in words
    grades = pd.read_csv(tables / "grades.csv", keep_default_na=False)
    grades = grades.set_index(["retriever", "N"])
    shares = grades.loc[("a", 4), ["grade 1", "grade 5", "n", "unscored"]]
    assert shares.astype(float).tolist() == [0.75, 0.25, 4, 0]


def test_each_factor_is_compared_within_every_setting_of_the_others(live_run, exported):
    tables = exported.folder / "tables"
    told = pd.read_csv(tables / "retriever_ir_score.csv")
    assert told[["N", "pair", "n"]].to_numpy().tolist() == [[4, "a - b", 3], [20, "a - b", 3]]
    rows = measured(load_rows(live_run))
    expected = rb.compare(rows[rows["N"] > 0], "retriever", "ir_score", by="N", cluster="cluster")
    assert told["p_holm"].tolist() == pytest.approx(expected["p_holm"].tolist(), rel=1e-5)
    assert "a against b: " in (tables / "retriever_ir_score.md").read_text()
    assert r"with 95\% intervals" in (exported.folder / "all.tex").read_text()


def test_a_test_of_retrieval_stands_once_however_many_prompts_and_judges_there_are(tmp_path):
    grid = {"retriever": {"a": Named, "b": Named}, "N": (4, 20)}
    people_of = {"generator": {"x": Copier(), "y": Copier(broken="Person1")}}
    judges = {"judge": {"one": JudgeDouble(), "two": JudgeDouble()}}
    rows = experiment(tmp_path, 4, **grid, **people_of, **judges).run(progress=False)
    rows = measured(rows)
    assert len(compare_factor(rows, "retriever", "ir_score")) == 2
    assert len(compare_factor(rows, "retriever", "contained")) == 4
    assert len(compare_factor(rows, "retriever", "fully_right")) == 8
    assert compare_factor(rows, "generator", "ir_score").empty
    assert compare_factor(rows, "k", "contained").empty
    prompts = compare_factor(rows, "generator", "contained")
    assert factor_sentence("generator", prompts).startswith("generator, prompt: x against y: ")


def test_questions_that_share_a_document_are_one_cluster_else_those_of_a_topic(tmp_path):
    data = people(4)
    shared = [replace(q, meta={"doc_ids": ["d0"] if i < 2 else [f"d{i}"], "topic": i % 2})
              for i, q in enumerate(data.questions)]  # fmt: skip
    rows = experiment(tmp_path, data={"p": replace(data, questions=tuple(shared))}).run(
        progress=False
    )
    clusters = measured(rows).drop_duplicates("question_id")["cluster"]
    assert clusters.nunique() == 3
    assert clusters.iloc[0] == clusters.iloc[1]
    alone = rows.assign(relevant=None)
    assert measured(alone).drop_duplicates("question_id")["cluster"].tolist() == [0, 1, 0, 1]
    bare = alone.assign(topic=None)
    assert measured(bare)["cluster"].nunique() == 4


def test_the_worst_questions_of_the_best_system_come_with_their_texts(live_run, exported):
    worst = pd.read_csv(exported.folder / "tables" / "worst.csv")
    assert worst["fully_right"].tolist() == [0, 0, 1]
    assert set(worst["question"]) <= set(load_rows(live_run)["question"])
    assert {"reference", "answer", "ir_score", "contained", "grade"} <= set(worst)


def test_methods_tell_data_settings_models_digests_seeds_and_prompts(live_run, exported):
    told = (exported.folder / "methods.md").read_text()
    manifest = load_manifest(live_run)
    for text in (
        '"my_run"', manifest["git"]["revision"][:12], "4 questions over 4 documents",
        manifest["axes"]["data"]["people"]["questions_sha256"][:12], "people/whole (4 chunks, whole)", "k = 2",
        "N = 4 and 20 tokens", "N = 0 asks without documents.", "longest common substring", "characters composed (NFC)",
        "llama3:8b", DIGEST[:12],
        "seed = 3", "temperature = 0.0",
        "num_ctx = 2048", manifest["prompts"]["thesis_grade"][:12], manifest["prompts"]["thesis_with_documents"][:12],
        "Student's t (fewer than 30 values)", "2 of 20 rows failed", f"Python {manifest['python']}",
    ):  # fmt: skip
        assert text in told, text
    assert "thesis_grade" not in told.split("Answers were graded")[0]


def test_every_citation_has_its_entry_and_every_entry_is_cited(live_run, exported):
    bib = (exported.folder / "references.bib").read_text()
    keys = cited(exported.folder)
    in_tex = set(
        ",".join(
            re.findall(r"\\cite\{([^}]+)\}", (exported.folder / "methods.tex").read_text())
        ).split(",")
    )
    in_md = set(re.findall(r"@([\w:.-]+)[\];]", (exported.folder / "methods.md").read_text()))
    assert keys == in_tex == in_md
    assert keys == {
        "ragbench", "elyagouby2024", "ollama", "model:llama3-8b", "manski1990bounds", "clopper1934",
    }  # fmt: skip
    assert f"revision {load_manifest(live_run)['git']['revision'][:12]}" in bib
    assert DIGEST[:12] in bib
    assert problems(bib.replace("@", "")) == []


def test_rows_cassette_and_manifest_are_the_runs_own(live_run, exported, tmp_path):
    out = pd.read_csv(exported.folder / "rows.csv", keep_default_na=False)
    rows = load_rows(live_run)
    place = ["retriever", "N", "question_id"]
    assert list(dict.fromkeys(zip(out["retriever"], out["N"], strict=True))) == [
        ("LLM only", 0), ("a", 4), ("a", 20), ("b", 4), ("b", 20)
    ]  # fmt: skip
    out = out.set_index(place).sort_index()
    rows = rows.set_index(place).sort_index()
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
def test_the_document_compiles(exported, tmp_path):
    shutil.copytree(exported.folder, tmp_path / "o")
    compiles(tmp_path / "o")
    assert (tmp_path / "o" / "all.pdf").read_bytes().startswith(b"%PDF")


def test_two_exports_of_a_run_differ_in_no_byte(live_run, exported, tmp_path):
    again = export(live_run, tmp_path / "again")
    assert again.files == exported.files
    for name in [*again.files, MARKER]:
        assert (again.folder / name).read_bytes() == (exported.folder / name).read_bytes(), name


def test_fonts_are_embedded_as_truetype_and_pictures_fit_a_page(exported):
    for path in (exported.folder / "figures").glob("*.pdf"):
        data = path.read_bytes()
        assert b"/FontFile2" in data, path.name
        assert b"/Type3" not in data, path.name
        width, height = map(
            float, re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+)", data).groups()
        )
        assert width <= plots.WIDEST * 72
        assert height <= 20 * 72
    with Image.open(exported.folder / "figures" / "ir_score.png") as picture:
        assert "Mean IR score" in picture.text["Description"]


def test_an_export_of_a_stopped_run_says_how_many_rows_are_missing(tmp_path, undrawn, monkeypatch):
    monkeypatch.setattr("ragbench.experiment.run.BLOCK_OF_ANSWERS", 6)
    with pytest.raises(KeyboardInterrupt):
        experiment(tmp_path / "r", 6, judge=None, retriever={"named": Interrupted}).run(
            progress=False
        )
    there = len(load_rows(tmp_path / "r"))
    assert f"the run was stopped: {18 - there} rows are not made yet" in str(
        export(tmp_path / "r", tmp_path / "o")
    )
    told = (tmp_path / "o" / "methods.md").read_text()
    assert (
        f"0 of {there} rows failed; the run was stopped, {18 - there} of 18 rows are not made yet."
        in told
    )
    made = run_and_export(tmp_path, 6, judge=None)
    assert "not made yet" not in str(made) + (tmp_path / "o" / "methods.md").read_text()


def test_methods_name_nothing_twice_and_objects_that_answer_and_grade_by_their_names(
    tmp_path, undrawn
):
    run_and_export(
        tmp_path, data={"mine": replace(people(2), name="file")}, retriever={"BM25": rb.BM25},
        generator={"copier": Copier()}, judge={"double": JudgeDouble()},
    )  # fmt: skip
    told = (tmp_path / "o" / "methods.md").read_text()
    assert "Data: mine (data set 'file', 2 questions over 2 documents; SHA-256" in told
    assert "Retrievers: BM25 [@robertson2009bm25] (b = 0.75" in told
    assert "Answers were given by copier." in told
    assert "[@elyagouby2024], by double" in told


def test_a_run_of_retrieval_alone_has_no_tables_of_answers(tmp_path):
    made = run_and_export(tmp_path, 3, generator=None, judge=None)
    stems = {Path(name).stem for name in made.files if name.startswith("tables/")}
    assert stems == {"overview", "worst", "audit"}
    told = (tmp_path / "o" / "methods.md").read_text()
    assert "Answers" not in told
    assert "ollama" not in cited(tmp_path / "o")
    compiles(tmp_path / "o")


def test_questions_without_references_have_no_empty_picture_of_the_ir_score(tmp_path):
    data = people(3)
    bare = replace(data, questions=tuple(replace(q, references=()) for q in data.questions))
    made = run_and_export(tmp_path, data={"people": bare})
    stems = {Path(name).stem for name in made.files if name.startswith(("tables/", "figures/"))}
    assert stems == {"overview", "grades", "worst", "audit"}
    assert "none of these questions has references" in " ".join(made.notes)
    compiles(tmp_path / "o")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("HotpotQA", "yang2018hotpotqa"),
        ("dragonball", "zhu2024rageval"),
        ("wikieval", "es2024ragas"),
        ("people", ""),
    ],
)
def test_a_paper_is_cited_as_far_as_its_data_are_used(tmp_path, undrawn, name, key):
    made = run_and_export(
        tmp_path, data={"d": replace(people(2), name=name)}, generator=None, judge=None
    )
    papers = {"yang2018hotpotqa", "zhu2024rageval", "es2024ragas", "ru2024ragchecker"}
    assert cited(made.folder) & papers == ({key} if key else set())


# -- whose folder, whose secrets
# ---------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, undrawn):
    experiment(tmp_path / "run", 2, N=(4,), generator={"copier": Copier()}, judge=None).run(
        progress=False
    )
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


def test_an_own_folder_is_written_over_and_what_others_put_there_stays(run, out, tmp_path):
    (out / "chapter.tex").write_text("text")
    assert (out / "tables" / "worst.csv").exists()
    assert "seconds" in (out / "tables" / "overview.csv").read_text()
    experiment(tmp_path / "bare", 3, N=(4,), generator=None, judge=None).run(progress=False)
    export(tmp_path / "bare", out)
    assert (out / "chapter.tex").read_text() == "text"
    assert len(pd.read_csv(out / "rows.csv")) == 3
    assert "seconds" not in (out / "tables" / "overview.csv").read_text()


def test_a_marker_that_points_outside_deletes_nothing(run, tmp_path):
    out = tmp_path / "out"
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    out.mkdir()
    (out / MARKER).write_text(json.dumps(["../victim.txt", str(victim)]))
    export(run, out)
    assert victim.read_text() == "mine"


def test_what_a_killed_export_left_aside_is_removed_by_the_next(run, tmp_path):
    (tmp_path / ".out.part" / "tables").mkdir(parents=True)
    (tmp_path / ".out.part" / "tables" / "old.csv").write_text("half")
    made = export(run, tmp_path / "out")
    assert not (tmp_path / ".out.part").exists()
    assert not (made.folder / "tables" / "old.csv").exists()


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
    experiment(tmp_path / "r", 3, retriever=odd).run(progress=False)
    made = export(tmp_path / "r", tmp_path / "o")
    names = set(pd.read_csv(made.folder / "tables" / "overview.csv")["retriever"])
    assert names == {"Cash$$Bot", "$x$ vs $y$", "'=a/b*_c_<i>", "no documents"}
    told = (made.folder / "methods.md").read_text()
    assert all(in_markdown(name) in told for name in odd)
    compiles(made.folder)


def test_a_sum_of_floats_a_little_above_one_stays_in_the_picture(tmp_path):
    rows = [
        {"question": q, "answer": "a", "reference": "a", "system": s} for q in "xy" for s in "AB"
    ]
    table = rb.score(rows, ["bleu"])
    table["bleu"] = 1.0000000000000004
    export_scores(table, tmp_path / "o", "mine")
    assert (tmp_path / "o" / "figures" / "scores.png").exists()


def test_claim_labels_that_could_not_be_read_stay_out_and_are_counted(tmp_path):
    rows = [
        {"question": "Who?", "answer": a, "reference": "Ann.", "chunks": ["Ann did."]}
        for a in ("Ann.", "Bea.")
    ]
    with FakeOllama(reply=label_reply) as server:
        table = rb.score(rows, ["precision"], server.model(), progress=False)
    unread, read = table["claim_labels"]
    table["claim_labels"] = [{**unread, "retrieved2response": [[None]]}, read]
    made = export_scores(table, tmp_path / "o", "mine")
    assert made.notes == ["claim_labels.json lacks 1 answers whose labels are missing or unread"]
    (kept,) = json.loads((made.folder / "claim_labels.json").read_text())["results"]
    assert kept["response"] == "Bea."


def test_a_system_that_looks_like_a_formula_keeps_its_name_between_score_and_export(tmp_path):
    rows = [
        {"question": q, "answer": "a", "reference": "a", "system": s}
        for q in "xy"
        for s in ("=A", "'tis")
    ]
    (tmp_path / "rows.jsonl").write_text("")
    path = save_scores(rb.score(rows, ["exact_match"]), tmp_path)
    assert "'=A" in path.read_text(encoding="utf-8")
    assert set(load_scores(tmp_path)["system"]) == {"=A", "'tis"}


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


def test_a_missing_cassette_is_told_and_a_wrong_one_is_an_error(live_run, tmp_path, undrawn):
    copy = tmp_path / "copy"
    shutil.copytree(live_run, copy)
    (copy / "cassette.sqlite").rename(tmp_path / "tape.sqlite")
    made = export(copy, tmp_path / "o")
    assert "cassette.jsonl" not in made.files
    assert "--cassette" in str(made)
    assert "changed or damaged" not in (made.folder / "tables" / "audit.csv").read_text()
    made = export(copy, tmp_path / "o", cassette=tmp_path / "tape.sqlite")
    assert "changed or damaged" in (made.folder / "tables" / "audit.csv").read_text()
    assert "24 replies" in str(made)
    with pytest.raises(DataError, match="there is no cassette"):
        export(copy, tmp_path / "p", cassette=tmp_path / "none.sqlite")
    assert not (tmp_path / "p").exists()


def test_a_run_that_is_not_there_or_empty_is_named(tmp_path):
    with pytest.raises(DataError, match="no run 'nowhere'"):
        export("nowhere", tmp_path / "o")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "rows.jsonl").write_text("")
    with pytest.raises(DataError, match="has no rows"):
        export(tmp_path / "r", tmp_path / "o")
    assert not (tmp_path / "o").exists()


# -- references and the ledger
# -----------------------------------------------------------------------------------------


def test_references_are_whole_and_cited_in_both_ways():
    for key, entry in references().items():
        kind = re.match(r"@(\w+)", entry)[1]
        fields = dict(re.findall(r"^  (\w+) = \{(.*)\},?$", entry, re.MULTILINE))
        assert kind in ("mastersthesis", "inproceedings", "article", "book", "misc")
        assert {"author", "title"} <= set(fields), key
        assert key == "ollama" or re.fullmatch(r"(19|20)\d\d", fields["year"]), key
        assert problems(" ".join(fields.values())) == [], key
    assert len(references()) == 16
    text = "BM25* & more ⟦robertson2009bm25,liu2024lost⟧ ($k$)."
    assert (
        with_citations(text, in_markdown)
        == r"BM25\* & more [@robertson2009bm25; @liu2024lost] (\$k\$)."
    )
    assert (
        with_citations(text, in_latex)
        == r"BM25* \& more~\cite{robertson2009bm25,liu2024lost} (\$k\$)."
    )


def test_an_interval_stands_small_beside_its_mean_and_the_order_is_that_of_the_rows():
    none = float("nan")
    means = {
        "metric": ["recall", "recall", "f1", "f1"],
        "system": ["SIM", "BM25"] * 2,
        "mean": [0.5, 0.25, none, 1.0],
    }
    means |= {"low": [0.4, 0.2, none, none], "high": [0.6, 0.3, none, none]}
    shown = interval_table(pd.DataFrame(means), "metric", "system", scale=100, decimals=1)
    assert shown.data.to_dict() == {
        "SIM": {"recall": "50.0\u00a0<small>[40.0,\u00a060.0]</small>", "f1": "-"},
        "BM25": {"recall": "25.0\u00a0<small>[20.0,\u00a030.0]</small>", "f1": "100.0"},
    }
    assert list(shown.data.index) == ["recall", "f1"]
    assert list(shown.data.columns) == ["SIM", "BM25"]
    assert (
        shown.to_html()
        == interval_table(pd.DataFrame(means), "metric", "system", scale=100, decimals=1).to_html()
    )
    odd = interval_table(pd.DataFrame(means).replace("SIM", "<i>"), "metric", "system")
    assert odd.data.columns[0] == "&lt;i&gt;"
    sets = interval_table(
        pd.DataFrame(means).assign(set=["b", "b", "a", "b"]), "metric", ["set", "system"]
    ).data
    assert sets.columns.tolist() == [("b", "SIM"), ("b", "BM25"), ("a", "SIM")]
    assert sets.loc["recall", ("a", "SIM")] == ""


@pytest.mark.parametrize(
    ("graders", "said"),
    [
        ({}, "No answer was graded"),
        ({"double": {"name": "judge double"}}, "given by double; checked by a person: 0"),
        (
            {
                "llama": {
                    "provider": "ollama",
                    "model": "llama3_70b",
                    "digest": "ab12",
                    "options": {},
                }
            },
            "given by llama3_70b; checked by a person: 0",
        ),
    ],
    ids=["none", "object", "model"],
)
def test_the_methods_say_what_may_be_claimed(graders, said):
    data = {"name": "minihop", "questions": 1180, "documents": 270, "excluded": 0}
    data |= {"questions_sha256": "a" * 64, "documents_sha256": "b" * 64}
    made = methods({"axes": {"data": {"minihop": data}, "judge": graders}}, {})
    who, population, clustered, untested = made.claims
    assert said in who
    assert ("checked by a person: 0" in who) == bool(graders)
    assert "1,180 of minihop" in population
    assert clustered.startswith("Clustered: means and comparisons")
    assert untested.startswith("Not tested: differences")
    box = made.markdown.split("## What may be claimed\n\n")[1]
    assert box.count("\n- ") + 1 == 4
    assert made.latex.count(r"\item") == 4
    assert ("llama3\\_70b; checked" in made.latex) == ("llama" in graders)


def box_of(folder: Path) -> list[str]:
    """The box of an export's methods; it stands in every text that tells methods."""
    (box,) = (
        (folder / "methods.md").read_text(encoding="utf-8").split("## What may be claimed\n\n")[1:]
    )
    claims = [line.removeprefix("- ") for line in box.strip().splitlines()]
    tex = (folder / "methods.tex").read_text(encoding="utf-8")
    items = re.findall(r"\\item (.*)", tex.split("What may be claimed")[1])
    assert items == [in_latex(claim) for claim in claims]
    assert r"\input{methods}" in (folder / "all.tex").read_text(encoding="utf-8")
    _, population, clustered, untested = claims
    assert population.startswith("Population: ")
    assert clustered.startswith("Clustered: ")
    assert untested.startswith("Not tested: ")
    return claims


def test_every_export_carries_the_box_of_what_may_be_claimed(exported):
    who, population, _, _ = box_of(exported.folder)
    assert who.startswith("Grades were given by llama3:8b; checked by a person: 0.")
    assert "the 4 of people" in population


@pytest.mark.parametrize("labels", ["none", "model", "given"])
def test_the_box_of_scores_says_who_labelled(labels, tmp_path):
    rows = [
        {
            "question": f"Who founded mill {i}?",
            "answer": "Ada Ruck.",
            "reference": "Ada Ruck.",
            "system": system,
        }
        | {"keypoints": ["Ada Ruck founded it."]}
        | ({"keypoint_verdicts": ["covered"]} if labels == "given" else {})
        for i in range(2)
        for system in ("A", "B")
    ]
    with FakeOllama(reply=label_reply) as server:
        model = chat_model("ollama:llama3:8b", host=server.url) if labels == "model" else None
        table = rb.score(
            rows, ["exact_match" if labels == "none" else "completeness"], labels=model
        )
    who, population, _, untested = box_of(export_scores(table, tmp_path / "o", "mine").folder)
    told = {
        "none": "No label was made: nothing may be claimed about right answers",
        "model": "Labels were given by llama3:8b; checked by a person: 0.",
        "given": "Labels came with the answers; who gave them, and whether a person checked them, is not known here",
    }
    assert [name for name, text in told.items() if who.startswith(text)] == [labels]
    assert "questions like these 2;" in population
    assert "not asked the same questions" in untested
    one = table[table["system"] == "A"].drop(columns="system")
    one.attrs = table.attrs
    assert (
        box_of(export_scores(one, tmp_path / "one", "mine").folder)[3]
        == "Not tested: any difference."
    )


def test_languages_and_changed_settings_are_in_methods_and_in_what_may_be_claimed(tmp_path):
    german = "Die Mühle der Stadt wurde von Ada Ruck gegründet, und sie ist nicht die älteste."
    asked = [
        rb.Question(
            "q1",
            "Wer hat die Mühle der Stadt gegründet, und wann wurde sie gebaut?",
            "Ada Ruck",
            (german,),
        ),
        rb.Question("q2", "Who founded the mill of the town?", "Ada Ruck", (german,)),
    ]
    data = rb.Dataset("mills", tuple(asked), (rb.Document("d", "Mühle", german),))
    grid = {
        "chunker": "token_chunks",
        "retriever": "BM25",
        "N": 100,
        "generator": {"copier": Copier()},
    }
    grid["judge"] = {"double": JudgeDouble()}
    rb.Experiment("german", data=data, folder=tmp_path / "run", max_chars=500, **grid).run(
        progress=False
    )
    export(tmp_path / "run", tmp_path / "out")
    text = (tmp_path / "out" / "methods.md").read_text(encoding="utf-8").replace("\\", "")
    methods, claims = text.split("## What may be claimed")
    assert "Settings that are not ragbench's defaults: max_chars = 500." in methods
    foreign = "at least 1 of the 2 questions of mills (German 1) and 1 of the 1 documents of mills (German 1)"
    assert f"Language: {foreign} are not in English." in claims
    assert "only where max_chars = 500 there too" in claims


def test_methods_name_the_intervals_that_the_tables_have():
    few = rb.means(pd.DataFrame({"x": [0.1, 0.4, 0.5]}), [], "x")
    shares = rb.means(pd.DataFrame({"contained": [1.0, 0.0, 1.0]}), [], "contained")
    said = "\n".join(methods({}, {}, intervals_of([few, shares])).paragraphs)
    assert "Student's t" in said
    assert "exact binomial" in said
    assert "bootstrap" not in said
    assert "intervals" not in "\n".join(methods({}, {}).paragraphs)
