"""A judge that is examined in one pool of answers and used in another (notebook 52, scripts/ship_moved.py): the
pools, the moves, and how often the corrected share holds (docs/preregistration/judge_moved.md).
"""

from __future__ import annotations

import functools
import math
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import planting
import recorded
from ragbench import stats
from ragbench.data import load_minihop
from ragbench.data.mtrag import load_mtrag
from ragbench.experiment.axes import QUERY_ONLY
from ragbench.labelling.exam import SCALE, SYSTEMS, exam_grades
from ragbench.labelling.grades import grade
from ragbench.metrics.lexical import claim_overlap, contained, idf_weights
from ragbench.paths import packaged_data
from ragbench.records import Answer

# -- the items, by pool

JUDGES = {  # and whether its words are yes or no, else a score
    "contained": True,
    "claim overlap": False,
    "words in the passages": False,
    "RAGAS's faithfulness": False,
    "RAD-Bench's judge": False,
    "length": False,
    "Qwen": True,
    "SmolLM2": True,
}
ITEM = ["pool", "part", "question_id", "cluster", "kind", "right", *JUDGES]
ALONE, PASSAGES = "alone", "with passages"
KINDS = ("another number", "another date", "another name", "negation", "hops exchanged", "false sentence")
ORIGINAL = "right answers"  # of the planted errors
EXAMINED = {"Qwen": ("qwen", 159), "SmolLM2": ("smollm2", 40)}  # on MTRAG: recording, questions


def items() -> pd.DataFrame:
    """A row an item and part of a pool: ids and numbers, no text."""
    parts = [*_of_hotpotqa(), *_of_minihop(), *_planted(), *_of_mtrag()]
    return pd.concat(parts, ignore_index=True).reindex(columns=ITEM).round(6)


def _scored(rows: pd.DataFrame, pool: str, part: str, qwen: Any) -> pd.DataFrame:
    """Items of short true answers, with what the judges say. ``rows`` : question_id, answer, reference, cluster,
    kind, right.
    """
    pairs = list(zip(rows["answer"], rows["reference"], strict=True))
    return rows.assign(
        pool=pool,
        part=part,
        **{
            "contained": [contained(*pair) for pair in pairs],
            "claim overlap": [claim_overlap(reference, answer, {}) for answer, reference in pairs],
            "length": [len(answer.split()) for answer, _ in pairs],
            "Qwen": [math.nan if pd.isna(value) else float(value == 5) for value in qwen],
        },
    )


