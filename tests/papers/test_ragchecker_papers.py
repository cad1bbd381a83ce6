"""RAGChecker's published tables as transcribed, and the rows of Table 2 that recorded data give
again.
"""

import math
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from notebook_parts import parts
from scipy.stats import pearsonr, spearmanr

from preferences import preference_table
from ragbench import papers
from ragbench.data.ragchecker import ASPECTS, load_ragchecker_meta
from ragbench.metrics.claims import CLAIM_METRICS
from ragbench.metrics.lexical import bleu, rouge_l
from ragbench.papers.ragchecker import BENCHMARKS
from ragbench.stats import correlation, preference_correlation

SYSTEMS = [
    f"{r}_{g}"
    for r in ("BM25", "E5-Mistral")
    for g in ("GPT-4", "Llama3-8b", "Llama3-70b", "Mixtral-8x7b")
]
DOMAIN_TABLES = [table for _, table in BENCHMARKS.values()]
NOISE = ["relevant_noise_sensitivity", "irrelevant_noise_sensitivity"]
CORRELATIONS = [f"{aspect} {method}" for aspect in ASPECTS for method in ("pearson", "spearman")]

# Sums over the twelve numbers of each system's row, from a second reading of the paper (systems in
# the paper's order).
ROW_SUMS = {
    "Table 3": [491.0, 467.7, 477.5, 470.0, 517.8, 497.5, 510.1, 499.5],
    "Table 6": [475.7, 467.4, 473.1, 471.1, 487.6, 478.9, 491.2, 491.7],
    "Table 7": [500.2, 466.9, 484.9, 470.5, 502.2, 470.0, 481.1, 469.1],
    "Table 8": [555.0, 536.8, 549.6, 538.3, 565.5, 552.4, 567.5, 551.6],
    "Table 9": [468.7, 434.0, 444.7, 465.3, 478.6, 448.4, 458.1, 475.8],
    "Table 10": [481.8, 458.5, 469.6, 456.3, 525.7, 507.1, 519.5, 507.7],
    "Table 11": [487.5, 466.1, 470.8, 463.8, 540.5, 527.2, 538.8, 519.1],
    "Table 12": [478.5, 457.0, 463.1, 451.7, 519.8, 502.8, 510.3, 499.9],
    "Table 13": [507.7, 478.4, 485.4, 483.2, 533.1, 509.1, 523.1, 515.0],
    "Table 14": [496.9, 486.2, 488.3, 482.4, 541.0, 523.9, 536.8, 527.6],
    "Table 15": [453.8, 426.8, 445.1, 421.2, 484.7, 457.9, 475.9, 440.8],
}
TABLE_5_SUMS = {
    "BLEU | BLEU-avg": 192.75,
    "ROUGE | ROUGE-L": 243.33,
    "BERTScore | BERTScore": 204.45,
    "TruLens | Groundedness": 93.22,
    "TruLens | Answer Relevance": 206.27,
    "ARES | Answer Relevance": 107.80,
    "ARES | Answer Faithfulness": 52.68,
    "RAGAS | Faithfulness": 35.22,
    "RAGAS | Answer Correctness": 223.02,
    "RAGAS | Answer Similarity": 304.33,
    "RAGAS | Answer Relevance": 64.84,
    "CRUD-RAG | Precision": 127.53,
    "CRUD-RAG | Recall": 227.89,
    "RAGChecker | Same metric as human": 338.22,
    "Human | Annotator sanity check": 402.11,
}
TABLE_16_SUMS = {
    "Zero Context | Mistral-SFT + RepC": 416.41,
    "Zero Context | Llama3 + Llama3": 432.22,
    "Noisy Context | Mistral-SFT + NLI": 308.48,
    "Noisy Context | Llama3 + Llama3": 320.57,
    "Accurate Context | Mistral-SFT + AlignScore": 301.66,
    "Accurate Context | Llama3 + Llama3": 336.65,
}


def wide(item):
    """One published table as printed: rows and columns in the paper's order."""
    cells = papers.published("ragchecker", item)
    table = cells.pivot(index="row", columns="column", values="value")
    return table.loc[cells["row"].unique(), cells["column"].unique()]


def row(item, name):
    return wide(item).loc[name, CORRELATIONS].tolist()


