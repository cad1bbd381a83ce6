"""Labels without a language model: the rule against a slow oracle, whole results by hand, nothing made twice."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from word_bags import Bags

from ragbench.data.ragchecker import RagResult, RetrievedText
from ragbench.errors import ConfigError
from ragbench.labelling import checkers
from ragbench.labelling.checkers import EmbeddedChecker, split_claims
from ragbench.labelling.claims import embedded_labels
from ragbench.metrics.claims import claim_metrics_table
from ragbench.text.negation import NEGATION
from ragbench.text.parse import parse

E, N, C = "Entailment", "Neutral", "Contradiction"
WORDS = ("river", "Nile", "dam", "not", "1902", "1910", "Egypt", "the", ".", ".\n")
texts = st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)


def slow_label(claim, text, rule):
    """The rule as its docstring has it, window by window and word by word."""
    claim, text = parse(claim), parse(text)
    if not claim.stems:
        return N, 0.0
    embedder = Bags()

    def vector(of):
        if not of.strip():
            return np.zeros(8, np.float32)
        return np.array(embedder.embed_documents([of])[0], np.float32)

    best, where = -1.0, None
    for size in range(1, rule.window + 1):
        for start in range(len(text.sentences) - size + 1):
            have = {s for stems in text.sentence_stems[start : start + size] for s in stems}
            coverage = sum(w for s, w in claim.weight.items() if s in have) / sum(claim.weight.values())
            total = sum(vector(s).astype(float) for s in text.sentences[start : start + size])
            cosine = float(total @ vector(claim.text)) / max(float(np.linalg.norm(total)), 1e-9)
            support = rule.mix * coverage + (1 - rule.mix) * cosine
            if support > best + 1e-9:
                best, where = support, (start, start + size)
    if where is None:
        return N, 0.0
    window = text.sentences[where[0] : where[1]]
    if claim.numbers - text.numbers:
        others = {n for s in window for n in parse(s).numbers} - claim.numbers
        return (C if others and best >= rule.related else N), best
    if best < rule.entail:
        return N, best
    nearest = max(window, key=lambda s: float(vector(s) @ vector(claim.text)))
    return (E if bool(NEGATION.search(claim.text)) == bool(NEGATION.search(nearest)) else C), best


@settings(max_examples=150, deadline=None)
@given(st.lists(texts, max_size=4), st.lists(texts, max_size=4), st.sampled_from((1, 2, 3, 9)))
def test_a_block_of_claims_and_texts_is_labelled_as_one_pair_at_a_time(claims, many, window):
    rule = EmbeddedChecker(Bags(), entail=0.6, related=0.4, mix=0.55, window=window)
    labels, support = rule.check_many(claims, many), rule.support(claims, many)
    assert support.shape == (len(claims), len(many))
    for i, claim in enumerate(claims):
        for j, text in enumerate(many):
            expected, value = slow_label(claim, text, rule)
            assert support[i, j] == pytest.approx(value, abs=1e-6)
            if min(abs(value - 0.6), abs(value - 0.4)) > 1e-6:
                assert labels[i][j] == expected, (claim, text)
    assert rule.warm(claims, many).check_many(claims, many) == labels


@settings(deadline=None)
@given(st.lists(texts, min_size=1, max_size=3), st.lists(texts, min_size=1, max_size=5))
def test_texts_in_slices_are_labelled_as_at_once(claims, many):
    rule = EmbeddedChecker(Bags())
    whole = rule.check_many(claims, many), rule.support(claims, many).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkers, "_CELLS", 40)
        assert (rule.check_many(claims, many), rule.support(claims, many).tolist()) == whole


def test_a_warm_checker_embeds_everything_once_and_asks_again_only_for_what_is_new():
    embedder = Bags()
    warm = EmbeddedChecker(embedder, entail=0.7).warm(["the river Nile"], ["River Nile. Dam Egypt.", "Dam Egypt."])
    assert [sorted(asked) for asked in embedder.asked] == [["Dam Egypt.", "River Nile.", "the river Nile"]]
    assert (warm.entail, warm.window) == (0.7, 3)
    assert warm.check_many(["the river Nile"], ["River Nile. Dam Egypt."]) == [[E]]
    assert len(embedder.asked) == 1
    assert warm.check_many(["the river Nile", "dam"], ["River Nile."]) == [[E], [N]]
    assert len(embedder.asked) == 2


NILE, DAM = "The river Nile is in Egypt.", "The dam of 1902 is in Egypt."
RESULT = RagResult(
    "q1|BM25",
    "where is the river",
    reference=f"{NILE} {DAM}",
    response="The river Nile is in Egypt. The dam of 1910 is in Egypt.",
    chunks=(RetrievedText(text=DAM, doc_id="d1"), RetrievedText(text="Nothing here.", doc_id="d2")),
)


def label(*results, **options):
    return embedded_labels(results, options.pop("checker", None) or EmbeddedChecker(Bags(), **options))


def test_a_result_by_hand():
    found = label(RESULT)
    (row,) = found.results.results
    assert row.response_claims == (NILE, "The dam of 1910 is in Egypt.")
    assert row.reference_claims == (NILE, DAM)
    assert row.response_in_reference == (E, C)
    assert row.reference_in_response == (E, C)
    assert row.response_in_chunks == ((N, N), (C, N))
    assert row.reference_in_chunks == ((N, N), (E, N))
    assert (found.unscored, found.partial) == ((), {})
    scores = claim_metrics_table(found.scored.results).loc["q1|BM25"]
    assert scores[["precision", "recall", "claim_recall", "context_precision"]].tolist() == [0.5] * 4
    assert scores[["hallucination", "self_knowledge", "faithfulness"]].tolist() == [0.5, 0.5, 0]


class Counting:
    """A checker that says what it was asked."""

    def __init__(self):
        self.asked = []

    def check_many(self, claims, many):
        self.asked += [(tuple(claims), text) for text in many]
        return [[E if c in t else N for t in many] for c in claims]


def test_claims_are_checked_once_against_a_text_however_many_results_share_both():
    systems = [replace(RESULT, id=str(i), chunks=RESULT.chunks[:k]) for i, k in enumerate((2, 1, 0, 2))]
    counting = Counting()
    found = label(*systems, checker=counting)
    assert len(counting.asked) == len(set(counting.asked)) == 6
    # Different texts taken apart, and labels of different claims and texts: two claims of either side, three texts.
    assert {name: report.items for name, report in found.reports.items()} == {"claims": 2, "claim check": 12}
    rows = found.results.results
    assert [len(r.response_in_chunks[0]) for r in rows] == [2, 1, 0, 2]
    assert rows[3] == replace(rows[0], id="3")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(texts, texts, st.lists(texts, max_size=3)), min_size=1, max_size=4), st.data())
def test_labels_do_not_depend_on_company_order_or_repeated_chunks(parts, data):
    rows = [
        RagResult(str(i), "q", reference, response, tuple(RetrievedText(text=c) for c in chunks))
        for i, (reference, response, chunks) in enumerate(parts)
    ]
    together = {r.id: r for r in label(*rows).results.results}
    assert together == {r.id: r for r in label(*data.draw(st.permutations(rows))).results.results}
    for row in rows:
        assert label(row).results.results == (together[row.id],)
        claims, chunks = split_claims(row.response), [c.text for c in row.chunks]
        one_by_one = tuple(tuple(EmbeddedChecker(Bags()).check([c], t)[0] for t in chunks) for c in claims)
        assert together[row.id].response_in_chunks == one_by_one
        twice = label(replace(row, chunks=row.chunks + row.chunks[:1])).results.results[0]
        for name in ("response_in_chunks", "reference_in_chunks"):
            before = getattr(together[row.id], name)
            assert getattr(twice, name) == tuple(labels + labels[:1] for labels in before)
        assert twice.response_in_reference == together[row.id].response_in_reference


@pytest.mark.parametrize("wrong", [[[E, N, N]], [[E], [E]]])
def test_a_checker_whose_labels_do_not_fit_is_refused(wrong):
    class Padding:
        def check_many(self, claims, many):
            return wrong

    with pytest.raises(ConfigError, match="2 rows, one per claim, of 3 labels"):
        label(RESULT, checker=Padding())
