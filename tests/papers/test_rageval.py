"""RAGEval's retrieval experiment: a case by hand, a slow oracle, chunks, terms, bad input."""

import importlib.util
import itertools
import math
import re
import string
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from checks import refusals
from hypothesis import given
from hypothesis import strategies as st
from notebook_parts import parts
from retrieval_parts import slow_scores
from word_bags import Bags

from ragbench.chunking import sentence_chunks
from ragbench.data import load_dataset
from ragbench.errors import ConfigError, DataError, RagbenchError
from ragbench.paths import shared_data
from ragbench.records import Chunk, Dataset, Document, Question
from ragbench.retrieval import make_retriever
from ragbench.stats import means
from ragbench.text.sentences import split_sentences
from ragbench.text.tokens import default_tokenizer

rageval = parts("42")
BY = ["retriever", "setting", "prefix"]

EN = {"language": "en"}
ENGLISH = {"BM25": rageval.bm25("en")}


def small_dataset():
    """Two reports with the same first sentence; only the title tells them apart."""
    rose = "Profit rose to 7 crowns in the third quarter."
    fell = "Profit fell to 3 crowns in the third quarter."
    stayed = "Staff stayed as it was."
    sold = "A mill was sold in May."
    documents = (
        Document("a", "Marn Ltd", f"{rose} {stayed}", (), EN),
        Document("b", "Voss Ltd", f"{fell} {sold}", (), EN),
    )
    questions = (
        Question("q1", "What was the profit of Voss?", "3", (fell,), meta=EN),
        Question("q2", "Was a mill sold?", "yes", (sold, stayed), meta=EN),
        Question("q3", "Who painted the mill?", "not said", meta=EN),
    )
    return Dataset("small", questions, documents)


REPORTS = {
    "en": (
        "{name} Ltd",
        "{name} Ltd was founded in {year}.",
        "Its profit rose to {n} crowns in the third quarter of that year.",
        "A mill at the river was sold in May to pay {n} debts.",
        "The staff of {name} grew to {year} people, and nobody left.",
        "What was the profit of {name}?",
    ),
    "zh": (
        "{name}公司",
        "{name}公司成立于{year}年。",
        "当年第三季度利润升至{n}万元。",
        "五月出售了河边的工厂，偿还了{n}笔债务。",
        "{name}的员工增加到{year}人，没有人离开。",
        "{name}的利润是多少？",
    ),
}
NAMES = {
    "en": ["Marn", "Voss", "Tarn", "Ferry", "Oak", "Linden"],
    "zh": ["鸢屿", "霂汀", "临川", "白石", "青禾", "远山"],
}


def reports(language="en", documents=3):
    """Reports of companies that write alike, and three questions about each."""
    title, *sentences, asked = REPORTS[language]
    about = {"language": language, "domain": "finance"}
    texts = []
    questions = []
    for i, name in enumerate(NAMES[language][:documents]):
        facts = {"name": name, "year": 1900 + 7 * i, "n": 3 + i}
        first, profit, mill, staff = (sentence.format(**facts) for sentence in sentences)
        blank = " " if language == "en" else ""
        joined = blank.join((first, profit, mill, staff))
        texts.append(Document(name, title.format(**facts), joined, (), about))
        meta = about | {"doc_ids": (name,)}
        wanted = {
            "factual": (profit,),
            "summary": (profit, mill + blank + staff),
            "unanswerable": (),
        }
        for kind, references in wanted.items():
            text = f"{asked.format(**facts)} ({kind})"
            questions.append(Question(f"{name} {kind}", text, "-", references, kind, "", meta))
    return Dataset("reports", tuple(questions), tuple(texts))


