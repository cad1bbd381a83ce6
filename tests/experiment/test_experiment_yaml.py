"""Experiments from a YAML file: the names there are, and messages that name file and key."""

import re

import pandas as pd
import pytest
from experiment_parts import Copier, graded
from fake_ollama import FakeOllama
from label_replies import reply as labels

import ragbench as rb
from ragbench import plots
from ragbench.cli import main
from ragbench.errors import ConfigError
from ragbench.experiment import Experiment, load_manifest
from ragbench.experiment.axes import GENERATORS
from ragbench.labelling.claims import claim_count
from ragbench.metrics.table import METRICS
from ragbench.records import Chunk
from ragbench.report.export import export_scores
from ragbench.report.methods import Methods
from ragbench.rows import answers_of

HEAD = "name: mine\ndata: minihop\nchunker: token_chunks\nretriever: BM25\n"
MODEL = HEAD + "generator: {{l: {{use: 'ollama:x', {}}}}}\n"


def write(tmp_path, text):
    path = tmp_path / "experiment.yaml"
    path.write_text(text)
    return path


def parsed(tmp_path, text):
    """The experiment of a file."""
    return Experiment.from_yaml(write(tmp_path, text))


def model_of(server, options=""):
    return f"{{use: 'ollama:llama3:8b', host: '{server.url}'{options}}}"


def test_names_stand_for_what_ships(tmp_path):
    text = """
name: all
folder: out
data: {few: {use: minihop, limit: 3}}
chunker: {small: {use: token_chunks, size: 60, overlap: 0}}
retriever: [BM25, SIM, MMR, REO, Hybrid]
k: {BM25: 5, SIM: 10}
N: 100
"""
    grid = parsed(tmp_path, text)
    assert grid.k == {"BM25": (5,), "SIM": (10,), "MMR": (10,), "REO": (10,), "Hybrid": (10,)}
    rows = grid.run(progress=False)
    assert (len(rows), set(rows["status"])) == (3 * 5, {"ok"})
    told = load_manifest(tmp_path / "out")["axes"]["retriever"]
    assert told["few/small/REO"]["order"] == "published"
    bm25 = told["few/small/BM25"]
    assert (bm25["variant"], bm25["tokenizer"]) == ("lucene", "english")
    assert grid.run(progress=False)["ir_score"].equals(rows["ir_score"])


def test_a_file_sets_the_words_of_bm25(tmp_path):
    axis = """
  g: {use: BM25, tokenizer: german}
  t: {use: BM25, variant: terrier}
  h: {use: Hybrid, tokenizer: plain}
"""
    made = parsed(tmp_path, HEAD.replace("BM25\n", axis)).retriever
    chunks = [Chunk("c", "Die Straße und das Haus.", "d")]
    german, terrier, hybrid = (made[name](chunks).settings() for name in "gth")
    assert german["tokenizer"] == "german"
    assert terrier["tokenizer"] == terrier["variant"] == "terrier"
    assert hybrid["over"][0]["tokenizer"] == "plain"


@pytest.mark.parametrize(("name", "between"), [("q.csv", ","), ("q.tsv", "\t")])
def test_own_files_are_found_beside_the_file(tmp_path, name, between):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "one.txt").write_text("Ann Lee was born in Ely.")
    table = "question,answer,references\nWhere was Ann Lee born?,Ely,Ann Lee was born in Ely.\n"
    (tmp_path / name).write_text(table.replace(",", between))
    own = HEAD.replace("minihop", f"{{own: {{questions: {name}, documents: docs}}}}")
    rows = parsed(tmp_path, f"{own}folder: out\nN: 50\nk: [1, 2]\n").run(progress=False)
    assert rows[["ir_score", "k"]].to_numpy().tolist() == [[1.0, 1], [1.0, 2]]


def test_a_prompt_is_found_beside_the_file_wherever_the_command_is_given(tmp_path, monkeypatch):
    (tmp_path / "mine.txt").write_text("In a word: {documents} {query}")
    text = HEAD + "generator: {a: smollm2}\nprompts: {a: mine.txt}\n"
    monkeypatch.chdir("/")
    prompts = {("generator", "a"): str(tmp_path / "mine.txt")}
    assert parsed(tmp_path, text).prompts == prompts


