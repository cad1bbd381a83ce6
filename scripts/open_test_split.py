"""Measure the embedded judge on the test split, beside the three baselines tuned on dev.

    python scripts/open_test_split.py

The split was opened with this once, after the features and weights were frozen.
"""

from __future__ import annotations

from ragbench.data.minihop import load_minihop
from ragbench.grading import accuracy_gain, as_answers, baseline_grades, grade, judge_report, load_graded_answers
from ragbench.grading.embedded import EmbeddedGrader


def main() -> None:
    questions = load_minihop().questions
    dev, test = load_graded_answers(split="dev"), load_graded_answers(split="test")
    mine = grade(EmbeddedGrader(), questions, as_answers(test))
    print(judge_report(mine, test))
    for name, other in baseline_grades(questions, dev, test).items():
        print(f"\n{name}: accuracy {judge_report(other, test, name)['test'].accuracy}")
        print(f"  embedded judge minus {name}: {accuracy_gain(mine, other, test)}")


if __name__ == "__main__":
    main()
