"""RAGChecker's diagnosis of settings (section 4.4, appendices D and F): Figures 6, 7, 8 and 10.

One setting is varied at a time around the paper's default (20 chunks of 300 tokens, overlap 0.2), or the whole grid is
run. The retriever's half needs no model: a data set's references are its claims, and a chunk entails a reference that
it contains (`Contained`), so claim recall and context precision are counted, not judged. `trends` holds every tendency
the paper reports against paired differences with intervals.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from ragbench import papers
from ragbench.data import load_dragonball, load_minihop
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.experiment import Experiment
from ragbench.llm import Plan, plan
from ragbench.papers.ragchecker import DEFAULT, PROMPTS, Setting, long_answered, results
from ragbench.records import Dataset, Document

KS, SIZES, OVERLAPS = (5, 10, 20), (150, 300, 600), (0.0, 0.2, 0.4)
_VALUES = {"k": KS, "size": SIZES, "prompt": tuple(PROMPTS), "overlap": OVERLAPS}
# Factor: the settings along the axis of its figure.
FACTORS = {factor: tuple(Setting(**{factor: value}) for value in values) for factor, values in _VALUES.items()}
PLACE = ("k", "size", "overlap", "prompt")
SYSTEM = ("retriever", *PLACE)
FIGURES = {"k": "Figure 6", "size": "Figure 7", "prompt": "Figure 8", "overlap": "Figure 10"}
_ROWS = {"k": "k", "size": "chunk size", "prompt": "prompt", "overlap": "overlap"}  # as the published numbers say it
_ALPHA = 0.05
DIRECTIONS = ("rises", "falls", "stays")
TOGETHER = "all"
# The paper's printed F1 (53.4) is the mean over domains and systems of the harmonic mean of mean precision and mean
# recall: 53.43 by Tables 8, 10 and 15, whose own column of F1, means over questions, gives 50.20.
F1_OF_MEANS = "f1_of_means"
# Section 4.4's domains and systems.
_DOMAINS = ("Table 8", "Table 10", "Table 15")
_SYSTEMS = ("BM25_GPT-4", "E5-Mistral_GPT-4", "E5-Mistral_Llama3-70b")


def topic_pages(data: Dataset) -> Dataset:
    """Join MiniHop's documents of each topic into one page, a question's document; its domain is the topic's group."""
    pages: dict[str, list[str]] = defaultdict(list)
    for document in data.documents:
        pages[document.meta["topic"]].append(document.text)
    documents = tuple(Document(t, t, "\n\n".join(texts), (), {"topic": t}) for t, texts in pages.items())
    topics = ((q, q.meta["topic"]) for q in data.questions)
    questions = tuple(replace(q, meta=q.meta | {"domain": t.partition("/")[0], "doc_ids": (t,)}) for q, t in topics)
    return replace(data, name=f"{data.name} pages", questions=questions, documents=documents)


# Documents that are long enough for chunk sizes to differ: about 1,700 tokens, and 2,200 for MiniHop's topics.
DATA: Mapping[str, Callable[..., Dataset]] = {
    "dragonball": functools.partial(load_dragonball, language="en"),
    "minihop": lambda: topic_pages(load_minihop()),
}


def answerable(data: Dataset) -> Dataset:
    """Keep the questions with references, and of MiniHop the `long_answered` ones; exclude the others."""
    data = long_answered(data)
    bare = tuple((q.id, "no references") for q in data.questions if not q.references)
    return replace(data, questions=tuple(q for q in data.questions if q.references), excluded=(*data.excluded, *bare))


def variations(full: bool = False, prompts: bool = False) -> list[Setting]:
    """List the settings: one factor at a time around the default, or all combinations of the retriever's factors.

    With ``prompts``, for a chat model, also the default setting with the optimised prompt.
    """
    every = [Setting(k, size, overlap) for size in SIZES for overlap in OVERLAPS for k in KS]
    kept = every if full else [s for s in every if sum(getattr(s, f) != getattr(DEFAULT, f) for f in PLACE) <= 1]
    return kept + [Setting(prompt=name) for name in PROMPTS if prompts and name != DEFAULT.prompt]


class Contained:
    """A checker that needs no judgement: a claim is entailed by a text it stands in, white space aside."""

    def check_many(self, claims: Sequence[str], texts: Sequence[str]) -> list[list[str]]:
        """Label every claim against every text: Entailment or Neutral, shape (n_claims, n_texts)."""
        plain, wanted = [_spaced(text) for text in texts], [_spaced(claim) for claim in claims]
        return [["Entailment" if claim and claim in text else "Neutral" for text in plain] for claim in wanted]