def test_a_model_takes_its_options(tmp_path):
    text = HEAD + 'generator: {l: {use: "ollama:llama3:8b", host: gpu1, num_ctx: 2048, seed: 7}}\n'
    model = parsed(tmp_path, text).generator["l"]
    assert (model.base_url, model.num_ctx, model.seed) == ("http://gpu1:11434", 2048, 7)
    one = parsed(tmp_path, HEAD + "generator: ollama:llama3:8b\njudge: ollama:llama3:70b\n")
    assert one.judge["ollama:llama3:70b"].model == "llama3:70b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: minihop\nretriever: BM25\n", r"there is no key 'name'\n.*chunker"),
        (HEAD.replace("name: mine", "name: 7"), r"name is 7\n(.|\n)*quotes"),
        (HEAD.replace("mine", '"a\\nb"'), r"name 'a\\nb'\n.*at most 200 bytes"),
        (HEAD + "N:\n", r"experiment\.yaml, line 5: N is None"),
        (HEAD.replace("BM25", "{b: {use: BM25, tokenizer: germn}}"), r"retriever\.b: .*'germn'"),
        (HEAD.replace("BM25", "{s: {use: SIM, tokenizer: german}}"), r"option of SIM 'tokenizer'"),
        (HEAD.replace("BM25", "BM26"), r"retriever\.BM26: .*'BM26'\n.*\n.*mean 'BM25'"),
        (HEAD.replace("BM25", "{a: {use: BM25, k2: 3}}"), r"retriever\.a: .*option of BM25 'k2'"),
        (HEAD.replace("BM25", "{a: {use: BM25, k: 3}}"), r"retriever\.a: .*option of BM25 'k'"),
        (HEAD.replace("BM25", "{" + "b" * 300 + ": BM25}"), r"retriever has the name 'b{60}'\n"),
        (HEAD.replace("BM25", "{a: {k1: 3}}"), r"retriever\.a has no use"),
        (HEAD.replace("BM25", "[[BM25]]"), r"retriever .*BM25.* is list"),
        (HEAD.replace("BM25", "7"), r"retriever is int"),
        (HEAD.replace("BM25", "[BM25, MLQ]"), r"retriever\.MLQ: MLQ has no model(.|\n)*smollm2"),
        (HEAD.replace("token_chunks", "{a: {use: token_chunks, size: 0}}"), r"chunker\.a: size=0"),
        (HEAD.replace("token_chunks", "{a: {use: token_chunks, size: big}}"), r"chunker\.a: "),
        (HEAD.replace("token_chunks", "{a: {use: token_chunks, size: 2.5}}"), r"a: size=2\.5"),
        (HEAD.replace("token_chunks", "{a: {use: semantic, window: 2.5}}"), r"a: window=2\.5"),
        (HEAD.replace("minihop", "{a: {use: minihop, limits: 3}}"), r"option of minihop 'limits'"),
        (MODEL.format("deadline_s: soon"), r"generator\.l: "),
        (MODEL.format("num_ctx: big"), r"generator\.l: "),
        (MODEL.format("seed: one"), r"generator\.l: (.|\n)*'one'"),
        (MODEL.format("api_key: abc"), r"generator\.l\.api_key\n.*no secret"),
        (MODEL.format("heat: 1"), r"generator\.l: unknown option of ollama:x 'heat'"),
        (HEAD + "generator: {l: {use: 'olama:x'}}\n", r"generator\.l: .*provider 'olama'"),
        (HEAD + "generator: extracting\n", r"unknown generator 'extracting'\n.*\n.*smollm2"),
        (HEAD + "labels: rules\n", r"labels: unknown labels 'rules'\n.*\n.*smollm2"),
        (HEAD + "checker: {use: 'ollama:x', api_key: abc}\n", r"checker\.api_key"),
        (HEAD + "concurrency: many\n", r"concurrency is 'many'"),
        (HEAD + "concurrency: true\n", r"concurrency is True"),
        (HEAD + "options: {retrys: 3}\n", r"option of model calls 'retrys'(.|\n)*'retries'"),
        (HEAD + "options: {patience_s: long}\n", r"line 5: options is 'long'\n.*valid number"),
        (HEAD + "labels: {use: 'ollama:x', heat: 1}\n", r"labels: .*option of ollama:x 'heat'"),
        (HEAD + "metrics: [token_f2]\n", r"unknown metric 'token_f2'(.|\n)*token_f1"),
        (HEAD + "metrics: 7\n", r"experiment\.yaml, line 5: metrics is 7"),
        (HEAD + "name: again\n", r"experiment\.yaml, line 5: the key 'name' twice"),
        (HEAD + "N: [100\n", r"experiment\.yaml, line 6: "),
        (HEAD + "judge: !!python/object/apply:os.system [ls]\n", r"line 5: could not determine"),
    ],
)
def test_a_file_that_cannot_work_is_told_with_its_key(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        Experiment.from_yaml(write(tmp_path, text).parent)  # the folder in place of the file
    assert "abc" not in str(caught.value)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("retriever: {BM25: yes}", "retriever 'BM25' is bool"),
        ("name: 1.10", "name is 1.1"),
        ("chunker: {use: token_chunks, size: 60, overlap: 0,2}", "unknown option"),
        ("chunker:\n  use: token_chunks\n  overlap: 0,2", "chunker.token_chunks"),
    ],
)
def test_a_value_of_another_kind_is_refused_with_its_line(tmp_path, line, said):
    key = line.partition(":")[0]
    head = [kept for kept in HEAD.splitlines() if kept.partition(":")[0] != key]
    with pytest.raises(ConfigError) as caught:
        parsed(tmp_path, "\n".join([*head, line, ""]))
    assert said in str(caught.value)
    assert "line" in str(caught.value)