def _by_part(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The distinct answers of the model alone, and of it with passages."""
    alone = rows["retriever"] == QUERY_ONLY
    for part, of_part in ((ALONE, rows[alone]), (PASSAGES, rows[~alone])):
        yield part, of_part.drop_duplicates(["question_id", "answer"]).reset_index(drop=True)


def _of_hotpotqa() -> Iterator[pd.DataFrame]:
    rows = recorded.thesis_rows("Table 3.3")
    rows = rows[rows["grade"].notna()].assign(right=rows["grade"].eq(5).astype(float))
    for part, of_part in _by_part(rows):
        yield _scored(of_part, "HotpotQA, Qwen", part, of_part["model_grade"])


def _of_minihop() -> Iterator[pd.DataFrame]:
    for pool, (name, grids) in {
        "MiniHop, Qwen": ("qwen", ("retrievers", "thesis", "mlq")),
        "MiniHop, SmolLM2": ("smollm2", ("budgets",)),
    }.items():
        rows = pd.concat([recorded.rows(name, grid) for grid in grids], ignore_index=True)
        rows = recorded.with_reference_grades(rows[rows["retriever"] != recorded.GOLD])
        rows = rows.assign(cluster=rows["topic"], right=rows["grade"].eq(5).astype(float))
        for part, of_part in _by_part(rows):
            yield _scored(of_part, pool, part, qwens_grades(of_part))
    minihop = load_minihop()
    written = pd.read_json(packaged_data("minihop", "labels", "answers", "graded_answers.jsonl"), lines=True)
    written = _of_questions(written.drop_duplicates(["question_id", "answer"]), minihop)
    right = written["grade"].eq(5).astype(float)
    yield _scored(written.assign(right=right), "MiniHop, written", "", qwens_grades(written))


def _of_questions(rows: pd.DataFrame, minihop: Any) -> pd.DataFrame:
    """Rows with the true answer, the topic and the kind of their questions."""
    asked = [minihop.question(name) for name in rows["question_id"]]
    return rows.reset_index(drop=True).assign(
        reference=[question.answer for question in asked],
        cluster=[question.meta["topic"] for question in asked],
        kind=[question.kind for question in asked],
    )


def qwens_grades(rows: pd.DataFrame) -> list[float | None]:
    """Qwen's recorded grades of answers to MiniHop; None of one that it was not asked about (MLQ's)."""
    answers = [Answer(row.question_id, row.answer, "") for row in rows.itertuples()]
    names = set(rows["question_id"])
    asked = [question for question in load_minihop().questions if question.id in names]
    judge = recorded.RECORDINGS["qwen"].chat_model()
    with recorded.replay(packaged_data("recordings", "qwen_grades.jsonl.gz")) as cassette:
        grades = grade(judge, asked, answers, cassette=cassette, on_miss="reply", progress=False)
    return [one.value for one in grades]


def _planted() -> Iterator[pd.DataFrame]:
    """Right answers, and the same with an error; Qwen gives 5 to every one of them (notebook 97)."""
    minihop = load_minihop()
    right = planting.right_answers()
    errors = planting.planted_in(right)
    errors["question_id"] = right["question_id"].to_numpy()[errors["row"]]
    for part, rows in {ORIGINAL: right, **dict(list(errors.groupby("error")))}.items():
        if part in (ORIGINAL, *KINDS):
            rows = _of_questions(rows[["question_id", "answer"]], minihop)
            rows["right"] = float(part == ORIGINAL)
            yield _scored(rows, "planted", part, [5] * len(rows))


def _of_mtrag() -> Iterator[pd.DataFrame]:
    mtrag = load_mtrag()
    key = ["question_id", "system"]
    faithful = mtrag.grades[mtrag.grades["measure"] == "faithfulness"]
    people = faithful.groupby(key)["grade"].mean().rename("people").reset_index()
    rows = mtrag.answers[mtrag.answers["system"].isin(SYSTEMS)].merge(people, on=key)
    weights = idf_weights(document.text for document in mtrag.dataset.documents)
    passages = {name: " ".join(mtrag.passages(name)) for name in rows["question_id"].unique()}
    rows["words in the passages"] = [
        claim_overlap(row.answer, passages[row.question_id], weights) for row in rows.itertuples()
    ]
    rows["length"] = [len(answer.split()) for answer in rows["answer"]]
    rows["right"] = rows["people"].round().eq(max(SCALE)).astype(float)
    rows = rows.rename(columns={"rl_f": "RAGAS's faithfulness", "rb_llm": "RAD-Bench's judge"})
    for judge, (name, questions) in EXAMINED.items():
        model = recorded.RECORDINGS[name].chat_model(num_ctx=8192, num_predict=64)
        with recorded.replay(packaged_data("mtrag", f"{name}.jsonl.gz")) as cassette:
            grades = exam_grades(model, questions=questions, cassette=cassette, progress=False)
        grades = grades[grades["measure"] == "faithfulness"].set_index(key)["grade"]
        given = grades.reindex(pd.MultiIndex.from_frame(rows[key])).to_numpy(float)
        rows[judge] = np.where(np.isnan(given), np.nan, given == max(SCALE))
    for system, part in rows.groupby("system"):
        name = {"gpt-4o": "GPT-4o"}.get(system, "Llama 3.1 405B")
        yield part.assign(pool=f"MTRAG, {name}", part="", cluster=part["conversation"], kind="")


# -- the moves


@dataclass(frozen=True)
class Move:
    """From where to where, and which items these are."""

    about: str
    start: str
    end: str
    A: pd.DataFrame
    B: pd.DataFrame


def moves(table: pd.DataFrame) -> list[Move]:
    """The 22 moves of the plan."""
    pools = pools_of(table)
    pairs = {
        "data": [("HotpotQA, Qwen", "MiniHop, Qwen"), ("MiniHop, written", "MiniHop, Qwen")],
        "model": [("MiniHop, Qwen", "MiniHop, SmolLM2"), ("MTRAG, GPT-4o", "MTRAG, Llama 3.1 405B")],
        "system": [(f"{of}: {ALONE}", f"{of}: {PASSAGES}") for of in ("HotpotQA, Qwen", "MiniHop, Qwen")],
        "type": [(f"{of}: bridge", f"{of}: comparison") for of in ("HotpotQA, Qwen", "MiniHop, Qwen")],
    }
    found = []
    for about, of_kind in pairs.items():
        for one, other in of_kind:
            found.append(Move(about, one, other, pools[one], pools[other]))
            found.append(Move(about, other, one, pools[other], pools[one]))
    planted = table[table["pool"] == "planted"]
    for kind in KINDS:
        others = planted[planted["part"] != kind]
        one = planted[planted["part"].isin([ORIGINAL, kind])]
        found.append(Move("error", f"planted: all but {kind}", f"planted: {kind}", others, one))
    return found


def pools_of(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Items by the name of a pool, and of a part or type of questions of one."""
    pools = {}
    for name, whole in table.groupby("pool", sort=False):
        pools[name] = whole
        if name in ("HotpotQA, Qwen", "MiniHop, Qwen"):
            parts = [*whole.groupby("part"), *whole.groupby("kind")]
            pools |= {f"{name}: {part}": rows for part, rows in parts}
    return pools


