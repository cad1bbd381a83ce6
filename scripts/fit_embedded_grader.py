"""Fit the embedded grader on the dev split of the graded answers and write its weights with a provenance card.

    python scripts/fit_embedded_grader.py

The test split is not read for anything but its absence from the fit: ``load_graded_answers(split="dev")``.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np
from sklearn.linear_model import LogisticRegression

from ragbench.data import load_minihop
from ragbench.errors import DataError
from ragbench.labelling.embedded_grader import FEATURES, MODEL_FILE, evidence, odds_of
from ragbench.labelling.graded_answers import load_graded_answers
from ragbench.paths import packaged_data
from ragbench.records import GRADES, facts_of, questions_of

FOLDS, REPEATS = 10, 5
RIDGE = 0.1  # inverse strength C of the L2 penalty, chosen on the dev split by cross-validation over questions


def fit_embedded_grader(questions, answers, *, ridge=RIDGE):
    """Fit the embedded grader's weights: ``features``, ``weights`` (5, n), ``offsets`` (5,) for raw features.

    ``answers`` are GradedAnswer records of the split that may be used for tuning; ``ridge`` is the inverse strength of
    the L2 penalty on standardised features.
    """
    if {answer.grade for answer in answers} != set(GRADES):
        raise DataError("answers that lack a grade", "at least one answer of each grade from 1 to 5", "add some")
    pairs = zip(answers, questions_of(answers, questions), strict=True)
    x = np.array([evidence(q.text, answer.text, q.answer, facts_of(q)) for answer, q in pairs])
    centre, spread = x.mean(0), x.std(0)
    spread[spread == 0] = 1.0
    model = LogisticRegression(C=ridge, max_iter=5000).fit((x - centre) / spread, [answer.grade for answer in answers])
    weights = model.coef_ / spread
    return {"features": list(FEATURES), "weights": weights, "offsets": model.intercept_ - weights @ centre}


def cross_validated(questions, answers, ridge):
    """Return the accuracies of repeated cross-validation with whole questions left out."""
    known = {question.id: question for question in questions}
    asked = [known[a.question_id] for a in answers]
    rows = [evidence(q.text, a.text, q.answer, facts_of(q)) for q, a in zip(asked, answers, strict=True)]
    x, truth = np.array(rows), np.array([a.grade for a in answers])
    ids = sorted({a.question_id for a in answers})
    result = []
    for repeat in range(REPEATS):
        places = dict(zip(ids, np.random.default_rng(repeat).permutation(len(ids)) % FOLDS, strict=True))
        fold = np.array([places[a.question_id] for a in answers])
        right = 0
        for left_out in range(FOLDS):
            seen = [a for a, f in zip(answers, fold, strict=True) if f != left_out]
            model = fit_embedded_grader(questions, seen, ridge=ridge)
            odds = np.array([odds_of(row, model["weights"], model["offsets"]) for row in x[fold == left_out]])
            right += int((odds.argmax(1) + 1 == truth[fold == left_out]).sum())
        result.append(right / len(answers))
    return result


def main() -> None:
    questions, answers = load_minihop().questions, load_graded_answers(split="dev")
    scores = {ridge: cross_validated(questions, answers, ridge) for ridge in (0.05, RIDGE, 0.2, 0.5, 1.0)}
    for ridge, each in scores.items():
        print(f"C = {ridge:<5} accuracy {np.mean(each):.3f} +- {np.std(each):.3f}")
    model = fit_embedded_grader(questions, answers)
    card = {
        "what": "multinomial logistic regression, L2, on standardised features; weights are for raw features",
        "made_by": "scripts/fit_embedded_grader.py",
        "fitted_on": f"{len(answers)} answers to {len({a.question_id for a in answers})} questions, split dev",
        "data_sha256": {
            name: hashlib.sha256(packaged_data("minihop", name).read_bytes()).hexdigest()
            for name in ("questions.jsonl", "graded_answers.jsonl")
        },
        "ridge_C": RIDGE,
        "dev_accuracy_cross_validated": round(float(np.mean(scores[RIDGE])), 3),
        "labels": "reference labels, assigned by a strong language model under a written guideline; "
        "checked by a person: 0",
        "note": "features and ridge were chosen on the dev split of that time, so this accuracy is optimistic; "
        "the split was redrawn by documents on 2026-11-22, after test results of the old one had been read",
    }
    fitted = {
        "card": card,
        "features": model["features"],
        "weights": np.round(model["weights"], 4).tolist(),
        "offsets": np.round(model["offsets"], 4).tolist(),
    }
    MODEL_FILE.write_text(json.dumps(fitted, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {MODEL_FILE.name}")


if __name__ == "__main__":
    main()