def test_values_and_labels_are_what_is_written(tmp_path):
    text = HEAD.replace("mine", "'1.10'").replace("BM25", "{no: BM25, 012: SIM, 7.10: BM25}")
    grid = parsed(tmp_path, text)
    assert (grid.name, [*grid.retriever]) == ("1.10", ["no", "012", "7.10"])


def test_an_object_of_your_own_gets_a_name(tmp_path, monkeypatch):
    class Shouter:
        name = "shouter"

        def __init__(self, mark="!"):
            self.mark = mark

        def answer(self, question, context):
            return context.upper() + self.mark

    monkeypatch.setitem(GENERATORS, "shout", Shouter)
    monkeypatch.setitem(GENERATORS, "quote", lambda: lambda question, context: context)
    monkeypatch.setitem(GENERATORS, "three", lambda: 3)

    def generators(axis):
        return parsed(tmp_path, f"{HEAD}generator: {axis}\n").generator

    assert generators("{s: {use: shout, mark: '?'}}")["s"].mark == "?"
    assert generators("quote")["quote"].answer("Who?", "Ada.") == "Ada."
    with pytest.raises(ConfigError, match="generator 'three' is int"):
        generators("three")


SCORED = (
    HEAD.replace("minihop", "{own: {questions: q.csv, documents: docs}}")
    + "folder: out\nN: [0, 5, 50]\nk: 2\n"
)


@pytest.fixture
def scored(tmp_path, monkeypatch):
    """A file that asks for metrics, with two questions and two documents beside it, and a generator
    called copier.
    """
    monkeypatch.setitem(GENERATORS, "copier", Copier)
    (tmp_path / "docs").mkdir()
    table = "question,answer,references\n"
    for name, town in (("Ann", "Ely"), ("Bea", "York")):
        fact = f"{name} Lee was born in {town}."
        (tmp_path / "docs" / f"{name}.txt").write_text(f"{fact} She sang there for years.")
        table += f"Where was {name} Lee born?,{town},{fact}\n"
    (tmp_path / "q.csv").write_text(table)
    return tmp_path


