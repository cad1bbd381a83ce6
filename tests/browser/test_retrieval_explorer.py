"""The retrieval explorer in a real JupyterLab: mouse and keyboard, both themes, no console errors."""

import re

import pytest
from page_contrast import CONTRAST
from playwright.sync_api import expect

CELLS = [
    """import ragbench as rb
from ragbench import data, widgets
minihop = data.load_minihop()
chunks = rb.token_chunks(minihop.documents, size=120)
systems = {"BM25": rb.BM25(chunks), "BM25, short": rb.BM25(chunks, variant="lucene", b=0.9)}""",
    "explorer = widgets.RetrievalExplorer(minihop.questions, systems, cutoff=200)\nexplorer",
]


def scores(out):
    return out.locator(".rb-score").all_inner_texts()


def wait_for_cut(out, tokens):
    """Until both columns are drawn with their line there."""
    expect(out.locator(".rb-cut")).to_have_text([f"{tokens} tokens"] * 2)


def test_slider_moves_the_line_and_the_scores_by_keyboard_and_mouse(open_notebook):
    book = open_notebook(CELLS)
    out = book.output(1)
    wait_for_cut(out, 200)
    before = scores(out)
    assert out.locator(".rb-cut").count() == 2
    assert out.locator("mark.rb-mark-1").count() >= 3  # in the list of facts and in both columns

    handle = out.locator(".noUi-handle")
    handle.focus()
    for key in ("ArrowRight", "ArrowUp", "ArrowUp", "ArrowUp", "ArrowDown"):
        book.page.keyboard.press(key)
    wait_for_cut(out, 230)
    # JupyterLab left the arrow keys alone
    assert handle.evaluate("e => e === document.activeElement")
    book.page.keyboard.press("Home")
    wait_for_cut(out, 0)
    expect(out.locator(".rb-score")).to_have_text(["0.000", "0.000"])

    track = out.locator(".noUi-target").bounding_box()
    book.page.mouse.click(track["x"] + track["width"] / 4, track["y"] + track["height"] / 2)
    out.locator(".rb-cut", has_text=re.compile(r"^(4[5-9]|5[0-5])0 tokens")).nth(1).wait_for()
    after = scores(out)
    assert all(float(a) >= float(b) for a, b in zip(after, before, strict=True))
    assert max(map(float, after)) > 0
    assert book.run("print(*(f'{s:.3f}' for s in explorer.scores.values()))").split() == after
    assert not book.errors


def test_question_is_chosen_by_list_and_typing(open_notebook):
    book = open_notebook(CELLS)
    out = book.output(1)
    title = out.locator("b").first
    wait_for_cut(out, 200)
    box = out.get_by_label("Question")
    assert out.locator("datalist option").count() == 180
    third = book.run("print(explorer.chooser.options[2])").strip()
    box.fill(third)  # what a choice from the list puts there
    box.press("Enter")
    expect(title).to_have_text(third)
    box.fill("Which <b>lake</b> is the deepest?")
    box.press("Enter")
    out.get_by_text("has no supporting facts, so there is no IR score").wait_for()
    expect(out.locator(".rb-score")).to_have_text(["-", "-"])
    assert out.get_by_text("Which <b>lake</b> is the deepest?").count() == 1
    assert not book.errors


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_readable_in_both_themes(open_notebook, theme, shots):
    book = open_notebook(CELLS, theme=theme)
    out = book.output(1)
    wait_for_cut(out, 200)
    column = out.locator(".rb-column").first
    for kind in ("article p", "mark", ".rb-tag", ".rb-beyond", ".rb-cut", "header b", ".rb-quiet"):
        assert column.locator(kind).first.evaluate(CONTRAST) >= 4.5, kind
    ink = column.evaluate("e => getComputedStyle(e.querySelector('p')).color")
    assert (int(re.search(r"\d+", ink)[0]) < 128) == (theme == "light")
    if theme == "light":
        book.screenshot(1, shots / "widget_explorer.png")
    assert not book.errors
