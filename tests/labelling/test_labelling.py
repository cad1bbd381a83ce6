"""Labels that people give: the file, the session, agreement and calibration."""

import math
import multiprocessing
import re
import time

import ipywidgets
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from ragbench.errors import ConfigError, DataError
from ragbench.labelling import people
from ragbench.records import Answer, Question
from ragbench.widgets import LabellingTool

AT = "2026-11-21T10:00:00+00:00"


def row(item, label, annotator="ana", kind="grade", aspect="grade", note=""):
    return dict(zip(people.COLUMNS, (kind, item, aspect, label, annotator, AT, note), strict=True))


def table(*rows):
    return pd.DataFrame(rows, columns=people.COLUMNS)


def loaded(*paths):
    return people.load_labels(*paths).to_dict("records")


def session_of(folder, items, kind="grade", annotator="ana", **options):
    return people.Session(items, kind, annotator, folder / "l.csv", **options)


@pytest.fixture
def labels_file(tmp_path):
    """A file with one row, that of q1."""
    path = tmp_path / "labels.csv"
    people.append_labels(path, [row("q1", "4")])
    return path


def grade_items(n):
    return [
        people.LabelItem(f"q{i}", {"Question": f"Question {i}?", "Answer": f"Answer {i}."})
        for i in range(n)
    ]


def test_rows_come_back_as_they_were_written(tmp_path):
    path = tmp_path / "deep" / "labels.csv"
    rows = [
        row("q1", "4", note='"five", not six'),
        row("q2", "1", note="a, b"),
        row("问题", "5", "李"),
    ]
    people.append_labels(path, rows[:1])
    people.append_labels(path, table(*rows[1:]))
    with pytest.raises(DataError, match="a new row: the label '7' of grade"):
        people.append_labels(path, [row("q9", "4"), row("q1", "7")])
    assert loaded(path) == rows
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    assert head == "kind,item,aspect,label,annotator,at,note"
    assert not any("kind,item" in line for line in lines)
    # saved by a spreadsheet
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert loaded(path) == rows


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30))
def test_any_note_survives_the_file_on_one_line(tmp_path_factory, note):
    path = tmp_path_factory.mktemp("notes") / "labels.csv"
    people.append_labels(path, [row("q1", "4", note=note), row("q2", "3")])
    assert [one["note"] for one in loaded(path)] == [" ".join(note.splitlines()), ""]
    assert len(path.read_text(encoding="utf-8").splitlines()) == 3


