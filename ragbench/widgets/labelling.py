"""The labelling tool: grades, rubric scores, keypoint verdicts, drafts; by keyboard or mouse."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ipywidgets
import pandas as pd

from ragbench.errors import RagbenchError
from ragbench.labelling.people import LabelItem, Session, agreement, current, load_labels
from ragbench.paths import results_dir
from ragbench.stats import with_interval
from ragbench.widgets.base import HTML, Panel

# ipywidgets has no key events. A style element runs its onload when it enters the page: it makes
# the tool take keys and press the button of that key, and keeps JupyterLab from taking them for
# commands (a digit would turn the cell into a heading). Where scripts are not allowed, the buttons
# still work, by mouse or by Tab and Enter.
_KEYS = """<style onload="
  const root = this.closest('.rb-labelling');
  if (root && !root.dataset.rbKeys) {
    root.dataset.rbKeys = root.dataset.lmSuppressShortcuts = 'true';
    root.tabIndex = 0;
    root.addEventListener('mousedown', (e) => {
      if (!e.target.closest('button, input, textarea')) { e.stopPropagation(); root.focus({preventScroll: true}); }
    });
    // After a click by mouse the button would keep the focus, and Enter would give its label again.
    root.addEventListener('click', (e) => {
      if (e.detail && e.target.closest('button')) root.focus({preventScroll: true});
    });
    const names = {ArrowLeft: 'back', ArrowRight: 'forward', ArrowUp: 'up', ArrowDown: 'down', Enter: 'open',
      Backspace: 'undo'};
    // After a note's Enter the next digit is a label. The field keeps its keys, so look before it does.
    root.addEventListener('keydown', (e) => {
      if (e.key === 'Enter' && e.target.matches('input')) root.focus({preventScroll: true});
    }, true);
    root.addEventListener('keydown', (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches('input, textarea, select, summary')) return;
      if (e.key === 'Enter' && e.target.matches('button')) return;
      const name = /^[0-9]$/.test(e.key) ? e.key : names[e.key];
      const button = name && root.querySelector('.rb-press-' + name);
      if (button && button.offsetParent) { e.preventDefault(); button.click(); }
    });
  }
