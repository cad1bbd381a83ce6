"""The run monitor in JupyterLab: start, stop and resume by mouse and keyboard while the kernel stays free."""

from page_contrast import CONTRAST
from playwright.sync_api import expect

MAKE = """
import time
import ragbench as rb

class Slow(rb.ExtractiveReader):
    def answer(self, question, context):
        time.sleep(0.1)
        if "lake" in question:
            raise ValueError("no answer about lakes")
        return super().answer(question, context)

grid = rb.Experiment(
    "watched",
    data={"minihop": rb.data.load_minihop},
    chunker={"100 tokens": lambda documents: rb.token_chunks(documents, size=100)},
    retriever={"BM25": rb.BM25},
    N=100,
    generator={"slow reader": Slow()},
    judge={"embedded": rb.EmbeddedGrader()},
)
"""
SHOW = "monitor = rb.widgets.RunMonitor(grid)\nmonitor"


def test_start_stop_and_resume_while_the_kernel_stays_free(open_notebook, shots):
    book = open_notebook([MAKE, SHOW], theme="light")
    box = book.output(1)
    box.get_by_role("button", name="Start").click()
    box.get_by_text("running", exact=True).wait_for()
    bar = box.get_by_role("progressbar", name="all rows")
    book.page.wait_for_function("""Number(document.querySelector('[aria-label="all rows"]').ariaValueNow) >= 10""")
    assert book.run("print(6 * 7, monitor.running)").strip() == "42 True"
    assert box.get_by_role("button", name="Resume").is_disabled()
    # Stop by keyboard.
    box.get_by_role("button", name="Stop").focus()
    book.page.keyboard.press("Enter")
    box.get_by_text("rows to go").wait_for()
    made = int(book.run("print(monitor.progress.done)"))
    assert 10 <= made < 180
    box.get_by_role("button", name="Resume").click()
    box.get_by_text("done", exact=True).wait_for()
    expect(bar).to_have_attribute("aria-valuenow", "180")
    assert int(book.run("print(monitor.progress.done)")) == 180 - made
    box.get_by_text("ValueError").wait_for()
    box.get_by_text("no answer about lakes").wait_for()
    book.screenshot(1, shots / "widget_monitor.png")
    assert not book.errors


def test_a_run_is_read_in_the_dark_theme_and_an_error_is_shown(open_notebook, shots):
    ended = "grid.run(progress=False)"
    make = MAKE.replace('"watched"', '"dark"').replace("no answer", "<b>no answer</b>")
    book = open_notebook([make, ended, 'rb.widgets.RunMonitor("dark")', WRONG], theme="dark")
    box = book.output(2)
    box.get_by_text("all rows there").wait_for()
    assert box.get_by_role("button").count() == 1
    box.get_by_role("button", name="Refresh").click()
    box.get_by_text("<b>no answer</b> about lakes").wait_for()
    for words in ("all rows there", "ValueError"):
        assert box.get_by_text(words).first.evaluate(CONTRAST) >= 4.5
    book.screenshot(2, shots / "dark" / "widget_monitor.png")
    book.output(3).get_by_role("alert").get_by_text("OverflowError: too many chunks").wait_for()
    assert not book.errors


WRONG = """
def wrong(documents):
    raise OverflowError("too many chunks")

broken = rb.widgets.RunMonitor(rb.Experiment(
    "broken", data={"minihop": rb.data.load_minihop}, chunker={"wrong": wrong}, retriever={"BM25": rb.BM25}))
broken.start()
broken
"""