def test_recall_and_eir_by_hand_with_and_without_the_metadata_prefix():
    rows = rageval.retrieval_rows(small_dataset(), ENGLISH, {"1": (50, 1), "2": (50, 2)})
    scores = rows.set_index(["question_id", "k", "prefix"])[["recall", "eir"]].T
    # Sentences of 45, 24, 45 and 23 characters: each is a chunk of its own. Without the title
    # "profit" stands in a#0 and b#0 alike and the tie falls to a#0; with it, only Voss's chunks
    # have "voss", and b#0 has both terms.
    assert scores["q1", 1, False].tolist() == [0.0, 0.0]
    assert scores["q1", 1, True].tolist() == [1.0, 1.0]
    assert scores["q1", 2, False].tolist() == pytest.approx([1.0, 9 / 18])
    # Half of the references, 6 of 6 words of the one passage.
    assert scores["q2", 1, False].tolist() == [0.5, 1.0]
    assert scores["q3", 1, True].isna().all()


def test_questions_without_references_are_counted_as_unscored():
    rows = rageval.retrieval_rows(small_dataset(), ENGLISH, {"1": (50, 1)}, prefix=[True])
    recall = means(rows, BY, rageval.MEASURES).query("metric == 'recall'").iloc[0]
    assert (recall["mean"], recall["n"], recall["unscored"]) == (0.75, 2, 1)


def slow_rows(data, size, k, prefix, terms):
    language = data.questions[0].meta["language"]
    places = []
    pieces = []
    indexed = []
    for document in data.documents:
        text = document.text
        start = None
        position = 0
        for sentence in split_sentences(text, language):
            at = text.find(sentence, position)
            position = at + len(sentence)
            if start is None or position - start > size:
                start = at
                places.append((document.id, len(places)))
                pieces.append("")
                indexed.append("")
            pieces[-1] = text[start:position]
            indexed[-1] = f"({document.title}) {pieces[-1]}" if prefix else pieces[-1]
    result = []
    for question in data.questions:
        scores = slow_scores(indexed, question.text, "lucene", 1.2, 0.75, terms)
        ranking = sorted(range(len(pieces)), key=lambda i: (-scores[i], places[i]))
        passages = [pieces[i] for i in ranking[:k] if scores[i] > 0]
        whole = []
        for reference in question.references:
            sentences = split_sentences(reference, language)
            if all(any(s in p for p in passages) for s in sentences):
                whole.append(words_of(sentences, language))
        recall = len(whole) / len(question.references) if question.references else math.nan
        total = words_of(passages, language)
        result.append((recall, sum(whole) / total if total and question.references else math.nan))
    return result


def words_of(texts, language):
    joined = " ".join(texts)
    return len(joined.replace(" ", "")) if language == "zh" else len(joined.split())


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("prefix", [False, True])
def test_rows_agree_with_a_slow_oracle(language, prefix):
    data = reports(language, documents=6)

    def words(text):
        return re.findall(r"[a-z0-9]+", text.lower())

    terms = rageval.character_bigrams if language == "zh" else words
    make = {"BM25": rageval.bm25(language, terms)}
    rows = rageval.retrieval_rows(data, make, {"s": (30, 1), "l": (80, 3)}, prefix=[prefix])
    assert 0 < rows["recall"].mean() < 1
    for name, size, k in (("s", 30, 1), ("l", 80, 3)):
        got = rows.loc[rows["setting"] == name, ["recall", "eir"]].to_numpy()
        np.testing.assert_allclose(got, slow_rows(data, size, k, prefix, terms), rtol=1e-12)


def test_a_smaller_k_is_the_beginning_of_a_larger_one():
    data = reports(documents=5)
    make = {"BM25": rageval.bm25("en")}
    both = rageval.retrieval_rows(data, make, {"2": (64, 2), "6": (64, 6)}, prefix=[True])
    alone = rageval.retrieval_rows(data, make, {"2": (64, 2)}, prefix=[True])
    assert both[both["k"] == 2].reset_index(drop=True).equals(alone)
    recall = both.pivot(index="question_id", columns="k", values="recall").dropna()
    more = recall[6] - recall[2]
    assert more.min() >= 0 < more.max()