def test_the_last_row_of_an_item_wins():
    rows = [row("q1", "4"), row("q2", "3"), row("q1", "5"), row("q1", "2", "bo")]
    held = people.current(table(*rows))[["item", "label", "annotator"]].to_numpy().tolist()
    assert held == [["q2", "3", "ana"], ["q1", "5", "ana"], ["q1", "2", "bo"]]
    other = row("q1", "1", kind="rubric", aspect="quality")
    assert people.current(table(*rows, other), "rubric").to_dict("records") == [other]
    both = (row("p", "1", kind="preference", aspect=a) for a in ("correctness", "overall"))
    aspects = table(*both)
    assert people.current(aspects).equals(aspects)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"grade,q2,grade,6,ana,{AT},", "label '6' of grade"),
        (f"grade,q2,quality,5,ana,{AT},", "aspect 'quality' of grade"),
        (f"grades,q2,grade,5,ana,{AT},", "kind 'grades'"),
        (f"grade,,grade,5,ana,{AT},", "empty item"),
        (f"grade,q2,grade,5, ,{AT},", "empty annotator"),
        ("grade,q2,grade,5,ana", "5 columns instead of 7"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line_and_nothing_is_loaded(labels_file, line, says):
    labels_file.write_text(labels_file.read_text() + line + "\n")
    with pytest.raises(DataError) as caught:
        people.load_labels(labels_file)
    assert f"{labels_file}, line 3: " in str(caught.value)
    assert says in str(caught.value)


def test_a_file_of_something_else_is_left_alone(tmp_path, labels_file):
    path = tmp_path / "thesis.csv"
    path.write_text("a;b\n1;2\n")
    with pytest.raises(DataError, match="is no label file"):
        people.append_labels(path, [row("q1", "4")])
    with pytest.raises(DataError, match="line 1: 'a;b'"):
        people.load_labels(path)
    assert path.read_text() == "a;b\n1;2\n"
    assert loaded(tmp_path) == loaded(labels_file)  # of a folder its label files
    people.append_labels(tmp_path / "more.csv", [row("q2", "3")])
    assert [one["item"] for one in loaded(tmp_path)] == ["q1", "q2"]


def _write_many(path, annotator, n, both_are_there):
    both_are_there.wait(60)
    for i in range(n):
        people.append_labels(path, [row(f"q{i}", "4", annotator), row(f"q{i}", "5", annotator)])


@pytest.mark.posix
def test_two_people_write_to_one_file_at_once_and_no_row_is_lost(tmp_path, monkeypatch):
    to_csv = pd.DataFrame.to_csv

    def slowly(*arguments, **options):
        time.sleep(0.02)  # or writers hardly meet, even without their lock
        return to_csv(*arguments, **options)

    monkeypatch.setattr(pd.DataFrame, "to_csv", slowly)
    path = tmp_path / "labels.csv"
    context = multiprocessing.get_context("fork")
    together = context.Barrier(2)
    writers = [
        context.Process(target=_write_many, args=(path, name, 20, together))
        for name in ("ana", "bo")
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    rows = people.load_labels(path)
    assert len(rows) == 80
    assert people.current(rows).groupby("annotator").size().to_dict() == {"ana": 20, "bo": 20}


def test_a_session_resumes_where_this_annotator_stopped(tmp_path):
    items = grade_items(6)
    first = session_of(tmp_path, items)
    order = [i.id for i in first.items]
    for done in (1, 2):
        assert first.press("5", note=f"note {done}")
        rows = people.load_labels(tmp_path / "l.csv")  # on the disk before the next item
        assert len(rows) == done
        last = rows[["item", "label", "note"]].iloc[-1].tolist()
        assert last == [order[done - 1], "5", f"note {done}"]
    again = session_of(tmp_path, items)
    assert [i.id for i in again.items] == order
    assert (again.done, again.item.id) == (2, order[2])
    other = session_of(tmp_path, items, annotator="bo")
    assert (other.done, other.position) == (0, 0)


def test_the_order_is_set_by_the_seed_and_survives_new_items(tmp_path):
    def order(n, seed):
        return [item.id for item in session_of(tmp_path, grade_items(n), seed=seed).items]

    orders = {seed: order(30, seed) for seed in (0, 1, None)}
    assert orders[None] == [i.id for i in grade_items(30)]
    assert len({tuple(o) for o in orders.values()}) == 3
    assert [i for i in order(40, 0) if int(i[1:]) < 30] == orders[0]


def preference_items(n):
    return [
        people.LabelItem(f"p{i}", {"Question": "Q"}, {"one": f"first {i}", "two": f"second {i}"})
        for i in range(n)
    ]


def test_a_preference_is_stored_for_the_second_candidate_on_whichever_side_it_is_shown(tmp_path):
    session = session_of(tmp_path, preference_items(20), "preference")
    sides = {}
    for _ in range(20):
        sides[session.item.id] = session.candidates()[1]
        for _ in range(3):
            session.press("5")  # whatever stands on the right is much better
    assert set(sides.values()) == {"one", "two"}
    stored = people.load_labels(tmp_path / "l.csv")
    assert stored.groupby("item")["aspect"].nunique().tolist() == [3] * 20
    right = stored["item"].map(sides)
    assert stored["label"].tolist() == right.map({"two": "2", "one": "-2"}).tolist()
    session.go(3)
    assert session.shown_label("overall") == "5"


def test_a_preference_asks_three_things_before_the_next_item(tmp_path):
    session = session_of(tmp_path, preference_items(2), "preference")
    first = session.item.id
    asked = []
    for _ in range(3):
        asked.append(session.aspect)
        assert session.item.id == first
        session.press("3")
    assert asked == ["correctness", "completeness", "overall"]
    assert session.item.id != first
    session.go(0)
    session.step_aspect(1)
    assert (session.item.id, session.aspect) == (first, "completeness")
    session.step_aspect(-1)
    assert session.aspect == "correctness"
    session.press("1")  # a correction, then what is open
    assert (session.item.id != first, session.aspect) == (True, "correctness")


def test_keypoints_are_asked_one_by_one(tmp_path):
    item = people.LabelItem("q1", {"Answer": "A"}, {}, {"1": "point one", "2": "point two"})
    session = session_of(tmp_path, [item], "keypoints")
    session.press("1")
    session.press("2")
    rows = people.load_labels(tmp_path / "l.csv")
    assert rows["aspect"].tolist() == ["1", "2"]
    assert rows["label"].tolist() == ["covered", "contradicted"]
    assert session.done == 1


def test_a_label_that_could_not_be_written_does_not_count(tmp_path, monkeypatch):
    session = session_of(tmp_path, grade_items(2))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ragbench.labelling.people.append_labels", full)
    with pytest.raises(OSError, match="No space"):
        session.press("4")
    assert (session.done, session.position) == (0, 0)


@pytest.mark.parametrize(
    ("items", "kind", "annotator", "says"),
    [
        ([], "grade", "ana", "0 items"),
        (grade_items(1) * 2, "grade", "ana", "2 items with 1 ids"),
        (grade_items(1), "grades", "ana", "did you mean 'grade'"),
        (grade_items(1), "grade", " ", "no annotator"),
        (grade_items(1), "preference", "ana", "2 for preference"),
        (preference_items(1), "grade", "ana", "with 2 candidates"),
        (grade_items(1), "keypoints", "ana", "with 0 aspects"),
    ],
)
def test_a_session_that_cannot_work_says_why(tmp_path, items, kind, annotator, says):
    with pytest.raises(ConfigError, match=says):
        session_of(tmp_path, items, kind, annotator)


def ratings(labels, annotator, kind="grade", aspect="grade"):
    return table(*(row(f"q{i}", label, annotator, kind, aspect) for i, label in enumerate(labels)))


def test_agreement_by_hand():
    # Ten items, 7 equal. Margins: a 4x1 6x5, b 5x1 5x5; by chance .4 * .5 + .6 * .5 = .5; kappa (.7
    # - .5) / .5.
    a = ratings(list("1111555555"), "ana")
    b = ratings(list("1115551155"), "bo")
    agreed = people.agreement(a, b, resamples=200).iloc[0]
    assert agreed["n"] == 10
    assert agreed["agreement"] == pytest.approx(0.7)
    assert agreed["kappa"] == pytest.approx(0.4)
    assert agreed["kappa_low"] < 0.4 < agreed["kappa_high"]
    assert math.isnan(agreed["within_one"])  # grades are categories
    fewer = people.agreement(a.iloc[:9], b.iloc[2:], resamples=0).iloc[0]
    assert fewer["n"] == 7


def test_preferences_are_compared_by_aspect_with_distance():
    rng = np.random.default_rng(3)
    one, two = rng.integers(-2, 3, (2, 60))
    a = ratings(map(str, one), "ana", "preference", "overall")
    b = ratings(map(str, two), "bo", "preference", "overall")
    by_aspect = people.agreement(a, b, resamples=0).set_index("aspect")
    assert list(by_aspect.index) == ["correctness", "completeness", "overall"]
    mine = by_aspect.loc["overall"]
    assert mine["kappa"] == pytest.approx(cohen_kappa_score(one, two, weights="quadratic"))
    assert mine["within_one"] == pytest.approx(np.mean(np.abs(one - two) <= 1))
    assert by_aspect.loc["correctness", "n"] == 0
    assert math.isnan(by_aspect.loc["correctness", "agreement"])


def test_verdicts_on_keypoints_are_pooled():
    def verdicts(who, *labels):
        return table(*(row("q", label, who, "keypoints", str(i)) for i, label in enumerate(labels)))

    a = verdicts("ana", "covered", "neither", "covered")
    b = verdicts("bo", "covered", "covered", "covered")
    (agreed,) = people.agreement(a, b, resamples=0).to_dict("records")
    assert (agreed["n"], agreed["agreement"]) == (3, pytest.approx(2 / 3))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (ratings("12", "ana"), ratings("12", "ana")),
        (pd.concat([ratings("12", "ana"), ratings("12", "cy")]), ratings("12", "bo")),
        (ratings("12", "ana"), ratings(["1", "2"], "bo", "rubric", "quality")),
        (table(), table()),
    ],
)
def test_agreement_wants_two_people_and_one_kind(a, b):
    with pytest.raises(DataError, match="one kind, two people"):
        people.agreement(a, b)


