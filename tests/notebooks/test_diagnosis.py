"""RAGChecker's diagnosis: the grid of settings, gold sentences found, tendencies and what the paper
prints.
"""

import json
from collections import Counter
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from checks import refusals
from fake_ollama import FakeOllama
from notebook_parts import parts

from ragbench import papers
from ragbench.data import load_dataset, load_minihop
from ragbench.data.ragchecker import RetrievedText
from ragbench.labelling.claims import ragchecker_labels
from ragbench.papers import ragchecker as rc
from ragbench.paths import shared_data
from ragbench.prompts import prompt_hash
from ragbench.records import Dataset, Document, Hit, Question
from ragbench.stats import means, paired_difference
from ragbench.text.sentences import split_sentences

BOOK = dg = parts("23")


class InOrder:
    """Finds the chunks of the corpus in their order, whatever is asked."""

    def __init__(self, chunks):
        self.chunks = chunks

    def settings(self):
        return {"retriever": "in order"}

    def search(self, queries, k):
        return [[Hit(c, 1.0, i + 1) for i, c in enumerate(self.chunks[:k])] for _ in queries]


def about_law(name, text, answer, *facts):
    return Question(name, text, answer, facts, meta={"domain": "law"})


@pytest.fixture
def world():
    """4,500 numbered words, with facts before w100, w600 and w1500."""
    words = [f"w{i}" for i in range(4500)]
    facts = ("red stones fall", "blue birds sing", "green doors open")
    for place, fact in zip((1500, 600, 100), facts[::-1], strict=True):
        words.insert(place, fact)
    questions = (
        about_law("q1", "which?", "Red stones fall.", facts[0]),
        about_law("q2", "which two?", "Blue birds, and green doors.", *facts[1:]),
        about_law("q3", "none?", "Unknown."),
    )
    return Dataset("world", questions, (Document("d", "d", " ".join([*words, "the end"])),))


def run(world, folder, wanted=None, generators=None):
    grid = rc.grid(
        "made", world, {"in order": InOrder}, generators, wanted or dg.variations(), folder=folder
    )
    return grid, grid.run(progress=False)


def test_settings_vary_one_factor_at_a_time_around_20_chunks_of_300_tokens_with_overlap_a_fifth():
    assert dg.Setting(20, 300, 0.2, "default") == dg.DEFAULT
    factors = [
        {"k": 5},
        {"k": 10},
        {"size": 150},
        {"size": 600},
        {"overlap": 0.0},
        {"overlap": 0.4},
    ]
    assert Counter(dg.variations()) == Counter(
        [dg.DEFAULT, *(replace(dg.DEFAULT, **factor) for factor in factors)]
    )
    assert len(dg.variations(full=True)) == 27


def test_the_grid_has_one_row_per_question_and_setting_and_its_chunks_are_what_the_setting_says(
    world, tmp_path
):
    grid, rows = run(world, tmp_path)
    assert Counter(zip(rows["chunker"], rows["k"], strict=True)) == {
        (s.chunker, s.k): 3 for s in dg.variations()
    }
    settings = {(s.chunker, s.k): [s.k, s.size, s.overlap] for s in dg.variations()}
    scored = BOOK.gold_scores(grid, rows)[["k", "size", "overlap"]].to_numpy().tolist()
    assert scored == [settings[place] for place in zip(rows["chunker"], rows["k"], strict=True)]
    assert len(scored) == 21
    assert scored[0][1] == 150
    first, second, *_ = grid.chunker[dg.Setting(size=150).chunker](world.documents)
    # 4,511 words, some of two tokens: the first chunks overlap by 30 tokens of 150
    assert first.text.split()[-1] in second.text


