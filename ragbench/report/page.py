"""A run on one HTML page, to send to somebody: nothing is loaded from elsewhere, and jinja escapes every text."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from jinja2 import Environment

from ragbench.plots import GRADE_NAMES as GRADES
from ragbench.report.audit import render
from ragbench.report.methods import CLAIMS, Methods, with_citations
from ragbench.report.tables import RunTable, as_texts

_ENOUGH = 0.67  # the thesis's threshold k
_DPI, _CSS = 300, 120  # pixels an inch: of the files that an export draws, and on the page
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 0.85rem; }
caption { text-align: left; white-space: nowrap; font-weight: bold; padding: 0.4rem 0; }
th, td { padding: 0.2rem 0.6rem; text-align: left; border-bottom: 1px solid #ddd; vertical-align: top; }
.wide { overflow-x: auto; margin: 1rem 0; } .number { white-space: nowrap; } img { max-width: 100%; }
pre { white-space: pre-wrap; font-size: 0.85rem; }
aside { border: 1px solid #999; padding: 0 1rem; }
@media (max-width: 60rem) { table { font-size: 0.8rem; } th, td { padding: 0.2rem 0.35rem; } }
figure { margin: 1.5rem 0; } figcaption, small { color: #555; font-size: 0.85rem; }
</style></head><body>
<h1>{{ title }}</h1>
<p>{{ facts }}</p>
{% for note in notes %}<p><small>Note: {{ note }}.</small></p>
{% endfor %}
<h2>Results</h2>
{% for alt, data, width in figures %}<figure>
<img alt="{{ alt }}" src="data:image/png;base64,{{ data }}" width="{{ width }}">
<figcaption>{{ alt }}</figcaption></figure>
{% endfor %}
{% for table, texts in tables %}<div class="wide"><table><caption>{{ table.caption }}</caption>
<tr>{% for head in texts.columns %}<th>{{ head }}</th>{% endfor %}</tr>
{% for row in texts.to_numpy() %}<tr>{% for cell in row %}
<td{% if cell is interval %} class="number"{% endif %}>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table>{% for note in table.notes %}<small>{{ note }}</small><br>{% endfor %}</div>
{% endfor %}
<h2>Methods</h2>
{% for paragraph in paragraphs %}<p>{{ paragraph }}</p>
{% endfor %}
<aside><h2>{{ heading }}</h2>
<ul>{% for claim in claims %}<li>{{ claim }}</li>
{% endfor %}</ul></aside>
<h2>Checks</h2>
<pre>{{ checks }}</pre>
</body></html>
"""


def page(
    title: str,
    facts: str,
    tables: Sequence[RunTable],
    figures: Sequence[tuple[Path, str]],
    methods: Methods,
    audit: pd.DataFrame,
    notes: Sequence[str] = (),
) -> str:
    """Write the page; ``figures`` are PNG files, each with its alt text."""
    images = [(alt, file.read_bytes()) for file, alt in figures]
    # The width stands in a PNG's head: by it, letters have one size in all figures.
    drawn = [(alt, base64.b64encode(png).decode(), int.from_bytes(png[16:20]) * _CSS // _DPI) for alt, png in images]
    texts = [(each, as_texts(each.frame if each.shown is None else each.shown)[0]) for each in tables]
    parts = {"title": title, "facts": facts, "notes": notes, "figures": drawn, "tables": texts, "checks": render(audit)}
    paragraphs = [with_citations(paragraph) for paragraph in methods.paragraphs]
    parts |= {"paragraphs": paragraphs, "heading": CLAIMS, "claims": methods.claims}
    jinja = Environment(autoescape=True)
    jinja.tests["interval"] = re.compile(r"\S+ \[[^\]]*\]").fullmatch
    return jinja.from_string(_PAGE).render(parts)


def worst_answers(rows: pd.DataFrame) -> RunTable:
    """List the ten rows with the lowest IR scores, of equal ones those with the worse grade (4, 2, 1, 3, 5) first.

    Only rows with documents, and with less of the evidence than the thesis's threshold k asks for.
    """
    low = rows[(rows["N"] > 0) & (rows["ir_score"] < _ENOUGH)]
    order = low["grade"].map({4: 0, 2: 1, 1: 2, 3: 3, 5: 4}).astype(float)
    lowest = low.assign(badness=order).sort_values(["ir_score", "badness"], kind="stable").head(10)
    setting = [f"{row.retriever}, k = {row.k}, N = {row.N}" for row in lowest.itertuples()]
    asked = lowest["question"].fillna(lowest["question_id"]) if "question" in lowest else lowest["question_id"]
    frame = pd.DataFrame({"question": asked, "system": setting, "IR score": lowest["ir_score"].map("{:.2f}".format)})
    frame["grade"] = lowest["grade"].map(lambda n: f"{n} {GRADES[f'grade {n}']}", na_action="ignore")
    frame["answer"] = lowest["answer"].fillna("")
    caption = f"The {len(frame)} answers with the lowest IR scores, below {_ENOUGH}"
    return RunTable("worst", caption, frame.reset_index(drop=True))
