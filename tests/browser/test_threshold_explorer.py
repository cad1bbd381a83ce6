"""The threshold explorer in a real JupyterLab: sliders by keyboard and mouse, the redraw, both themes."""

import re

from playwright.sync_api import expect

CELLS = [
    """import ragbench as rb
from ragbench import data, widgets
from ragbench.papers import thesis
cut = {"120": lambda documents: rb.token_chunks(documents, size=120)}
grid = thesis.experiment("Table 3.2", data.load_minihop(), N=100, chunker=cut, name="threshold_explorer")
rows = grid.run(progress=False).dropna(subset=["grade", "ir_score"])""",
    'explorer = widgets.ThresholdExplorer(rows["ir_score"], rows["grade"])\nexplorer',
]


def test_sliders_redraw_the_picture_and_the_button_returns(open_notebook, shots):
    book = open_notebook(CELLS)
    out = book.output(1)
    picture = out.get_by_role("img")

    def wait_for(words: str) -> None:
        expect(picture).to_have_attribute("aria-label", re.compile(words))

    fitted = [f"{v:.3f}" for v in map(float, book.run("print(*explorer.thresholds.values())").split())]
    wait_for(f"h = {fitted[0]} and k = {fitted[1]}")
    assert picture.locator("img").evaluate("image => image.naturalWidth") > 500
    book.screenshot(1, shots / "widget_thresholds.png")
    table = out.locator("table").first.inner_text()

    h, k = out.locator(".noUi-handle").all()
    k.focus()
    book.page.keyboard.press("ArrowLeft")
    wait_for(f"k = {float(fitted[1]) - 0.001:.3f}")
    book.page.keyboard.press("Home")
    wait_for("k = 0.000")
    out.get_by_text("lies above k = 0.000").wait_for()
    track = out.locator(".noUi-target").nth(1).bounding_box()
    book.page.mouse.click(track["x"] + track["width"] * 0.7, track["y"] + track["height"] / 2)
    wait_for(r"k = 0\.(69|70|71)\d")
    expect(out.get_by_text("lies above")).to_have_count(0)
    h.focus()
    book.page.keyboard.press("Home")
    wait_for("h = 0.000")
    assert out.locator("table").first.inner_text() != table

    out.get_by_role("button", name="Back to fitted").click()
    wait_for(f"h = {fitted[0]} and k = {fitted[1]}")
    expect(out.locator("table").first).to_have_text(table, use_inner_text=True)
    now = book.run("print(explorer.thresholds['k'] == explorer.fitted.k.value, explorer.agreement['k'])").split()
    assert now == ["True", book.run("print(explorer.fitted.k.agreement)").strip()]
    assert not book.errors
