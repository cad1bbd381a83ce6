"""Does the model in the box obey? 50 items of each labelling step: read at once, repaired, cut,
unreadable.

    python benchmarks/bench_obedience.py                       # half an hour on two idle cores
    python benchmarks/bench_obedience.py ollama:llama3:8b      # any other model

A reply is asked for under a JSON schema; one that does not fit gets one repair try. A label that
ended at the limit of new tokens is a failure. What the labels say is not looked at here:
`ragbench.measure_judge` does that for checkers and graders. All texts are MiniHop's.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from typing import Any

import ragbench as rb
from ragbench.data import load_minihop
from ragbench.labelling.asking import StepReport
from ragbench.labelling.claims import check_claims, extract_claims, load_labelled_claims
from ragbench.labelling.graded_answers import as_answers, load_graded_answers
from ragbench.labelling.grades import grade
from ragbench.labelling.keypoints import keypoint_verdicts
from ragbench.labelling.preferences import gpt_ranking, gpt_score
from ragbench.labelling.statements import (
    extract_sentences,
    extract_statements,
    generate_questions,
    statement_verdicts,
)
from ragbench.llm import chat_model

ITEMS = 50
TOKENS = 256


def steps(items: int) -> dict[str, Callable[[Any], StepReport]]:
    """Return the labelling steps of the four papers on so many items."""
    minihop = load_minihop()
    known = {question.id: question for question in minihop.questions}
    graded = load_graded_answers()[:items]
    questions = [known[answer.question_id].text for answer in graded]
    answers = [answer.text for answer in graded]
    truths = [f"{known[answer.question_id].answer}." for answer in graded]
    contexts = [" ".join(known[answer.question_id].references) for answer in graded]
    claims = list(load_labelled_claims()[:items].itertuples())
    return {
        "grade 1 to 5 (thesis)": lambda model: of_grades(
            grade(model, minihop.questions, as_answers(graded), progress=False)
        ),
        "claims of an answer (RAGChecker)": lambda model: (
            extract_claims(model, answers, progress=False).report
        ),
        "one claim against a text (RAGChecker)": lambda model: (
            check_claims(
                model, [[one.claim] for one in claims], [one.text for one in claims], progress=False
            ).report
        ),
        "statements of an answer (RAGAS)": lambda model: (
            extract_statements(model, questions, answers, progress=False).report
        ),
        "one statement, with a reason (RAGAS)": lambda model: (
            statement_verdicts(
                model, [(answer,) for answer in answers], contexts, progress=False
            ).report
        ),
        "three questions (RAGAS)": lambda model: (
            generate_questions(model, answers, 3, progress=False).report
        ),
        "sentences that are needed (RAGAS)": lambda model: (
            extract_sentences(model, questions, contexts, progress=False).report
        ),
        "score 0 to 10 (RAGAS's baseline)": lambda model: (
            gpt_score(model, "answer_relevance", questions, answers, progress=False).report
        ),
        "better of two, both orders (RAGAS's baseline)": lambda model: (
            gpt_ranking(
                model, "answer_relevance", questions[::2], answers[::2], truths[::2], progress=False
            ).report
        ),
        "one keypoint (RAGEval)": lambda model: (
            keypoint_verdicts(
                model, questions, answers, [(truth,) for truth in truths], progress=False
            ).report
        ),
    }


def of_grades(grades: list[rb.Grade]) -> StepReport:
    """Count grades as the other steps count their replies."""
    failed = tuple(grade for grade in grades if grade.value is None)
    repaired = sum(grade.meta["repairs"] for grade in grades if grade.value is not None)
    return StepReport("grade", prompts=len(grades), repaired=repaired, failures=failed)


def kind_of(failure: Any) -> str:
    """Return why a reply could not be used."""
    return failure.meta["error"] if isinstance(failure, rb.Grade) else failure.kind


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--items", type=int, default=ITEMS)
    given = parser.parse_args()
    # two servers of one thread each
    hosts = [{"host": "1"}, {"host": "2"}] if given.model == "smollm2" else [{}]
    model = [chat_model(given.model, num_ctx=2048, num_predict=TOKENS, **host) for host in hosts]
    print(
        "| step | prompts | read at once | repaired | cut | unreadable |\n|---|---|---|---|---|---|"
    )
    for name, step in steps(given.items).items():
        report = step(model)
        failed = Counter(map(kind_of, report.failures))
        cut = failed.pop("truncated", 0)
        read = report.prompts - report.repaired - cut - failed.total()
        row = (name, report.prompts, read, report.repaired, cut, failed.total())
        print("|", " | ".join(map(str, row)), "|", flush=True)


if __name__ == "__main__":
    main()
