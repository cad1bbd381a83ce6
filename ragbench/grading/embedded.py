"""The embedded grader: a grade from the true answer and the facts, without a language model."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragbench.errors import ConfigError, DataError
from ragbench.grading.categories import GRADES, by_id, facts_of, question_of
from ragbench.grading.evidence import FEATURES, evidence
from ragbench.records import Answer, Grade, Question, check_records
from ragbench.text.apart import content_stems, holds, one_line, signs, token_stems, tokens
from ragbench.text.stance import abstains

MODEL_FILE = Path(__file__).with_name("embedded_grader.json")
RIDGE = 0.1  # inverse strength C of the L2 penalty, chosen on the dev split by cross-validation over questions


class Ungradable(DataError):
    """An answer that the rules cannot grade; in `EmbeddedGrader.grade_all` it is unscored, with this reason."""

    kind = "unscored"


class EmbeddedGrader:
    """Grade short answers 1..5 by rules and a small linear model; named 'embedded grader' in every table.

    Twenty-odd features (:mod:`ragbench.grading.evidence`) say whether the true answer is in the answer, whether the
    answer declines, guesses, says the opposite of a yes/no or an either/or, and which of its names, numbers and rare
    words neither question nor true answer nor facts back. A multinomial logistic regression fitted on the dev split of
    the graded answers turns them into a grade. Cosines of the embedded MiniLM were tried as further features and
    did not help (best dev accuracy by cross-validation 0.849 without them, 0.852 with), so none is used.

    What it cannot do: paraphrases that share no word with true answer and facts ("the Siberian one" for Lake Baikal)
    are mostly graded 4; true details that the facts do not contain count as wrong details; known words put together
    wrongly ("born at Streator in Kansas", where both occur in the facts) pass as right; English only.

    Defined values, without asking the model: the true answer itself is 5; an answer without a letter or digit is 1 (no
    information), and so is one that declines in German, French, Spanish, Italian or Chinese, or in another script than
    the question's. Any other answer of which no word is written in the script of question, true answer or facts is 4
    (nothing in it can be matched). Of an answer longer than 20,000 characters the first 20,000 are compared.

    Unscored (`Ungradable`): an answer that holds the words of a true answer but not its signs ("x-1" for "x+1", "C" for
    "C++"), since words are all that is compared; and what is not graded by a defined value where the true answer has
    no letter or digit ("∅").

    Parameters
    ----------
    model : another file of the same form; default the one that comes with ragbench (its ``card`` says how it was made).

    Source: the categories of thesis §2.4; the method is ours.
    """

    name = "embedded grader"

    def __init__(self, model: str | Path | None = None) -> None:
        path = Path(model) if model is not None else MODEL_FILE
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            self.card: dict[str, Any] = told["card"]
            features = tuple(told["features"])
            self._weights = np.array(told["weights"], float)
            self._offsets = np.array(told["offsets"], float)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path} is no model of the embedded grader: {type(error).__name__}: {error}",
                "JSON with card, features, weights and offsets",
                "leave the argument out, or run scripts/fit_embedded_grader.py",
            ) from None
        if features != FEATURES or self._weights.shape != (5, len(FEATURES)) or self._offsets.shape != (5,):
            raise DataError(
                f"{path} was fitted on other features",
                f"{len(FEATURES)} features in the order of ragbench.grading.evidence.FEATURES",
                "run scripts/fit_embedded_grader.py",
            )

    def __repr__(self) -> str:
        return "EmbeddedGrader()"

    def probabilities(self, question: str, answer: str, reference: str, facts: Sequence[str]) -> np.ndarray:
        """Return the model's probabilities of the grades 1..5 (shape (5,), sum 1), one-hot for defined values.

        Raises
        ------
        ConfigError for something that is no text; Ungradable (a DataError) for what the rules cannot grade.
        """
        facts = _check(question, answer, reference, facts)
        defined = _defined(question, answer, reference, facts)
        if defined:
            return np.eye(5)[defined - 1]
        return odds_of(np.array(evidence(question, answer, reference, facts)), self._weights, self._offsets)

    def grade(self, question: str, answer: str, reference: str, facts: Sequence[str]) -> int:
        """Grade one answer.

        Parameters
        ----------
        question, answer, reference : texts; ``reference`` is the true answer.
        facts : the supporting sentences, with their titles where there are any (see ``facts_of``).

        Returns
        -------
        int from 1 to 5, the most probable grade.

        Raises
        ------
        ConfigError for something that is no text; Ungradable (a DataError) for what the rules cannot grade.
        """
        return int(self.probabilities(question, answer, reference, facts).argmax()) + 1

    def grade_all(
        self,
        questions: Sequence[Question],
        answers: Sequence[Answer],
        facts: Mapping[str, Sequence[str]] | None = None,
    ) -> list[Grade]:
        """Grade many answers.

        Parameters
        ----------
        questions : those the answers belong to, by id.
        answers : any number per question.
        facts : question id -> supporting texts; default ``facts_of`` each question.

        Returns
        -------
        list of Grade in the order of the answers, with the probabilities of 1..5 in ``meta["probabilities"]``.
        What is `Ungradable` has the value None, ``meta["error"]`` "unscored" and the reason in ``meta["detail"]``.
        """
        known = by_id(questions)
        check_records(answers, Answer, "answers")
        grades = []
        for place, answer in enumerate(answers):
            question = question_of(answer.question_id, known, place)
            shown = facts_of(question) if facts is None else facts.get(question.id, ())
            meta = {**answer.meta, "generator": answer.generator}
            try:
                odds = self.probabilities(question.text, answer.text, question.answer, shown)
            except Ungradable as error:
                value, told = None, {"error": error.kind, "detail": str(error)}
            else:
                value, told = int(odds.argmax()) + 1, {"probabilities": tuple(odds.tolist())}
            grades.append(Grade(answer.question_id, value, self.name, "", meta | told))
        return grades


def odds_of(features: np.ndarray, weights: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the probabilities of the grades 1..5 (shape (5,)) for one answer's features.

    An answer that holds the true answer and no word that is not backed gives no ground for grade 2: its probability is
    0, whatever the weights say of its length or its names.
    """
    scores = weights @ features + offsets
    odds = np.exp(scores - scores.max())
    if features[FEATURES.index("hit_clean")]:
        odds[1] = 0.0
    return odds / odds.sum()


