"""From label files to Table 2, Figure 5 and Figure 6 of RAGEval."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ragbench.data.dragonball import DOMAINS, LANGUAGES, QUESTION_TYPES
from ragbench.errors import DataError
from ragbench.labelling import KINDS, Label, by_annotator, current, ranks_of
from ragbench.metrics.keypoints import keypoint_metrics
from ragbench.rageval_quality.items import BASELINES, OURS, PER_CELL
from ragbench.stats import bootstrap_ci, paired_bootstrap_difference

if TYPE_CHECKING:
    import pandas as pd

TOLERANCE = 0.015  # the paper finds less between people and judge (Figure 6)
SHOWN = {"zh": "CN", "en": "EN", "finance": "Finance", "law": "Law", "medicine": "Medical"}
_QUESTION_PARTS, _DOCUMENT_PARTS = ("domain", "language", "type", "id"), ("domain", "language", "id")
# Order of the rows: languages as printed, everything else as the paper lists it.
_ORDER = (*reversed(LANGUAGES), *DOMAINS, *QUESTION_TYPES, *KINDS["ranks"].aspects, OURS, *BASELINES)
_RANK = {name: place for place, name in enumerate(_ORDER)}


def quality_means(
    labels: Iterable[Label], by: Sequence[str] = ("language", "domain"), *, resamples: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Average the rubric scores.

    Parameters
    ----------
    labels : from label files; rows of other kinds are passed over. Several people's scores of one item are averaged.
    by : any of domain, language, type.
    resamples, seed : of the interval, over items.

    Returns
    -------
    DataFrame: the columns of ``by``, mean, low, high (95% bootstrap), share_4_5 (of items with 4 or more), n (items),
    annotators.

    Source: RAGEval, section 4, Table 2.
    """
    import pandas as pd

    held = current(labels, "rubric")
    scores, people = defaultdict(list), defaultdict(set)
    for label in held:
        scores[label.item].append(float(label.label))
        people[label.item].add(label.annotator)
    groups = defaultdict(list)
    for item in scores:
        groups[tuple(_parts(item, _QUESTION_PARTS)[name] for name in by)].append(item)
    rows = []
    for key in sorted(groups, key=lambda k: [_RANK.get(part, 99) for part in k]):
        means = [float(np.mean(scores[item])) for item in groups[key]]
        i = bootstrap_ci(means, resamples=resamples, seed=seed)
        annotators = len(set().union(*(people[item] for item in groups[key])))
        share = float(np.mean([m >= 4 for m in means]))
        rows.append((*key, i.estimate, i.low, i.high, share, i.n, annotators))
    return pd.DataFrame(rows, columns=[*by, "mean", "low", "high", "share_4_5", "n", "annotators"])


def table_2(labels: Iterable[Label], per_cell: int = PER_CELL) -> pd.DataFrame:
    """Compute Table 2 from rubric labels, every cell of it.

    Returns
    -------
    DataFrame with columns row ("CN", "EN"), column ("Finance", "Law", "Medical"), value, low, high, n, unscored (items
    of the protocol without a label). Without labels value is NaN and n is 0.

    Source: RAGEval, Table 2. Paper value: 4.94 (CN, Finance).
    """
    import pandas as pd

    means = quality_means(labels).set_index(["language", "domain"])
    expected, nan = per_cell * len(QUESTION_TYPES), float("nan")
    rows = []
    for language in reversed(LANGUAGES):  # CN first, as printed
        for domain in DOMAINS:
            there = (language, domain) in means.index
            cell = means.loc[(language, domain)] if there else {"mean": nan, "low": nan, "high": nan, "n": 0}
            n = int(cell["n"])
            rows.append(
                (SHOWN[language], SHOWN[domain], cell["mean"], cell["low"], cell["high"], n, max(0, expected - n))
            )
    return pd.DataFrame(rows, columns=["row", "column", "value", "low", "high", "n", "unscored"])