def test_gold_sentences_found_and_chunks_that_hold_one_are_those_counted_by_hand(world, tmp_path):
    grid, rows = run(world, tmp_path, wanted=[dg.Setting(k=5), dg.DEFAULT])
    scored = BOOK.gold_scores(grid, rows).set_index(["question_id", "k"])
    chunks = [c.text for c in grid.chunker[dg.DEFAULT.chunker](world.documents)]
    for k in (5, 20):
        for question in world.questions:
            found = [[r in c for c in chunks[:k]] for r in question.references]
            at = scored.loc[question.id, k]
            by_hand = (
                [np.any(found, axis=axis).mean() for axis in (1, 0)] if found else [np.nan, np.nan]
            )
            np.testing.assert_equal(at[["gold_found", "gold_chunks"]].tolist(), by_hand)
    # w0..w499 take two tokens each or more: 5 chunks reach the first fact, not the third
    assert scored.loc[("q1", 5), "gold_found"] == 1
    assert scored.loc[("q2", 5), "gold_found"] < scored.loc[("q2", 20), "gold_found"]


def test_white_space_aside_a_gold_sentence_is_found_as_it_stands():
    texts = ("so red stones   fall down", "Red stones fall", "")
    chunks = [RetrievedText(text=text) for text in texts]
    gold = [BOOK.spaced("red  stones\nfall"), "blue birds sing"]
    assert BOOK.gold_shares(gold, chunks) == (1 / 2, 1 / 3)
    assert BOOK.gold_shares(["red stones fall"], [])[0] == 0
    assert np.isnan(BOOK.gold_shares([], chunks)).all()


def test_overlap_brings_a_fact_cut_by_an_edge_within_reach():
    documents = [Document("d", "d", "a " * 298 + "red stones fall" + " a" * 800)]
    questions = [about_law("q", "which?", "x", "red stones fall"), about_law("none", "which?", "x")]
    shares = [
        BOOK.reachable(documents, questions, dg.Setting(overlap=share)) for share in dg.OVERLAPS
    ]
    assert shares == [{"q": 0}, {"q": 1}, {"q": 1}]


def test_failed_rows_are_counted_not_dropped(world, tmp_path):
    grid, rows = run(world, tmp_path, wanted=[dg.DEFAULT])
    whole = BOOK.gold_scores(grid, rows)
    rows.loc[rows["question_id"] == "q1", "status"] = "failed"
    after = BOOK.gold_scores(grid, rows)
    assert after["question_id"].tolist() == ["q1", "q2", "q3"]
    assert after["gold_found"].isna().tolist() == [True, False, True]
    assert after["gold_found"][1] == whole["gold_found"][1] == 1
    table = means(after, dg.SYSTEM, ["gold_found"], resamples=0)
    assert table[["n", "unscored"]].to_numpy().tolist() == [[1, 2]]


def says(question, context):
    """A reader that says what the world begins with, whatever its context holds."""
    return "Red stones fall. Pigs fly." if "two" not in question else "Blue birds sing."


class Same:
    """A checker for which a claim is entailed by a text that has its first word."""

    def check_many(self, claims, texts):
        inside = [set(t.lower().split()) for t in texts]
        return [
            ["Entailment" if c.split()[0].lower() in words else "Neutral" for words in inside]
            for c in claims
        ]


def labelled(results):
    """Sentences are the claims, `Same` checks them."""

    def claims(text):
        return tuple(split_sentences(text, "claims"))

    apart = [
        replace(
            result,
            response_claims=claims(result.response),
            reference_claims=result.reference_claims or claims(result.reference),
        )
        for result in results
    ]
    return ragchecker_labels(None, apart, checker=Same())


def test_answers_have_claims_of_the_true_answer_and_of_the_response(world, tmp_path):
    grid, rows = run(world, tmp_path, wanted=[dg.DEFAULT], generators={"default": says})
    scores = BOOK.metric_scores(grid, rows, labelled(rc.results(rows)))
    scored = scores.set_index("question_id")
    names = ["precision", "recall", "claim_recall", "hallucination", "f1"]
    assert scored.loc["q1", names].tolist() == pytest.approx([0.5, 1, 1, 0.5, 2 / 3])
    assert scored.loc["q2", ["precision", "recall", "faithfulness"]].eq(1).all()
    sums = scored[list(BOOK.NOISE)].sum(axis=1, skipna=False)
    pd.testing.assert_series_equal(scored["noise_sensitivity"], sums, check_names=False)
    assert set(scored["prompt"]) == {"default"}


