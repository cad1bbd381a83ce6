"""Text and tables for LaTeX: escaped, booktabs, with caption and label; compiles with pdflatex as it is.

Characters outside Latin that have a command get it; others (Chinese, for instance) stay as they are, which needs
lualatex or xelatex: a comment in the first line says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

PREAMBLE = r"\usepackage[T1]{fontenc} \usepackage{booktabs} \usepackage{longtable} \usepackage{graphicx}"
LONG = 45  # rows that still fit on one page
_WIDE, _WIDER = 90, 125  # characters in a row from which the type gets smaller
# Shrinks what is wider than the text, and nothing else.
FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"
_WRAP = 45  # characters of a text column from which its lines are broken

_INTERVAL = re.compile(r"-?[\d.,]+( \[-?[\d.,]+, -?[\d.,]+\])?")  # text to pandas, but its minus is no hyphen
_COMMANDS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "`": r"\textasciigrave{}", "\u00a0": "~", "−": "$-$", "→": r"$\rightarrow$",
    "←": r"$\leftarrow$", "≥": r"$\geq$", "≤": r"$\leq$", "≠": r"$\neq$", "≈": r"$\approx$", "∞": r"$\infty$",
    "√": r"$\surd$", "∈": r"$\in$", "Δ": r"$\Delta$", "Σ": r"$\Sigma$", "Ω": r"$\Omega$", "α": r"$\alpha$",
    "β": r"$\beta$", "γ": r"$\gamma$", "δ": r"$\delta$", "ε": r"$\varepsilon$", "η": r"$\eta$", "θ": r"$\theta$",
    "κ": r"$\kappa$", "λ": r"$\lambda$", "μ": r"$\mu$", "π": r"$\pi$", "ρ": r"$\rho$", "σ": r"$\sigma$",
    "τ": r"$\tau$", "φ": r"$\varphi$", "χ": r"$\chi$", "ω": r"$\omega$",
}  # fmt: skip
_SET_BY_PDFLATEX = re.compile(
    r"[\x20-\x7e\u00a1-\u00ff\u0100-\u017f\u2013\u2014\u2018-\u201e\u2020\u2022\u2026\u20ac\n]*"
)


def escape(text: str) -> str:
    """Write a text so that LaTeX sets it as it is; line breaks and control characters become spaces."""
    plain = re.sub(r"[\x00-\x1f\x7f]+", " ", text)
    made = "".join(_COMMANDS.get(character, character) for character in plain)
    # Two hyphens would be joined to one dash.
    return re.sub(r"-(?=-)", "-{}", made)


def label_of(text: str) -> str:
    """Turn a text into a label that every LaTeX accepts."""
    return re.sub(r"[^A-Za-z0-9:.]+", "-", text).strip("-")


def latex_table(
    head: Sequence[str],
    body: Sequence[Sequence[str]],
    numeric: Sequence[bool],
    caption: str,
    label: str,
    notes: Sequence[str] = (),
) -> str:
    """Write one table.

    Parameters
    ----------
    head : names of the columns.
    body : rows of cells, as text.
    numeric : for each column whether it holds numbers (set to the right).
    caption, label : of the table; the label gets "tab:" before it unless it has it.
    notes : lines under the table.

    Returns
    -------
    str: a ``table`` with a ``tabular``, or a ``longtable`` above 45 rows. Needs the packages of ``PREAMBLE``.
    """
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    spec = "".join(_column(width, right, widths) for width, right in zip(widths, numeric, strict=True))
    lines = [_row(row, numeric) for row in body]
    top = rf"\caption{{{escape(caption)}}}\label{{{_label(label)}}}"
    titles = " & ".join(escape(name) for name in head) + r" \\"
    total = sum(min(width, _WRAP) for width in widths) + 2 * len(widths)
    size = r"\scriptsize" if total > _WIDER else r"\footnotesize" if total > _WIDE else r"\small"
    under = [rf"\par\smallskip\footnotesize {escape(note)}" for note in notes]
    if len(body) > LONG:
        end = rf"\multicolumn{{{len(head)}}}{{r}}{{\footnotesize continued on the next page}} \\"
        made = [
            rf"\begingroup{size}\setlength{{\tabcolsep}}{{4pt}}", rf"\begin{{longtable}}{{{spec}}}", rf"{top} \\",
            r"\toprule", titles, r"\midrule", r"\endfirsthead", r"\toprule", titles, r"\midrule", r"\endhead",
            r"\midrule", end, r"\endfoot", r"\bottomrule", r"\endlastfoot", *lines, r"\end{longtable}", *under,
            r"\par\endgroup",
        ]  # fmt: skip
    else:
        fit = total > _WIDE
        made = [
            r"\begin{table}[htbp]", r"\centering", size, r"\setlength{\tabcolsep}{4pt}", top,
            *([rf"{FIT}{{%"] if fit else []), rf"\begin{{tabular}}{{{spec}}}", r"\toprule", titles, r"\midrule", *lines,
            r"\bottomrule", r"\end{tabular}" + ("}" if fit else ""), *under, r"\end{table}",
        ]  # fmt: skip
    return "\n".join([first_line("\n".join(made)), *made]) + "\n"


def first_line(text: str) -> str:
    """Return the comment that says what a text needs to compile."""
    if _SET_BY_PDFLATEX.fullmatch(text):
        return f"% needs {PREAMBLE}"
    return f"% compile with lualatex or xelatex and a font that has all characters below; needs {PREAMBLE}"


def _label(label: str) -> str:
    return label_of(label if label.startswith("tab:") else f"tab:{label}")


def _column(width: int, right: bool, widths: Sequence[int]) -> str:
    if right:
        return "r"
    if width <= _WRAP:
        return "l"
    share = min(0.6, max(0.2, width / max(sum(widths), 1)))
    return rf"p{{{share:.2f}\linewidth}}"


def _row(row: Sequence[str], numeric: Sequence[bool]) -> str:
    cells = [
        _number(cell) if right or _INTERVAL.fullmatch(cell) else escape(cell)
        for cell, right in zip(row, numeric, strict=True)
    ]
    # After the \\ of the row before, a bracket or star would be taken for its argument.
    if cells and cells[0][:1] in ("[", "*"):
        cells[0] = "{" + cells[0][0] + "}" + cells[0][1:]
    return " & ".join(cells) + r" \\"


def _number(cell: str) -> str:
    return re.sub(r"(?<![\w.)])-(?=\d)", "$-$", escape(cell))
