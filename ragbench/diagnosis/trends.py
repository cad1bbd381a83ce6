"""What the paper says of each setting, held against paired differences with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ragbench.diagnosis.grid import DEFAULT, FACTORS, Setting
from ragbench.errors import ConfigError, DataError, unknown

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

PLACE = ("k", "size", "overlap", "prompt")
SYSTEM = ("retriever", *PLACE)
# Factor: its figure, and what its rows are called in the published numbers.
FIGURES = {"k": "Figure 6", "size": "Figure 7", "prompt": "Figure 8", "overlap": "Figure 10"}
_ROWS = {"k": "k", "size": "chunk size", "prompt": "prompt", "overlap": "overlap"}
_ALPHA = 0.05
DIRECTIONS = ("rises", "falls", "stays")
TOGETHER = "all"
# The paper's printed F1 (53.4) is the mean over domains and systems of the harmonic mean of mean precision and mean
# recall: 53.43 by Tables 8, 10 and 15, whose own column of F1, means over questions, gives 50.20.
F1_OF_MEANS = "f1_of_means"
# Section 4.4's domains and systems.
_DOMAINS = ("Table 8", "Table 10", "Table 15")
_SYSTEMS = ("BM25_GPT-4", "E5-Mistral_GPT-4", "E5-Mistral_Llama3-70b")


@dataclass(frozen=True, slots=True)
class Trend:
    """One tendency: going from setting ``a`` to ``b``, ``metric`` rises, falls or stays where it is."""

    change: str
    a: Setting
    b: Setting
    metric: str
    direction: str

    @property
    def by_construction(self) -> bool:
        """Whether it cannot fail: the first k chunks are among the first k + n, so claim recall only rises with k."""
        deeper = self.a.k <= self.b.k and self.b == replace(self.a, k=self.b.k)
        return deeper and self.metric == "claim_recall" and self.direction == "rises"


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
    three domains; the bars of Figures 6, 7, 8 and 10 behind them are not printed. F1 is called "f1_of_means" here, see
    `f1_of_means`.

    Source: RAGChecker, section 4.4.
    """
    import pandas as pd

    from ragbench import papers

    cells = papers.published("ragchecker", "Section 4.4")
    factor = {row: name for name, row in _ROWS.items()}
    cells["column"] = cells["column"].replace("f1", F1_OF_MEANS)
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


def identities() -> pd.DataFrame:
    """Compute section 4.4's cells at the default setting from Tables 8, 10 and 15: arithmetic on printed numbers.

    Returns
    -------
    DataFrame with columns row, column, value (percent): means over three domains and three systems; of F1, the mean of
    the harmonic mean of printed precision and recall.
    """
    import pandas as pd

    from ragbench import papers

    tables = [papers.published("ragchecker", item).pivot(index="row", columns="column", values="value").loc[[*_SYSTEMS]]
              for item in _DOMAINS]  # fmt: skip
    cells = pd.concat(tables)
    cells["f1"] = 2 * cells["precision"] * cells["recall"] / (cells["precision"] + cells["recall"])
    cells["noise_sensitivity"] = cells["relevant_noise_sensitivity"] + cells["irrelevant_noise_sensitivity"]
    printed = papers.published("ragchecker", "Section 4.4")[["row", "column"]]
    default = [f"{_ROWS[name]} = {getattr(DEFAULT, name)}" for name in FACTORS]
    return printed[printed["row"].isin(default)].assign(value=lambda t: t["column"].map(cells.mean()))


def f1_of_means(scored: pd.DataFrame, by: Sequence[str] = SYSTEM) -> pd.DataFrame:
    """Average F1 as section 4.4 prints it: the harmonic mean of mean precision and mean recall, averaged over domains.

    Parameters
    ----------
    scored : from `scores`, with its column domain. by : columns that make the groups.

    Returns
    -------
    DataFrame as from `ragbench.means`, with metric "f1_of_means", without intervals; n counts questions with both
    parts.

    Source: RAGChecker, section 4.4 (not said there; it follows from Tables 8, 10 and 15, see `identities`).
    """
    import pandas as pd

    parts = scored[["precision", "recall"]]
    whole = scored.assign(unscored=parts.isna().any(axis=1))
    whole[["precision", "recall"]] = parts.mask(whole["unscored"])
    found = whole.groupby([*by, "domain"], sort=False)[["precision", "recall"]].mean()
    f1 = (2 * found["precision"] * found["recall"] / found.sum(axis=1)).groupby(level=list(range(len(by))), sort=False)
    count = whole.groupby(list(by), sort=False)["unscored"].agg(["size", "sum"])
    table = pd.DataFrame({"mean": f1.mean(), "low": float("nan"), "high": float("nan")})
    table = table.assign(n=count["size"] - count["sum"], unscored=count["sum"], metric=F1_OF_MEANS)
    return table.reset_index()[[*by, "metric", "mean", "low", "high", "n", "unscored"]]


def _clusters(scored: pd.DataFrame) -> np.ndarray:
    return scored["cluster" if "cluster" in scored else "question_id"].to_numpy()


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


