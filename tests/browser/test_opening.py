"""A committed notebook that is opened, looked at and saved stays as it is, and its picture fits a
narrow window.
"""

import shutil

from conftest import TOKEN

from ragbench.notebooks import find
from ragbench.paths import project_root

OPEN = """async () => {
  const panel = window.jupyterapp.shell.currentWidget;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
}"""


def test_opening_and_saving_the_first_notebook_changes_nothing(lab, browser):
    book = find()[0]
    copy = lab.folder / "notebooks" / book.name
    copy.parent.mkdir()
    shutil.copy(book, copy)
    shutil.copytree(project_root() / "docs", lab.folder / "docs")
    page = browser.new_context(viewport={"width": 820, "height": 1000}).new_page()
    page.goto(f"{lab.url}/doc/tree/notebooks/{book.name}?token={TOKEN}&reset")
    picture = page.locator(".jp-NotebookPanel img[alt^='Documents become chunks']")
    picture.wait_for()
    box = picture.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 820
    assert picture.evaluate("image => image.naturalWidth") > 0
    page.evaluate(OPEN)
    page.wait_for_timeout(1000)
    before = copy.stat().st_mtime_ns
    page.evaluate("async () => await window.jupyterapp.shell.currentWidget.context.save()")
    assert copy.stat().st_mtime_ns > before
    assert copy.read_bytes() == book.read_bytes()