@pytest.mark.parametrize("item", ROW_SUMS)
def test_tables_of_systems_have_every_cell_and_the_row_sums_of_a_second_reading(item):
    table = wide(item)
    assert table.index.tolist() == SYSTEMS
    assert table.columns.tolist() == [*CLAIM_METRICS, "claims"]
    assert table.notna().all().all()
    assert table.sum(axis=1).round(1).tolist() == ROW_SUMS[item]


def test_tables_of_correlations_and_of_the_checker_have_the_row_sums_of_a_second_reading():
    of_checker = ["accuracy", "factual f1", "non-factual f1", "pearson", "spearman"]
    for item, columns, sums in (
        ("Table 5", CORRELATIONS, TABLE_5_SUMS),
        ("Table 16", of_checker, TABLE_16_SUMS),
    ):
        assert wide(item).columns.tolist() == columns
        assert wide(item).sum(axis=1).round(2).to_dict() == sums


def test_table_3_is_the_mean_of_tables_6_to_15_to_rounding():
    gap = (sum(map(wide, DOMAIN_TABLES)) / len(DOMAIN_TABLES) - wide("Table 3")).abs()
    # one rounding to 0.1 on either side; numbers of claims are rounded to 1
    assert gap[list(CLAIM_METRICS)].max().max() < 0.05 + 0.05
    assert gap["claims"].max() < 0.5 + 0.5


def test_faithfulness_hallucination_and_self_knowledge_add_up_in_all_88_rows():
    for item in ROW_SUMS:
        total = wide(item)[["faithfulness", "hallucination", "self_knowledge"]].sum(axis=1)
        assert (total - 100).abs().max() < 0.1001, item


def test_precision_noise_and_hallucination_add_up_but_for_up_to_three_points():
    deficits = pd.concat(
        {
            item: 100 - wide(item)[["precision", *NOISE, "hallucination"]].sum(axis=1)
            for item in DOMAIN_TABLES
        }
    )
    assert len(deficits) == 80
    assert deficits.min() > -0.2  # four roundings
    assert deficits.max().round(1) == 3.1
    by_generator = deficits.groupby(lambda key: key[1].split("_")[1]).mean()
    # responses without a claim come from the open models, GPT-4 always says something
    assert by_generator["GPT-4"] < 0.1 < by_generator["Llama3-8b"] < by_generator["Mixtral-8x7b"]


def test_metrics_of_the_retriever_do_not_depend_on_the_generator():
    for item in ROW_SUMS:
        by_retriever = wide(item)[["claim_recall", "context_precision"]].groupby(
            lambda name: name.split("_")[0]
        )
        assert (by_retriever.nunique() == 1).all().all(), item


def test_table_2_repeats_table_5_but_for_the_overall_pearson_of_bertscore():
    selected = wide("Table 2")
    full = wide("Table 5").rename(
        {"Human | Annotator sanity check": "Human | Annotator correlation"}
    )
    assert len(selected) == 9
    differing = selected[CORRELATIONS].compare(full.loc[selected.index, CORRELATIONS]).stack(0)
    assert differing.to_dict("index") == {
        ("BERTScore | BERTScore", "overall pearson"): {"self": 35.51, "other": 33.51}
    }


def test_table_1_counts_4162_questions_in_ten_domains():
    table = wide("Table 1")
    assert table.index.tolist() == [row for row, _ in BENCHMARKS.values()]
    assert table["queries"].astype(int).sum() == 4162
    assert table["documents"].astype(int).sum() == 1510502
    assert table.loc["RobustQA Finance"].tolist() == ["Finance", "500", "57638", "FiQA, RobustQA"]


def test_numbers_of_section_4_4_are_those_of_the_text():
    cells = papers.published("ragchecker", "Section 4.4")
    assert len(cells) == 26
    assert cells["value"].sum() == pytest.approx(
        (61.5 + 77.6 + 88.1 + 92.2 + 34.0 + 35.4 + 51.7 + 53.4)
        + (70.3 + 77.6 + 91.2 + 92.2 + 34.5 + 35.4 + 52.6 + 53.4)
        + (92.2 + 93.6 + 59.2 + 63.7 + 35.4 + 38.1)
        + (69.3 + 71.1 + 77.8 + 78.1)
    )
    assert wide("Section 4.4").loc["overlap = 0.4", "context_precision"] == 71.1


def test_every_item_of_the_paper_is_in_the_ledger():
    expected = {*(f"Table {n}" for n in (1, 2, 3, *range(5, 17))), "Section 4.2", "Section 4.4"}
    assert set(papers._published_items("ragchecker")) == expected
    frame = papers.ledger("ragchecker")
    assert set(frame.loc[frame["published"].notna(), "item"]) == expected