@functools.lru_cache(maxsize=65536)
def _spaced(text: str) -> str:
    return " ".join(text.split())


def plan_with_labels(
    experiment: Experiment,
    checker: Any = None,
    *,
    claims: str = "answers",
    joint: int | None = 5,
    claims_per_text: int = 10,
    cassette: Any = None,
    **speeds: Any,
) -> Plan:
    """Count every call of a run and of its labels by a checker, before anything is asked.

    Parameters
    ----------
    joint : claims per prompt, as for ``ragchecker_labels``.
    claims_per_text : claims to reckon with in a text that has not been taken apart yet. Answers that are still to come
        count as different from each other.
    cassette : a Cassette with the checker's replies so far. speeds : for ``ragbench.llm.plan``.
    """
    from ragbench.labelling.claims import steps_for_ragchecker

    def labels(rows: pd.DataFrame) -> Plan:
        rows = rows.assign(answer=rows.get("answer", rows["answer_key"]))
        rows["answer"] = rows["answer"].fillna(rows["answer_key"])  # stands for an answer to come
        steps = steps_for_ragchecker(results(experiment, rows, claims), joint=joint, claims_per_text=claims_per_text)
        return plan(steps, checker, cassette, **speeds)

    return experiment.plan(after=None if checker is None else labels, **speeds)


def reachable(experiment: Experiment) -> pd.DataFrame:
    """Say for every question and chunker which share of its references stands in one chunk, wherever that is.

    An edge that cuts a reference in two puts it out of reach of `Contained`, whatever is retrieved: this is the most
    that claim recall can be. Overlap mends such cuts.
    """
    (data,) = experiment.grid.data.values()
    wanted = {q.id: [_spaced(r) for r in q.references] for q in data.questions}
    shares = []
    for cut in experiment.grid.chunker.values():
        # One text with a separator that no reference has: one search per reference.
        text = "\0".join(_spaced(c.text) for c in cut(data.documents))
        whole = {r: r in text for references in wanted.values() for r in references}
        for question, references in wanted.items():
            share = sum(whole[r] for r in references) / len(references) if references else np.nan
            shares.append((question, cut.size, cut.overlap, share))
    return pd.DataFrame(shares, columns=["question_id", "size", "overlap", "reachable"])


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


_MORE_CONTEXT = {
    "claim_recall": "rises",
    "context_precision": "rises",
    "faithfulness": "rises",
    "context_utilization": "falls",
    "relevant_noise_sensitivity": "rises",
    "noise_sensitivity": "rises",
    "f1": "rises",
}
_PROMPT = {"faithfulness": "rises", "context_utilization": "rises", "noise_sensitivity": "rises"}
_OVERLAP = {"context_precision": "rises", "claim_recall": "stays", "f1": "stays"}
_SAID = (
    ("k 5 to 20", Setting(k=5), DEFAULT, _MORE_CONTEXT | {"context_precision": "falls"}),
    ("size 150 to 300", Setting(size=150), DEFAULT, _MORE_CONTEXT),
    ("size 300 to 600", DEFAULT, Setting(size=600), {"claim_recall": "rises", "context_precision": "rises"}),
    ("150 x 20 to 300 x 10", Setting(size=150), Setting(k=10), {"context_precision": "rises", "f1": "rises"}),
    ("prompt default to optimised", DEFAULT, Setting(prompt="optimised"), _PROMPT),
    ("overlap 0 to 0.4", Setting(overlap=0.0), Setting(overlap=0.4), _OVERLAP),
)
# Section 4.4 and appendix F.
TRENDS = tuple(Trend(name, a, b, metric, way) for name, a, b, ways in _SAID for metric, way in ways.items())


def published_by_factor() -> pd.DataFrame:
    """Return the numbers of section 4.4 by factor: columns factor, value, metric, mean (in [0, 1]).

    The default setting belongs to every factor. Means over three systems and three domains; the bars of Figures 6, 7, 8
    and 10 behind them are not printed. F1 is called "f1_of_means" here.

    Source: RAGChecker, section 4.4.
    """
    cells = papers.published("ragchecker", "Section 4.4").replace({"column": {"f1": F1_OF_MEANS}})
    settings = {f"{_ROWS[factor]} = {getattr(s, factor)}": s for factor, some in FACTORS.items() for s in some}
    printed = {(settings[c.row], c.column): c.value / 100 for c in cells.itertuples()}
    rows = []
    for factor, some in FACTORS.items():
        metrics = set(cells["column"][cells["row"].str.startswith(f"{_ROWS[factor]} = ")])
        for s in some:
            means = {metric: mean for (of, metric), mean in printed.items() if of == s and metric in metrics}
            rows += [(factor, getattr(s, factor), *cell) for cell in means.items()]
    return pd.DataFrame(rows, columns=["factor", "value", "metric", "mean"])


