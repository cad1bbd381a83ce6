"""The threshold explorer in a real JupyterLab: sliders by keyboard and mouse, the redraw, both themes."""

import re

import pytest
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


def level(out, name: str) -> float:
    """Height of a threshold's line in the picture."""
    points = out.locator(f"svg polyline.rb-{name}").last.get_attribute("points")
    return float(points.split(",")[1].split()[0])


def wait_for_value(out, name: str, value: str) -> None:
    out.locator("svg text", has_text=re.compile(rf"^{name} = {value}$")).wait_for()


def test_sliders_redraw_the_picture_and_the_button_returns(open_notebook, shots):
    book = open_notebook(CELLS)
    out = book.output(1)
    fitted = [f"{v:.3f}" for v in map(float, book.run("print(*explorer.thresholds.values())").split())]
    wait_for_value(out, "h", fitted[0])
    wait_for_value(out, "k", fitted[1])
    expect(out.locator("svg polygon")).to_have_count(4)
    book.screenshot(1, shots / "widget_thresholds.png")
    start, table = level(out, "k"), out.locator("table").first.inner_text()

    h, k = out.locator(".noUi-handle").all()
    k.focus()
    book.page.keyboard.press("ArrowLeft")
    wait_for_value(out, "k", f"{float(fitted[1]) - 0.001:.3f}")
    book.page.keyboard.press("Home")
    wait_for_value(out, "k", "0.000")
    out.get_by_text("lies above k = 0.000").wait_for()
    expect(out.locator("svg rect")).to_have_count(0)
    assert level(out, "k") == 286

    track = out.locator(".noUi-target").nth(1).bounding_box()
    book.page.mouse.click(track["x"] + track["width"] * 0.7, track["y"] + track["height"] / 2)
    wait_for_value(out, "k", r"0\.(69|70|71)\d")
    assert 24 < level(out, "k") < 286
    expect(out.locator("svg rect")).to_have_count(3)
    expect(out.get_by_text("lies above")).to_have_count(0)
    h.focus()
    book.page.keyboard.press("Home")
    wait_for_value(out, "h", "0.000")
    assert out.locator("table").first.inner_text() != table

    out.get_by_role("button", name="Back to fitted").click()
    wait_for_value(out, "h", fitted[0])
    wait_for_value(out, "k", fitted[1])
    assert level(out, "k") == start
    assert out.locator("table").first.inner_text() == table
    now = book.run("print(explorer.thresholds['k'] == explorer.fitted.k.value, explorer.agreement['k'])").split()
    assert now == ["True", book.run("print(explorer.fitted.k.agreement)").strip()]
    assert not book.errors


@pytest.mark.parametrize(("theme", "paper"), [("light", range(200, 256)), ("dark", range(60))])
def test_letters_and_curve_take_the_colour_of_the_theme(open_notebook, theme, paper):
    cells = ["from ragbench import widgets", "widgets.ThresholdExplorer([0.1, 0.2, 0.7, 0.9], [1, 2, 4, 5])"]
    book = open_notebook(cells, theme=theme)
    svg = book.output(1).locator("svg.rb-svg")
    svg.wait_for()
    ink = svg.evaluate(
        "s => [getComputedStyle(s.querySelector('text')).fill, getComputedStyle(s.querySelector('.rb-curve')).stroke]"
    )
    ground = book.page.locator(".jp-Notebook").evaluate("e => getComputedStyle(e).backgroundColor")
    assert all(int(c) in paper for c in re.findall(r"\d+", ground)[:3])
    for colour in ink:
        assert all(abs(int(c) - paper[0]) > 120 for c in re.findall(r"\d+", colour)[:3]), ink
    words = svg.locator("xpath=..").get_attribute("aria-label")
    assert words.startswith("IR scores of 4 answers")
    assert not book.errors
