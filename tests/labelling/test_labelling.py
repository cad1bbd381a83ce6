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

import ragbench as rb
from ragbench.errors import ConfigError, DataError
from ragbench.labelling import people
from ragbench.widgets import LabellingTool

AT = "2026-11-21T10:00:00+00:00"


def row(item, label, annotator="ana", kind="grade", aspect="grade", note=""):
    return dict(
        zip(people.LABEL_COLUMNS, (kind, item, aspect, label, annotator, AT, note), strict=True)
    )


def table(*rows):
    return pd.DataFrame(rows, columns=people.LABEL_COLUMNS)


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
    with pytest.raises(DataError, match="a new row: the label 'good' of grade"):
        people.append_labels(path, [row("q9", "4"), row("q1", "good")])
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
    both = (row("p", "1", kind="keypoints", aspect=a) for a in "12")
    aspects = table(*both)
    assert people.current(aspects).equals(aspects)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"grade,q2,grade,good,ana,{AT},", "label 'good' of grade"),
        (f"rubric,q2,quality,6,ana,{AT},", "label '6' of rubric"),
        (f"grade,q2,quality,5,ana,{AT},", "aspect 'quality' of grade"),
        (f"grades,q2,grade,5,ana,{AT},", "kind 'grades'"),
        (f"grade,,grade,5,ana,{AT},", "empty item"),
        (f"grade,q2,grade,5, ,{AT},", "empty annotator"),
        (f"grade,q2,grade,5,ana,{AT},,", "8 columns instead of 7"),
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
    with pytest.raises(DataError, match="is not a label file"):
        people.append_labels(path, [row("q1", "4")])
    with pytest.raises(DataError, match="line 1: 'a;b'"):
        people.load_labels(path)
    assert path.read_text() == "a;b\n1;2\n"
    assert loaded(tmp_path) == loaded(labels_file)  # of a folder its label files
    people.append_labels(tmp_path / "more.csv", [row("q2", "3")])
    assert [one["item"] for one in loaded(tmp_path)] == ["q1", "q2"]


WHOLE = f"grade,q2,grade,5,ana,{AT},why"


def test_a_last_row_without_its_line_break_is_read_and_the_next_one_begins_a_line(labels_file):
    labels_file.write_text(labels_file.read_text() + WHOLE)
    people.append_labels(labels_file, [row("q3", "3")])
    assert [one["item"] for one in loaded(labels_file)] == ["q1", "q2", "q3"]
    assert labels_file.read_text().splitlines()[2] == WHOLE


@pytest.mark.parametrize(
    "torn", [b"grade,q2,gra", b"grade,q2,grade,5,ana", "grade,问".encode()[:-1]]
)
def test_a_row_that_was_cut_off_costs_that_label_alone_and_is_said(labels_file, torn):
    labels_file.write_bytes(labels_file.read_bytes() + torn)
    says = r"labels.csv, line 3 was cut off .* is left out"
    with pytest.warns(UserWarning, match=says):
        assert [one["item"] for one in loaded(labels_file)] == ["q1"]
    people.append_labels(labels_file, [row("q3", "3")])
    with pytest.warns(UserWarning, match=says):
        assert [one["item"] for one in loaded(labels_file)] == ["q1", "q3"]


def test_a_note_that_was_cut_off_keeps_its_label(labels_file):
    with open(labels_file, "a") as file:
        file.write(f'grade,q2,grade,5,ana,{AT},"a, b')
    people.append_labels(labels_file, [row("q3", "3")])
    assert [(one["item"], one["note"]) for one in loaded(labels_file)][1] == ("q2", "a, b")


@pytest.mark.parametrize("call", ["mkdir", "open"])
def test_a_folder_that_nothing_can_be_written_to_is_a_message(tmp_path, monkeypatch, call):
    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(
        *((people.Path, "mkdir") if call == "mkdir" else (people, "FileLock")), refused
    )
    with pytest.raises(DataError, match=r"cannot be written to .*l\.csv: Permission denied"):
        people.append_labels(tmp_path / "l.csv", [row("q1", "4")])


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


def test_keypoints_are_asked_one_by_one(tmp_path):
    item = people.LabelItem("q1", {"Answer": "A"}, {"1": "point one", "2": "point two"})
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
    fewer = people.agreement(a.iloc[:9], b.iloc[2:], resamples=0).iloc[0]
    assert fewer["n"] == 7


def test_rubric_scores_are_compared_with_distance():
    one, two = np.random.default_rng(3).integers(0, 6, (2, 60))
    a = ratings(map(str, one), "ana", "rubric", "quality")
    b = ratings(map(str, two), "bo", "rubric", "quality")
    (mine,) = people.agreement(a, b, resamples=0).to_dict("records")
    assert mine["kappa"] == pytest.approx(cohen_kappa_score(one, two, weights="quadratic"))


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


