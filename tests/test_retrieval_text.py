"""Tokenisers, and the compiled scan that must agree with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragbench.errors import ConfigError
from ragbench.retrieval._tokenise import number_tokens
from ragbench.retrieval.stopwords import STOP_WORDS
from ragbench.retrieval.text import PLAIN, SPLIT, TERRIER, Tokenizer, get_tokenizer, word_table

UNICODE = st.text(
    st.one_of(
        st.characters(exclude_categories=()),  # every code point, lone surrogates too
        st.sampled_from("aZ09 _-.\u00a0\u2003\u0085ßİΣéñ中文😀'\n\t\x1c"),
    ),
    max_size=40,
)


def test_terrier_drops_stop_words_then_stems():
    assert TERRIER("The runners were running to the Relational databases!") == ["runner", "run", "relat", "databas"]


@pytest.mark.parametrize(
    ("token", "kept"),
    [
        ("a" * 2 + "b" * 18, False),  # the same letter more than three times in a row
        ("abcdefghijklmnopqrst", True),
        ("abcdefghijklmnopqrstu", False),  # 21 characters
        ("1984", True),
        ("19845", False),  # five digits
        ("x1y2z3w4", True),
        ("1x2x3x4x5", False),
        ("xaaa", True),
        ("xaaaa", False),
    ],
)
def test_terrier_filters_noise_as_terrier_does(token, kept):
    assert bool(TERRIER(token)) is kept


def test_terrier_splits_documents_at_what_is_not_ascii_and_deletes_it_from_queries():
    assert TERRIER.tokens("Téa O'Neill—1950-1960") == ["t", "a", "o", "neill", "1950", "1960"]
    assert TERRIER.clean_query("Téa O'Neill, 1950-1960?") == "Ta ONeill 19501960"
    assert PLAIN.clean_query("Téa?") == "Téa?"


def test_plain_keeps_unicode_words_and_split_keeps_punctuation():
    assert PLAIN("Élodie's naïve 東京 x_1") == ["élodie", "s", "naïve", "東京", "x_1"]
    assert SPLIT("Who, me?\u00a0Yes.") == ["who,", "me?", "yes."]


def test_a_stem_of_nothing_is_dropped():
    assert Tokenizer("x", "ascii", stemmer="porter")("s cats") == ["cat"]


def test_stop_words_are_lower_case_ascii_tokens_of_a_size_like_terriers():
    assert 400 < len(STOP_WORDS) < 800
    assert {"the", "of", "which", "is", "not", "s"} <= STOP_WORDS
    assert not {"film", "war", "river", "city", "born", "american", "man", "world"} & STOP_WORDS
    assert all(TERRIER.tokens(word) == [word] for word in STOP_WORDS)


@settings(deadline=None)
@given(st.lists(UNICODE, min_size=1, max_size=5), st.sampled_from(["ascii", "unicode", "space"]))
def test_compiled_scan_finds_the_tokens_that_python_finds(texts, pattern):
    numbers, counts, words = number_tokens(texts, word_table(pattern))
    tokenizer = Tokenizer("t", pattern)
    expected = [tokenizer.tokens(text) for text in texts]
    assert counts.tolist() == [len(tokens) for tokens in expected]
    assert [words[n] for n in numbers] == [t for tokens in expected for t in tokens]
    assert words == list(dict.fromkeys(t for tokens in expected for t in tokens))


def test_compiled_scan_grows_with_the_vocabulary_and_over_batches():
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{n}" for n in rng.integers(0, 60_000, 2_000)) for _ in range(200)]
    texts[50] = "long" * 300_000
    numbers, counts, words = number_tokens(texts, word_table("unicode"))
    assert len(words) > 40_000
    assert len(set(words)) == len(words)
    assert [words[n] for n in numbers] == " ".join(texts).split()
    assert counts.tolist() == [len(text.split()) for text in texts]


@pytest.mark.parametrize("pattern", ["ascii", "unicode", "space"])
def test_word_table_covers_every_code_point(pattern):
    table = word_table(pattern)
    tokenizer = Tokenizer("t", pattern)
    for point in [*range(0x3000), 0x4E2D, 0xD800, 0xFFFD, 0x1F600, 0x20000, 0x10FFFF]:
        if chr(point).lower() == chr(point):  # the table is asked after lower-casing
            assert table[point] == (tokenizer.tokens(chr(point)) == [chr(point)]), hex(point)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: get_tokenizer("porter"), "one of plain, split, terrier"),
        (lambda: get_tokenizer(3), "tokenizer is int"),
        (lambda: Tokenizer("t", "words"), "unknown token pattern 'words'"),
    ],
)
def test_bad_tokenisers_are_named(call, message):
    with pytest.raises(ConfigError, match=message):
        call()