def identities() -> pd.DataFrame:
    """Compute section 4.4's cells at the default setting from Tables 8, 10 and 15: arithmetic on printed numbers.

    Percent, means over three domains and three systems; of F1, of the harmonic mean of printed precision and recall.
    """
    tables = [papers.published("ragchecker", item) for item in _DOMAINS]
    cells = pd.concat(t.pivot(index="row", columns="column", values="value").loc[[*_SYSTEMS]] for t in tables)
    cells["f1"] = 2 * cells["precision"] * cells["recall"] / (cells["precision"] + cells["recall"])
    cells["noise_sensitivity"] = cells["relevant_noise_sensitivity"] + cells["irrelevant_noise_sensitivity"]
    printed = papers.published("ragchecker", "Section 4.4")[["row", "column"]]
    default = [f"{_ROWS[name]} = {getattr(DEFAULT, name)}" for name in FACTORS]
    return printed[printed["row"].isin(default)].assign(value=lambda t: t["column"].map(cells.mean()))


def f1_of_means(scored: pd.DataFrame, by: Sequence[str] = SYSTEM) -> pd.DataFrame:
    """Average F1 as section 4.4 prints it: the harmonic mean of mean precision and mean recall, averaged over domains.

    A table as from `ragbench.means`, without intervals; n counts questions with both parts.

    Source: RAGChecker, section 4.4 (not said there; it follows from Tables 8, 10 and 15, see `identities`).
    """
    parts = scored[["precision", "recall"]]
    whole = scored.assign(unscored=parts.isna().any(axis=1))
    whole[["precision", "recall"]] = parts.mask(whole["unscored"])
    domains = whole.groupby([*by, "domain"], sort=False)[["precision", "recall"]].mean()
    f1 = 2 * domains["precision"] * domains["recall"] / domains.sum(axis=1)
    count = whole.groupby(list(by), sort=False)["unscored"].agg(["size", "sum"])
    table = pd.DataFrame({"metric": F1_OF_MEANS, "mean": f1.groupby(level=list(by), sort=False).mean()})
    table = table.assign(low=np.nan, high=np.nan, n=count["size"] - count["sum"], unscored=count["sum"])
    return table.reset_index()