ROWS = [
    {"question_id": "q1", "system": "model A", "question": "Which sea?", "answer": "The Baltic"},
    {"question_id": "q1", "system": "model B", "question": "Which sea?", "answer": ""},
    {"question_id": "q2", "system": "model A", "question": "Which lake?", "answer": None},
]


def test_rows_become_items_without_their_system():
    full = ROWS[0] | {"reference": "The North Sea", "references": ["It lies by the North Sea."]}
    (item,) = rb.label_items([full])
    assert item.id == "q1/model A"
    assert item.texts == {
        "Question": "Which sea?",
        "True answer": "The North Sea",
        "Supporting facts": "It lies by the North Sea.",
        "Answer to be graded": "The Baltic",
    }
    assert item.labels == {}
    with pytest.warns(UserWarning, match="1 of 3 rows have no answer to label"):
        items = rb.label_items(pd.DataFrame(ROWS))
    assert [item.id for item in items] == ["q1/model A", "q1/model B"]
    assert items[1].texts["Answer to be graded"] == "(empty)"
    assert [item.id for item in rb.label_items([full | {"item": "a7"}])] == ["a7"]
    with pytest.raises(DataError, match="rows without question"):
        rb.label_items([{"question_id": "q1", "answer": "x"}])


def test_rows_of_a_file_become_the_same_items(tmp_path):
    path = tmp_path / "rows.csv"
    pd.DataFrame(ROWS[:1]).to_csv(path, index=False)
    assert rb.label_items(path) == rb.label_items(ROWS[:1])


@pytest.mark.parametrize("in_rows", [False, True])
def test_the_judges_scale_is_the_forms_scale(tmp_path, in_rows):
    scale = {0: "useless", 1: "poor", 2: "good", 3: "perfect"}
    rows = [one | {"judge_scale": str(scale)} for one in ROWS[:1]] if in_rows else ROWS[:1]
    items = rb.label_items(rows, scale=None if in_rows else scale)
    form = tool(tmp_path, items=items)
    assert form.session.choices() == {str(grade): words for grade, words in scale.items()}
    assert shown_buttons(form) == ["0  useless", "1  poor", "2  good", "3  perfect"]
    assert not form.session.press("5")
    button(form, "0").click()
    again = tool(tmp_path, items=items)
    assert again.session.shown_label("grade") == "0"
    assert tool(tmp_path, items=rb.label_items(ROWS[:1])).session.shown_label("grade") == ""


def test_labels_come_back_as_columns_of_the_rows(tmp_path):
    ana = tool(tmp_path, items=rb.label_items(ROWS[:2]))
    while ana.session.done < 2:
        button(ana, {"q1/model A": "5", "q1/model B": "1"}[ana.session.item.id]).click()
    people.append_labels(tmp_path / "bo.csv", [row("q1/model B", "4", "bo")])
    table = rb.with_labels(ROWS, tmp_path)
    assert table["grade_ana"].tolist()[:2] == [5, 1]
    assert math.isnan(table["grade_ana"][2])
    assert table["grade_bo"][1] == 4
    assert table["grade_bo"].notna().sum() == 1
    same = rb.with_labels(ROWS, people.load_labels(tmp_path))
    pd.testing.assert_frame_equal(same, table)
    people.append_labels(tmp_path / "bo.csv", [row("q9", "4", "bo")])
    with pytest.warns(UserWarning, match="1 labels belong to no row, such as that of 'q9'"):
        rb.with_labels(ROWS, tmp_path / "bo.csv")
    with pytest.raises(DataError, match="none of 2 labels of kind grade belongs to a row"):
        rb.with_labels([ROWS[0] | {"system": "another"}], tmp_path / "l.csv")


def tool(tmp_path, n=3, kind="grade", items=None):
    return LabellingTool(items or grade_items(n), kind, "ana", tmp_path / "l.csv")


def button(form, name):
    """A button by its key, shown or not."""
    found = [w for box in form.children if isinstance(box, ipywidgets.HBox) for w in box.children]
    return next(w for w in found if f"rb-press-{name}" in w._dom_classes)


def shown_buttons(form):
    """What stands on the buttons that give labels, from left to right."""
    return [one.description for one in form._choices.children]


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
        ("grade", grade_items(1), "54231"),
        ("rubric", grade_items(1), "012345"),
    ):
        form = tool(tmp_path / kind, kind=kind, items=items)
        assert "".join(words[0] for words in shown_buttons(form)) == keys


def test_wrong_stands_where_the_codebook_has_it_and_has_its_colour(tmp_path):
    form = tool(tmp_path, 1)
    assert [words[3:] for words in shown_buttons(form)[:2]] == ["fully correct", "wrong"]
    assert "rb-wrong" in button(form, "4")._dom_classes
    assert "rb-right" in button(form, "5")._dom_classes
    rubric = tool(tmp_path, kind="rubric")
    assert not {"rb-wrong", "rb-right"} & {*button(rubric, "4")._dom_classes}


