"""Answers of functions and objects, kept while a run is not whole, as replies of models are."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import inspect
import json
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from ragbench.experiment.rows import no_room, open_file
from ragbench.generation import generate
from ragbench.records import Answer, Question

_TASK = 10  # answers that another process is asked for at once
_FULL_DISK = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


class KeptAnswers:
    """The answers of a run's functions and objects, in ``answers.jsonl`` beside the rows.

    An answer is found again by the generator's label and source, question and context, until the
    run is whole: then `close` drops it.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "answers.jsonl"
        self._kept: dict[str, Answer] = {}
        lines = []
        if self.path.exists():
            with open_file(self.path) as file:
                lines = file.read().splitlines()
        for line in lines:
            # one that a killed run did not finish
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                name, *answer = json.loads(line)
                self._kept[name] = Answer(*answer)

    def ask(
        self,
        label: str,
        generator: Any,
        questions: Sequence[Question],
        contexts: Sequence[str | None],
        pool: Executor,
    ) -> list[Answer]:
        """Return an answer to each question and context: those kept, and the others made now."""
        version = _version(generator)
        jobs = {}
        names = []  # of the answers, in the order of the questions
        for question, context in zip(questions, contexts, strict=True):
            name = _digest(label, version, question.text, context)
            names.append(name)
            jobs[name] = (question, context)
        answers = self._known(label, jobs)
        missing = {name: job for name, job in jobs.items() if name not in answers}
        work = functools.partial(_answer, generator)
        new_answers = pool.map(work, missing.values(), chunksize=_TASK)
        for name, answer in zip(missing, new_answers, strict=True):
            answers[name] = answer
            if version and "error" not in answer.meta:  # a failure is asked again
                self._write(name, answer)
        return [answers[name] for name in names]

    def _known(self, label: str, names: Iterable[str]) -> dict[str, Answer]:
        answers = {name: self._kept[name] for name in names if name in self._kept}
        if answers:
            what = f"{len(answers)} answers of {label!r} are kept from a run that was stopped"
            warnings.warn(f"{what}; to have them made anew, delete {self.path}", stacklevel=3)
        return answers

    def _write(self, name: str, answer: Answer) -> None:
        record = [name, answer.question_id, answer.text, answer.generator, answer.seconds]
        try:
            with self.path.open("a") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise no_room(self.path, error.strerror) from None

    def close(self, *, whole: bool) -> None:
        """Drop the answers once the run is whole."""
        if whole:
            self.path.unlink(missing_ok=True)


def end_on_full_disk(error: BaseException) -> None:
    """Raise DataError for a full disk, which is no question's fault and ends the run."""
    if isinstance(error, OSError) and error.errno in _FULL_DISK:
        raise no_room(error.filename or "a file", error.strerror) from None


def _answer(generator: Any, job: tuple[Question, str | None]) -> Answer:
    """Ask an object: a task of an executor. A failure is an answer that says so."""
    question, context = job
    try:
        (answer,) = generate(generator, [question], [context])
    except Exception as error:
        end_on_full_disk(error)
        failed = {"error": f"{type(error).__name__}: {error}"}
        return Answer(question.id, "", generator.name, meta=failed)
    return answer


def _digest(*parts: str | None) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _version(generator: Any) -> str:
    """Return the source and the plain settings; "" where there is no source."""
    function = generator.answer
    owner = function if inspect.isfunction(function) else type(generator)
    try:
        source = inspect.getsource(owner)
    except (OSError, TypeError):
        return ""
    settings = {}
    if owner is not function:
        settings = vars(generator)
    return source + json.dumps(settings, sort_keys=True, default=lambda value: type(value).__name__)