# -- a judge's yes and no


def calls(judge: str, A: pd.DataFrame, *others: pd.DataFrame) -> list[pd.DataFrame]:
    """The items of A and of other pools that the judge scored, with its yes (1) and no as ``said``. A score's
    threshold, and the direction of length, are of greatest Youden's J in A.
    """
    pools = [pool[pool[judge].notna()] for pool in (A, *others)]
    if JUDGES[judge]:
        return [pool.assign(said=pool[judge]) for pool in pools]
    directions = (1, -1) if judge == "length" else (1,)
    best = (-np.inf, 1, 0.0)
    scores, right = pools[0][judge].to_numpy(), pools[0]["right"].to_numpy() == 1
    for direction in directions:
        for threshold in np.unique(direction * scores):
            said = direction * scores >= threshold
            best = max(best, (said[right].mean() - said[~right].mean(), direction, threshold))
    _, direction, threshold = best
    return [pool.assign(said=(direction * pool[judge] >= threshold).astype(float)) for pool in pools]


# -- draws: all that a way needs are counts of right or wrong, yes or no

DRAWN = 100  # items of either pool
LABELS = (10, 20, 40, 80)  # of B
EXAM, EXAM_PPI, ANEW, PPI = "exam", "exam, PPI", "anew", "PPI"
AS_IT_IS, CONSTANT, LABELS_ALONE = "as it is", "constant", "labels alone"
RESAMPLES = 500
CELLS = ("right", "yes"), ("right", "no"), ("wrong", "yes"), ("wrong", "no")


def cells(pool: pd.DataFrame) -> np.ndarray:
    """The share of a pool's items in each of `CELLS`; ``pool`` has right and said."""
    right, yes = pool["right"].to_numpy() == 1, pool["said"].to_numpy() == 1
    return np.array([(right & yes).mean(), (right & ~yes).mean(), (~right & yes).mean(), (~right & ~yes).mean()])