def test_metrics_of_a_file_see_what_the_generator_read_and_leave_rows_as_they_are(scored):
    text = SCORED + "generator: copier\nmetrics: [ir_score, token_f1, ranking]\n"
    made = parsed(scored, text)
    rows = made.run(progress=False)
    frame = answers_of(rows)
    assert frame["system"].tolist()[:3] == ["LLM only@0", "BM25@5", "BM25@50"]
    first = frame.set_index(["question_id", "N"]).loc[frame["question_id"][0]]
    assert (first.loc[0, "chunks"], first.loc[5, "chunks"]) == ([], ["Ann Lee was born in"])
    assert first.loc[50, "context"] == " ".join(first.loc[50, "chunks"])
    assert len(first.loc[50, "chunks"]) == 2
    table = rb.score(rows, made.metrics)
    # The IR score from the texts is the one that the run computed from the cut.
    assert table["ir_score"].tolist() == pytest.approx(rows["ir_score"].tolist(), nan_ok=True)
    assert table.loc[rows["N"] == 50, "RR"].tolist() == [1.0, 1.0]
    assert "labelled_by" not in table


def said(body):
    """Claims and labels; of a checker in MiniCheck's form, Yes."""
    return "Yes." if body["messages"][-1]["content"].startswith("Document: ") else labels(body)


def test_labels_of_a_model_are_planned_recorded_beside_the_rows_and_replayed(scored, capsys):
    with FakeOllama(reply=said) as server:
        model = model_of(server)
        text = SCORED.replace("[0, 5, 50]", "50") + "generator: copier\n"
        text += f"metrics: [precision, faithfulness]\nlabels: {model}\n"
        path = write(scored, text)

        def precision():
            assert main(["run", str(path)]) == 0
            return pd.read_csv(scored / "out" / "scores.csv").set_index("system")["precision"]

        assert main(["plan", str(path)]) == 0
        assert server.calls == []
        assert "metrics: precision, faithfulness, after the run" in capsys.readouterr().out
        first = precision()
        assert first.index.tolist() == ["BM25@50"] * 2
        assert re.search(r"BM25@50 +precision", capsys.readouterr().out)
        asked = len(server.calls)
        assert precision().equals(first)
        assert len(server.calls) == asked
        # Another model checks the claims: the first one only takes texts apart, which is there
        # already.
        write(scored, text + f"checker: {model}\n")
        assert precision().tolist() == [1.0, 1.0]
        checks = server.calls[asked:]
        assert checks
        assert all(call.prompt.startswith("Document: ") for call in checks)
    assert (scored / "checker.sqlite").is_file()


def test_a_plan_counts_checks_against_the_chunks_that_n_holds(scored):
    rows = parsed(scored, SCORED + "generator: copier\n").run(progress=False)
    model = rb.chat_model("ollama:llama3:8b", host="127.0.0.1:9")
    for N, read in ((0, 0), (5, 1), (50, 2)):  # of the k = 2 that were found
        some = rows[rows["N"] == N]
        planned = rb.plan_score(some, ["precision"], model)
        # short texts are one claim each, a sentence one and a half; against each chunk and the
        # other side
        prompts = {}
        for row in some.itertuples():
            assert len(row.chunks) == read
            for side, other in ((row.answer, row.reference), (row.reference, row.answer)):
                for text in (other, *row.chunks):
                    prompts[row.question, side, text] = claim_count(side)
        assert planned["claim check"].calls == sum(prompts.values())


def test_a_model_that_runs_elsewhere_is_said_in_plan_manifest_and_methods(scored, capsys):
    where = "run at https://ollama.com:443"
    with FakeOllama(remote_host="https://ollama.com:443") as server:
        for cloud, said in {
            "false": "pass cloud=True if that is meant",
            "true": f"{where}): prompts leave this machine",
        }.items():
            model = model_of(server, f", cloud: {cloud}")
            path = write(scored, f"{SCORED}generator: {model}\n")
            assert main(["plan", str(path)]) == 0
            assert said in capsys.readouterr().out
        assert main(["run", str(path)]) == 0
    manifest = load_manifest(scored / "out")
    (facts,) = manifest["axes"]["generator"].values()
    assert facts["weights"].endswith(where)
    assert where in Methods.of_run(manifest, {"rows": 6, "failed": 0, "missing": 0}).markdown


