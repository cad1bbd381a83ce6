"""The labelling tool in a real JupyterLab: keys and mouse, the CSV on the disk, resuming, a second
person.
"""

import pytest

from ragbench.labelling import people

IMPORTS = "from ragbench import data, label_items, load_graded_answers, widgets\nfrom ragbench.labelling import people\n"
GRADES = f"""{IMPORTS}questions = {{question.id: question for question in data.load_minihop().questions}}
rows = []
for answer in load_graded_answers("test")[:5]:
    question = questions[answer.question_id]
    row = {{"item": answer.meta["id"], "question": question.text, "answer": answer.text}}
    rows.append(row | {{"reference": question.answer, "references": question.facts()}})
items = label_items(rows)"""


class Form:
    """The tool in one cell's output, and its file."""

    def __init__(self, book, path, cell=1):
        self.book = book
        self.path = path
        self.out = book.output(cell)
        self.root = self.out.locator(".rb-labelling[data-rb-keys]")
        self.root.wait_for()

    def focus(self):
        self.out.locator(".rb-item section").first.click()

    def rows(self):
        # for a moment a new file is empty
        begun = self.path.exists() and self.path.stat().st_size > 0
        return people.load_labels(self.path).to_dict("records") if begun else []

    def press(self, key, rows=None, sees=None):
        """Press a key, and wait until the file has so many rows, or the form shows a text."""
        self.book.page.wait_for_timeout(60)  # the tool refuses keys in the first moment of an item
        self.book.page.keyboard.press(key)
        self.wait(rows, sees)

    def wait(self, rows=None, sees=None):
        if sees:
            self.out.get_by_text(sees).first.wait_for()
        for _ in range(100):
            if rows is None or len(self.rows()) == rows:
                return
            self.book.page.wait_for_timeout(50)
        pytest.fail(f"{len(self.rows())} rows in the file, expected {rows}")


def tool(kind, path):
    return f"tool = widgets.LabellingTool(items, {kind!r}, 'ana', {str(path)!r})\ntool"


def test_grades_by_keyboard_and_mouse_are_on_the_disk_and_resumed(open_notebook, tmp_path, shots):
    path = tmp_path / "ana.csv"
    form = Form(open_notebook([GRADES, tool("grade", path)]), path)
    form.focus()
    form.press("4", 1, "item 2 of 5")
    form.press("5", 2, "item 3 of 5")
    form.out.get_by_role("button", name="3 partly right, incomplete").click()  # the mouse
    form.wait(3, "item 4 of 5 · 3 done")
    form.press("1", 4, "item 5 of 5 · 4 done")  # the keys still work
    order = [r["item"] for r in form.rows()]
    assert [r["label"] for r in form.rows()] == ["4", "5", "3", "1"]
    assert len(set(order)) == 4

    form.press("ArrowLeft", sees="item 4 of 5")
    form.press("ArrowLeft", sees="item 3 of 5")
    form.press("2", 5, "item 5 of 5 · 4 done")  # a correction, and on to the open item
    assert [form.rows()[-1][name] for name in ("item", "label")] == [order[2], "2"]
    form.press("ArrowLeft", sees="item 4 of 5")
    form.press("Enter", sees="item 5 of 5")
    form.press("Backspace", 6, "item 3 of 5")  # the correction is taken back
    form.press("2", 7, "item 5 of 5 · 4 done")
    form.press("9")  # no grade
    form.book.page.wait_for_timeout(200)
    assert len(form.rows()) == 7
    # JupyterLab took none of the keys: in its command mode a digit makes a heading of the cell.
    assert form.book.page.locator(".jp-MarkdownCell").count() == 0
    assert not form.book.errors

    again = Form(open_notebook([GRADES, tool("grade", path)], theme="dark"), path)
    again.out.get_by_text("item 5 of 5 · 4 done").wait_for()
    again.focus()
    again.press("3", 8, "all done")
    assert not again.book.errors

    # A second person, who sees one of the five otherwise.
    others = people.current(people.load_labels(path)).assign(annotator="bo")
    assert others.loc[0, "label"] != "3"
    others.loc[0, "label"] = "3"
    people.append_labels(tmp_path / "bo.csv", others)
    last = Form(open_notebook([GRADES, tool("grade", path)]), path)
    last.out.get_by_role("cell", name="80%").wait_for()
    last.out.get_by_role("cell", name="0.").wait_for()
    last.focus()
    last.press("ArrowRight", sees="item 2 of 5")
    last.book.screenshot(1, shots / "widget_labelling.png")
    assert not last.book.errors


def test_a_note_is_typed_without_its_digits_becoming_labels(open_notebook, tmp_path):
    path = tmp_path / "ana.csv"
    form = Form(open_notebook([GRADES, tool("grade", path)]), path)
    note = form.out.get_by_label("Note")
    note.click()
    note.press_sequentially("see page 45")
    form.book.page.wait_for_timeout(200)
    assert form.rows() == []
    note.press("Enter")
    form.press("2", 1, "item 2 of 5")
    assert form.rows()[0]["note"] == "see page 45"
    assert note.input_value() == ""
    assert not form.book.errors