">
.rb-labelling { padding: 6px; }
.rb-labelling:focus { outline: 2px solid var(--jp-brand-color1, #56B4E9); }
.rb-item { display: grid; gap: 6px; grid-template-columns: repeat(auto-fit, minmax(280px, 1fr)); }
.rb-item section { border: 1px solid var(--rb-rule); border-radius: 3px; padding: 4px 8px; max-height: 320px;
  overflow: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
.rb-item section.rb-wide { grid-column: 1 / -1; }
.rb-item details { display: inline; }
.rb-item summary { cursor: pointer; color: var(--rb-quiet); }
.rb-right { border-left: 6px solid var(--rb-good) !important; }
.rb-partly { border-left: 6px solid var(--rb-2) !important; }
.rb-wrong { border-left: 6px solid var(--rb-bad) !important; }
.rb-nothing { border-left: 6px dotted var(--rb-quiet) !important; }
.rb-item h4 { margin: 0 0 2px; font-size: 12px; color: var(--rb-quiet); }
.rb-asked { margin: 2px 0; padding: 2px 8px; border-left: 4px solid transparent; }
.rb-asked.rb-now { border-left-color: var(--rb-1); background: var(--rb-1-soft); }
</style>"""
# Of the thesis's categories: they have no order, and 4 is *wrong*.
_LOOKS = {"5": "rb-right", "4": "rb-wrong", "2": "rb-partly", "3": "rb-partly", "1": "rb-nothing"}
_EVERY = "all items"
_OPEN = "without a label"
_NOTED = "with a note"
_DIFFERENT = "where we differ"


class LabellingTool(Panel):
    """Label items one by one; each label is in the CSV before the next item is shown.

    Keys, once the tool has been clicked or reached by Tab: digits give labels, left and right move
    between items, up and down between questions about one item, Enter goes to the next open item,
    Backspace takes the last label back. To correct an older label, go back and label again. With a
    second person's labels in the same file, or one beside it, the agreement of the two is shown
    when all items are labelled, or on the button: it says what the other person thinks.

    Parameters
    ----------
    items : `ragbench.labelling.people.LabelItem` records; `ragbench.label_items` makes them of rows.
    kind : "grade", "rubric", "keypoints" or "draft".
    annotator : name or initials of who labels.
    path : the label file; default ``data/results/labels/<kind>_<annotator>.csv``. Labels in it are
        resumed.
    seed : of the order of items; None keeps the order given.

    ``session`` is the `ragbench.labelling.people.Session` behind the form.

    Source: the thesis's grades (§2.4), RAGEval's Figures 3 and 6.

    >>> item = rb.LabelItem("q1", {"question": "Who built the mill?", "answer": "Ada"})
    >>> tool = rb.widgets.LabellingTool([item], "grade", annotator="me", path="labels.csv")
    """

    def __init__(
        self,
        items: Sequence[LabelItem],
        kind: str = "grade",
        annotator: str = "",
        path: str | Path | None = None,
        seed: int | None = 0,
    ) -> None:
        path = path or _label_file(kind, annotator)
        self.session = Session(items, kind, annotator, path, seed)
        self._shown = -1
        self._head = ipywidgets.HTML()
        self._item = ipywidgets.HTML()
        self._asked = ipywidgets.HTML()
        self._agreement = ipywidgets.HTML()
        self._note = ipywidgets.Text(description="Note", placeholder="saved with the next label")
        self._buttons = {key: self._press(key, partial(self._label, key)) for key in "0123456789"}
        self._choices = self.row([])
        super().__init__(self._rows(), self.session.kind.title, _KEYS)
        self.add_class("rb-labelling")
        self._draw()
        self._draw_agreement()

    def _rows(self) -> list[ipywidgets.Widget]:
        """What stands in the form, from top to bottom."""
        session = self.session
        keys = "digits label, ← → move, ↑ ↓ choose the question, Enter next open, Backspace undo."
        hint = f"<span class='rb-quiet'>Click the form, then: {keys}</span>"
        ways = [
            self._press("back", partial(self._step, -1), "← Back", "The item before"),
            self._press("forward", partial(self._step, 1), "Next →", "The item after"),
            self._press("open", session.next_open, "Next open (Enter)", "Of those without a label"),
            self._press("up", partial(session.step_aspect, -1), "↑", "The question before"),
            self._press("down", partial(session.step_aspect, 1), "↓", "The question after"),
            self._press("undo", session.undo, "Undo (Backspace)", "Take the last label back"),
        ]
        return [
            ipywidgets.HTML(hint),
            self._head,
            self._item,
            self._asked,
            self._choices,
            self.row([*ways, self._note]),
            self._jumps(),
            self._agreement,
        ]

    def _jumps(self) -> ipywidgets.HBox:
        """The item's number, which items the arrows walk over, and how far two people agree."""
        self._place = ipywidgets.BoundedIntText(
            1, min=1, max=len(self.session.items), description="Item", layout={"width": "150px"}
        )
        self._place.observe(self._jump, "value")
        self._filter = ipywidgets.Dropdown(
            options=[_EVERY, _OPEN, _NOTED, _DIFFERENT], description="← → over"
        )
        compare = self.button("Show agreement", partial(self._draw_agreement, asked=True))
        return self.row([self._place, self._filter, compare])

    def __repr__(self) -> str:
        # ipywidgets' own would write every text of the item into a saved notebook.
        session = self.session
        return (
            f"LabellingTool({session.kind.name}: {session.done} of {len(session.items)} "
            f"items, {session.path.name})"
        )

    @property
    def labels(self) -> pd.DataFrame:
        """What this annotator says now about the items."""
        return self.session.labels

    def agreement(self) -> dict[str, pd.DataFrame]:
        """Compare with everybody else who has labelled: tables of
        `ragbench.labelling.people.agreement` by name.
        """
        labels = self.session.labels
        if labels.empty:
            return {}
        others = self._others().groupby("annotator", sort=False)
        return {str(name): agreement(labels, own, resamples=500) for name, own in others}

    def _others(self) -> pd.DataFrame:
        """What everybody else says, from the label files of the folder."""
        session = self.session
        rows = current(load_labels(session.path.parent), session.kind.name)
        return rows[rows["annotator"] != session.annotator]

    def _press(
        self, name: str, action: Callable[[], Any], words: str = "", hint: str = ""
    ) -> ipywidgets.Button:
        """Make a button that a key presses, see `_KEYS`."""
        button = self.button(
            words, partial(self._after, action), tooltip=hint, layout={"width": "auto"}
        )
        button.add_class(f"rb-press-{name}")
        return button

    def _after(self, action: Callable[[], Any]) -> None:
        try:
            action()
        finally:  # whatever failed, keys are for the item that is shown
            self._draw()

    def _label(self, key: str) -> None:
        before = self.session.done
        if self.session.press(key, self._note.value.strip()):
            self._note.value = ""
        if self.session.done != before:
            self._draw_agreement()

    def _step(self, by: int) -> None:
        """Show the next item of those chosen (1), or the one before (-1); stay at the ends."""
        here = self.session.position
        beyond = [place for place in self._chosen() if (place - here) * by > 0]
        self.session.go(min(beyond, key=lambda place: abs(place - here), default=here))

    def _chosen(self) -> list[int]:
        """The positions of the items that the filter names."""
        session = self.session
        chosen = self._filter.value
        if chosen == _OPEN:
            return session.open_positions()
        ids = {item.id for item in session.items}
        if chosen == _NOTED:
            ids = {item.id for item in session.items if session.note(item)}
        elif chosen == _DIFFERENT:
            both = session.labels.merge(self._others(), on=["item", "aspect"])
            ids = set(both.loc[both["label_x"] != both["label_y"], "item"])
        return [place for place, item in enumerate(session.items) if item.id in ids]

    def _jump(self, change: Mapping[str, Any]) -> None:
        """Show the item of the number that was typed."""
        place = change["new"] - 1
        if place != self.session.position:
            self._after(partial(self.session.go, place))

    def _draw(self) -> None:
        session = self.session
        self._head.value = HTML.progress(session, session.done, len(session.items))
        self._draw_buttons(session.choices(), session.shown_label(session.aspect))
        self._asked.value = HTML.questions(session)
        if self._shown != session.position:
            self._item.value = HTML.item(session)
            self._shown = session.position
            self._place.value = session.position + 1

    def _draw_buttons(self, choices: Mapping[str, str], label: str) -> None:
        """Show a button for each choice, in the order of the scale; the present label in colour."""
        has_categories = self.session.kind.name == "grade" and not self.session.item.labels
        for key, words in choices.items():
            button = self._buttons[key]
            button.description = f"{key}  {words}"
            button.button_style = {label: "primary"}.get(key, "")
            for look in _LOOKS.values():
                button.remove_class(look)
            if has_categories:
                button.add_class(_LOOKS[key])
        buttons = tuple(self._buttons[key] for key in choices)
        if self._choices.children != buttons:
            self._choices.children = buttons

    def _draw_agreement(self, *, asked: bool = False) -> None:
        """Show the agreement once all items are labelled, or when asked: labels are given blind."""
        if not asked and self.session.done < len(self.session.items):
            return
        try:
            tables = self.agreement()
        except RagbenchError as error:  # another person's file: no reason not to label
            words = f"No agreement shown: {html.escape(str(error))}"
            self._agreement.value = f"<span class='rb-quiet'>{words}</span>"
            return
        if not tables:
            return
        table = pd.concat(tables, names=["with"]).reset_index("with").query("n > 0")
        kappa = with_interval(table, "kappa", "kappa_low", "kappa_high", digits=2)
        shown = table[["with", "aspect", "n"]].assign(
            agreement=table["agreement"].map("{:.0%}".format), kappa=kappa
        )
        self._agreement.value = shown.to_html(index=False, border=0) if len(shown) else ""


def _label_file(kind: str, annotator: str) -> Path:
    in_a_file_name = re.sub(r'[<>:"|?*\\/]', "-", annotator.strip())
    return results_dir("labels") / f"{kind}_{in_a_file_name}.csv"