def test_texts_are_shown_as_they_are(tmp_path):
    item = people.LabelItem("d", {"Topic": "a < b & <script>"})
    assert "a &lt; b &amp; &lt;script&gt;" in tool(tmp_path, items=[item])._item.value


def test_agreement_is_shown_when_all_items_are_labelled_or_on_the_button(tmp_path):
    people.append_labels(tmp_path / "bo.csv", [row(f"q{i}", "5", "bo") for i in range(4)])
    form = tool(tmp_path, 4)
    for key in "115":
        button(form, key).click()
        assert form._agreement.value == ""  # the next label is given blind
    asking = next(w for w in form.children[-3].children if w.description == "Show agreement")
    asking.click()
    assert ">3<" in form._agreement.value
    form = tool(tmp_path, 4)
    button(form, "5").click()
    assert "<td>50%</td>" in form._agreement.value


def test_agreement_by_hand_stands_in_the_form(tmp_path):
    form = tool(tmp_path, 4)
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
    (tmp_path / "bo.csv").write_text((tmp_path / "bo.csv").read_text() + "broken,,,,,,\n")
    assert "line 7" in tool(tmp_path, 4)._agreement.value


def test_undo_takes_the_last_label_back(tmp_path):
    form = tool(tmp_path, 3)
    first = form.session.item.id
    form._note.value = 'unsure, a "guess"'
    button(form, "4").click()
    people.append_labels(tmp_path / "l.csv", [row("q0", "1", "bo")])  # somebody else goes on
    button(form, "5").click()
    for _ in range(2):
        button(form, "undo").click()
    held = people.current(people.load_labels(tmp_path / "l.csv"))
    assert held["annotator"].tolist() == ["bo"]
    assert (form.session.item.id, form.session.done) == (first, 0)
    assert form.labels.empty
    assert tool(tmp_path, 3).session.done == 0  # the file says so too
    button(form, "undo").click()  # nothing is left to undo
    assert len(loaded(tmp_path / "l.csv")) == 5  # three labels, two taken back
    button(form, "4").click()
    button(form, "back").click()
    button(form, "2").click()
    button(form, "undo").click()
    assert form.labels["label"].tolist() == ["4"]  # what held before holds again
    assert form.session.shown_label("grade") == "4"


def test_one_goes_to_an_item_by_its_number_and_to_those_of_a_kind(tmp_path):
    people.append_labels(tmp_path / "bo.csv", [row(f"q{i}", "5", "bo") for i in range(4)])
    form = tool(tmp_path, 4)
    order = [item.id for item in form.session.items]
    for key, note in (("5", ""), ("4", "hm"), ("5", "")):
        form._note.value = note
        button(form, key).click()
    assert form._place.value == 4
    form._place.value = 1
    assert form.session.item.id == order[0]
    for chosen, place in (("with a note", 1), ("without a label", 3), ("where we differ", 1)):
        form._place.value = 1
        form._filter.value = chosen
        button(form, "forward").click()
        assert form.session.position == place, chosen
    button(form, "forward").click()  # no other one differs
    assert form.session.position == 1
    form._filter.value = "all items"
    button(form, "back").click()
    assert form.session.position == 0
    button(form, "forward").click()
    assert form.session.position == 1


def test_a_correction_after_the_last_item_stays_at_its_item(tmp_path):
    session = session_of(tmp_path, grade_items(3), seed=None)
    for _ in range(3):
        session.press("5")
    session.go(1)
    session.press("4")
    assert session.position == 1


def test_a_long_text_folds_and_every_text_has_its_own_direction(tmp_path):
    texts = {"Question": "قلعة", "Answer": "a" * 9000}
    form = tool(tmp_path, items=[people.LabelItem("q", texts)])
    assert "… 7500 more characters" in form._item.value
    assert form._item.value.count("dir='auto'") == 2
    assert form._item.value.count("<details>") == 1
    assert len(form._item.value) < 9000 + 1000  # each part stands once


def test_a_form_of_500_items_appears_in_two_seconds_of_cpu(tmp_path):
    items = [people.LabelItem(f"q{i}", {"Answer": "word " * 400}) for i in range(500)]
    start = time.process_time()
    tool(tmp_path, items=items)
    assert time.process_time() - start < 2


def test_whatever_fails_beside_the_label_the_form_shows_the_item_that_the_next_key_labels(tmp_path):
    form = tool(tmp_path)
    (tmp_path / "bo.csv").write_text(",".join(people.LABEL_COLUMNS) + "\nbroken,,,,,,\n")
    for _ in range(3):
        button(form, "4").click()
        assert form.session.item.texts["Question"] in form._item.value
    assert "No agreement shown" in form._agreement.value


def test_the_next_open_item_is_looked_for_from_the_start_again(tmp_path):
    session = session_of(tmp_path, grade_items(3), seed=None)
    session.go(2)
    session.press("4")
    assert session.position == 0
