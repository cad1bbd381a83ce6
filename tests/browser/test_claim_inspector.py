"""The claim inspector in JupyterLab: mouse and keyboard, what is drawn anew, both themes."""

from page_contrast import CONTRAST
from playwright.sync_api import expect

MAKE = """
import ragbench as rb

minihop, checker = rb.data.load_minihop(), rb.EmbeddedChecker()
questions = {q.id: q for q in minihop.questions if q.meta.get("claims")}
graded = [a for a in rb.load_graded_answers() if a.question_id in questions][5:10]
asked = [questions[a.question_id] for a in graded]
hits = rb.BM25(rb.token_chunks(minihop.documents, size=100)).search([q.text for q in asked], 5)
results = []
for answer, question, found in zip(graded, asked, hits):
    texts = [hit.chunk.text for hit in found]
    response = " ".join([answer.text.rstrip(".") + ".", *(rb.split_claims(text)[0] for text in texts[:2])])
    sides = rb.split_claims(response), [c["text"] for c in question.meta["claims"]]
    said = checker.check_many(sides[0], [question.meta["long_answer"], *texts])
    known = checker.check_many(sides[1], [response, *texts])
    results.append({
        "query_id": answer.id, "query": question.text, "gt_answer": question.meta["long_answer"],
        "response": response, "retrieved_context": [{"doc_id": h.chunk.id, "text": h.chunk.text} for h in found],
        "response_claims": sides[0], "gt_answer_claims": sides[1],
        "answer2response": [row[0] for row in said], "retrieved2response": [row[1:] for row in said],
        "response2answer": [row[0] for row in known], "retrieved2answer": [row[1:] for row in known],
    })
"""
SHOW = "inspector = rb.widgets.ClaimInspector(results)\ninspector"
EVIL = """
evil = '<img src=x onerror="window.ran=1"><script>window.ran=1</script>'
hostile = {**results[0], "query": evil, "response": evil, "gt_answer": evil, "query_id": evil,
           "response_claims": [evil] * len(results[0]["response_claims"]),
           "retrieved_context": [{"doc_id": evil, "text": evil} for _ in results[0]["retrieved_context"]]}
rb.widgets.ClaimInspector([hostile])
"""


def cell(box, title):
    return box.locator(f'button[title^="{title}"]')


def test_mouse_and_keyboard_lead_to_a_text(open_notebook, shots):
    book = open_notebook([MAKE, SHOW])
    box = book.output(1)
    cell(box, "response claim 1, chunk 1").click()
    detail = box.locator(".rb-detail")
    detail.locator(".rb-said").get_by_text("by chunk 1").wait_for()
    assert cell(box, "response claim 1, chunk 1").evaluate("e => e.classList.contains('rb-chosen')")
    # The picture: a claim that the first chunk entails, amid cells with all three labels.
    cell(box, "reference claim 2.").click()
    detail.get_by_text("Reference claim 2:").wait_for()
    detail.locator(".rb-said").get_by_text("Entailment by chunk 1").wait_for()
    expect(detail.locator("mark")).to_have_count(1)
    for kind in ("entailed", "neutral", "contradicted"):
        assert box.locator(f".rb-{kind}").count() > 0, kind
    book.screenshot(1, shots / "widget_claims.png")
    # A claim has the focus by Tab, Enter chooses it.
    claim = cell(box, "reference claim 2.")
    cell(box, "reference claim 1.").focus()
    book.page.keyboard.press("Tab")
    assert claim.evaluate("e => e === document.activeElement")
    book.page.keyboard.press("Enter")
    detail.get_by_text("Reference claim 2:").wait_for()
    assert claim.evaluate("e => e === document.activeElement")
    # Arrows in the matrix choose the neighbour.
    book.page.keyboard.press("ArrowRight")
    detail.locator(".rb-said").get_by_text("by response").wait_for()
    book.page.keyboard.press("ArrowRight")
    book.page.keyboard.press("ArrowUp")
    detail.get_by_text("Reference claim 1:").wait_for()
    detail.locator(".rb-said").get_by_text("by chunk 1").wait_for()
    assert cell(box, "reference claim 1, chunk 1").evaluate("e => e === document.activeElement")
    # Arrows in the lists of claims and texts.
    box.get_by_label("Claim").focus()
    book.page.keyboard.press("ArrowDown")
    detail.get_by_text("Reference claim 2:").wait_for()
    box.get_by_label("Text").focus()
    before = detail.inner_text()
    book.page.keyboard.press("ArrowDown")
    book.page.wait_for_function("([e, old]) => e.innerText !== old", arg=[detail.element_handle(), before])
    assert book.run("print(inspector.side, inspector.claim)").strip() == "reference 1"
    assert not book.errors


def test_another_result_and_another_order_are_drawn_anew(open_notebook):
    book = open_notebook([MAKE, SHOW])
    box = book.output(1)
    first = int(book.run("print(len(inspector.grid.children))"))
    expect(box.locator(".rb-cell")).to_have_count(first - 2)
    box.get_by_role("button", name="▶").click()
    box.get_by_text("result 2 of 5").wait_for()
    assert book.run("print(inspector.result.id == results[1]['query_id'])").strip() == "True"
    box.get_by_label("Order").select_option(label="recall, worst first")
    box.get_by_text("result 1 of 5").wait_for()
    worst = book.run(
        "print(min(inspector._scores, key=lambda s: s[0]['recall'])[0]['recall'] == inspector.metrics['recall'])"
    )
    assert worst.strip() == "True"
    expect(box.locator(".rb-cell")).to_have_count(int(book.run("print(len(inspector.grid.children))")) - 2)
    assert not book.errors


def test_it_can_be_read_in_the_dark_theme(open_notebook, shots):
    book = open_notebook([MAKE, SHOW, EVIL], theme="dark")
    box = book.output(1)
    cell(box, "response claim 1.").click()
    box.locator("mark").first.wait_for()
    for title in ("response claim 1, reference", "response claim 1.", "response claims against"):
        assert cell(box, title).first.evaluate(CONTRAST) >= 4.5, title
    assert box.locator("mark").first.evaluate(CONTRAST) >= 4.5
    book.screenshot(1, shots / "dark" / "widget_claims.png")
    book.output(2).locator("button").first.wait_for()
    assert book.page.evaluate("window.ran") is None
    assert not book.errors
