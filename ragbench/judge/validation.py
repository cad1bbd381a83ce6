"""How good a claim checker is, measured on labelled claims (RAGChecker's Table 16), and MiniHop's claims for it.

The labels of MiniHop's claims are reference labels, assigned by a strong language model under a written guideline;
checked by a person: 0; the second pass measures repeatability, not human agreement.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragbench.data.files import raise_all, read_jsonl, require_text
from ragbench.errors import DataError, unknown
from ragbench.judge.checker import ENTAILMENT, LABELS
from ragbench.paths import shipped

if TYPE_CHECKING:
    import pandas as pd

    from ragbench.stats import Interval

SPLITS = ("dev", "test")
MEASURES = ("accuracy", "factual f1", "non-factual f1", "accuracy, three labels", "pearson", "spearman")


@dataclass(frozen=True, slots=True)
class LabelledClaim:
    """A claim about a document, and its label.

    ``document`` is its title, ``text`` its text. ``first_label`` and ``second_label`` are two labellings of the same
    wording, None for a claim reworded after them; ``label`` is what they led to.
    """

    id: str
    document: str
    text: str
    claim: str
    label: str
    split: str
    first_label: str | None = None
    second_label: str | None = None


def load_labelled_claims(
    path: str | Path | None = None, split: str | None = None, texts: Mapping[str, str] | None = None
) -> tuple[LabelledClaim, ...]:
    """Load labelled claims: those over MiniHop, or your own file of the same form.

    Parameters
    ----------
    path : JSON lines with ``id``, ``document`` (title), ``claim``, ``label``, ``split`` ("dev" or "test"); optionally
        ``second_label``, and ``first_label`` where the label was changed after both. Default
        ``data/minihop/labelled_claims.jsonl``.
    split : only this one; default both. Set a checker's thresholds on "dev", open "test" when they are fixed.
    texts : title -> text of the documents; default MiniHop's.

    Returns
    -------
    tuple of LabelledClaim, in file order.

    Raises
    ------
    DataError that names file and line: a missing field, an unknown label, split or document, a repeated id or claim, or
    a document with claims in both splits.
    """
    if split is not None and split not in SPLITS:
        raise unknown("split", split, SPLITS)
    if texts is None:
        from ragbench.data.minihop import load_minihop

        texts = {d.title: d.text for d in load_minihop().documents}
    path = shipped("minihop", "labelled_claims.jsonl") if path is None else Path(path)
    found: list[LabelledClaim] = []
    errors: list[DataError] = []
    lines = list(read_jsonl(path))
    seen: set[object] = set()
    split_of: dict[str, str] = {}
    for number, row in lines:
        where = f"{path}, line {number}"
        try:
            one = _labelled(row, where, texts)
            again = [key for key in (one.id, (one.document, one.claim)) if key in seen]
            if again:
                raise DataError(f"{where}: {again[0]!r} was there before", "ids and claims that occur once", "drop one")
            if split_of.setdefault(one.document, one.split) != one.split:
                raise DataError(
                    f"{where}: document {one.document!r} is in both splits",
                    "all claims about a document in one split",
                    "move them together, or tuning sees the test documents",
                )
        except DataError as error:
            errors.append(error)
            continue
        seen |= {one.id, (one.document, one.claim)}
        found.append(one)
    raise_all(errors, path, len(lines))
    return tuple(one for one in found if split in (None, one.split))


def _labelled(row: dict, where: str, texts: Mapping[str, str]) -> LabelledClaim:
    texts_of = {name: require_text(row, name, where) for name in ("id", "document", "claim")}
    if row.get("split") not in SPLITS:
        raise DataError(f"{where}: split is {row.get('split')!r}", "'dev' or 'test'", "write one of the two")
    for name in ("label", "first_label", "second_label"):
        value = row.get(name)
        if value not in LABELS and not (value is None and name != "label"):
            raise DataError(f"{where}: {name} is {value!r}", f"one of {', '.join(LABELS)}", "read claim and text again")
    if texts_of["document"] not in texts:
        raise DataError(
            f"{where}: no document {texts_of['document']!r}", "a title of the documents", "check the spelling"
        )
    second = row.get("second_label")
    first = row.get("first_label") or (row["label"] if second is not None else None)
    return LabelledClaim(
        texts_of["id"], texts_of["document"], texts[texts_of["document"]], texts_of["claim"],
        row["label"], row["split"], first, second,
    )  # fmt: skip


def checker_quality(
    human: Sequence[str],
    predicted: Sequence[str | None],
    responses: Sequence[Hashable] | None = None,
) -> dict[str, float]:
    """Measure a checker's labels against reference labels, people's or others.

    Parameters
    ----------
    human : a label per claim: Entailment, Neutral or Contradiction.
    predicted : the checker's; None where it gave none, which is left out and counted.
    responses : the response each claim is from, for the two correlations; None leaves them undefined.

    Returns
    -------
    dict: ``accuracy`` (entailed or not), ``factual f1`` (of Entailment), ``non-factual f1`` (of the other two),
    ``accuracy, three labels``, all in [0, 1]; ``pearson`` and ``spearman`` between the shares of claims not entailed,
    per response, in [-1, 1]; ``n`` claims, ``responses`` and ``unscored`` claims. What is undefined is NaN: an F1
    without such a claim on either side, a correlation of fewer than two responses or of a constant.

    Raises
    ------
    DataError for lists of different length or an unknown label word.

    Source: RAGChecker, appendix G, Table 16. Paper value (Llama3 + Llama3, zero context): accuracy 91.89, F1 83.06 and
    94.67, Pearson 81.77, Spearman 80.83 (x100). That accuracy is of two classes follows from the published numbers:
    accuracy and the two F1 determine each other only then.
    """
    from ragbench.stats import correlation

    found = _matched(human, predicted, responses)
    pearson = spearman = float("nan")
    if found.shares is not None:
        pearson = correlation(*found.shares, "pearson", resamples=0).estimate
        spearman = correlation(*found.shares, "spearman", resamples=0).estimate
    true, said = found.true, found.said
    return {
        "accuracy": float((true == said).mean()) if true.size else float("nan"),
        "factual f1": float(_f1(_coded(true, said))),
        "non-factual f1": float(_f1(_coded(~true, ~said))),
        "accuracy, three labels": float(found.same.mean()) if true.size else float("nan"),
        "pearson": pearson,
        "spearman": spearman,
        "n": int(true.size),
        "responses": 0 if found.shares is None else len(found.shares[0]),
        "unscored": len(predicted) - int(true.size),
    }


def checker_intervals(
    human: Sequence[str],
    predicted: Sequence[str | None],
    responses: Sequence[Hashable],
    *,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """Measure a checker as `checker_quality` does, with percentile intervals over responses.

    Parameters
    ----------
    human, predicted, responses : as for `checker_quality`. A response (or document) is drawn with all its claims, since
        claims about one text are not independent.
    resamples, level, seed : as in `ragbench.stats.bootstrap_ci`.

    Returns
    -------
    dict: an Interval for each of `MEASURES`; n counts claims, and responses for the two correlations.

    Raises
    ------
    DataError as for `checker_quality`.
    """
    from ragbench.stats import Interval, bootstrap_ci, correlation

    found = _matched(human, predicted, responses)
    options: dict[str, Any] = {"resamples": resamples, "level": level, "seed": seed}
    values = (
        (found.true == found.said, "mean"),
        (_coded(found.true, found.said), _f1),
        (_coded(~found.true, ~found.said), _f1),
        (found.same, "mean"),
    )
    rows = [bootstrap_ci(v, statistic, groups=found.index, **options) for v, statistic in values]  # type: ignore[arg-type]
    nothing = Interval(float("nan"), float("nan"), float("nan"), 0, 0, level)
    both = (
        [correlation(*found.shares, m, **options) for m in ("pearson", "spearman")] if found.shares else [nothing] * 2
    )
    return dict(zip(MEASURES, rows + both, strict=True))


def embedded_checker_quality(split: str = "test", checker: Any = None) -> pd.DataFrame:
    """Measure the embedded checker on MiniHop's labelled claims, beside calling every claim not entailed.

    Parameters
    ----------
    split : "dev" or "test"; nothing of the checker was set on either.
    checker : default `ragbench.EmbeddedChecker`.

    Returns
    -------
    DataFrame, index who labels: accuracy (entailed or not, in [0, 1]), low and high (95%, over documents), n claims.
    The labels are reference labels by a strong language model; people checked none.
    """
    import pandas as pd

    from ragbench.judge.checker import EmbeddedChecker

    claims = load_labelled_claims(split=split)
    checker = checker or EmbeddedChecker()
    true, documents = [c.label for c in claims], [c.document for c in claims]
    said = [checker.check([c.claim], c.text)[0] for c in claims]
    sources = {"embedded checker": said, "always 'not entailed'": ["Neutral"] * len(claims)}
    found = {name: checker_intervals(true, labels, documents)["accuracy"] for name, labels in sources.items()}
    rows = {name: (i.estimate, i.low, i.high, i.n) for name, i in found.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["accuracy", "low", "high", "n"])


@dataclass(frozen=True, slots=True)
class _Matched:
    """The claims that a checker labelled.

    ``true`` and ``said``: entailed by the reference label, and by its own. ``same``: the same of three labels.
    ``index``: number of the response. ``shares``: not entailed, per response, by the reference and by it.
    """

    true: np.ndarray
    said: np.ndarray
    same: np.ndarray
    index: np.ndarray
    shares: tuple[np.ndarray, np.ndarray] | None


def _matched(human: Sequence[str], predicted: Sequence[str | None], responses: Sequence[Hashable] | None) -> _Matched:
    sizes = {len(human), len(predicted), len(predicted if responses is None else responses)}
    if len(sizes) > 1:
        raise DataError(f"lists of {' and '.join(map(str, sorted(sizes)))} items", "one item per claim in each")
    for who, labels in (("human", human), ("predicted", [p for p in predicted if p is not None])):
        strange = [label for label in labels if label not in LABELS]
        if strange:
            raise DataError(f"{who} label {strange[0]!r}", f"one of {', '.join(LABELS)}", "check that claim again")
    kept = [i for i, label in enumerate(predicted) if label is not None]
    truth, guess = ([labels[i] for i in kept] for labels in (human, predicted))
    true, said = (np.array([label == ENTAILMENT for label in labels], bool) for labels in (truth, guess))
    same = np.array([a == b for a, b in zip(truth, guess, strict=True)], bool)
    of = [responses[i] for i in kept] if responses is not None else []
    place = {response: i for i, response in enumerate(dict.fromkeys(of))}
    index = np.array([place[response] for response in of], int)
    shares = None
    if of:
        not_true, not_said = (np.bincount(index, ~flags) / np.bincount(index) for flags in (true, said))
        shares = (not_true, not_said)
    return _Matched(true, said, same, index, shares)


def _coded(true: np.ndarray, said: np.ndarray) -> np.ndarray:
    """One number per claim: 0 neither, 1 said alone, 2 true alone, 3 both."""
    return 2 * true.astype(int) + said.astype(int)


def _f1(codes: np.ndarray, axis: int = -1) -> np.ndarray:
    both, one = (codes == 3).sum(axis), ((codes == 1) | (codes == 2)).sum(axis)
    with np.errstate(invalid="ignore"):
        return np.true_divide(2 * both, 2 * both + one)
