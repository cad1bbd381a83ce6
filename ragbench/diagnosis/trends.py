"""What the paper says of each setting, held against paired differences with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ragbench.diagnosis.grid import DEFAULT, FACTORS, Setting
from ragbench.errors import ConfigError, DataError, unknown

if TYPE_CHECKING:
    import pandas as pd

PLACE = ("k", "size", "overlap", "prompt")
# Factor: its figure, and what its rows are called in the published numbers.
FIGURES = {"k": "Figure 6", "size": "Figure 7", "prompt": "Figure 8", "overlap": "Figure 10"}
_ROWS = {"k": "k", "size": "chunk size", "prompt": "prompt", "overlap": "overlap"}
DIRECTIONS = ("rises", "falls", "stays")
TOGETHER = "all"


@dataclass(frozen=True, slots=True)
class Trend:
    """One tendency: going from setting ``a`` to ``b``, ``metric`` rises, falls or stays where it is."""

    change: str
    a: Setting
    b: Setting
    metric: str
    direction: str


def _trends() -> tuple[Trend, ...]:
    said = {
        ("k 5 to 20", Setting(k=5), DEFAULT): {
            "claim_recall": "rises", "context_precision": "falls", "faithfulness": "rises",
            "context_utilization": "falls", "relevant_noise_sensitivity": "rises", "noise_sensitivity": "rises",
            "f1": "rises",
        },
        ("size 150 to 300", Setting(size=150), DEFAULT): {
            "claim_recall": "rises", "context_precision": "rises", "faithfulness": "rises",
            "context_utilization": "falls", "relevant_noise_sensitivity": "rises", "noise_sensitivity": "rises",
            "f1": "rises",
        },
        ("size 300 to 600", DEFAULT, Setting(size=600)): {"claim_recall": "rises", "context_precision": "rises"},
        ("150 x 20 to 300 x 10", Setting(size=150), Setting(k=10)): {"context_precision": "rises", "f1": "rises"},
        ("prompt default to optimised", DEFAULT, Setting(prompt="optimised")): {
            "faithfulness": "rises", "context_utilization": "rises", "noise_sensitivity": "rises",
        },
        ("overlap 0 to 0.4", Setting(overlap=0.0), Setting(overlap=0.4)): {
            "context_precision": "rises", "claim_recall": "stays", "f1": "stays",
        },
    }  # fmt: skip
    return tuple(Trend(*at, metric, way) for at, ways in said.items() for metric, way in ways.items())


TRENDS = _trends()  # section 4.4 and appendix F


def published() -> pd.DataFrame:
    """Return the numbers of section 4.4 by factor: columns factor, value, metric, mean (in [0, 1]).

    The default setting belongs to every factor, so its numbers stand at each of them. Means over three systems and
    three domains; the bars of Figures 6, 7, 8 and 10 behind them are not printed.

    Source: RAGChecker, section 4.4.
    """
    import pandas as pd

    from ragbench import papers

    cells = papers.published("ragchecker", "Section 4.4")
    factor = {row: name for name, row in _ROWS.items()}
    cells[["row", "value_at"]] = cells["row"].str.split(" = ", expand=True).to_numpy()
    found = {
        (factor[c.row], getattr(_setting(factor[c.row], c.value_at), factor[c.row]), c.column): c.value / 100
        for c in cells.itertuples()
    }
    default = {metric: mean for (name, value, metric), mean in found.items() if value == getattr(DEFAULT, name)}
    for name in FACTORS:
        known = {metric for at, _, metric in found if at == name}
        found = {(name, getattr(DEFAULT, name), m): v for m, v in default.items() if m in known} | found
    frame = pd.DataFrame([(*key, mean) for key, mean in found.items()], columns=["factor", "value", "metric", "mean"])
    order = {(name, getattr(s, name)): i for name, some in FACTORS.items() for i, s in enumerate(some)}
    place = [(list(FACTORS).index(f), order[f, v]) for f, v in zip(frame["factor"], frame["value"], strict=True)]
    return frame.iloc[sorted(range(len(frame)), key=place.__getitem__)].reset_index(drop=True)


def _setting(factor: str, value: str) -> Setting:
    return next(s for s in FACTORS[factor] if str(getattr(s, factor)) == value)


def means(
    scored: pd.DataFrame,
    metrics: Sequence[str],
    by: Sequence[str] = ("retriever", *PLACE),
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Average metrics over questions, with 95% bootstrap intervals over questions.

    Parameters
    ----------
    scored : from `scores`. metrics : its columns to average. by : columns that make the groups.
    resamples, seed : of the bootstrap.

    Returns
    -------
    DataFrame in long form: the columns of ``by``, metric, mean, low, high, n (scored), unscored.
    """
    import pandas as pd

    from ragbench.stats import bootstrap_ci

    made = []
    for at, group in scored.groupby(list(by), sort=False):
        for metric in metrics:
            i = bootstrap_ci(
                group[metric].to_numpy(float), groups=group["question_id"].to_numpy(), resamples=resamples, seed=seed
            )
            made.append((*at, metric, i.estimate, i.low, i.high, i.n, i.n_missing))
    return pd.DataFrame(made, columns=[*by, "metric", "mean", "low", "high", "n", "unscored"])