def test_rows_come_in_the_order_of_settings_prefix_retrievers_and_questions():
    makes = {"b": rageval.bm25("en"), "a": rageval.bm25("en", "plain")}
    settings = {"x": (50, 2), "w": (90, 1), "v": (50, 1)}
    rows = rageval.retrieval_rows(small_dataset(), makes, settings, prefix=[True, False])
    keys = rows[["setting", "prefix", "retriever", "question_id"]].itertuples(index=False)
    expected = itertools.product("xwv", [True, False], "ba", ["q1", "q2", "q3"])
    assert list(map(tuple, keys)) == list(expected)
    assert rows.loc[rows["setting"] == "w", ["size", "k"]].eq([90, 1]).all(axis=None)


def test_the_prefix_is_indexed_but_never_counted_or_matched():
    chunks = [Chunk("a#0", "Text.", "a", "Marn Ltd"), Chunk("b#0", "Text.", "b", "")]
    assert [c.text for c in rageval.with_titles(chunks)] == ["(Marn Ltd) Text.", "Text."]
    document = Document("a", "Marn was sold", "(In May) the mill burnt.", (), EN)
    question = Question("q", "Which mill of Marn was sold?", "none", ("Marn was sold",), meta=EN)
    rows = rageval.retrieval_rows(Dataset("one", (question,), (document,)), ENGLISH, {"1": (99, 1)})
    assert rows["recall"].tolist() == [0.0, 0.0]
    assert rows["words"].tolist() == [5, 5]  # brackets of the text itself count


def test_sentence_chunks_pack_whole_sentences_up_to_the_size():
    text = "One is here. Two is here.\nThree is a much longer sentence. Four."
    document = Document("d", "T", text, (), EN)
    assert [(c.id, c.text) for c in sentence_chunks([document], 25)] == [
        ("d#0", "One is here. Two is here."),
        ("d#1", "Three is a much longer sentence."),
        ("d#2", "Four."),
    ]
    assert [c.text for c in sentence_chunks([document], 24)][:2] == ["One is here.", "Two is here."]


@given(
    st.integers(1, 700), st.sampled_from(["characters", "tokens"]), st.sampled_from(["en", "zh"])
)
def test_sentence_chunks_keep_every_sentence_once_and_the_size(size, unit, language):
    document = SETS[language].documents[0]
    plain = Document(document.id, document.title, document.text)
    chunks = sentence_chunks([plain], size, unit, language)
    inside = [split_sentences(c.text, language) for c in chunks]
    assert [s for own in inside for s in own] == list(split_sentences(document.text, language))
    assert all(c.text in document.text for c in chunks)
    assert all(
        len(own) == 1 or length(chunk.text, unit) <= size
        for chunk, own in zip(chunks, inside, strict=True)
    )
    for chunk, (first, *_) in zip(chunks, inside[1:], strict=False):
        start = document.text.index(chunk.text)
        joined = document.text[start : document.text.index(first) + len(first)]
        assert length(joined, unit) > size, "the sentence would have fitted into the chunk before"


SETS = {language: reports(language, 1) for language in ("en", "zh")}


def length(text, unit):
    if unit == "characters":
        return len(text)
    return len(default_tokenizer().encode(text, add_special_tokens=False).ids)


def test_windows_of_tokens_cut_inside_sentences_and_sentence_chunks_do_not():
    documents = reports(documents=6).documents
    whole = {s for d in documents for s in split_sentences(d.text, "en")}

    def torn(chunks):
        return sum(split_sentences(c.text, "en")[-1] not in whole for c in chunks)

    def tokens(texts):
        return sum(length(one.text, "tokens") for one in texts)

    characters, in_tokens, windows = (
        rageval.cut_documents(documents, 30, how) for how in ("characters", "tokens", "windows")
    )
    assert torn(characters) == torn(in_tokens) == 0
    assert torn(windows) >= len(windows) / 2
    assert len(characters) > len(in_tokens)
    assert tokens(windows) == tokens(documents)


def test_character_bigrams_by_hand():
    terms = rageval.character_bigrams("公司于2012年，上市A股。")
    assert " ".join(terms) == "公司 司于 2012 年 上市 a 股"
    assert rageval.character_bigrams("，。 ") == []


def test_jieba_words_have_no_punctuation():
    pytest.importorskip("jieba")
    words = rageval.jieba_words("公司于2012年召开股东大会，出席者众。")
    assert "".join(words) == "公司于2012年召开股东大会出席者众"
    assert "股东大会" in words