def test_answers_become_items_without_their_generator():
    question = Question("q1", "Which sea?", "The North Sea", ("It lies by the North Sea.",))
    answers = [
        Answer("q1", "The Baltic", "model A"),
        Answer("q1", "", "model B", meta={"id": "a7"}),
    ]
    items = people.grade_items([question], answers)
    assert [item.id for item in items] == ["q1/model A", "a7"]
    assert [item.texts["Answer to be graded"] for item in items] == ["The Baltic", "(empty)"]
    assert not any("model" in text for item in items for text in item.texts.values())
    with pytest.raises(DataError, match="q9"):
        people.grade_items([question], [Answer("q9", "x", "m")])


def tool(tmp_path, n=3, kind="grade", items=None):
    return LabellingTool(items or grade_items(n), kind, "ana", tmp_path / "l.csv")


def button(form, name):
    found = [w for box in form.children if isinstance(box, ipywidgets.HBox) for w in box.children]
    return next(w for w in found if f"rb-press-{name}" in w._dom_classes)


def test_a_name_that_no_file_can_have_labels_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    form = LabellingTool(grade_items(1), "grade", "Ada/B: R?")
    button(form, "4").click()
    (stored,) = loaded(tmp_path / "labels" / "grade_Ada-B- R-.csv")
    assert stored["annotator"] == "Ada/B: R?"


