"""Text made comparable: the rule by hand and against a slow oracle, the way back, and that
everything here uses it.
"""

import html
import re
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragbench as rb
from ragbench.data import validate
from ragbench.metrics.keypoints import effective_information_rate, reference_recall
from ragbench.records import Chunk, Dataset, Document, Hit, Question
from ragbench.text.languages import FUNCTION_WORDS, language_of
from ragbench.text.layout import _Normalised, comparable
from ragbench.text.sentences import split_sentences
from ragbench.widgets import RetrievalExplorer

BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two", "one two"),
        ("one\ttwo \u00a0 three\u3000four", "one two three four"),
        ("one\r\n  two\u2028three", "one two three"),
        ("ex\u00adample zero\u200bwidth \ufeffmark", "example zerowidth mark"),
        ("ex\u00ad\n  ample", "example"),
        ("exam-\nple", "example"),
        ("exam‐\n   ple", "example"),
        ("Anglo-\nSaxon, 1914-\n1918, COVID-\n19", "Anglo-Saxon, 1914-1918, COVID-19"),
        ("a dash -\nthen, a list:\n- one\n- two", "a dash - then, a list: - one - two"),
        ("well- known\nthere, an mp3-\nplayer", "well- known there, an mp3-player"),
        ("e\u0301te\u0301, \u1112\u1161\u11ab", "été, 한"),
        ("北京\n大学 和\n清华", "北京大学 和清华"),
        ("北京\nBeijing\n서울\n부산", "北京 Beijing 서울 부산"),
        ("", ""),
        (" \n ", " "),
    ],
)
def test_rule_by_hand(text, expected):
    assert _Normalised.of(text).text == expected


def test_full_width_forms_stay():
    assert _Normalised.of("ＡＢＣ …").text == "ＡＢＣ …"


def test_hyphen_at_a_line_end_stays_where_a_fact_writes_the_word_with_it():
    text = "a well-\nknown exam-\nple of state-of-\nthe-art"
    assert _Normalised.of(text).text == "a wellknown example of state-ofthe-art"
    facts, made = comparable(["He is well-known.", "state-of-the-art", "the well-\nknown"], text)
    assert made.text == "a well-known example of state-of-the-art"
    assert facts == ["He is well-known.", "state-of-the-art", "the well-known"]


def test_clean_text_is_the_same_object_and_has_no_map():
    text = "The fox, née Skłodowska, 北京。"
    made = _Normalised.of(text)
    assert made.text is text
    assert made.starts is None
    assert made.span(4, 7) == (4, 7)


def test_span_points_into_the_text_as_it_is():
    text = "xx the\n   quick exam-\nple e\u0301te\u0301"
    made = _Normalised.of(text)
    assert made.text == "xx the quick example été"
    for word, original in {
        "the quick": "the\n   quick",
        "example": "exam-\nple",
        "té": "te\u0301",
    }.items():
        at = made.text.index(word)
        start, stop = made.span(at, at + len(word))
        assert text[start:stop] == original


def test_cut_counts_the_characters_that_end_before_it():
    text = "ab\n  cd-\nef"  # "ab cdef"
    made = _Normalised.of(text)
    assert [int(made.cut(n)) for n in range(len(text) + 1)] == [0, 1, 2, 3, 3, 3, 4, 5, 5, 5, 6, 7]


def wide(c: str) -> bool:
    korean = unicodedata.name(c, "").startswith(("HANGUL", "HALFWIDTH HANGUL"))
    marks = unicodedata.category(c)[0] == "M"
    return unicodedata.east_asian_width(c) in "WFH" and not (korean or marks or c.isspace())


def hidden(c: str) -> bool:
    is_format = unicodedata.category(c) == "Cf" and (c == "\u00ad" or "\u1800" < c < "\ufff0")
    return is_format or c in "\u034f\u061c\u2065" or "\ufe00" <= c <= "\ufe0f"