def corrected(labelled: np.ndarray, rest: np.ndarray, rng: np.random.Generator, *, of_all: bool) -> np.ndarray:
    """`rogan_gladen` of many draws at once: estimate, low and high, shape (draws, 3); NaN where it is refused.

    ``labelled`` : counts of items by `CELLS`, shape (draws, 4). ``rest`` : of those without a label, yes and no.
    ``of_all`` : whether the share is of both, else of the rest. Items are each on their own, so a resample of them is
    a multinomial draw of these counts.
    """
    counts = np.column_stack([labelled, rest])
    n = counts.sum(axis=1)
    drawn = rng.multinomial(n[:, None], (counts / n[:, None])[:, None], (len(counts), RESAMPLES))
    of = np.array([of_all] * 4 + [True] * 2)
    yes = np.array([True, False, True, False, True, False])
    youdens, shares = [], []
    for each in (counts[:, None], drawn):
        with np.errstate(invalid="ignore", divide="ignore"):
            false_alarms = each[..., 2] / each[..., 2:4].sum(axis=-1)
            youden = each[..., 0] / each[..., :2].sum(axis=-1) - false_alarms
            judged = each[..., of & yes].sum(axis=-1) / each[..., of].sum(axis=-1)
            shares.append((judged - false_alarms) / np.where(youden == 0, np.nan, youden))
        youdens.append(youden)
    with warnings.catch_warnings():  # draws without a right or a wrong item in any resample
        warnings.simplefilter("ignore", RuntimeWarning)
        least = np.nanquantile(youdens[1], 0.025, axis=1)
        spread = np.nanmax(youdens[1], axis=1) - np.nanmin(youdens[1], axis=1)
        low, high = np.nanquantile(shares[1], [0.025, 0.975], axis=1)
    found = np.column_stack([shares[0][:, 0], low, high]).clip(0, 1)
    found[~(least > 0) | ~(spread > 1e-12)] = np.nan
    return found