def verdict(low: float, high: float, direction: str, margin: float = 0.02, p: float = 0.0) -> str:
    """Say whether an interval of a difference bears a tendency out.

    Parameters
    ----------
    low, high : the interval. direction : one of `DIRECTIONS`.
    margin : "stays" holds when the whole interval lies within so much of 0.
    p : of the difference, corrected for the other tendencies; from 0.05 on "rises" and "falls" are undecided.

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
    if not (up or down) or p >= _ALPHA:
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
    high (95%, bootstrap over clusters of questions), p (signs of whole clusters flipped at random), p_holm (corrected
    for all of the table's tests), n (questions), unscored, verdict. What cannot fail (`Trend.by_construction`) is no
    finding: it has no p, and "by construction" as its verdict. "Stays" is told from the interval alone.

    Raises
    ------
    DataError when a retriever has one question twice at one setting.
    """
    import pandas as pd

    from ragbench.stats import compare_pairs, holm

    numbers = published().set_index(["factor", "value", "metric"])["mean"].to_dict()
    retrievers = list(dict.fromkeys(scored["retriever"]))
    scores, together, printed, sure = {}, {}, [], []
    for trend in some:
        sides = [_side(scored, setting, trend.metric) for setting in (trend.a, trend.b)]
        # Of several runs below each other, the one with this metric says which questions belong together.
        mine = scored[scored[trend.metric].notna()] if trend.metric in scored else scored
        cluster = dict(zip(mine["question_id"], _clusters(mine), strict=True))
        for name in [*retrievers, *([TOGETHER] if len(retrievers) > 1 else [])]:
            a, b = (s.mean(axis=1, skipna=False) if name == TOGETHER else s.get(name) for s in sides)
            if a is None or b is None:
                a = b = pd.Series(dtype=float)
            a, b = a.align(b)
            key = (trend.change, trend.metric, trend.direction, name)
            scores[key], together[key] = (b, a), a.index.map(cluster)
            printed.append(_difference(numbers, trend))
            sure.append(trend.by_construction)
    names = ["change", "metric", "paper", "retriever"]
    table = compare_pairs(scores, names, groups=together, resamples=resamples, seed=seed)
    table = table.rename(columns={"missing": "unscored"}).assign(paper_difference=printed, sure=sure)
    table["p"] = table["p"].mask(table["sure"] | (table["paper"] == "stays"))  # not tested
    table["p_holm"] = holm(table["p"])
    table["verdict"] = [
        "by construction" if t.sure and t.n else verdict(t.low, t.high, t.paper, margin, t.p_holm)
        for t in table.itertuples()
    ]
    columns = ["change", "metric", "paper", "paper_difference", "retriever", "difference", "low", "high", "p", "p_holm"]
    return table[[*columns, "n", "unscored", "verdict"]]


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
    the same questions with low and high (bootstrap over clusters of questions), n. Budgets of a single setting are left
    out.
    """
    import pandas as pd

    from ragbench.stats import paired_bootstrap_difference

    cluster = dict(zip(scored["question_id"], _clusters(scored), strict=True))
    here = scored[(scored["overlap"] == DEFAULT.overlap) & (scored["prompt"] == DEFAULT.prompt)]
    made = []
    for (retriever, budget), part in here.assign(budget=here["k"] * here["size"]).groupby(["retriever", "budget"]):
        sizes = sorted(part["size"].unique())
        for metric in metrics if len(sizes) > 1 else ():
            sides = part.pivot(index="question_id", columns="size", values=metric)
            for size in sizes:
                i = paired_bootstrap_difference(
                    sides[size], sides[sizes[0]], groups=sides.index.map(cluster), resamples=resamples, seed=seed
                )
                mean, mine = sides[size].mean(), (i.estimate, i.low, i.high, i.n)
                made.append((retriever, budget, size, budget // size, metric, mean, *mine))
    columns = ["retriever", "budget", "size", "k", "metric", "mean", "difference", "low", "high", "n"]
    return pd.DataFrame(made, columns=columns)


def as_printed(table: pd.DataFrame, item: str) -> pd.DataFrame:
    """Lay means of one retriever out as the paper prints them: its names of rows and columns, in percent.

    Parameters
    ----------
    table : from `ragbench.means`, one row per setting and metric.
    item : "Section 4.4": the cells that the paper prints, its F1 from `f1_of_means`; a figure ("Figure 6"): all its
        settings and metrics.

    Returns
    -------
    Cells as of `ragbench.papers.cells`.
    """
    from ragbench import papers

    laid = by_factor(table)
    if item != "Section 4.4" and item not in FIGURES.values():
        raise unknown("item", item, ("Section 4.4", *FIGURES.values()))
    if laid.duplicated(["factor", "value", "metric"]).any():
        raise ConfigError("several means for one cell", "the means of one retriever", "pick one retriever first")
    row = [f"{_ROWS[f]} = {v}" for f, v in zip(laid["factor"], laid["value"], strict=True)]
    figure = laid["factor"].map(FIGURES)
    cells = papers.cells(laid.assign(row=row, percent=100 * laid["mean"]), "row", "metric", "percent")
    if item != "Section 4.4":
        return cells[figure == item].reset_index(drop=True)
    cells = cells[cells["column"] != "f1"].replace({"column": {F1_OF_MEANS: "f1"}})
    return papers.published("ragchecker", item)[["row", "column"]].merge(cells, on=["row", "column"])
