"""The retrieval explorer driven from Python: what its HTML shows after each change of a control."""

import html
import json
import re
import subprocess
import sys
from collections import defaultdict
from html.parser import HTMLParser
from itertools import combinations_with_replacement

import numpy as np
import pytest
from checks import refusals
from experiment_parts import words
from hypothesis import given, settings
from hypothesis import strategies as st

from ragbench.errors import ConfigError, ModelError, check_known
from ragbench.metrics.ir_score import ir_score
from ragbench.paths import project_root
from ragbench.records import Chunk, Dataset, Hit, Question
from ragbench.widgets import Panel, RetrievalExplorer, mark, tag

FACTS = ("Ann was born in Rome.", "Rome lies on the river Tiber.")
TEXTS = ("Ann was born in Rome.", "Rome lies on the Tiber.", "Bob sells tea.")
QUESTIONS = [
    Question("q1", "On which river lies Ann's town?", "the Tiber", FACTS),
    Question("q2", "What does Bob sell?", "tea", ("Bob sells tea.",)),
    Question("q3", "Who sells Roman tea?", "Bob", ()),
]
ATTACK = "<script>alert('x')</script>&amp;\""


class Fixed:
    """A retriever that returns the same texts for every question, best first, and counts how often
    it is asked.
    """

    def __init__(self, texts=TEXTS, title="Town"):
        self.texts = texts
        self.title = title
        self.asked = []

    def search(self, queries, k):
        self.asked += [(query, k) for query in queries]
        hits = [
            Hit(Chunk(f"c{i}", t, "d", self.title), 4.0 - i, i) for i, t in enumerate(self.texts, 1)
        ]
        return [hits[:k] for _ in queries]


class Broken:
    def search(self, queries, k):
        raise ModelError("no server at <nowhere>", "a running one", "start it")


def explorer(retrievers=None, **options):
    options = {"tokenizer": words, "cutoff": 7, "max_tokens": 20} | options
    return RetrievalExplorer(QUESTIONS, retrievers or {"fixed": Fixed()}, **options)


def summary(one):
    """The page above the columns."""
    return one.page.value.partition('<div class="rb-columns">')[0]


def column(one, name):
    """A retriever's column of the page."""
    columns = one.page.value.removesuffix("</div>").split('<div class="rb-column">')[1:]
    return columns[list(one.hits).index(name)].removesuffix("</div>")


def shown(text):
    """What a reader sees of HTML, badges left out."""
    return html.unescape(re.sub(r'<span class="rb-tag[^>]*>[^<]*</span>|<[^>]*>', "", text))


@pytest.mark.parametrize(
    ("cutoff", "texts"),
    [
        (0, ["[0 tokens]{Ann was born in Rome.}", "{Rome lies on the Tiber.}", "{Bob sells tea.}"]),
        # At a chunk's end the cut comes before the next chunk.
        (5, ["Ann was born in Rome.[5 tokens]", "{Rome lies on the Tiber.}", "{Bob sells tea.}"]),
        (7, ["Ann was born in Rome.", "Rome lies[7 tokens]{ on the Tiber.}", "{Bob sells tea.}"]),
        (13, [*TEXTS[:2], "Bob sells tea.[all within 13 tokens]"]),
    ],
)
def test_the_cut_stands_after_its_token_and_what_follows_is_beyond(cutoff, texts):
    drawn = column(explorer(cutoff=cutoff), "fixed")
    marked = re.sub('<span class="rb-cut" role="separator">([^<]*)</span>', r"[\1]", drawn)
    marked = re.sub('<span class="rb-beyond">([^<]*)</span>', r"{\1}", marked)
    assert list(map(shown, re.findall('<p dir="auto">(.*?)</p>', marked))) == texts
    assert ("<mark" in drawn) is (cutoff > 0)
    assert drawn.count('"rb-cut') == 1


def test_longest_match_of_each_fact_is_marked_with_its_number():
    drawn = column(explorer(), "fixed")
    assert f"{tag(1)}{mark(1, 'Ann was born in Rome.')}" in drawn
    assert f"{tag(2)}{mark(2, 'Rome lies')}" in drawn


def test_score_follows_the_slider_and_equals_the_metric():
    one = explorer()
    assert one.scores["fixed"] == pytest.approx((1 + 9 / 29) / 2)
    assert 'IR score <b class="rb-score">0.655</b>' in column(one, "fixed")
    assert "IR score at 7 tokens" in summary(one)
    assert "31%" in summary(one)
    joined = " ".join(TEXTS)
    for n in range(21):
        one.slider.value = n
        end = words(joined)[n - 1] if 0 < n <= 13 else len(joined) * (n > 0)
        assert one.scores["fixed"] == pytest.approx(ir_score(FACTS, joined[:end])), n
    assert "0.793" in column(one, "fixed")


