"""Chunking: fixed windows of tokens and the thesis's semantic chunking (§2.5.2)."""

import itertools
import random
import string
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from checks import refusals
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document as LangChainDocument
from word_bags import Bags

from ragbench import chunking
from ragbench.chunking import segment, semantic_chunks, sentence_chunks, split_chunks, token_chunks
from ragbench.errors import ConfigError, DataError
from ragbench.records import Document
from ragbench.text.sentences import sentence_spans
from ragbench.text.tokens import TokenOffsets, default_tokenizer, truncate


def topics():
    """Embed texts by how often they hold 'cat' and 'dog'."""
    return Bags("cat", "dog", inside=True)


def doc(text, name="d"):
    return Document(name, "T", text)


@pytest.mark.parametrize(
    ("text", "size", "overlap", "texts"),
    [
        (
            "one two three four five six seven",
            4,
            0.5,
            ["one two three four", "three four five six", "five six seven"],
        ),
        ("one two three four five", 2, 0, ["one two", "three four", "five"]),  # the last is short
        ("one two", 300, 0, ["one two"]),
        ("   ", 300, 0, []),
    ],
)
def test_token_chunks_by_hand(text, size, overlap, texts):
    chunks = token_chunks([doc(text)], size=size, overlap=overlap)
    assert [(c.id, c.text, c.title) for c in chunks] == [
        (f"d#{i}", text, "T") for i, text in enumerate(texts)
    ]


def test_by_default_chunks_have_250_tokens_of_which_50_are_repeated():
    words = ["one", "two", "three"] * 200
    texts = [chunk.text.split() for chunk in token_chunks([doc(" ".join(words))])]
    assert texts == [words[:250], words[200:450], words[400:]]