@pytest.fixture(scope="module")
def meta(data_mirror):
    return load_ragchecker_meta(data_mirror / "ragchecker" / "meta_evaluation")


def hundredths(correlate):
    """A row of Table 2: a correlation for every aspect, by Pearson and by Spearman."""
    return [
        round(100 * correlate(aspect, method, resamples=0).estimate, 2)
        for aspect in ASPECTS
        for method in ("pearson", "spearman")
    ]


def with_people(scores, meta):
    def correlate(aspect, method, **options):
        people = np.stack(meta[aspect])
        return preference_correlation(*scores(aspect).T, people, method, **options)

    return hundredths(correlate)


@pytest.mark.data
def test_recorded_scores_and_annotators_give_the_published_rows_of_table_2(meta):
    recorded = with_people(lambda aspect: np.stack(meta[f"recorded {aspect}"]), meta)
    assert recorded == row("Table 2", "RAGChecker | Same metric as human")

    def between_people(aspect, method, **options):
        return correlation(*np.stack(meta[aspect]).T, method, **options)

    assert hundredths(between_people) == row("Table 2", "Human | Annotator correlation")


@pytest.mark.data
def test_annotators_agree_within_one_step_as_published(meta):
    rates = [np.mean(np.abs(np.diff(np.stack(meta[aspect]))) <= 1) for aspect in ASPECTS]
    assert (
        round(100 * sum(rates) / 3, 2)
        == wide("Section 4.2").loc["annotators", "agreement within one step"]
        == 90.95
    )
    assert [round(100 * rate, 2) for rate in rates] == [90.71, 91.79, 90.36]


@pytest.mark.data
def test_lexical_rows_of_table_2_come_out_of_jieba_tokens(meta):
    pytest.importorskip("jieba", reason="jieba is in tests/requirements.lock")
    for name, metric in parts("21").jieba_metrics().items():
        sides = zip(meta["responses"], meta["reference"], strict=True)
        scores = np.array(
            [[metric(response, reference) for response in both] for both, reference in sides]
        )
        assert with_people(lambda aspect, scores=scores: scores, meta) == row("Table 2", name)


def test_a_table_of_preferences_has_a_cell_for_each_aspect_and_correlation():
    scores = np.array([[0, 0], [0, 0.25], [0, 1], [math.nan, 1]])  # the last: the median, .25
    labels = np.array([[-2, -1], [0, 1], [2, 2], [1, 0]])
    cells = preference_table({"ARES | X": {"overall": scores}}, {"overall": labels}, 0)
    e = np.repeat([-2.0, -1, 2, -1], 2)
    expected = [100 * theirs(e, labels.ravel()).statistic for theirs in (pearsonr, spearmanr)]
    assert cells["value"].tolist() == pytest.approx(expected)
    assert cells["column"].tolist() == ["overall pearson", "overall spearman"]
    assert set(cells["row"]) == {"ARES | X"}
    assert cells["n"].tolist() == [8, 8]
    assert preference_table({}, {}).empty


def test_bleu_of_the_published_form_worked_by_hand():
    published = partial(
        bleu, tokenizer=list, smoothing="none", effective_order=False, brevity_penalty=False
    )
    # response: a _ c _ s (5, 4, 3, 2 n-grams); shared with "a c r": a _ c _ / a_ _c c_ / 2 / 1
    expected = (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert published("a c s", "a c r") == pytest.approx(expected)
    # a repeated word counts as often as the reference has it; a reference much longer costs nothing
    assert published("a c s", "a c r away from home") == pytest.approx(expected)
    assert published("c c c", "a c r") == 0.0
    assert published("", "a c") == published("c", "c") == 0.0


def test_rouge_l_on_tokens_of_ones_own_equals_the_library():
    from rouge_score.rouge_scorer import RougeScorer

    mat = "a cat sat on the mat"
    texts = (mat, "the mat sat on a cat", "", "on", "a a a cat", "猫坐在垫子上 cat")
    library = RougeScorer(["rougeL"], tokenizer=SimpleNamespace(tokenize=list))
    for response, reference in product(texts, texts):
        expected = library.score(reference, response)["rougeL"].fmeasure
        found = rouge_l(response, reference, tokenizer=list)
        assert found == pytest.approx(expected), (response, reference)
