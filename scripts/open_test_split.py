"""Measure the embedded grader on the test split, beside the baselines tuned on dev.

    python scripts/open_test_split.py

The split of 2026-11-22 (by documents) is not unseen: see the MiniHop README. Do not tune on what this prints.
"""

from __future__ import annotations

from ragbench.data import load_minihop
from ragbench.labelling.embedded_grader import EmbeddedGrader
from ragbench.labelling.graded_answers import (
    accuracy_gain,
    as_answers,
    baseline_grades,
    judge_report,
    load_graded_answers,
)
from ragbench.labelling.grades import grade


def main() -> None:
    questions = load_minihop().questions
    dev, test = load_graded_answers(split="dev"), load_graded_answers(split="test")
    mine = grade(EmbeddedGrader(), questions, as_answers(test))
    print(judge_report(mine, test))
    for name, other in baseline_grades(questions, dev, test).items():
        print(f"\n{name}: accuracy {judge_report(other, test, name)['test'].accuracy}")
        print(f"  embedded grader minus {name}: {accuracy_gain(mine, other, test)}")


if __name__ == "__main__":
    main()