def slow(text: str) -> str:
    """The rule, step by step and character by character."""
    text = re.sub("\u00ad\\s*[" + BREAKS + "]\\s*", "", text)
    text = "".join(c for c in text if not hidden(c))
    text = re.sub("[\ufb00-\ufb06]", lambda found: unicodedata.normalize("NFKC", found[0]), text)
    text = unicodedata.normalize("NFC", text)
    out = ""
    at = 0
    while at < len(text):
        if not text[at].isspace():
            out = out + text[at]
            at = at + 1
            continue
        run = text[at:]
        run = run[: len(run) - len(run.lstrip())]
        after = text[at + len(run) : at + len(run) + 1]
        broken = any(c in BREAKS for c in run)
        if broken and out[-1:] and out[-1] in "-‐" and out[-2:-1].isalnum() and after.isalnum():
            if out[-2].isalpha() and after.islower():
                out = out[:-1]
        elif broken and out and after and wide(out[-1]) and wide(after):
            pass
        else:
            out += " "
        at += len(run)
    return out


CHARACTERS = "ab AB1-‐.\n\t\r\u00a0\u3000\u00ad\u200b\u200f\u2028\ufeffé中北。Ａﬁ서ㅏ\u0301\u1161\uff9eカか\u3099"
PIECES = st.sampled_from([*CHARACTERS, "e\u0301", "ﬄ", "ﬆ"])
TEXTS = st.one_of(st.lists(PIECES, max_size=25).map("".join), st.text(max_size=30))


@settings(max_examples=400)
@given(st.lists(PIECES, max_size=25).map("".join))
def test_normalised_text_equals_the_slow_oracle(text):
    assert _Normalised.of(text).text == slow(text)


@settings(max_examples=300)
@given(TEXTS)
def test_spans_map_back_to_what_gives_the_same_text(text):
    made = _Normalised.of(text)
    if made.starts is None:
        assert len(made.text) == len(text)  # a tab for a space, at most
        return
    assert len(made.starts) == len(made.stops) == len(made.text)
    assert (made.stops > made.starts).all()
    assert ((made.starts[1:] >= made.starts[:-1]) & (made.stops[1:] >= made.stops[:-1])).all()
    for at, character in enumerate(made.text):
        start, stop = made.span(at, at + 1)
        assert character in slow(text[start:stop])


@settings(max_examples=200)
@given(TEXTS)
def test_normalising_twice_is_normalising_once(text):
    once = _Normalised.of(text).text
    assert _Normalised.of(once).text == once


