"""The embedded judge: a score for an answer against a reference, without a language model.

A weighted sum of the features of :mod:`ragbench.judge.features`, fitted on people's comparisons of answers
(:mod:`ragbench.judge.fit`), scaled per reference so that an empty answer has 0 and the reference itself 1.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragbench.errors import DataError, unknown
from ragbench.judge.features import NAMES, check_texts, features

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

COEFFICIENTS = Path(__file__).with_name("coefficients.json")


def load_coefficients(path: str | Path | None = None) -> dict[str, Any]:
    """Read fitted coefficients: the shipped ones, or a file written by ``FitReport.save``.

    Returns
    -------
    dict with ``criteria`` (name -> features, weights, floor) and ``card`` (data, folds, numbers, limits).

    Raises
    ------
    DataError when the file is missing or is not such a file.
    """
    from ragbench.data.files import read_json

    path = Path(path) if path is not None else COEFFICIENTS
    data = read_json(path)
    try:
        for entry in data["criteria"].values():
            same = len(entry["features"]) == len(entry["weights"]) and np.isfinite(entry["weights"]).all()
            if not same or not set(entry["features"]) <= set(NAMES) or not entry["floor"] > 0:
                raise KeyError
    except (KeyError, TypeError, AttributeError):
        raise DataError(
            f"{path} does not hold the judge's coefficients",
            "criteria, each with known features, as many weights, and a floor above 0",
            "write it anew with `ragbench judge fit`",
        ) from None
    return data


def scaled(weights: np.ndarray, floor: float, answer: np.ndarray, empty: np.ndarray, itself: np.ndarray) -> np.ndarray:
    """Score feature rows: 0 for the empty answer, 1 for the reference itself, linear between and beyond.

    Parameters
    ----------
    weights : shape (n_features,).
    floor : least distance in raw score between reference and empty answer that is divided by.
    answer, empty, itself : features of the answers, of the empty answer and of the reference as its own answer, each
        of shape (n, n_features).

    Returns
    -------
    float array, shape (n,).
    """
    return (answer - empty) @ weights / np.maximum((itself - empty) @ weights, floor)


class EmbeddedJudge:
    """Score answers against references without a language model.

    Parameters
    ----------
    criterion : ``"overall"``, ``"correctness"`` or ``"completeness"`` (or a criterion of your own coefficients).
    embedder : a LangChain ``Embeddings``; default the embedded MiniLM with its vectors cached on disk. The shipped
        coefficients were fitted with MiniLM: refit for another model.
    coefficients : a file written by ``FitReport.save``, or its content; default the shipped ones.

    Fitted on English long-form answers; a score is comparable between answers to one question and, less surely,
    between questions. ``card`` says what it was fitted on and how well it agrees with people.
    """

    def __init__(
        self,
        criterion: str = "overall",
        embedder: Embeddings | None = None,
        coefficients: str | Path | Mapping[str, Any] | None = None,
    ) -> None:
        data = coefficients if isinstance(coefficients, Mapping) else load_coefficients(coefficients)
        if criterion not in data["criteria"]:
            raise unknown("criterion", criterion, data["criteria"])
        entry = data["criteria"][criterion]
        self.criterion, self.card = criterion, data.get("card", {})
        self.features: tuple[str, ...] = tuple(entry["features"])
        self.weights = np.asarray(entry["weights"], float)
        self.floor = float(entry["floor"])
        self._embedder = embedder

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.criterion!r}, {len(self.features)} features)"

    @functools.cached_property
    def embedder(self) -> Embeddings:
        """The embedding model, loaded at first use."""
        if self._embedder is not None:
            return self._embedder
        from ragbench.embedding import default_embedder

        return default_embedder()

    def score(self, answer: str, reference: str, question: str | None = None) -> float:
        """Score one answer.

        Returns
        -------
        float, 0 for an empty answer, 1 for the reference word for word; a little outside for answers that are worse
        than none (a wrong yes) or longer than the reference. NaN for a reference without a word.
        """
        return float(self.scores([answer], [reference], [question])[0])

    def scores(
        self, answers: Sequence[str], references: Sequence[str], questions: Sequence[str | None] | None = None
    ) -> np.ndarray:
        """Score many answers at once, embedding all texts in one call.

        Parameters
        ----------
        answers, references, questions : one of each per row; ``questions`` may be left out.

        Returns
        -------
        float array, shape (len(answers),), as :meth:`score`.

        Raises
        ------
        DataError for lists of different length, ConfigError for something that is not a text.
        """
        parts = self._parts(answers, references, questions)
        return scaled(self.weights, self.floor, *parts)

    def explain(self, answer: str, reference: str, question: str | None = None) -> dict[str, float]:
        """Return what each feature adds to the score; the values sum to :meth:`score`."""
        answered, empty, itself = self._parts([answer], [reference], [question])
        shares = (answered[0] - empty[0]) * self.weights / max(float((itself - empty)[0] @ self.weights), self.floor)
        return dict(zip(self.features, shares.tolist(), strict=True))

    def _parts(
        self, answers: Sequence[str], references: Sequence[str], questions: Sequence[str | None] | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        questions = [None] * len(answers) if questions is None else questions
        return anchored(questions, references, answers, self.embedder, self.features)


def anchored(
    questions: Sequence[str | None],
    references: Sequence[str],
    answers: Sequence[str],
    embedder: Embeddings | None,
    names: Sequence[str] = NAMES,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features of answers, of the empty answer and of the reference as its own answer: three arrays (n, n_features)."""
    check_texts(questions, references, answers)
    keys = list(dict.fromkeys(zip(questions, references, strict=True)))
    place = {key: i for i, key in enumerate(keys)}
    asked, told = [q for q, _ in keys], [r for _, r in keys]
    rows = features(
        [*questions, *asked, *asked], [*references, *told, *told], [*answers, *[""] * len(keys), *told], embedder, names
    )
    index = [place[key] for key in zip(questions, references, strict=True)]
    n, k = len(answers), len(keys)
    return rows[:n], rows[n : n + k][index], rows[n + k :][index]


def write_json(path: str | Path, data: Mapping[str, Any]) -> None:
    """Write coefficients as indented JSON."""
    Path(path).write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
