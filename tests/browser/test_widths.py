"""The widgets on a narrow and on a wide screen: nothing runs out of the page, and keys stay in the
widget.
"""

import pytest
from playwright.sync_api import expect

CELLS = [
    """import ragbench as rb
from ragbench import data, widgets
minihop = data.load_minihop()
chunks = rb.token_chunks(minihop.documents, size=120)
systems = {f"BM25, b = {b}": rb.BM25(chunks, variant="lucene", b=b) for b in (0.1, 0.3, 0.5, 0.7, 0.9)}""",
    "explorer = widgets.RetrievalExplorer(minihop.questions, systems, cutoff=200)\nexplorer",
    "\n".join(f"# line {i}" for i in range(80)),
]
LONG = "Which of the two lakes " + "that lie beside the old road " * 12 + "x" * 150 + "?"
INSIDE = "e => e.scrollWidth <= e.clientWidth"


@pytest.mark.parametrize("width", [820, 1440])
def test_five_retrievers_and_a_long_question_stay_in_the_page_and_home_in_the_widget(
    open_notebook, width
):
    book = open_notebook(CELLS, width=width)
    out = book.output(1)
    expect(out.locator(".rb-cut")).to_have_count(5)
    assert book.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert out.evaluate(INSIDE)
    frame = out.bounding_box()
    columns = out.locator(".rb-column").all()
    rows = {round(column.bounding_box()["y"]) for column in columns}
    assert len(rows) == {820: 3, 1440: 1}[width]  # two, two and one; or all beside each other
    for column in columns:  # none needs scrolling to the side
        assert column.evaluate(INSIDE)
        box = column.bounding_box()
        assert frame["x"] <= box["x"] + 1
        assert box["x"] + box["width"] <= frame["x"] + frame["width"] + 1
        assert box["width"] >= 200  # wide enough to read

    out.get_by_label("Question").fill(LONG)
    book.page.keyboard.press("Home")
    assert out.get_by_label("Question").evaluate("e => e.selectionStart") == 0
    book.page.keyboard.press("Enter")
    out.locator("b", has_text="Which of the two lakes").first.wait_for()
    # The question is drawn anew once the search is done: wait for a place that stays.
    wrapped = (
        "b => b.textContent.includes('Which of the two lakes') && b.getClientRects().length > 2"
    )
    book.page.wait_for_function(f"() => [...document.querySelectorAll('b')].some({wrapped})")
    assert out.evaluate(INSIDE)

    handle = out.locator(".noUi-handle")
    handle.scroll_into_view_if_needed()
    handle.focus()
    before = out.bounding_box()["y"]
    book.page.keyboard.press("Home")
    expect(out.locator(".rb-cut").first).to_have_text("0 tokens")
    assert out.bounding_box()["y"] == before  # the page did not jump to its top
    assert not book.errors
