"""What all widgets share: colours, styles, escaped text, and the line where errors appear.

Colours are Okabe and Ito's (told apart by colour-blind readers) laid thinly over JupyterLab's own
``--jp-*`` colours, so the text keeps its contrast in the light and the dark theme. Nothing is told
by colour alone: there is always a number, a word or a line style besides.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ipywidgets
from jinja2 import Environment, FileSystemLoader

from ragbench.errors import RagbenchError
from ragbench.plots import PALETTE

# Line styles under the texts that are told apart, one per colour of the palette.
_LINES = ["solid", "dashed", "dotted", "wavy", "double", "solid", "dashed", "dotted"]

_COLOURS = "".join(f"--rb-{i}: {c}; --rb-{i}-soft: {c}40; " for i, c in enumerate(PALETTE, 1))
_MARKS = "\n".join(
    f".rb-mark-{i} {{ background: var(--rb-{i}-soft); text-decoration: underline {line} "
    f"var(--rb-{i}) 2px; }}\n"
    f".rb-tag-{i} {{ background: var(--rb-{i}); color: {'#fff' if i in (1, 5, 7) else '#000'}; }}"
    for i, line in enumerate(_LINES, 1)
)
# --rb-good and --rb-bad: blue and vermilion, told apart by every kind of colour blindness.
# A style element runs its onload when it enters the page. JupyterLab takes the arrow keys (to move
# between cells) and single letters (x cuts the cell) even from a list or slider in focus; this lets
# those keep their keys.
_STYLE = f"""<style onload="
  const root = this.closest('.rb-widget');
  if (root && !root.dataset.rbOwnKeys) {{
    root.dataset.rbOwnKeys = 'true';
    root.addEventListener('focusin', (e) => {{
      if (e.target.matches('select, .noUi-handle')) e.target.dataset.lmSuppressShortcuts = 'true';
    }});
  }}
">
.rb-widget {{
  {_COLOURS}
  --rb-good: {PALETTE[0]}; --rb-good-soft: {PALETTE[0]}40; --rb-bad: {PALETTE[4]}; --rb-bad-soft: {PALETTE[4]}40;
  --rb-text: var(--jp-ui-font-color1, #111); --rb-quiet: var(--jp-ui-font-color2, #555);
  --rb-paper: var(--jp-layout-color1, #fff); --rb-shade: var(--jp-layout-color2, #eee);
  --rb-rule: var(--jp-border-color1, #bbb);
  color: var(--rb-text); font-family: var(--jp-ui-font-family, sans-serif); font-size: 13px;
}}
.rb-widget .widget-html-content, .rb-widget .jupyter-widget-html-content {{
  line-height: 1.45; font-size: 13px; color: var(--rb-text); align-self: stretch;
}}
.rb-widget h3, .rb-widget h4 {{ margin: 0; font-size: 14px; font-weight: 600; }}
.rb-widget mark {{ color: inherit; padding: 0 1px; border-radius: 2px; text-underline-offset: 3px; }}
.rb-widget table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
.rb-widget th, .rb-widget td {{ padding: 2px 8px; text-align: left; border-bottom: 1px solid var(--rb-rule); }}
.rb-widget td.rb-number, .rb-widget th.rb-number {{ text-align: right; }}
.rb-widget th[scope=row] {{ font-weight: normal; }}
.rb-widget :focus-visible {{ outline: 2px solid var(--jp-brand-color1, {PALETTE[5]}); outline-offset: 1px; }}
.rb-tag {{ font-size: 11px; font-weight: 600; padding: 0 4px; border-radius: 7px; }}
.rb-quiet {{ color: var(--rb-quiet); }}
.rb-message:empty {{ display: none; }}
.rb-message {{ padding: 4px 8px; border-left: 4px solid var(--rb-1); background: var(--rb-1-soft);
  white-space: pre-wrap; }}
.rb-message.rb-error {{ border-left-color: var(--rb-bad); background: var(--rb-bad-soft); }}
{_MARKS}
</style>"""


# the macros of ``html.jinja``, which escape what they are given
_PAGES = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)
HTML: Any = _PAGES.get_template("html.jinja").module
tag = HTML.tag  # (number, label): a small badge in the palette's colour ``number``, from 1
mark = HTML.mark  # (number, content): a tint with an underline of its own for each number


class Panel(ipywidgets.VBox):
    """A box with the shared styles and ``style``, a heading, and below a line for errors,
    ``self.message``, which screen readers announce.
    """

    def __init__(self, children: Sequence[ipywidgets.Widget], label: str, style: str = "") -> None:
        self.message = ipywidgets.HTML()
        # A heading, not the box's tooltip: JupyterLab cannot draw a box that has one (ipywidgets
        # 8.1).
        heading = ipywidgets.HTML(f"{_STYLE}{style}<h3>{html.escape(label)}</h3>")
        super().__init__([heading, *children, self.message])
        self.add_class("rb-widget")

    def __repr__(self) -> str:
        # What a saved notebook shows, and a place that cannot draw widgets.
        return f"{type(self).__name__}: a widget; run this cell in JupyterLab to use it"

    @staticmethod
    def row(children: Iterable[ipywidgets.Widget], **layout: Any) -> ipywidgets.HBox:
        """Widgets side by side.

        On a narrow page what does not fit goes on below: nothing is hidden to the side.
        """
        return ipywidgets.HBox(
            [*children], layout=ipywidgets.Layout(flex_flow="row wrap", **layout)
        )

    def button(self, words: str, action: Callable[[], Any], **options: Any) -> ipywidgets.Button:
        """Make a button that calls ``action``, guarded."""

        def pressed(_: Any) -> None:
            with self.guarded():
                action()

        button = ipywidgets.Button(description=words, **options)
        button.on_click(pressed)
        return button

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Run the body of an event handler; an error is shown in the message line.

        JupyterLab hides what an event handler raises in its log. A RagbenchError ends here; any
        other is raised again after it is shown, so that the log has its traceback.
        """
        self.message.value = ""
        try:
            yield
        except Exception as error:
            expected = isinstance(error, RagbenchError)
            words = html.escape(str(error) if expected else f"{type(error).__name__}: {error}")
            self.message.value = f'<div class="rb-message rb-error" role="alert">{words}</div>'
            if not expected:
                raise