def test_hits_show_rank_title_and_score():
    drawn = shown(column(explorer(), "fixed"))
    assert re.search(r"1\. Town score 3Ann was.*2\. Town score 2Rome.*3\. Town score 1Bob", drawn)


def test_moving_the_slider_searches_no_more_and_coming_back_neither():
    fixed = Fixed()
    one = explorer({"fixed": fixed}, k=2)
    one.slider.value = 3
    for question in (QUESTIONS[1], QUESTIONS[0]):
        one.chooser.value = question.text
    assert fixed.asked == [(QUESTIONS[0].text, 2), (QUESTIONS[1].text, 2)]


def test_number_of_chunks_may_differ_by_retriever():
    one = explorer({"few": Fixed(), "many": Fixed()}, k={"few": 1})
    assert {name: len(hits) for name, hits in one.hits.items()} == {"few": 1, "many": 3}


def test_an_emptied_box_is_no_question():
    one = explorer()
    one.chooser.value = QUESTIONS[1].text
    one.chooser.value = ""
    assert one.question.id == "q2"


def test_wrapped_match_is_marked_in_the_text_as_it_is():
    one = explorer({"fixed": Fixed(texts=("Once Ann was\n   born in Rome. Then",))}, cutoff=20)
    assert "100%" in summary(one)
    assert Marks(column(one, "fixed")).texts["rb-mark-1"] == "Ann was\n   born in Rome."
    assert str(tag(1)) + '<mark class="rb-mark-1">Ann was\n   ' in column(one, "fixed")


def test_while_a_slow_retriever_searches_the_question_before_is_not_shown():
    seen = []

    class Slow(Fixed):
        def search(self, queries, k):
            if self.asked:  # the first question is searched before there is anything to see
                seen.append(shown.page.value)
            if "burst" in queries[0]:
                raise ValueError("burst")
            return super().search(queries, k)

    shown = explorer({"slow": Slow()})
    shown.chooser.value = "Who <b>?"
    assert seen == ["<p role='status'>searching: <b>Who &lt;b&gt;?</b></p>"]
    assert "searching" not in shown.page.value
    with pytest.raises(ValueError, match="burst"):
        shown.chooser.value = "burst"
    assert shown.page.value == "<p role='status'>not searched: <b>burst</b></p>"
    assert "ValueError: burst" in shown.message.value


def test_a_typed_question_is_searched_and_has_no_score():
    fixed = Fixed()
    one = explorer({"fixed": fixed})
    one.chooser.value = "  Where is Ann from? "
    assert fixed.asked[-1] == ("Where is Ann from?", 10)
    assert np.isnan(one.scores["fixed"])
    assert '<b class="rb-score">-</b>' in column(one, "fixed")
    assert "has no supporting facts, so there is no IR score" in summary(one)
    assert "undefined" not in column(one, "fixed") + summary(one)
    assert "<mark" not in column(one, "fixed")


def test_a_dataset_serves_as_questions():
    data = Dataset("towns", tuple(QUESTIONS), ())
    one = RetrievalExplorer(data, {"fixed": Fixed()}, tokenizer=words)
    assert one.question == QUESTIONS[0]
    assert len(one.chooser.options) == 3


def test_retriever_that_fails_shows_why_and_the_others_answer():
    one = explorer({"broken": Broken(), "fixed": Fixed()})
    assert "no server at &lt;nowhere&gt;" in column(one, "broken")
    assert list(one.scores) == ["fixed"]
    assert "Ann was born" in column(one, "fixed")


def test_retriever_that_finds_nothing_says_so():
    drawn = column(explorer({"empty": Fixed(texts=())}), "empty")
    assert "nothing was found" in drawn
    assert "0.000" in drawn


def test_hostile_text_is_shown_and_never_runs():
    question = Question("q", f"Who? {ATTACK}", ATTACK, (f"Ann {ATTACK}",))
    hostile = Fixed(texts=(f"Ann {ATTACK} wrote.",), title=ATTACK)
    one = RetrievalExplorer([question], {ATTACK: hostile}, tokenizer=words)
    for drawn in (summary(one), column(one, ATTACK)):
        assert "<script" not in drawn
        assert ATTACK in shown(drawn)
    assert one.scores[ATTACK] == 1.0


def test_facts_that_overlap_are_both_marked():
    question = Question("q", "?", "", ("abcdef", "cdefgh"))
    fixed = Fixed(texts=("abcdefgh",))
    one = RetrievalExplorer([question], {"x": fixed}, lambda text: [len(text)], cutoff=1)
    both = mark(1, mark(2, "cdef"))
    assert f"{tag(1)}{mark(1, 'ab')}{tag(2)}{both}{mark(2, 'gh')}" in column(one, "x")