FACT = "The quick brown fox, 1967."
LAYOUTS = {
    "clean": "Once. The quick brown fox, 1967. Then.",
    "wrapped": "Once. The quick\nbrown fox,\n1967. Then.",
    "indented and divided": "Once. The quick\n    brown fox, 1967. Then.",
    "tabbed": "Once.\tThe quick\t\tbrown fox, 1967.\tThen.",
    "non-breaking": "Once. The\u00a0quick\u202fbrown fox,\u00a01967. Then.",
    "soft hyphens": "Once. The quick br\u00adown fox, 1967. Then.",
    "divided": "Once. The quick br-\nown fox, 1967. Then.",
    "full width": "Once.　Ｔｈｅ　ｑｕｉｃｋ　ｂｒｏｗｎ　ｆｏｘ，　１９６７．　Then.",
    "another word": "Once. The quick brown cat, 1967. Then.",
    "another case": "Once. the Quick brown fox, 1967. Then.",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_metric_check_marks_and_recall_agree(layout):
    text = LAYOUTS[layout]
    assert (rb.ir_score([FACT], text, "exact") == 1.0) == (layout == "clean")
    there = layout not in {"full width", "another word", "another case"}
    assert (rb.ir_score([FACT], text, "substring") == 1.0) == there

    for variant, is_found in (("paper", layout == "clean"), ("normalised", there)):
        assert reference_recall([FACT], [text], variant=variant) == float(is_found)
        assert (effective_information_rate([FACT], [text], variant=variant) > 0) == is_found

    question = Question("q", "Which fox?", "1967", (FACT,))
    problems = [p.what for p in validate(Dataset("d", (question,), (Document("d", "t", text),)))]
    assert any("not found in any document" in what for what in problems) != there

    class Fixed:
        def search(self, queries, k):
            return [[Hit(Chunk("c", text, "d"), 1.0, 1)]]

    explorer = RetrievalExplorer([question], {"x": Fixed()}, lambda t: range(1, len(t) + 1))
    assert (explorer.scores["x"] == 1.0) == there
    if there:
        drawn = re.sub('<span class="rb-tag.*?</span>', "", explorer.page.value)
        drawn = drawn.partition('class="rb-column"')[2]
        (marked,) = re.findall("(?s)<mark[^>]*>(.*?)</mark>", drawn)
        assert _Normalised.of(html.unescape(marked)).text.split() == FACT.split()


def test_short_sentences_have_a_language_and_spanish_is_not_taken_for_french():
    german = (
        "Es misst acht Meter und wurde nach einem Brand erneuert. Zum Hafen sind es zehn Minuten."
    )
    french = (
        "Il fut construit par Ada Holm. On y arrive à pied depuis la gare de Bensk en dix minutes."
    )
    spanish = (
        "El faro fue construido por un ingeniero y se encuentra en la costa; la torre es de piedra."
    )
    assert [language_of([text]) for text in (german, french, spanish)] == ["german", "french", None]


# Phrases with two function words each: without either, nothing tells their language.
PHRASES = {
    "english": """
        the miller and sons, of stone to build, in ruins is standing, was empty for years, that night with guests,
        as planned by Ada, on arrival from Ely, it stood which way, this house be sold, at noon who came, what day
        when spring came, where trees how tall, or else a storm, an owl did sing, does rain do harm, were found had
        gone, has land have cattle, whose barn why burnt, his horse her cow, its roof their walls, than yours not
        mine, but also quiet, into town both came, are Ada's
    """,
    "german": """
        was der Mann, an den Turm, der Müller die Mühle, das Haus und Hof, den Fluss dem Dorf, des Jahres ist Ende, war einst mit Holz, sich
        drehte auf Achsen, für Gäste im Winter, nicht weit ein Hof, eine Brücke einer Stadt, von Ely zu Pferde, als
        Schule auch Kirche, wird später wurde verkauft, wer baute wo Mühlen, wann brannte wie viel, welche Stadt
        welchem Fluss, welchen Weg welcher Turm, welches Tor nach Ely, bei Regen aus Stein, durch Ada am Montag,
        einem Müller einen Hof, eines Tages dass Regen, vom Turm zum Hafen, zur Brücke es regnet, sie kamen sind
        verkauft, hat Land haben Vieh, über Nacht bis morgen, oder Stein aber Holz, kein Turm keine Brücke, worden
        gebaut werden verkauft, wenn Regen noch fällt, nur Stein und
    """,
    "french": """
        le moulin la rivière, les ponts des villages, et ensuite est vendu, une maison un jardin, dans Ely du comte,
        que Marie qui chante, pour Ada sur terre, par bateau avec Ada, au nord aux moulins, ce pont cette tour, il
        pleut elle chante, sont vendus été construit, quel pont quelle tour, où Marie quand Ada, comment Paul pas
        loin, ne dort se lève, ou bien d Ada, l eau à Ely, fut construit était vide, depuis hier plus tard, leur
        pont ses tours, cet arbre mais vide, dont Marie le
    """,
}


@pytest.mark.parametrize("language", PHRASES)
def test_each_function_word_can_tell_its_language(language):
    phrases = [" ".join(phrase.split()) for phrase in PHRASES[language].split(",")]
    assert [phrase for phrase in phrases if language_of([phrase]) != language] == []
    known = set(FUNCTION_WORDS[language].split())
    found = [known & set(re.findall(r"[^\W\d_]+", phrase.casefold())) for phrase in phrases]
    assert [phrase for phrase, words in zip(phrases, found, strict=True) if len(words) != 2] == []
    assert set().union(*found) == known


def test_a_few_foreign_names_do_not_change_the_language_of_an_unspaced_text():
    assert language_of(["北京大学的学生在 London 和 Paris 学习语言"]) == "chinese"
    assert (
        language_of(["The capital of the country is Beijing (北京) and was so in the past."])
        == "english"
    )


@pytest.mark.parametrize("profile", ["en", "claims"])
def test_a_text_of_100_000_characters_without_an_end_of_a_sentence_is_read_once(profile):
    text = "he met Mr. A or so "
    start = time.process_time()
    assert len(split_sentences(text * 6000, profile)) == len(split_sentences(text, profile)) == 1
    assert time.process_time() - start < 2  # 5 s when each stop read all before it