def by_factor(table: pd.DataFrame) -> pd.DataFrame:
    """Lay settings out along the figures' axes: adds the columns factor and value, the default under every factor.

    Rows of other settings (a full grid's) are left out.
    """
    import pandas as pd

    parts = [
        _at(table, setting).assign(factor=factor, value=getattr(setting, factor))
        for factor, some in FACTORS.items()
        for setting in some
    ]
    parts = [part for part in parts if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else table.iloc[:0].assign(factor="", value=0)


def _at(table: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    same = [table[name] == getattr(setting, name) for name in PLACE]
    return table[same[0] & same[1] & same[2] & same[3]]


def verdict(low: float, high: float, direction: str, margin: float = 0.02) -> str:
    """Say whether an interval of a difference bears a tendency out.

    Parameters
    ----------
    low, high : the interval. direction : one of `DIRECTIONS`.
    margin : "stays" holds when the whole interval lies within so much of 0.

    Returns
    -------
    "holds", "reversed" ("changes" for "stays"), "undecided" when the interval allows both, or "not measured" for NaN.
    """
    if direction not in DIRECTIONS:
        raise unknown("direction", direction, DIRECTIONS)
    if low != low or high != high:
        return "not measured"
    if direction == "stays":
        return "holds" if max(-low, high) <= margin else "changes" if low > margin or high < -margin else "undecided"
    up, down = low > 0, high < 0
    if not (up or down):
        return "undecided"
    return "holds" if up == (direction == "rises") else "reversed"


def trends(
    scored: pd.DataFrame,
    some: Iterable[Trend] = TRENDS,
    *,
    margin: float = 0.02,
    resamples: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Hold tendencies against paired differences over the same questions.

    Parameters
    ----------
    scored : from `scores`, or several of them below each other that differ in their metrics.
    some : which tendencies. margin : see `verdict`. resamples, seed : of the bootstrap.

    Returns
    -------
    DataFrame, one row per tendency and retriever, and for the mean over retrievers ("all") where there are several:
    change, metric, paper (direction), paper_difference (NaN where no number is printed), retriever, difference, low,
    high, n (questions), unscored, verdict.

    Raises
    ------
    DataError when a retriever has one question twice at one setting.
    """
    import pandas as pd

    from ragbench.stats import paired_bootstrap_difference

    numbers = published().set_index(["factor", "value", "metric"])["mean"].to_dict()
    names = list(dict.fromkeys(scored["retriever"]))
    made = []
    for trend in some:
        sides = [_side(scored, setting, trend.metric) for setting in (trend.a, trend.b)]
        for name in [*names, *([TOGETHER] if len(names) > 1 else [])]:
            a, b = (s.mean(axis=1, skipna=False) if name == TOGETHER else s.get(name) for s in sides)
            if a is None or b is None:
                a = b = pd.Series(dtype=float)
            a, b = a.align(b)
            i = paired_bootstrap_difference(b, a, resamples=resamples, seed=seed)
            about = (trend.change, trend.metric, trend.direction, _difference(numbers, trend), name)
            found = (i.estimate, i.low, i.high, i.n, i.n_missing, verdict(i.low, i.high, trend.direction, margin))
            made.append((*about, *found))
    columns = ["change", "metric", "paper", "paper_difference", "retriever", "difference", "low", "high", "n"]
    return pd.DataFrame(made, columns=[*columns, "unscored", "verdict"])


def _side(scored: pd.DataFrame, setting: Setting, metric: str) -> pd.DataFrame:
    """One metric at one setting: questions by retrievers."""
    import pandas as pd

    here = _at(scored, setting)
    if metric not in here:
        return pd.DataFrame()
    # Of several runs below each other, those without the metric have NaN there.
    found = here.groupby(["question_id", "retriever"], sort=False)[metric].agg(["first", "count"])
    if (found["count"] > 1).any():
        raise DataError(
            f"the question {found[found['count'] > 1].index[0][0]!r} twice at {setting}",
            "each question once per retriever and setting",
            "hold one run against the paper at a time",
        )
    return found["first"].unstack("retriever")


def _difference(numbers: dict[Any, float], trend: Trend) -> float:
    changed = [name for name in PLACE if getattr(trend.a, name) != getattr(trend.b, name)]
    if len(changed) != 1:
        return float("nan")
    a, b = (numbers.get((changed[0], getattr(s, changed[0]), trend.metric)) for s in (trend.a, trend.b))
    return float("nan") if a is None or b is None else b - a


def equal_budgets(
    scored: pd.DataFrame, metrics: Sequence[str], *, resamples: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Compare settings that fill the same budget, k x size: many small chunks or few large ones (Appendix F).

    Parameters
    ----------
    scored : from `scores`; only its default overlap and prompt are used. metrics : columns to compare.

    Returns
    -------
    DataFrame: retriever, budget (tokens), size, k, metric, mean, difference to the smallest size of that budget over
    the same questions with low and high, n. Budgets of a single setting are left out.
    """
    import pandas as pd

    from ragbench.stats import paired_bootstrap_difference

    here = scored[(scored["overlap"] == DEFAULT.overlap) & (scored["prompt"] == DEFAULT.prompt)]
    made = []
    for (retriever, budget), part in here.assign(budget=here["k"] * here["size"]).groupby(["retriever", "budget"]):
        sizes = sorted(part["size"].unique())
        for metric in metrics if len(sizes) > 1 else ():
            sides = part.pivot(index="question_id", columns="size", values=metric)
            for size in sizes:
                i = paired_bootstrap_difference(sides[size], sides[sizes[0]], resamples=resamples, seed=seed)
                mean, mine = sides[size].mean(), (i.estimate, i.low, i.high, i.n)
                made.append((retriever, budget, size, budget // size, metric, mean, *mine))
    columns = ["retriever", "budget", "size", "k", "metric", "mean", "difference", "low", "high", "n"]
    return pd.DataFrame(made, columns=columns)


def ledger_cells(table: pd.DataFrame, item: str) -> pd.DataFrame:
    """Turn means of one retriever into cells for `ragbench.papers.record`, in percent.

    Parameters
    ----------
    table : from `means`, one row per setting and metric.
    item : "Section 4.4": the cells that the paper prints; a figure ("Figure 6"): all its settings and metrics.
    """
    laid = by_factor(table)
    if item != "Section 4.4" and item not in FIGURES.values():
        raise unknown("item", item, ("Section 4.4", *FIGURES.values()))
    if laid.duplicated(["factor", "value", "metric"]).any():
        raise ConfigError("several means for one cell", "the means of one retriever", "pick one retriever first")
    row = [f"{_ROWS[f]} = {v}" for f, v in zip(laid["factor"], laid["value"], strict=True)]
    cells = laid.assign(row=row, column=laid["metric"], value=100 * laid["mean"])
    if item == "Section 4.4":
        from ragbench import papers

        printed = papers.published("ragchecker", item)[["row", "column"]]
        cells = printed.merge(cells, on=["row", "column"])
    else:
        cells = cells[cells["factor"].map(FIGURES) == item]
    return cells[["row", "column", "value", "n", "unscored"]].reset_index(drop=True)