class Marks(HTMLParser):
    """The text under each mark's number, badges left out."""

    def __init__(self, drawn):
        super().__init__()
        self.open = []
        self.texts = defaultdict(str)
        self.feed(drawn)

    def handle_starttag(self, tag, attributes):
        self.open.append(dict(attributes).get("class") or tag)

    def handle_endtag(self, tag):
        self.open.pop()

    def handle_data(self, data):
        if not any(name.startswith("rb-tag") for name in self.open):
            for name in self.open:
                self.texts[name] += data


syllable = st.text("ab<&", min_size=1, max_size=3)
letters = st.lists(syllable, min_size=1, max_size=4).map(" ".join)


@given(
    chunks=st.lists(letters, min_size=1, max_size=4),
    facts=st.lists(letters, min_size=1, max_size=3),
)
@settings(max_examples=30)
def test_every_character_is_shown_once_and_a_longest_match_is_marked(chunks, facts):
    def characters(text):
        return range(1, len(text) + 1)

    fixed = Fixed(texts=tuple(chunks), title="")
    question = Question("q", "?", "", tuple(facts))
    one = RetrievalExplorer([question], {"x": fixed}, characters, max_tokens=60)
    for n in (0, 1, 3, 8, 20, 60):
        one.slider.value = n
        drawn = re.sub(r'<span class="rb-cut[^>]*>[^<]*</span>', "", column(one, "x"))
        assert list(map(shown, re.findall('(?s)<p dir="auto">(.*?)</p>', drawn))) == chunks
        prefix = " ".join(chunks)[:n]
        for number, fact in enumerate(facts, 1):
            pieces = {fact[a:b] for a, b in combinations_with_replacement(range(len(fact) + 1), 2)}
            longest = max(len(piece) for piece in pieces if piece in prefix)
            marked = Marks(drawn).texts[f"rb-mark-{number}"]
            # a blank between two chunks is drawn in neither
            assert marked in pieces or len(marked) < longest
            assert longest - len(chunks) + 1 <= len(marked) <= longest


test_wrong_arguments_are_refused = refusals(
    (lambda: RetrievalExplorer([], {"a": Fixed()}), r"questions is \[\]"),
    (lambda: RetrievalExplorer("Who?", {"a": Fixed()}), "at least one Question"),
    (lambda: RetrievalExplorer([3], {"a": Fixed()}), r"questions is \[3\]"),
    (lambda: RetrievalExplorer(QUESTIONS, {"a": object()}), "pass for instance BM25"),
    (lambda: RetrievalExplorer(QUESTIONS, {}), r"retrievers is \{\}"),
    (lambda: RetrievalExplorer(QUESTIONS, [Fixed()]), "retrievers is .<"),
)


def test_guard_shows_a_ragbench_error_and_raises_any_other():
    panel = Panel([], "a <label>")
    assert "<h3>a &lt;label&gt;</h3>" in panel.children[0].value
    with panel.guarded():
        raise ConfigError("got <this>", "that", "change it")
    assert 'role="alert"' in panel.message.value
    assert "got &lt;this&gt;\n  expected: that\n  do: change it" in panel.message.value
    with panel.guarded():
        pass
    assert panel.message.value == ""
    with pytest.raises(ValueError, match="odd"), panel.guarded():
        raise ValueError("odd")
    assert "ValueError: odd" in panel.message.value
    panel.button("Go", lambda: check_known("way", ["there"], ["here"])).click()
    assert "unknown way &#x27;there&#x27;" in panel.message.value


def test_escaped_text_has_no_markup():
    name = "<'\">"
    drawn = column(explorer({name: Broken()}), name)
    assert drawn.startswith("<h4>&lt;&#39;&#34;&gt;</h4>")
    assert Panel([], name).children[0].value.endswith("<h3>&lt;&#x27;&quot;&gt;</h3>")


def test_ninth_fact_takes_the_first_colour_and_keeps_its_number():
    assert tag(9) == '<span class="rb-tag rb-tag-1">9</span>'
    assert 'class="rb-mark-8"' in mark(8, "x")


def test_ipywidgets_is_loaded_only_when_a_widget_is_used():
    code = (
        "import sys, ragbench.widgets as w; dir(w); print('ipywidgets' in sys.modules);"
        "w.RetrievalExplorer; print('ipywidgets' in sys.modules)"
    )
    assert subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split() == ["False", "True"]


def test_saved_workbench_shows_words_in_place_of_widgets_without_a_kernel():
    book = json.loads(
        (project_root() / "notebooks" / "92_workbench.ipynb").read_text(encoding="utf-8")
    )
    shown = [o["data"] for c in book["cells"] for o in c.get("outputs", ()) if "data" in o]
    assert not [d for d in shown if "application/vnd.jupyter.widget-view+json" in d]
    words = "\n".join("".join(d["text/plain"]) for d in shown)
    for name in ("RetrievalExplorer", "ClaimInspector", "LabellingTool"):
        assert name in words