def test_the_export_of_a_run_has_its_scores_and_none_of_earlier_rows(scored, capsys):
    def exported():
        assert main(["run", str(path)]) == 0
        capsys.readouterr()
        assert main(["export", str(scored / "out"), "--to", str(to)]) == 0
        return capsys.readouterr().out

    to = scored / "report"
    metrics = "metrics: [token_f1, contained, claim_recall]\n"
    path = write(scored, SCORED + "generator: copier\n" + metrics)
    with pytest.warns(UserWarning, match=r"claim_recall \(needs claim_labels\).*smollm2"):
        assert "scores are of" not in exported()
    scores = pd.read_csv(scored / "out" / "scores.csv")
    means = pd.read_csv(to / "tables" / "means.csv").set_index(["system", "metric"])["mean"]
    for system, mean in scores.groupby("system")["token_f1"].mean().items():
        assert means[system, "token_f1"] == pytest.approx(mean)
    compared = pd.read_csv(to / "tables" / "comparison.csv")
    assert set(compared["measure"]) == {"token_f1", "contained"}
    assert (to / "figures" / "means.pdf").is_file()
    assert "Metrics: No label was made" in (to / "methods.md").read_text(encoding="utf-8")
    # Scores of earlier rows are left out, also where their number is equal.
    write(scored, SCORED.replace("[0, 5, 50]", "[0, 6, 50]") + "generator: copier\n")
    assert "scores.csv is of other rows" in exported()
    assert not (to / "tables" / "means.csv").exists()


GRADING = """---
Scale:
0: wrong
1: partly right
2: nearly right
3: right
---
Question: {question} True: {reference} {facts}
Grade {count} answers: {answers}"""


def test_a_grading_prompt_of_a_file_brings_its_scale_to_rows_tables_figures_and_methods(
    scored, capsys
):
    def reply(body):
        right = "True: Ely" in body["messages"][-1]["content"]
        return graded(body, 3 if right else 0) or "Ely."

    (scored / "mine.txt").write_text(GRADING, encoding="utf-8")
    with FakeOllama(reply=reply) as server:
        model = model_of(server)
        text = SCORED + f"generator: {{same: {model}}}\njudge: {{same: {model}}}\n"
        text += "prompts: {same: mine.txt}\nmetrics: [fully_right, grade]\n"
        path = write(scored, text)
        grid = Experiment.from_yaml(path)
        # A label of both axes: the fields say whose prompt it is.
        assert grid.prompt("judge", "same") == str(scored / "mine.txt")
        assert grid.prompt("generator", "same") == "thesis_with_documents"
        assert main(["run", str(path)]) == 0
        assert "share fully right at N tokens (0 rows without)" in capsys.readouterr().out
        planned = grid.plan()
        assert (planned["grading"].cached, planned["grading"].calls) == (6, 6)
        (scored / "mine.txt").write_text(GRADING.replace("2: nearly right\n", ""))
        assert grid.plan()["grading"].cached == 0
        (scored / "mine.txt").write_text(GRADING)
    rows = rb.load_rows(scored / "out")
    assert rows["grade"].tolist() == [3, 3, 3, 0, 0, 0]
    assert set(rows["judge_prompt"]) == {"mine.txt"}
    scale = {0: "wrong", 1: "partly right", 2: "nearly right", 3: "right"}
    assert rows["judge_scale"].tolist() == [scale] * 6
    scores = pd.read_csv(scored / "out" / "scores.csv")
    assert scores["fully_right"].tolist() == [1, 1, 1, 0, 0, 0]
    assert {"grade 0", "grade 3"} <= {*scores}
    assert "grade 5" not in scores
    assert rb.score(rows, ["fully_right"])["fully_right"].tolist() == [1, 1, 1, 0, 0, 0]
    # The table of metrics is that of every experiment in this process.
    assert METRICS["grade"].names == tuple(f"grade {grade}" for grade in range(1, 6))
    assert rb.means(rows, "N", "fully_right")["mean"].eq(0.5).all()
    assert main(["export", str(scored / "out"), "--to", str(scored / "report")]) == 0
    tables = scored / "report" / "tables"
    shares = pd.read_csv(tables / "grades.csv")
    grades = [name for name in shares if name.startswith("grade ")]
    assert grades == ["grade 0", "grade 1", "grade 2", "grade 3"]
    assert shares[["grade 0", "grade 3"]].eq(0.5).all(axis=None)
    heads = (tables / "grades.md").read_text().splitlines()[2]
    assert re.search(r"wrong +\| partly right +\| nearly right +\| right ", heads)
    overview = pd.read_csv(tables / "overview.csv")
    assert overview.loc[overview["metric"] == "fully_right", "mean"].eq(0.5).all()
    audited = pd.read_csv(tables / "audit.csv")
    assert "share fully right" in set(audited["table"])
    methods = (scored / "report" / "methods.md").read_text()
    assert "mine.txt: 0 wrong, 1 partly right, 2 nearly right, 3 right." in methods
    assert "five categories" not in methods
    assert (scored / "report" / "figures" / "grades.pdf").is_file()