def test_auto_takes_jieba_only_where_it_is_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert rageval.chinese_tokenizer() is rageval.character_bigrams
    with pytest.raises(ConfigError, match=r"jieba.*\n.*\n.*bigrams"):
        rageval.chinese_tokenizer("jieba")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert rageval.chinese_tokenizer() is rageval.jieba_words
    assert rageval.chinese_tokenizer("bigrams") is rageval.character_bigrams


def test_the_tokenizer_is_named_in_the_retrievers_settings():
    chunks = rageval.cut_documents(reports("zh").documents, 128, language="zh")
    got = rageval.bm25("zh", "bigrams")(chunks).settings()
    assert (got["tokenizer"], got["variant"]) == ("character_bigrams", "lucene")
    assert rageval.bm25("en")(chunks).settings()["tokenizer"] == "terrier"


def test_queries_are_cut_after_128_tokens():
    most = "word " * 128
    queries = ["a few words", most, most + "word ", "word " * 200]
    cut = ["a few words", most, most.strip(), most.strip()]
    assert rageval.cut_queries(queries) == cut
    data = small_dataset()
    # stop words: no passage is found
    long = replace(data.questions[0], text="what " * 128 + "profit of Voss?")
    data = replace(data, questions=(long,))
    rows = rageval.retrieval_rows(data, ENGLISH, {"1": (50, 1)}, prefix=[True])
    assert rows["recall"].tolist() == [0.0]
    assert rows["eir"].isna().all()


def test_dense_uses_the_embedder_it_is_given():
    letters = {
        "letters": partial(
            make_retriever, "SIM", embedder=Bags(*string.ascii_lowercase, inside=True)
        )
    }
    rows = rageval.retrieval_rows(small_dataset(), letters, {"4": (50, 4)}, prefix=[False])
    assert rows["recall"].tolist()[:2] == [1.0, 1.0]
    assert rows["words"].tolist() == [9 + 5 + 9 + 6] * 3


def test_dragonball_that_is_not_here_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("RAGBENCH_DATA", str(tmp_path))
    with pytest.raises(DataError, match="not on this machine"):
        rageval.dragonball()


def test_dragonball_at_512_characters_is_near_the_papers_bm25_row(dragonball):
    rows = rageval.retrieval_rows(dragonball, ENGLISH, {"512-5": (512, 5)}, prefix=[True])
    # Table 4: Recall 0.6717, EIR 0.1162. The same in tokens gives an EIR of 0.03.
    assert rows["recall"].mean() == pytest.approx(0.67, abs=0.06)
    assert rows["eir"].mean() == pytest.approx(0.125, abs=0.02)


@pytest.fixture
def dragonball():
    try:
        return load_dataset("dragonball", rageval.DATA, per_kind=50)
    except DataError:
        pytest.skip("DRAGONBall is not in RAGBENCH_DATA/rageval")


test_bad_input_says_what_to_do = refusals(
    (lambda: load_dataset("squad", rageval.DATA), RagbenchError, "squad.*\n.*dragonball"),
    (lambda: sentence_chunks([], 9, "words"), RagbenchError, "words.*\n.*characters"),
    (lambda: rageval.retrieval_rows(small_dataset(), ENGLISH, {"x": (5, 0)}), RagbenchError, "k=0"),
)


@pytest.mark.skipif(
    shared_data("rageval", "dragonball_docs.jsonl") is None, reason="needs RAGBENCH_DATA/rageval"
)
def test_first_documents_of_dragonball_keep_only_the_questions_about_them():
    few, every = (rageval.dragonball(documents=n) for n in (4, 40))
    assert len(few.documents) == 4
    assert few.documents == every.documents[:4]
    ids = {d.id for d in few.documents}
    assert few.questions == tuple(q for q in every.questions if ids.issuperset(q.meta["doc_ids"]))
    assert 20 < len(few.questions) < 0.3 * len(every.questions)
    assert len(every.questions) == 1574