def items_of(counts: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Labels and yes of items by counts of `CELLS`."""
    return np.repeat([1.0, 1.0, 0.0, 0.0], counts), np.repeat([1.0, 0.0, 1.0, 0.0], counts)


@functools.cache
def share_of(yes: int, n: int) -> tuple[float, float, float]:
    return _bounds(stats.binomial_ci(yes, n))


@functools.cache
def ppi_of_exam(a: tuple[int, ...], rest: tuple[int, int]) -> tuple[float, float, float]:
    """B's share by the judge's mean error in A."""
    return _bounds(stats.ppi_mean(*items_of(a), np.repeat([1.0, 0.0], rest), weight=1.0))


@functools.cache
def ppi_of_labels(labelled: tuple[int, ...], rest: tuple[int, int]) -> tuple[float, float, float]:
    """B's share by labels of a part of it."""
    y, f = items_of(labelled)
    said = np.concatenate([f, np.repeat([1.0, 0.0], rest)])
    labels = np.concatenate([y, np.full(sum(rest), np.nan)])
    (found,) = stats.ppi_shares(labels[:, None], said[:, None], 0 * said, cluster=np.arange(len(said)))
    return _bounds(found)


def _bounds(interval: stats.Interval) -> tuple[float, float, float]:
    return interval.estimate, interval.low, interval.high


def rest_of(counts: np.ndarray) -> np.ndarray:
    """The judge's yes and no, of items by counts of `CELLS`: shape (draws, 2)."""
    return counts[:, [0, 2]].sum(axis=1)[:, None] * [1, 0] + counts[:, [1, 3]].sum(axis=1)[:, None] * [0, 1]


def draws(A: pd.DataFrame, B: pd.DataFrame, name: str, times: int, labels: tuple[int, ...] = LABELS) -> Iterator[tuple]:
    """Way, number of labels of B, intervals (estimate, low, high; shape (times, 3)) and the share of right items among
    the 100 that were drawn of B. Items are drawn alone and with replacement; ``name`` makes the seed.
    """
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    a = rng.multinomial(DRAWN, cells(A), times)
    b = rng.multinomial(DRAWN, cells(B), times)
    rest = rest_of(b)
    of_items = b[:, :2].sum(axis=1) / DRAWN
    by_exam = [(tuple(x), tuple(y)) for x, y in zip(a.tolist(), rest.tolist(), strict=True)]
    yield CONSTANT, 0, np.array([share_of(sum(x[:2]), DRAWN) for x, _ in by_exam]), of_items
    yield AS_IT_IS, 0, np.array([share_of(y[0], DRAWN) for _, y in by_exam]), of_items
    yield EXAM, 0, corrected(a, rest, rng, of_all=False), of_items
    yield EXAM_PPI, 0, np.array([ppi_of_exam(*pair) for pair in by_exam]), of_items
    for n in labels:
        some = rng.multinomial(n, cells(B), times)
        others = rng.multinomial(DRAWN - n, cells(B), times)
        rest = rest_of(others)
        of_items = (some + others)[:, :2].sum(axis=1) / DRAWN
        by_label = [(tuple(x), tuple(y)) for x, y in zip(some.tolist(), rest.tolist(), strict=True)]
        yield ANEW, n, corrected(some, rest, rng, of_all=True), of_items
        yield PPI, n, np.array([ppi_of_labels(*pair) for pair in by_label]), of_items
        yield LABELS_ALONE, n, np.array([share_of(sum(x[:2]), n) for x, _ in by_label]), of_items


def held(A: pd.DataFrame, B: pd.DataFrame, name: str, times: int, labels: tuple[int, ...] = LABELS) -> pd.DataFrame:
    """A row a way and number of labels: draws, refused, and of the others how often the interval held B's share
    (covered) and that of the items drawn (covered_items), its width, and the error of the estimate.

    ``A`` and ``B`` : of `calls`.
    """
    truth = B["right"].mean()
    rows = []
    for way, n, found, of_items in draws(A, B, name, times, labels):
        estimate, low, high = found.T
        given = ~np.isnan(low)
        row = {"way": way, "labels": n, "truth": truth, "draws": times, "refused": int((~given).sum())}
        row["covered"] = int(((low <= truth) & (truth <= high)).sum())
        row["covered_items"] = int(((low <= of_items) & (of_items <= high)).sum())
        row["width"] = (high - low)[given].mean() if given.any() else math.nan
        row["error"] = (estimate - truth)[given].mean() if given.any() else math.nan
        rows.append(row)
    return pd.DataFrame(rows)


def every_draw(table: pd.DataFrame, times: int = 200, of_null: int = 400) -> pd.DataFrame:
    """What `held` finds of every move and judge, and of the null: A and B from one pool."""
    parts = []
    named = {(move.start, move.end): move for move in moves(table)}
    starts = {move.start: move.A for move in named.values()}
    for name, A in starts.items():
        named[name, name] = Move("same pool", name, name, A, A)
    for (start, end), move in named.items():
        is_null = move.about == "same pool"
        for judge in JUDGES:
            if not (move.A[judge].notna().any() and move.B[judge].notna().any()):
                continue
            A, B = calls(judge, move.A, move.B)
            is_constant = A["said"].nunique() < 2  # refused in every draw, and PPI is labels alone
            if is_null and is_constant:
                continue
            labels = () if is_null or is_constant else LABELS
            found = held(A, B, f"{start} -> {end}, {judge}", of_null if is_null else times, labels)
            parts.append(found.assign(about=move.about, start=start, end=end, judge=judge))
    columns = ["about", "start", "end", "judge", "way", "labels", "truth", "draws", "refused"]
    columns += ["covered", "covered_items", "width", "error"]
    return pd.concat(parts, ignore_index=True)[columns].round(6)
