"""Tokenisers: worked by hand, and against a walk over the characters."""

import itertools
import re
import unicodedata

import pytest
from checks import refusals, refused
from hypothesis import given
from hypothesis import strategies as st

from ragbench.errors import ConfigError
from ragbench.retrieval.text import TOKENIZERS, Tokenizer
from ragbench.text.languages import UNSPACED, language_of
from ragbench.text.words import STOP_WORDS

TERRIER, PLAIN, SPLIT, WORDS = (TOKENIZERS[name] for name in ("terrier", "plain", "split", "words"))
UNICODE = st.text(
    st.one_of(
        st.characters(exclude_categories=()),  # every code point, lone surrogates too
        st.sampled_from(
            "aZ09 _-.\u00a0\u2003\u0085ßİΣéñ中文字ひ한ไทยที่क्षि\u0301\ufe0f\u00adﬁＡ😀'\n\t\x1c"
        ),
    ),
    max_size=40,
)


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


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Straße, KÖNIGSALLEE & snake_case", ["strasse", "königsallee", "snake", "case"]),
        ("Ko\u0308nigs\u00adallee", ["königsallee"]),  # decomposed, with a soft hyphen
        ("ｆｕｌｌ ﬁle", ["full", "file"]),
        ("l'été 2024", ["l", "été", "2024"]),
        ("中文信息x光", ["中文", "文信", "信息", "x", "光"]),
        ("東京タワーです", ["東京", "京タ", "タワ", "ワー", "ーで", "です"]),
        ("서울에 a", ["서울", "울에", "a"]),
        ("हिन्दी में", ["हिन्दी", "में"]),  # vowel signs are no ends of words
        ("☕\ufe0f, …", []),
    ],
)
def test_words_are_runs_in_any_script_and_pairs_where_there_are_no_blanks(text, terms):
    assert WORDS(text) == terms


def test_a_language_adds_its_stemmer():
    assert TOKENIZERS["german"]("Häuser Hauses") == ["haus", "haus"]
    assert len(set(TOKENIZERS["french"]("continuer continuait"))) == 1
    assert TOKENIZERS["english"]("running runs") == ["run", "run"]
    assert TOKENIZERS["chinese"]("中文信") == ["中文", "文信"]
    porter = Tokenizer("porter", stemmer="porter")
    assert porter("s cats") == ["cat"]  # it leaves nothing of "s"


def test_a_function_is_a_tokenizer_under_its_own_name():
    own = Tokenizer.of(str.split)
    assert (own.name, own("Red  fox")) == ("str.split", ["Red", "fox"])
    assert Tokenizer.of(own) is own
    assert own.terms(["", "a"]) == ["", "a"]


SENTENCES = {
    "english": "The mill was built by the river, and it is the oldest of the town.",
    "german": "Die Mühle wurde am Fluss gebaut und ist die älteste der Stadt.",
    "french": "Le moulin a été construit sur la rivière et c'est le plus ancien de la ville.",
    "chinese": "磨坊建在河边，是城里最古老的建筑。",
}


OTHERS = {
    "spanish": (
        "La torre fue construida por un ingeniero y es la estructura más alta de las "
        "ciudades del norte."
    ),
    "italian": (
        "La torre fu costruita nel 1887 e rimane la più alta della città, con un pubblico "
        "che non ha pari."
    ),
    "portuguese": "O moinho foi construído na margem do rio e é o mais antigo da cidade.",
    "swedish": (
        "Kvarnen byggdes vid ån och är den äldsta som finns i staden, inte den största av dem."
    ),
    "danish": (
        "Møllen blev bygget af en bager ved åen og er den ældste i byen, ikke den største af dem."
    ),
    "russian": "Мельница была построена на реке, и это не самая старая мельница в городе.",
    "japanese": "水車小屋は川のそばに建てられ、町で最も古い建物です。",
    "korean": "방앗간은 강가에 지어졌으며 마을에서 가장 오래된 건물이다.",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_the_language_of_a_sentence_is_told_by_its_script_or_function_words(language):
    assert language_of([SENTENCES[language]]) == language
    chosen = Tokenizer.of("auto", [SENTENCES[language]] * 3)
    assert chosen is TOKENIZERS["jieba" if language == "chinese" else language]


def test_in_doubt_no_language_is_told():
    for text in ("", "42", "Königsallee", "Die Hard", "x = y + 1", *OTHERS.values()):
        assert language_of([text]) is None
    assert Tokenizer.of("auto", ["Königsallee 5"]) is WORDS
    mixed = [SENTENCES["german"]] * 9 + [SENTENCES["english"], SENTENCES["chinese"]]
    assert language_of(mixed) == "german"
    assert language_of(["ABC科技有限公司的二氧化碳排放量是多少？"]) == "chinese"


def test_chinese_takes_pairs_where_jieba_is_not_installed(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert Tokenizer.of("auto", [SENTENCES["chinese"]]) is TOKENIZERS["chinese"]
    with refused(ConfigError, "jieba, which is not installed"):
        Tokenizer.of("jieba")


def test_stop_words_are_lower_case_ascii_tokens_of_a_size_like_terriers():
    assert len(STOP_WORDS) == 546
    assert {"the", "of", "which", "is", "not", "s"} <= STOP_WORDS
    assert not {"film", "war", "river", "city", "born", "american", "man", "world"} & STOP_WORDS
    assert all(TERRIER.tokens(word) == [word] for word in STOP_WORDS)


def kind_of(character):
    """0: in no token; 2: in a script without blanks; 1: in any other word."""
    category = unicodedata.category(character)[0]
    mark = category == "M" and character < "\uffff" and not "\ufe00" <= character <= "\ufe0f"
    return (1 + bool(re.match(f"[{UNSPACED}]", character))) * (category in "LN" or mark)


@given(UNICODE)
def test_words_equal_a_walk_over_the_characters(text):
    expected = []
    for kind, run in itertools.groupby(WORDS.prepared(text), kind_of):
        word = "".join(run)
        pairs = [a + b for a, b in itertools.pairwise(word)] if kind == 2 else []
        expected += pairs or [word] * bool(kind)
    assert WORDS.tokens(text) == expected


test_bad_tokenisers_are_named = refusals(
    (lambda: Tokenizer.of("porter"), r"one of .*, german, .*, terrier, words"),
    (lambda: Tokenizer.of(3), "tokenizer is int"),
    (lambda: Tokenizer("t", "letters"), "unknown token pattern 'letters'"),
)
