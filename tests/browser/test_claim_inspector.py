"""The claim inspector in JupyterLab: mouse and keyboard, what is drawn anew, both themes."""

from page_contrast import CONTRAST
from playwright.sync_api import expect

MAKE = """
import json

import ragbench as rb
from ragbench.paths import packaged_data

recorded = json.loads(packaged_data("minihop", "labels", "claims", "claims_prompts.json").read_text(encoding="utf-8"))
results = recorded["results"][8:13]  # the first has all three labels, and a claim that the first chunk entails
"""
SHOW = "inspector = rb.widgets.ClaimInspector(results)\ninspector"
EVIL = """
evil = '<img src=x onerror="window.ran=1"><script>window.ran=1</script>'
hostile = {**results[0], "query": evil, "response": evil, "gt_answer": evil, "query_id": evil,
           "response_claims": [evil] * len(results[0]["response_claims"]),
           "retrieved_context": [{"doc_id": evil, "text": evil} for _ in results[0]["retrieved_context"]]}
rb.widgets.ClaimInspector([hostile])
"""


def test_the_table_shows_all_labels_and_a_chunk_folds_out(open_notebook, shots):
    book = open_notebook([MAKE, SHOW])
    box = book.output(1)
    for kind in ("entailed", "neutral", "contradicted"):
        assert box.locator(f".rb-{kind}").count() > 0, kind
    chunk = box.locator("details").first
    text = chunk.locator(".rb-long")
    expect(text).to_be_hidden()
    chunk.locator("summary").focus()
    book.page.keyboard.press("Enter")
    expect(text).to_be_visible()
    book.screenshot(1, shots / "widget_claims.png")
    assert not book.errors


def test_another_result_and_another_order_are_drawn_anew(open_notebook):
    book = open_notebook([MAKE, SHOW])
    box = book.output(1)
    box.get_by_label("Result").focus()
    book.page.keyboard.press("ArrowDown")
    box.get_by_text("result 2 of 5").wait_for()
    assert book.run("print(inspector.result.id == results[1]['query_id'])").strip() == "True"
    box.get_by_label("Order").select_option(label="recall, worst first")
    box.get_by_text("result 1 of 5").wait_for()
    worst = book.run("print(inspector._scores['recall'].min() == inspector.metrics['recall'])")
    assert worst.strip() == "True"
    expect(box.locator(".rb-matrix tbody tr")).to_have_count(
        int(
            book.run(
                "print(len(inspector.result.response_claims) + len(inspector.result.reference_claims))"
            )
        )
    )
    assert not book.errors


def test_it_can_be_read_in_the_dark_theme(open_notebook, shots):
    book = open_notebook([MAKE, SHOW, EVIL], theme="dark")
    box = book.output(1)
    box.locator(".rb-matrix").first.wait_for()
    for part in (
        ".rb-entailed",
        ".rb-neutral",
        ".rb-contradicted",
        ".rb-matrix th[scope=row]",
    ):
        assert box.locator(part).first.evaluate(CONTRAST) >= 4.5, part
    book.screenshot(1, shots / "dark" / "widget_claims.png")
    book.output(2).locator(".rb-matrix").first.wait_for()
    assert book.page.evaluate("window.ran") is None
    assert not book.errors