def fit_embedded_grader(
    questions: Sequence[Question], answers: Sequence[Any], *, ridge: float = RIDGE
) -> dict[str, Any]:
    """Fit the embedded grader's weights.

    Parameters
    ----------
    questions : those the answers belong to.
    answers : GradedAnswer records, of the split that may be used for tuning.
    ridge : inverse strength of the L2 penalty on standardised features.

    Returns
    -------
    dict with ``features``, ``weights`` (5, n) and ``offsets`` (5,) for the features as they are.
    """
    from sklearn.linear_model import LogisticRegression

    known = by_id(questions)
    rows = []
    for place, answer in enumerate(answers):
        question = question_of(answer.question_id, known, place)
        rows.append(evidence(question.text, answer.text, question.answer, facts_of(question)))
    if {answer.grade for answer in answers} != set(GRADES):
        raise DataError("answers that lack a grade", "at least one answer of each grade from 1 to 5", "add some")
    x = np.array(rows)
    centre, spread = x.mean(0), x.std(0)
    spread[spread == 0] = 1.0
    model = LogisticRegression(C=ridge, max_iter=5000).fit((x - centre) / spread, [answer.grade for answer in answers])
    weights = model.coef_ / spread
    return {"features": list(FEATURES), "weights": weights, "offsets": model.intercept_ - weights @ centre}


def _check(question: str, answer: str, reference: str, facts: Sequence[str]) -> tuple[str, ...]:
    for name, text in (("question", question), ("answer", answer), ("reference", reference)):
        if not isinstance(text, str):
            raise ConfigError(f"{name} is {type(text).__name__}", "a text", "pass '' for an empty answer")
    if isinstance(facts, str) or not all(isinstance(fact, str) for fact in facts):
        raise ConfigError("facts is not a list of texts", "the supporting sentences", "pass facts_of(question)")
    if not reference.strip():
        raise Ungradable("the true answer is empty", "a true answer", "leave the question out, or write its answer")
    return tuple(facts)


def _defined(question: str, answer: str, reference: str, facts: tuple[str, ...]) -> int | None:
    if one_line(answer) == one_line(reference):
        return 5
    if not any(c.isalnum() for c in answer):
        return 1
    true, said = tokens(reference), tokens(answer[:1000])
    if not true:
        if abstains(answer, "grader"):
            return 1
        raise Ungradable(
            f"the true answer {reference!r} has no letter or digit, and the answer says more or something else",
            "words to compare",
            "grade it by hand or with a model, or write the true answer in words",
        )
    same = [t.word for t in said] == [t.word for t in true]
    wanted = signs(reference)
    # Words are compared without their signs: where a sign tells two answers apart, these rules cannot.
    if (same and signs(answer[:1000]) != wanted) or (wanted and content_stems(reference) <= token_stems(answer)):
        if not holds(answer, reference):
            raise Ungradable(
                f"the answer has the words of the true answer {reference[:80]!r}, but other signs",
                "the same formula, code or name to the sign",
                "grade it by hand or with a model",
            )
    elif same:
        return 5
    scripts = {_script(c) for c in answer[:1000] if c.isalpha()}
    foreign = {_script(c) for text in (question, reference, *facts) for c in text if c.isalpha()}.isdisjoint(scripts)
    if scripts and foreign:
        return 1 if abstains(answer, "grader") else 4
    if abstains(answer, "other_languages") and not content_stems(reference) & token_stems(answer[:1000]):
        return 1
    return None


@functools.lru_cache(maxsize=8192)
def _script(character: str) -> str:
    import unicodedata

    return unicodedata.name(character, "?").split(" ", 1)[0]