def test_minihops_own_claims_are_taken_for_its_long_answers(tmp_path):
    data = dg.answerable(dg.topic_pages(load_minihop(limit=1)))
    grid = rc.grid("made", data, {"in order": InOrder}, {"default": says}, folder=tmp_path)
    (seen,) = rc.results(grid.run(progress=False))
    question = data.questions[0]
    assert seen.reference == question.meta["long_answer"]
    assert seen.reference_claims == tuple(c["text"] for c in question.meta["claims"])
    assert seen.response == "Red stones fall. Pigs fly."
    assert len(seen.chunks) == 20


def speak(request):
    """Answer; take one claim out of every text; find it entailed by chunks that have it."""
    if not request.get("format"):
        return "Red stones fall."
    (name, spec), *_ = request["format"]["properties"].items()
    if name == "claims":
        return json.dumps({name: ["red stones fall"]})
    seen = request["messages"][-1]["content"].lower().count("red stones fall") > 1
    label = "Entailment" if seen else "Neutral"
    return json.dumps({name: [label] if spec.get("type") == "array" else label})


def test_a_model_answers_with_the_optimised_prompt_at_the_default_setting_only(world, tmp_path):
    settings = [dg.Setting(k=5), dg.DEFAULT, dg.Setting(prompt="optimised")]
    with FakeOllama(reply=speak) as server:
        model = server.model(num_ctx=32768)
        grid, rows = run(world, tmp_path, settings, dict.fromkeys(dg.ANSWER_PROMPTS, model))
        done = ragchecker_labels(model, rc.results(rows), progress=False)
    scored = BOOK.metric_scores(grid, rows, done)
    assert Counter(zip(rows["generator"], rows["k"], strict=True)) == {
        ("default", 5): 3, ("default", 20): 3, ("optimised", 20): 3,
    }  # fmt: skip
    assert rows.groupby("generator")["prompt_sha256"].unique().map(list).to_dict() == {
        name: [prompt_hash(prompt)] for name, prompt in dg.ANSWER_PROMPTS.items()
    }
    assert scored[["question_id", "k", "prompt"]].iloc[:3].to_numpy().tolist() == [
        ["q1", 5, "default"], ["q1", 20, "default"], ["q1", 20, "optimised"],
    ]  # fmt: skip
    # the claim is in one chunk, and in the response; the other questions' references do not have it
    first = scored[scored["question_id"] == "q1"]
    assert first["context_precision"].round(6).tolist() == [0.2, 0.05, 0.05]
    assert first[["faithfulness", "precision", "context_utilization"]].eq(1).all(axis=None)
    assert scored[scored["question_id"] == "q2"]["irrelevant_noise_sensitivity"].eq(1).all()
    laid = BOOK.by_factor(scored)
    assert laid[laid["factor"] == "prompt"]["value"].unique().tolist() == ["default", "optimised"]