def test_the_bars_of_another_scale_have_its_words_and_a_colour_each():
    shares = pd.DataFrame({"system": ["a"], **{f"grade {n}": [1 / 7] for n in range(7)}})
    names = plots.grade_names({n: f"word {n}" for n in range(7)})
    (axis,) = plots.stacked_shares(shares, "system", names).axes
    bars = [patch.get_facecolor() for patch in axis.patches]
    assert len(set(bars)) == 7
    words = [text.get_text() for text in axis.figure.legends[0].get_texts()]
    assert words == [f"grade {n}: word {n}" for n in range(7)]


def test_prompts_of_judges_that_cannot_work_are_named(tmp_path):
    (tmp_path / "mine.txt").write_text("Grade {answers} of {question}")
    text = HEAD + "generator: {g: 'ollama:x'}\njudge: {j: 'ollama:x'}\n"
    for prompts, message in (
        ("{j: mine.txt}", r"no field \{reference\}"),
        ("{k: mine.txt}", "chat model in prompts 'k'"),
    ):
        with pytest.raises(ConfigError, match=message):
            parsed(tmp_path, f"{text}prompts: {prompts}\n")


@pytest.mark.parametrize(
    ("count", "tables"), [(8, {"means", "comparison", "audit"}), (9, {"means", "audit"})]
)
def test_pairs_of_many_systems_are_not_compared_unasked(tmp_path, monkeypatch, count, tables):
    monkeypatch.setattr(plots, "save_figure", lambda *_, **__: {})
    answers = [
        {"question_id": q, "system": f"S{s}", "answer": "Ely", "reference": "Ely"}
        for s in range(count)
        for q in "abcdefgh"
    ]
    table = rb.score(answers, ["exact_match"])
    made = export_scores(table, tmp_path / "out", "mine")
    assert {path.stem for path in (made.folder / "tables").iterdir()} == tables
    told = (made.folder / "methods.md").read_text(encoding="utf-8")
    assert ("Holm" in told) == (count == 8)
    too_many = (
        "Not tested: any difference; 9 systems are too many to compare every pair: "
        "name yours in rb.stats.compare(pairs=)."
    )
    assert (too_many in told) == (count == 9)


def test_metrics_may_be_one_name(tmp_path):
    assert parsed(tmp_path, HEAD + "metrics: eir\n").metrics == ["eir"]


@pytest.mark.parametrize("command", ["plan", "run"])
def test_metrics_of_answers_without_a_generator_are_refused_before_the_run(scored, capsys, command):
    path = write(scored, SCORED + "metrics: [reference_recall, contained]\n")
    assert main([command, str(path)]) == 2
    said = capsys.readouterr().err
    assert "metrics: 'contained' is of answers, and there is no generator" in said
    assert "smollm2" in said
    assert not (scored / "out").exists()