def rank_shares(
    labels: Iterable[Label],
    by: Sequence[str] = ("language", "domain", "criterion", "writer"),
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Count how often each writer's document is ranked first, and its mean rank.

    Parameters
    ----------
    labels : from label files; rows of other kinds are passed over. Several people's ranks of one document are averaged.
    by : "criterion" and "writer", and any of domain, language.
    resamples, seed : of the interval, over documents.

    Returns
    -------
    DataFrame: the columns of ``by``, first (share of documents on the first rank; a tie on it counts for each), low,
    high (95% bootstrap), mean_rank (ties share the better rank: 1, 1, 2), n (documents).

    Source: RAGEval, section 4, Figure 5. Paper value: above 0.85 (richness, clarity, safety, both languages).
    """
    import pandas as pd

    ranks = defaultdict(lambda: defaultdict(list))
    for label in current(labels, "ranks"):
        parts = _parts(label.item, _DOCUMENT_PARTS)
        for writer, rank in ranks_of(label.label).items():
            key = {**parts, "criterion": label.aspect, "writer": writer}
            ranks[tuple(key[name] for name in by)][label.item].append(rank)
    rows = []
    for key in sorted(ranks, key=lambda k: [_RANK.get(part, 99) for part in k]):
        own = ranks[key].values()
        i = bootstrap_ci([float(np.mean([r == 1 for r in given])) for given in own], resamples=resamples, seed=seed)
        rows.append((*key, i.estimate, i.low, i.high, float(np.mean([np.mean(given) for given in own])), i.n))
    return pd.DataFrame(rows, columns=[*by, "first", "low", "high", "mean_rank", "n"])


def figure_5(labels: Iterable[Label]) -> pd.DataFrame:
    """Compute the numbers the paper gives of Figure 5: how often its own document is first, by criterion and language.

    Returns
    -------
    DataFrame with columns row (e.g. "Safety CN"), column (as in the published cells), value (percent), n. Without
    labels value is NaN and n is 0.
    """
    import pandas as pd

    shares = rank_shares(labels, ("criterion", "language", "writer"), resamples=0)
    own = shares[shares["writer"] == OURS].set_index(["criterion", "language"])
    rows = []
    for criterion in KINDS["ranks"].aspects:
        for language in reversed(LANGUAGES):
            there = (criterion, language) in own.index
            cell = own.loc[(criterion, language)] if there else {"first": float("nan"), "n": 0}
            name = f"{criterion.capitalize()} {SHOWN[language]}"
            rows.append((name, "share ranked first, more than", 100 * cell["first"], int(cell["n"])))
    return pd.DataFrame(rows, columns=["row", "column", "value", "n"])


def figure_6(
    people: Iterable[Label],
    judge: Iterable[Label],
    *,
    tolerance: float = TOLERANCE,
    resamples: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare the three measures as people and a judge see them, over the same answers.

    Parameters
    ----------
    people, judge : verdicts of one annotator each; a judge's from `verdict_labels`. Two judges can be compared too.
    tolerance : how far apart the means may be.
    resamples, seed : of the interval of the difference, paired over answers.

    Returns
    -------
    DataFrame, one row per language and measure ("completeness", "hallucination", "irrelevance"), and for both
    languages together ("all"): people, judge (means), difference (people - judge), low, high, within (whether the
    means are less than ``tolerance`` apart), n (answers with the same keypoints judged by both), unscored (others).

    Raises
    ------
    DataError for several annotators on one side.

    Source: RAGEval, section 4, Figure 6 (absolute differences below 0.015).
    """
    import pandas as pd

    sides = [_verdicts(people), _verdicts(judge)]
    items = sorted(sides[0].keys() | sides[1].keys())
    pairs = [i for i in items if i in sides[0] and i in sides[1] and sides[0][i].keys() == sides[1][i].keys()]
    scores = [{i: keypoint_metrics(list(side[i].values())) for i in pairs} for side in sides]
    rows = []
    for language in (*reversed(LANGUAGES), "all"):
        wanted = [i for i in items if language in ("all", _parts(i, _QUESTION_PARTS)["language"])]
        both = [i for i in wanted if i in scores[0]]
        for measure in ("completeness", "hallucination", "irrelevance"):
            first, second = ([own[i][measure] for i in both] for own in scores)
            gap = paired_bootstrap_difference(first, second, resamples=resamples, seed=seed)
            means = [float(np.mean(own)) if own else float("nan") for own in (first, second)]
            within = bool(abs(gap.estimate) < tolerance)
            rows.append(
                (language, measure, *means, gap.estimate, gap.low, gap.high, within, len(both), len(wanted) - len(both))
            )
    columns = ["language", "measure", "people", "judge", "difference", "low", "high", "within", "n", "unscored"]
    return pd.DataFrame(rows, columns=columns)


def _parts(item: str, names: Sequence[str]) -> dict[str, str]:
    parts = dict(zip(names, item.split("/", len(names) - 1), strict=False))
    if len(parts) < len(names) or parts["domain"] not in DOMAINS or parts["language"] not in LANGUAGES:
        raise DataError(
            f"an item named {item!r}", "/".join(names), "make items with ragbench.rageval_quality, or leave these out"
        )
    return parts


def _verdicts(labels: Iterable[Label]) -> dict[str, dict[str, str]]:
    held = current(labels, "keypoints")
    if len(by_annotator(held)) > 1:
        who = ", ".join(by_annotator(held))
        raise DataError(f"verdicts by {who}", "one annotator on each side", "part them with by_annotator(labels)")
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for label in held:
        found[label.item][label.aspect] = label.label
    return found


def apart(cells: pd.DataFrame, judge: str | None, sight: pd.DataFrame) -> pd.DataFrame:
    """Give cells of Tables 3 to 5 that the embedded checker judged rows of their own, not the paper's.

    Parameters
    ----------
    cells : columns row, column, value ...; for example from `ragbench.rageval_generation.table_3`.
    judge : the model that judged, whose cells stay in the paper's rows; None: the embedded checker.
    sight : completeness that the checker finds, index (language, text) with a row for ``"its references"``.

    Returns
    -------
    the cells with a note: what the checker sees, or which ROUGE-L it is.
    """
    rouge = {"EN": "ROUGE-L of the released code", "CN": "ROUGE-L of characters; the released code has jieba's words"}
    seen = {SHOWN[g]: sight.loc[(g, "its references"), "completeness"] for g in LANGUAGES}
    notes = []
    for column in cells["column"]:
        measure, language = column.rsplit(" ", 1)
        share = f"the embedded checker finds {seen[language]:.2f} of the keypoints in the true references"
        notes.append(rouge[language] if measure == "Rouge-L" else None if judge else share)
    rows = cells["row"] if judge else cells["row"] + ", embedded checker"
    return cells.assign(row=rows, note=notes)