def by_factor(table: pd.DataFrame) -> pd.DataFrame:
    """Add the columns factor and value: the default setting under every factor; other settings are left out."""
    parts = [
        _at(table, setting).assign(factor=factor, value=getattr(setting, factor))
        for factor, some in FACTORS.items()
        for setting in some
    ]
    parts = [part for part in parts if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else table.iloc[:0].assign(factor="", value=0)


def _at(table: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    return table[(table[list(PLACE)] == list(astuple(setting))).all(axis=1)]


def verdict(low: float, high: float, direction: str, margin: float = 0.02, p: float = 0.0) -> str:
    """Say whether the interval of a difference bears a tendency out.

    "holds", "reversed" ("changes" for "stays"), "undecided" when the interval allows both, or "not measured" for NaN.
    "Stays" holds when the whole interval lies within ``margin`` of 0. ``p``, corrected for the other tendencies, leaves
    "rises" and "falls" undecided from 0.05 on.
    """
    check_known("direction", [direction], DIRECTIONS)
    if low != low or high != high:
        return "not measured"
    if direction == "stays":
        return "holds" if max(-low, high) <= margin else "changes" if low > margin or high < -margin else "undecided"
    if low <= 0 <= high or p >= _ALPHA:
        return "undecided"
    return "holds" if (low > 0) == (direction == "rises") else "reversed"


def trends(
    scored: pd.DataFrame, some: Iterable[Trend] = TRENDS, *, resamples: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Hold tendencies against paired differences over the same questions.

    ``scored`` is from `scores`, or several of them below each other that differ in their metrics. One row per tendency
    and retriever, and for the mean over retrievers ("all") where there are several: change, metric, paper (direction),
    paper_difference (NaN where no number is printed), retriever, difference, low, high (95%, bootstrap over clusters of
    questions), p (signs of whole clusters flipped at random), p_holm (over the table), n (questions), unscored,
    verdict. What cannot fail (`Trend.by_construction`) is no finding and has no p; "stays" is told from the interval
    alone.
    """
    from ragbench.stats import compare_pairs, holm

    numbers = published_by_factor().set_index(["factor", "value", "metric"])["mean"].to_dict()
    retrievers = list(dict.fromkeys(scored["retriever"]))
    scores, together, printed, sure = {}, {}, [], []
    for trend in some:
        sides = [_side(scored, setting, trend.metric) for setting in (trend.a, trend.b)]
        # Of several runs below each other, the one with this metric says which questions belong together.
        mine = scored[scored[trend.metric].notna()] if trend.metric in scored else scored
        cluster = dict(zip(mine["question_id"], mine["cluster"], strict=True))
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
        "by construction" if t.sure and t.n else verdict(t.low, t.high, t.paper, p=t.p_holm) for t in table.itertuples()
    ]
    columns = ["change", "metric", "paper", "paper_difference", "retriever", "difference", "low", "high", "p", "p_holm"]
    return table[[*columns, "n", "unscored", "verdict"]]


def _side(scored: pd.DataFrame, setting: Setting, metric: str) -> pd.DataFrame:
    """One metric at one setting: questions by retrievers."""
    here = _at(scored, setting)
    if metric not in here:
        return pd.DataFrame()
    # Of several runs below each other, those without the metric have NaN there.
    values = here.groupby(["question_id", "retriever"], sort=False)[metric].agg(["first", "count"])
    if (values["count"] > 1).any():
        raise DataError(
            f"the question {values[values['count'] > 1].index[0][0]!r} twice at {setting}",
            "each question once per retriever and setting",
            "hold one run against the paper at a time",
        )
    return values["first"].unstack("retriever")


def _difference(numbers: dict[Any, float], trend: Trend) -> float:
    """The difference that the paper prints, NaN where two factors change or a number is missing."""
    changed = [name for name in PLACE if getattr(trend.a, name) != getattr(trend.b, name)]
    a, b = (numbers.get((changed[0], getattr(s, changed[0]), trend.metric), np.nan) for s in (trend.a, trend.b))
    return b - a if len(changed) == 1 else np.nan


def equal_budgets(
    scored: pd.DataFrame, metrics: Sequence[str], *, resamples: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Compare settings that fill the same budget, k x size: many small chunks or few large ones (Appendix F).

    ``difference`` is to the smallest size of that budget over the same questions, with low and high (bootstrap over
    clusters of questions). Budgets of a single setting, and other overlaps and prompts than the default, are left out.
    """
    from ragbench.stats import compare_pairs

    cluster = dict(zip(scored["question_id"], scored["cluster"], strict=True))
    here = scored[(scored["overlap"] == DEFAULT.overlap) & (scored["prompt"] == DEFAULT.prompt)]
    pairs, together = {}, {}
    for (retriever, budget), part in here.assign(budget=here["k"] * here["size"]).groupby(["retriever", "budget"]):
        sizes = sorted(part["size"].unique())
        for metric in metrics if len(sizes) > 1 else ():
            sides = part.pivot(index="question_id", columns="size", values=metric)
            for size in sizes:
                key = (retriever, budget, size, budget // size, metric)
                pairs[key], together[key] = (sides[size], sides[sizes[0]]), sides.index.map(cluster)
    names = ["retriever", "budget", "size", "k", "metric"]
    table = compare_pairs(pairs, names, groups=together, resamples=resamples, seed=seed)
    return table.rename(columns={"mean a": "mean"})[[*names, "mean", "difference", "low", "high", "n"]]


def as_printed(table: pd.DataFrame, item: str) -> pd.DataFrame:
    """Lay means of one retriever out as cells of "Section 4.4" or of a figure, in percent.

    The section has the cells that the paper prints, its F1 from `f1_of_means`; a figure all its settings and metrics.
    """
    check_known("item", [item], ["Section 4.4", *FIGURES.values()])
    laid = by_factor(table)
    if laid.duplicated(["factor", "value", "metric"]).any():
        raise ConfigError("several means for one cell", "the means of one retriever", "pick one retriever first")
    row = laid["factor"].map(_ROWS) + " = " + laid["value"].astype(str)
    cells = papers.cells(laid.assign(row=row, percent=100 * laid["mean"]), "row", "metric", "percent")
    if item != "Section 4.4":
        return cells[laid["factor"].map(FIGURES) == item].reset_index(drop=True)
    cells = cells[cells["column"] != "f1"].replace({"column": {F1_OF_MEANS: "f1"}})
    return papers.published("ragchecker", item)[["row", "column"]].merge(cells, on=["row", "column"])