def made_scores(**means):
    """Ten questions at every setting with the same score, plus a little of the question's own."""
    rows = [
        {"question_id": f"q{i}", "cluster": i, "retriever": r, **{name: getattr(s, name) for name in dg.PLACE},
         "gold_found": means.get(f"k{s.k}", 0.5) + (0.2 if s.size == 600 else 0) + i / 100 + (r == "B") / 10}
        for s in dg.variations(full=True) for r in "AB" for i in range(10)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_tendencies_are_paired_differences_per_retriever_and_over_all_of_them():
    scored = made_scores(k5=0.2)
    scored.loc[scored.eval("retriever == 'B' and k == 5"), "gold_found"] += 0.1
    table = BOOK.tendencies(scored)
    assert set(table["metric"]) == {"gold_found"}
    changes = table.set_index(["change", "retriever"])
    rises = changes.loc["k 5 to 20"]
    assert rises["difference"].round(6).to_dict() == {"A": 0.3, "B": 0.2, "all": 0.25}
    assert rises[["n", "paper"]].eq([10, "rises"]).all(axis=None)
    same = changes.loc["overlap 0 to 0.4"]
    assert (same["difference"].abs() < 1e-12).all()
    assert same["paper"].eq("stays").all()
    unscored = scored.eval("question_id == 'q0' and k == 5 and retriever == 'A'")
    fewer = BOOK.tendencies(scored.assign(gold_found=scored["gold_found"].mask(unscored)))
    counts = fewer.set_index(["change", "retriever"]).loc["k 5 to 20", "n"]
    assert counts.to_dict() == {"A": 9, "B": 10, "all": 9}


def test_questions_of_one_document_count_as_one_and_tests_are_corrected_for_each_other():
    settings = (dg.Setting(size=150), dg.DEFAULT)
    rows = pd.DataFrame([
        {"question_id": f"q{i}", "cluster": i % 4, "retriever": "A", **asdict(setting)}
        for i in range(24) for setting in settings
    ])  # fmt: skip
    rows["f1"] = rows["size"].eq(300).astype(float)
    rows["recall"] = rows["f1"].where(rows["cluster"] > 0, 0)
    table = BOOK.tendencies(rows, {"size": (*settings, {"f1": "rises", "recall": "rises"})})
    table = table[table["retriever"] == "A"].set_index("metric")
    # Four documents, of which one has no difference in recall.
    p = {
        "f1": paired_difference([1] * 4, [0] * 4).p,
        "recall": paired_difference([0, 1, 1, 1], [0] * 4).p,
    }
    assert table["p"].to_dict() == pytest.approx(p)
    assert table.loc["f1", "p_holm"] == pytest.approx(4 * p["f1"])
    assert table["n"].tolist() == [24, 24]


def test_f1_of_section_4_4_is_the_harmonic_mean_of_means_by_domain():
    rows = [("a", 1.0, 0.0), ("a", 0.0, 1.0), ("b", 0.5, 1.0), ("b", np.nan, 0.0)]
    scored = pd.DataFrame(rows, columns=["domain", "precision", "recall"])
    f1 = [0, 0, 2 / 3, np.nan]
    found = BOOK.f1_of_means(scored.assign(retriever="A", f1=f1, **asdict(dg.DEFAULT)))
    # Domain a: halves on average, 0.5; domain b: 0.5 and 1. The mean of F1 by question would be
    # 0.22.
    assert found["mean"].tolist() == pytest.approx([(0.5 + 2 / 3) / 2])
    assert found[["metric", "n", "unscored"]].to_numpy().tolist() == [["f1_of_means", 3, 1]]
    cells = BOOK.as_printed(found, "Section 4.4")
    assert set(cells["column"]) == {"f1"}
    assert cells["value"].iloc[0] == pytest.approx(58.333333)
    # another quantity than the printed one
    assert BOOK.as_printed(found.assign(metric="f1"), "Section 4.4").empty


def test_section_4_4_follows_from_tables_8_10_and_15():
    cells = BOOK.identities()
    assert cells.groupby("column")["value"].first().round(2).to_dict() == {
        "claim_recall": 77.63, "context_utilization": 59.17, "f1": 53.43, "faithfulness": 92.18,
        "noise_sensitivity": 35.39,
    }  # fmt: skip
    printed = cells.merge(
        papers.published("ragchecker", "Section 4.4"), on=["row", "column"], suffixes=("", "_paper")
    )
    assert len(printed) == len(cells) == 11
    assert (printed["value"].round(1) == printed["value_paper"]).all()
    # The tables' own F1 is the mean over questions, and lower: the section's number is another
    # quantity.
    items = ("Table 8", "Table 10", "Table 15")
    tables = pd.concat(papers.published("ragchecker", item) for item in items)
    systems = ["BM25_GPT-4", "E5-Mistral_GPT-4", "E5-Mistral_Llama3-70b"]
    own = tables[tables["row"].isin(systems) & tables["column"].eq("f1")]["value"]
    assert own.mean() == pytest.approx(50.2, abs=0.05)


def test_the_default_setting_stands_on_every_axis_and_other_combinations_on_none():
    laid = BOOK.by_factor(means(made_scores(), dg.SYSTEM, ["gold_found"], resamples=0))
    assert laid.groupby("factor")["value"].unique().map(list).to_dict() == {
        "k": [5, 10, 20], "size": [150, 300, 600], "overlap": [0.0, 0.2, 0.4], "prompt": ["default"],
    }  # fmt: skip
    assert len(laid) == 2 * 10
    default = laid.query("k == 20 and size == 300 and overlap == 0.2 and retriever == 'A'")
    assert default["factor"].tolist() == ["k", "size", "prompt", "overlap"]
    assert default["mean"].nunique() == 1


def test_published_numbers_are_laid_out_by_factor_with_the_default_on_each_axis():
    table = BOOK.published_by_factor().set_index(["factor", "value", "metric"])["mean"]
    cells = {
        ("k", 5, "claim_recall"): 0.615,
        ("size", 150, "f1_of_means"): 0.526,
        ("prompt", "optimised", "noise_sensitivity"): 0.381,
        ("overlap", 0.4, "context_precision"): 0.711,
        # the paper's middle overlap is its default setting, and lies below both ends
        ("overlap", 0.2, "claim_recall"): 0.776,
    }
    assert table[[*cells]].to_dict() == pytest.approx(cells)
    assert len(table) == len(papers.published("ragchecker", "Section 4.4")) + 1
    assert table.index.is_unique


def test_cells_are_named_as_the_paper_prints_them():
    table = means(made_scores(k5=0.2), dg.SYSTEM, ["gold_found"], resamples=0)
    mine = table[table["retriever"] == "A"]
    cells = BOOK.as_printed(mine, "Section 4.4")
    printed = papers.published("ragchecker", "Section 4.4")
    assert cells["row"].tolist() == printed[printed["column"] == "claim_recall"]["row"].tolist()
    assert cells.set_index("row")["value"].round(6)[["k = 5", "k = 20"]].tolist() == [24.5, 54.5]
    figure = BOOK.as_printed(mine, "Figure 7")
    assert figure["row"].tolist() == ["chunk size = 150", "chunk size = 300", "chunk size = 600"]
    assert set(figure["n"]) == {10}


def test_pages_join_the_documents_of_a_topic_and_keep_every_supporting_sentence():
    minihop = load_minihop()
    pages = dg.topic_pages(minihop)
    assert len(pages.documents) == 20
    text, before = ("\n".join(d.text for d in data.documents) for data in (pages, minihop))
    assert len(text.split()) == len(before.split())
    assert all(r in text for q in pages.questions for r in q.references)
    assert len(pages.questions) == 180
    domains = {d.id.partition("/")[0] for d in pages.documents}
    assert {q.meta["domain"] for q in pages.questions} == domains
    assert {q.meta["doc_ids"] for q in pages.questions} == {(d.id,) for d in pages.documents}


def test_the_sample_is_the_first_of_every_domain_and_type_and_says_what_it_leaves_out():
    data = load_dataset("minihop", dg.DATA, per_kind=2)
    whole = load_dataset("minihop", dg.DATA)
    first = {}
    for question in whole.questions:
        first.setdefault((question.meta["domain"], question.kind), []).append(question.id)
    chosen = {name for names in first.values() for name in names[:2]}
    assert all(len(names) >= 2 for names in first.values())
    assert [q.id for q in data.questions] == [q.id for q in whole.questions if q.id in chosen]
    answers = dg.answerable(whole)
    assert len(answers.questions) == 65
    assert Counter(why for _, why in answers.excluded) == {"no long answer": 115}


test_a_sample_or_a_grid_of_nothing_is_refused = refusals(
    (lambda: load_dataset("dragonbal", dg.DATA), "did you mean 'dragonball'"),
    (lambda: load_dataset("minihop", dg.DATA, per_kind=0), "per_kind=0"),
    (lambda: rc.grid("made", load_minihop(), {"in order": InOrder}, settings=[]), "no settings"),
)


def test_without_the_mirror_minihop_takes_dragonballs_place(monkeypatch):
    monkeypatch.delenv("RAGBENCH_DATA", raising=False)
    assert load_dataset("auto", dg.DATA, per_kind=1).name == "minihop pages"


@pytest.mark.skipif(
    shared_data("rageval", "dragonball_docs.jsonl") is None,
    reason="DRAGONBall is not in RAGBENCH_DATA",
)
def test_dragonballs_documents_are_long_enough_and_hold_their_references():
    data = load_dataset("auto", dg.DATA, per_kind=20)
    assert (data.name, len(data.questions), len(data.documents)) == ("dragonball", 420, 108)
    assert np.median([len(d.text.split()) for d in data.documents]) > 1000
    text = "\n".join(" ".join(d.text.split()) for d in data.documents)
    wanted = [" ".join(r.split()) for q in data.questions for r in q.references]
    assert np.mean([r in text for r in wanted]) > 0.98
    assert {why for _, why in dg.answerable(data).excluded} == {"no references"}


def numbers(line):
    return np.asarray(line.get_ydata(), float)


def long_means():
    """Means of .0, .1 and .2 at 5, 10 and 20, of the domain .05 higher."""
    axes = {"metric": ["claim_recall", "f1"], "system": ["A", "B"], "domain": ["", "law"]}
    cells = pd.MultiIndex.from_product([*axes.values(), [5, 10, 20]], names=[*axes, "value"])
    rows = cells.to_frame(index=False)
    mean = rows["value"].map({5: 0, 10: 0.1, 20: 0.2})
    return rows.assign(mean=mean + 0.05 * rows["domain"].eq("law"), low=mean - 0.1, high=mean + 0.2)


def test_lines_show_means_domains_and_the_papers_numbers():
    paper = pd.DataFrame(
        {"value": [5, 20, 5], "metric": ["f1", "f1", "faithfulness"], "mean": [0.517, 0.534, 0.881]}
    )
    figure = BOOK.draw_settings(long_means(), [5, 10, 20], paper=paper, thin="domain")
    shown = [a for a in figure.axes if a.get_visible()]
    assert [a.get_title() for a in shown] == ["claim recall", "f1"]  # no panel of the paper alone
    f1 = shown[1]
    lines = {line.get_label(): line for line in f1.lines}
    np.testing.assert_allclose(lines["paper"].get_xdata(), [0, 2])
    np.testing.assert_allclose(lines["paper"].get_ydata(), [0.517, 0.534])
    np.testing.assert_allclose(lines["A, law"].get_ydata(), [0.05, 0.15, 0.25])
    thick = {c.get_label(): c for c in f1.containers}
    np.testing.assert_allclose(numbers(thick["B"].lines[0]), [0, 0.1, 0.2])
    np.testing.assert_allclose(thick["B"].lines[2][0].get_segments()[1][:, 1], [0, 0.3])
    assert [t.get_text() for t in f1.get_xticklabels()] == ["5", "10", "20"]
    apart = np.subtract(*(np.asarray(thick[s].lines[0].get_xdata(), float) for s in "BA"))
    assert (apart > 0).all()  # intervals beside each other
    named = {t.get_text() for t in figure.legends[0].get_texts()}
    assert named == {"A", "B", "A, law", "B, law", "paper"}


def test_a_figure_shows_means_intervals_and_the_papers_value_on_a_scale_of_its_own():
    means_of = {"mean": [0.50, 0.51], "low": [0.49, 0.48], "high": [0.52, 0.54]}
    ours = pd.DataFrame({"value": [5, 20], "metric": "recall", "system": "BM25"} | means_of)
    paper = pd.DataFrame({"value": [20, 40], "metric": "recall", "mean": [0.52, 0.9]})
    figure = BOOK.draw_settings(ours, [5, 20], paper=paper, xlabel="k")
    (axis,) = figure.axes
    (bars,) = axis.containers
    np.testing.assert_allclose(numbers(bars.lines[0]), ours["mean"])
    ends = [segment[:, 1] for segment in bars.lines[2][0].get_segments()]
    np.testing.assert_allclose(ends, ours[["low", "high"]])
    printed = [line.get_xydata().tolist() for line in axis.lines if line.get_label() == "paper"]
    assert printed == [[[1, 0.52]]]  # 40 is no value here
    # a point of difference does not fill a panel
    assert np.ptp(axis.get_ylim()) == pytest.approx(0.2)
    assert {t.get_text() for t in figure.legends[0].get_texts()} == {"BM25", "paper"}