@given(st.integers(1, 60), st.integers(1, 12), st.sampled_from([0.0, 0.2, 0.5, 0.9]))
def test_token_chunks_cover_every_word_and_repeat_only_the_overlap(n, size, overlap):
    words = ["abcdefghij"[i % 10] for i in range(n)]
    chunks = [chunk.text.split() for chunk in token_chunks([doc(" ".join(words))], size, overlap)]
    step = max(1, size - round(size * overlap))
    assert chunks[0] + [w for c in chunks[1:] for w in c[size - step :]] == words
    assert all(len(c) <= size for c in chunks)
    assert len(chunks) == max(1, -(-(n - size) // step) + 1)


def test_a_text_splitter_makes_chunks_by_hand():
    documents = [Document("d", "Title", "One. Two.\n\n \n\nThree."), Document("e", "E", "Four.")]
    chunks = split_chunks(documents, lambda text: text.split("\n\n"))
    assert [(c.id, c.text, c.doc_id, c.title) for c in chunks] == [
        ("d#0", "One. Two.", "d", "Title"),
        ("d#2", "Three.", "d", "Title"),
        ("e#0", "Four.", "e", "E"),
    ]


def test_a_text_splitter_of_langchain_is_passed_as_it_is():
    splitters = pytest.importorskip("langchain_text_splitters", reason="is in the extra langchain")
    splitter = splitters.RecursiveCharacterTextSplitter(chunk_size=16, chunk_overlap=0)
    chunks = split_chunks([doc("One two three. Four five six.")], splitter.split_text)
    assert [chunk.text for chunk in chunks] == ["One two three.", "Four five six."]


def test_a_splitter_by_headers_returns_documents_and_anything_else_is_named():
    def by_header(text):
        return [LangChainDocument(part, metadata={"Header 1": "A"}) for part in text.split("#")]

    chunks = split_chunks([doc("#one#two")], by_header)
    assert [(c.id, c.text) for c in chunks] == [("d#1", "one"), ("d#2", "two")]
    assert split_chunks([doc("one")], lambda text: []) == []
    for returned in (None, "one", [3]):
        with pytest.raises(ConfigError, match=r"split gave .* for document 'd'"):
            split_chunks([doc("one")], lambda text, returned=returned: returned)


SCRIPTS = "ab Z9-.?!\n\t，。！中文字กรุงเทพひカ서울ñ\u0301\u200b\ufffd😀_"
TEXTS = st.one_of(st.text(st.sampled_from(SCRIPTS), max_size=60), st.text(max_size=40))


def visible(texts):
    return "".join("".join(texts).split())


@settings(deadline=None)
@given(TEXTS, st.integers(1, 8))
def test_chunks_of_any_script_lose_no_character(text, size):
    one = [doc(text)]
    for chunks in (
        token_chunks(one, size, 0.0),
        semantic_chunks(one, topics(), min_chars=0, percentile=50),
        semantic_chunks(one, topics(), "paper", max_tokens=size),
        *(sentence_chunks(one, size, *how) for how in product(chunking.UNITS, ("en", "zh"))),
    ):
        assert visible(chunk.text for chunk in chunks) == visible(text)
        assert all(chunk.text in text for chunk in chunks)
    starts = [text.find(chunk.text) for chunk in token_chunks(one, size, 0.5)]
    assert visible(text) == "" or starts[0] == len(text) - len(text.lstrip())


def test_token_chunks_begin_and_end_between_words_unless_a_word_is_longer_or_they_are_to_be_cut():
    text = "unbelievably hydrochlorofluorocarbons, dissolve"  # 3, 10 and 1 tokens, and a comma

    def cut(text, *settings, **options):
        return [chunk.text for chunk in token_chunks([doc(text)], *settings, **options)]

    for overlap in (0.0, 0.5):
        assert cut(text, 12, overlap) == ["unbelievably", "hydrochlorofluorocarbons, dissolve"]
    for pieces in (cut(text, 3, 0.0), cut(text, 12, 0.0, words=False)):
        assert visible(pieces) == visible(text)
        assert not set(" ".join(pieces).split()) <= set(text.split())
    # RAGEval's windows end within words, as in the runs of Table 4.
    windows = cut("unbelievably unbelievably ", 7, 0.0, words=False)
    assert windows == ["unbelievably unbel", "ievably"]
    sentence = "An unbelievably long sentence of hydrochlorofluorocarbons that goes on and on."
    pieces = semantic_chunks([doc(sentence)], topics(), "paper", max_tokens=12)
    assert " ".join(c.text for c in pieces) == sentence


@settings(deadline=None)
@given(st.lists(st.sampled_from(["mill", "Trafalgar", "unbelievably", "1902-03.", "e\u0301te\u0301"]), min_size=1),
       st.integers(8, 12), st.sampled_from([0.0, 0.3, 0.9]))  # fmt: skip
def test_no_word_that_fits_is_cut_and_the_union_of_the_chunks_is_the_text(words, size, overlap):
    chunks = [chunk.text.split() for chunk in token_chunks([doc(" ".join(words))], size, overlap)]
    at = 0
    for chunk in chunks:
        start = next(i for i in range(at, -1, -1) if words[i : i + len(chunk)] == chunk)
        assert start <= at
        at = max(at, start + len(chunk))
    assert at == len(words)


def test_a_number_of_tokens_is_a_limit_for_texts_without_spaces():
    thai = "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย" * 30
    assert truncate(thai, 10) == thai[:40]
    assert truncate(f"a {thai} b", 11) == f"a {thai[:40]}"
    run = "".join(random.Random(0).choices(string.ascii_letters + string.digits, k=22_000))
    assert len(truncate(run, 300)) == 1200
    assert len(token_chunks([doc(run)], 100, 0.0)) == 55
    # up to 20 unknown characters are one token, as published
    assert truncate("ทีปังกรรัศมีโชต b", 1) == "ทีปังกรรัศมีโชต"


def test_a_text_of_chinese_sentences_is_cut_where_its_subject_changes():
    chunks = semantic_chunks([doc("cat猫坐在那里。" * 20 + "dog狗跑了！" * 20)], topics(), "paper")
    assert [chunk.text.count("cat") for chunk in chunks] == [20, 0]


def test_a_long_text_that_is_tokenised_in_pieces_is_cut_as_a_whole():
    text = " ".join(f"{'abcdefghij'[i % 10]}{i}" for i in range(60_000))  # 400,000 characters
    (offsets,) = TokenOffsets.spans(default_tokenizer(), [text])
    chunks = token_chunks([doc(text)], 100, 0.0, words=False)
    starts = [offsets[i][0] for i in range(0, len(offsets), 100)]
    assert [text.index(chunk.text[:40]) for chunk in chunks[:50]] == starts[:50]
    assert len(chunks) == len(starts)
    assert " ".join(chunks[-1].text.split()) == text[starts[-1] :]


@pytest.mark.posix
def test_fifty_bytes_of_memory_a_byte_of_text_are_enough():
    code = (
        "import resource, ragbench as rb\n"
        "rb.token_chunks([rb.Document('d', '', 'river bank ' * 10)])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "text = 'The river rises in the Alps and ends in the sea. ' * 60_000\n"
        "rb.token_chunks([rb.Document('d', '', text)])\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print((after - before) * 1024 / len(text))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 50


@pytest.mark.parametrize(
    ("min_chars", "sentences"),
    [
        (0, ["Aa bb.", "Cc dd?", "Ee ff!", "Gg."]),
        (10, ["Aa bb. Cc dd?", "Ee ff! Gg."]),
        (13, ["Aa bb. Cc dd? Ee ff! Gg."]),
        (1000, ["Aa bb. Cc dd? Ee ff! Gg."]),
    ],
)
def test_sentences_are_merged_until_long_enough_and_the_rest_joins_the_last(min_chars, sentences):
    text = "Aa bb. Cc dd? Ee ff! Gg."
    assert [text[a:b] for a, b in sentence_spans(text, "chunks", min_chars)] == sentences


def test_as_run_counts_a_blank_before_each_sentence_and_leaves_a_short_end_alone():
    parts = ["A" * 209 + ".", "B" * 209 + ".", "C" * 49 + "."]
    (chunk,) = semantic_chunks([doc(" ".join(parts))], topics(), "as_run")
    assert chunk.text == "".join(f" {part} " for part in parts).rstrip()
    (cut,) = segment([doc(" ".join(parts))], topics(), "as_run")
    assert [1 + end - start for start, end in cut.sentences] == [211, 211, 51]
    (ours,) = segment([doc(" ".join(parts))], topics())
    assert [end - start for start, end in ours.sentences] == [210, 261]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (f"{'a' * 198}. Bb.", f" {'a' * 198}.  Bb."),  # 200 with the blank: whole
        (f"{'a' * 197}. Bb.", f" {'a' * 197}. Bb."),  # 199: merged
        (f"{'a' * 99}.\n\n{'b' * 98}. C.", f" {'a' * 99}. {'b' * 98}.  C."),
        ("See fig. 3 here.", " See fig. 3 here."),
    ],
)
def test_as_run_writes_one_blank_between_merged_sentences_and_two_between_others(text, written):
    (chunk,) = semantic_chunks([doc(text)], topics(), "as_run")
    assert (chunk.id, chunk.text) == ("d#0", written)


def test_as_run_splits_where_the_default_reads_on():
    long = "a" * 210
    text = f"{long} fig. 3 {long}."
    lengths = {
        profile: len(segment([doc(text)], topics(), profile)[0].sentences)
        for profile in ("merged", "as_run")
    }
    assert lengths == {"merged": 1, "as_run": 2}


def test_as_run_cuts_where_the_distance_says_and_no_tokens_are_lost():
    text = f"{CATS} {DOGS}"
    chunks = semantic_chunks([doc(text)], topics(), "as_run", min_chars=0, window=1)
    assert len(chunks) > 1
    assert all(chunk.text.startswith(" The ") for chunk in chunks)
    assert " ".join(" ".join(chunk.text for chunk in chunks).split()) == text
    limited = semantic_chunks([doc(text)], topics(), "as_run", min_chars=0, max_tokens=8)
    assert all(chunk.text in text for chunk in limited)


CATS = " ".join(f"The cat sat number {i}." for i in range(6))
DOGS = " ".join(f"The dog ran number {i}." for i in range(6))


def test_as_run_breaks_where_the_subject_changes():
    cut = segment([doc(f"{CATS} {DOGS}")], topics(), "as_run", min_chars=0, window=1)[0]
    # windows of +-1 sentence: only the steps 4->5, 5->6, 6->7 of 11 mix cats and dogs, and the
    # middle one the most
    assert np.argmax(cut.distances) == 5
    assert cut.threshold == pytest.approx(np.percentile(cut.distances, 80))
    assert cut.breaks == tuple(i for i, d in enumerate(cut.distances) if d > cut.threshold)
    assert 5 in cut.breaks


def test_as_run_distances_equal_a_slow_version():
    text = f"{CATS} {DOGS} {CATS}"
    cut = segment([doc(text)], topics(), "as_run", min_chars=0)[0]
    sentences = [text[a:b] for a, b in cut.sentences]
    windows = [" ".join(sentences[max(0, i - 3) : i + 4]) for i in range(len(sentences))]
    vectors = map(np.array, topics().embed_documents(windows))
    expected = [
        1 - a @ b for a, b in itertools.pairwise(vectors)
    ]  # of length 1, as Bags makes them
    np.testing.assert_allclose(cut.distances, expected, atol=1e-6)


def test_paper_profile_slides_windows_of_three_by_two_against_a_fixed_threshold():
    embedder = topics()
    cut = segment([doc(f"{CATS} {DOGS}")], embedder, "paper")[0]
    # twelve sentences: windows start at 0, 2, 4, 6, 8, 10
    assert len(cut.distances) == 5
    assert cut.starts == (2, 4, 6, 8, 10)
    assert embedder.asked[0][0].count(".") == 3
    # window 4..6 holds two cats and one dog, window 6..8 dogs only: similarity 1/sqrt(5) < 0.5
    assert cut.breaks == (2,)
    alike = segment([doc(f"{CATS} {DOGS}")], topics(), "paper", threshold=0.4)[0]
    assert (alike.threshold, alike.breaks) == (0.6, ())
    chunks = semantic_chunks([doc(f"{CATS} {DOGS}")], topics(), "paper")
    assert [c.text for c in chunks] == [CATS, DOGS]


def test_identical_windows_need_no_embedding_and_make_no_break():
    embedder = topics()
    text = "One cat. Two dogs. Three cats. Four dogs."
    assert [c.text for c in semantic_chunks([doc(text)], embedder, min_chars=0)] == [text]
    assert embedder.asked == []
    assert semantic_chunks([doc("  \n ")], embedder) == []


def test_max_tokens_cuts_at_sentence_ends_and_inside_an_overlong_sentence():
    long = "word " * 9 + "end."
    cut = ["word word word word word word", "word word word end."]
    for text, expected in (
        (f"Alpha beta gamma. Delta one. {long}", ["Alpha beta gamma.", "Delta one.", *cut]),
        (f"{long} Alpha beta gamma.", [*cut, "Alpha beta gamma."]),
    ):
        chunks = semantic_chunks([doc(text)], topics(), "paper", max_tokens=6)
        assert [(c.id, c.text) for c in chunks] == [
            (f"d#{i}", piece) for i, piece in enumerate(expected)
        ]


test_wrong_settings_are_named = refusals(
    (lambda: token_chunks([doc("x")], size=0), "size=0"),
    (lambda: token_chunks([doc("x")], overlap=1.0), r"overlap=1\.0"),
    (lambda: token_chunks(["x"]), DataError, "documents: item 0 is str"),
    (lambda: split_chunks([doc("x")], object()), "split is <object(.|\n)*split_text"),
    (lambda: split_chunks([doc("x")], ["x"]), "split is .'x'.(.|\n)*split_text"),
    (lambda: semantic_chunks([doc("x")], topics(), "as-run"), "unknown chunking profile 'as-run'"),
    (lambda: segment([doc("x")], topics(), windw=3), "unknown chunking setting 'windw'"),
)