def test_the_form_writes_a_label_and_shows_the_next_item(tmp_path):
    form = tool(tmp_path)
    first = form.session.item
    form._note.value = " unsure "
    button(form, "4").click()
    stored = people.load_labels(tmp_path / "l.csv")
    assert stored[["item", "label", "note"]].to_numpy().tolist() == [[first.id, "4", "unsure"]]
    assert form._note.value == ""
    assert "item 2 of 3 · 1 done" in form._head.value
    assert form.session.item.texts["Question"] in form._item.value
    assert first.texts["Question"] not in form._item.value
    button(form, "back").click()
    assert first.texts["Question"] in form._item.value
    button(form, "5").click()
    assert form.labels["label"].tolist() == ["5"]


def test_a_saved_notebook_gets_no_text_of_the_items(tmp_path):
    form = tool(tmp_path)
    assert repr(form) == "LabellingTool(grade: 0 of 3 items, l.csv)"
    assert "Question" not in str(form._repr_mimebundle_())


def test_only_the_keys_of_the_kind_have_buttons(tmp_path):
    for kind, items, keys in (
        ("grade", grade_items(1), "12345"),
        ("rubric", grade_items(1), "012345"),
        ("preference", preference_items(1), "12345"),
    ):
        form = tool(tmp_path / kind, kind=kind, items=items)
        assert "".join(k for k in "0123456789" if button(form, k).layout.display != "none") == keys


def test_texts_are_shown_as_they_are_and_names_of_candidates_are_not(tmp_path):
    candidates = {"secret writer": "T1", "ours": "T2"}
    item = people.LabelItem("d", {"Topic": "a < b & <script>"}, candidates)
    form = tool(tmp_path, kind="preference", items=[item])
    shown = form._item.value + form._asked.value + form._head.value
    assert "a &lt; b &amp; &lt;script&gt;" in shown
    assert not re.search("secret|ours", shown)


def test_the_form_shows_agreement_when_a_second_person_has_labelled(tmp_path):
    form = tool(tmp_path, 4)
    assert form._agreement.value == ""
    for key in "1155":
        button(form, key).click()
    rows = [row(item, "1" if i < 1 else "5", "bo") for i, item in enumerate(form.labels["item"])]
    people.append_labels(tmp_path / "bo.csv", [*rows, row("q", "3", "di", "rubric", "quality")])
    again = tool(tmp_path, 4)
    assert "all done" in again._head.value
    # Three of four the same; by chance .5 * .25 + .5 * .75 = .5, kappa (.75 - .5) / .5.
    cells = re.findall("<td>([^<]*)</td>", again._agreement.value)
    assert cells[:4] == ["bo", "grade", "4", "75%"]
    kappa, low, high = map(float, re.findall(r"-?[\d.]+", cells[4]))
    assert low <= kappa == 0.5 <= high
    (tmp_path / "bo.csv").write_text((tmp_path / "bo.csv").read_text() + "broken\n")
    assert "line 7" in tool(tmp_path, 4)._agreement.value


def test_whatever_fails_beside_the_label_the_form_shows_the_item_that_the_next_key_labels(tmp_path):
    form = tool(tmp_path)
    (tmp_path / "bo.csv").write_text(",".join(people.COLUMNS) + "\nbroken\n")
    button(form, "4").click()
    assert form.session.item.texts["Question"] in form._item.value
    assert "No agreement shown" in form._agreement.value


def test_the_next_open_item_is_looked_for_from_the_start_again(tmp_path):
    session = session_of(tmp_path, grade_items(3), seed=None)
    session.go(2)
    session.press("4")
    assert session.position == 0
