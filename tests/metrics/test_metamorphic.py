"""All string metrics under changes that must not change a number: order of rows and columns, split
and merge of tables, file formats, decomposed letters, hidden characters.

Exact match, token F1, ROUGE-L and BLEU are as published, so a text in Latin letters that is written
with other characters is another text for them: the last relations are of the other metrics.
"""

import re
import unicodedata

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragbench as rb
from ragbench.metrics import table

METRICS = ["lexical", "claim_overlap", "ir_score", "reference_recall", "eir"]
NUMBERS = [
    "exact_match",
    "token_f1",
    "contained",
    "rouge_l",
    "bleu",
    "claim_overlap",
    "ir_score",
    "reference_recall",
    "eir",
]
OURS = ["contained", "claim_overlap", "ir_score", "reference_recall"]
WORDS = [
    "Zoë",
    "Élodie's",
    "office",
    "Straße",
    "mill",
    "1,234",
    "5 kg",
    "-5 °C",
    "C++",
    "the",
    "北京市",
    "काल",
    "서울",
    "Москва",
    "İstanbul",
]
TEXT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
ROW = st.fixed_dictionaries(
    {
        "answer": TEXT,
        "reference": TEXT,
        "chunks": st.lists(TEXT, min_size=1, max_size=3),
        "references": st.lists(TEXT, min_size=1, max_size=2),
    }
)
ROWS = st.lists(ROW, min_size=2, max_size=5)


def test_these_are_all_metrics_of_texts():
    texts = {"answer", "reference", "references", "chunks", "context"}
    assert {name for name, metric in table.METRICS.items() if texts.issuperset(metric.needs)} == {
        *NUMBERS
    }


def scored(rows):
    """Score rows, each with an id that keeps its place."""
    if not isinstance(rows, pd.DataFrame):
        rows = pd.DataFrame(rows)
    table = rb.score(rows.assign(question=rows["question_id"]), METRICS)
    return pd.DataFrame(table).set_index("question_id")[NUMBERS].astype(float).sort_index()


def named(rows):
    return pd.DataFrame([row | {"question_id": f"q{n}"} for n, row in enumerate(rows)])


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=5, deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_the_order_of_rows_and_columns_and_a_split_change_no_number(rows, random):
    frame = named(rows)
    expected = scored(frame)
    order = random.sample(range(len(frame)), len(frame))
    columns = random.sample(list(frame), len(frame.columns))
    pd.testing.assert_frame_equal(scored(frame.iloc[order][columns]), expected)
    parts = [scored(frame.iloc[:1]), scored(frame.iloc[1:])]
    pd.testing.assert_frame_equal(pd.concat(parts), expected)


RAGAS = {
    "question_id": "id",
    "question": "user_input",
    "answer": "response",
    "reference": "Ground Truth",
    "chunks": "retrieved_contexts",
    "references": "reference_contexts",
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=5, deadline=None)
@given(ROWS)
def test_other_names_of_columns_and_questions_change_no_number(rows):
    frame = named(rows)
    expected = scored(frame)
    theirs = frame.assign(question=frame["question_id"]).rename(columns=RAGAS)
    table = pd.DataFrame(rb.score(theirs, METRICS)).set_index("question_id")
    pd.testing.assert_frame_equal(table[NUMBERS].astype(float).sort_index(), expected)
    renamed = scored(frame.assign(question_id=[f"z{-n}" for n in range(len(frame))]))
    np.testing.assert_allclose(renamed.loc[[f"z{-n}" for n in range(len(frame))]], expected)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("ending", ["csv", "tsv", "json", "jsonl", "parquet"])
def test_the_format_of_a_file_changes_no_number(tmp_path, ending):
    rows = [
        {"answer": a, "reference": b, "chunks": [a, f"{b} {c}"], "references": [b]}
        for a, b, c in zip(WORDS, WORDS[1:], WORDS[2:], strict=False)
    ]
    frame = named(rows)
    path = tmp_path / f"rows.{ending}"
    write = {
        "csv": lambda: frame.to_csv(path, index=False),
        "tsv": lambda: frame.to_csv(path, index=False, sep="\t"),
        "json": lambda: frame.to_json(path, orient="records"),
        "jsonl": lambda: frame.to_json(path, orient="records", lines=True),
        "parquet": lambda: frame.to_parquet(path),
    }
    write[ending]()
    table = (
        pd.DataFrame(rb.score(path, METRICS))
        .set_index("question_id")[NUMBERS]
        .astype(float)
        .sort_index()
    )
    expected = scored(frame)
    assert list(table.index) == list(expected.index)
    np.testing.assert_allclose(table, expected)


def decomposed(text):
    return unicodedata.normalize("NFD", text)


def hidden(text):
    """Put a character that is not seen between any two, of each kind in turn."""
    unseen = "\u00ad\u200b\u200c\u200d\u200e\u200f\u202a\u2060\u2066\ufeff\ufe0f"
    return "".join(c + unseen[at % len(unseen)] for at, c in enumerate(text))


def wrapped(text):
    """Break lines at blanks, but not between Chinese words: there a line end stands for nothing."""
    return re.sub(r"(?<!市) | (?!北)", "\n", text)


def spaced(text):
    return text.replace(" ", " \u00a0 ")


def composed_for_print(text):
    return text.replace("ff", "ﬀ").replace("Stra", "Stra\u00ad\n")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("change", [decomposed, hidden, wrapped, spaced, composed_for_print])
@settings(max_examples=5, deadline=None)
@given(ROWS)
def test_how_a_text_is_written_changes_none_of_our_numbers(change, rows):
    expected = scored(named(rows))[OURS]
    changed = []
    for row in rows:
        chunks = [change(text) for text in row["chunks"]]
        changed.append(row | {"answer": change(row["answer"]), "chunks": chunks})
    np.testing.assert_allclose(scored(named(changed))[OURS], expected)
    other = []
    for row in rows:
        references = [change(text) for text in row["references"]]
        other.append(row | {"reference": change(row["reference"]), "references": references})
    np.testing.assert_allclose(scored(named(other))[OURS], expected)


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=5, deadline=None)
@given(ROWS)
def test_other_blanks_in_all_texts_change_no_number(rows):
    changed = []
    for row in rows:
        texts = {name: spaced(row[name]) for name in ("answer", "reference")}
        lists = {name: list(map(spaced, row[name])) for name in ("chunks", "references")}
        changed.append(texts | lists)
    kept = [name for name in NUMBERS if name != "eir"]  # which counts words as they stand
    np.testing.assert_allclose(scored(named(changed))[kept], scored(named(rows))[kept])


@pytest.mark.parametrize(
    "change", [str.upper, lambda text: text.replace(" ", ", "), lambda text: f"«{text}»."]
)
@given(
    st.lists(st.sampled_from(["Zoë", "mill", "1,234", "straße", "office"]), min_size=1).map(
        " ".join
    )
)
def test_case_and_marks_change_no_words(change, text):
    assert rb.contained(change(text), text) == rb.contained(text, change(text)) == 1.0
    assert rb.claim_overlap(change(text), text, {}) == 1.0
