"""Answers of functions and objects, kept while a run is not whole, as replies of models are."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragbench.llm import Cassette
from ragbench.llm.cassette import Keys
from ragbench.records import Answer, Question

KEPT = "answers.sqlite"


class KeptAnswers:
    """The answers of a run's functions and objects, in ``answers.sqlite`` beside the rows.

    An answer is found again by the generator's label and source, question and context, until the
    run is whole: then `close` drops it. A generator with a text ``key`` (``answer.key = "v2"``)
    keeps its answers for good; give it another key when anything behind it changes.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / KEPT
        self._resumed = self.path.exists()
        self._cassette: Cassette | None = None
        self._keys: dict[str, Keys | None] = {}  # by label
        self._lasting: set[str] = set()  # labels of generators with a key

    def get(
        self, label: str, generator: Any, jobs: Sequence[tuple[Question, str | None]]
    ) -> list[Answer | None]:
        """Return the answers to pairs of question and context that were kept, None for others."""
        keys = self._keys_of(label, generator)
        if keys is None or not self._resumed:
            return [None] * len(jobs)
        names = [keys.key(_messages(*job)) for job in jobs]
        kept = self._open().get(names)
        if kept and label not in self._lasting:
            what = f"{len(kept)} answers of {label!r} are kept from the run that was stopped"
            do = f"to have them made anew, delete {self.path}"
            warnings.warn(f"{what}; {do}", stacklevel=2)
        answers = []
        for (question, _), name in zip(jobs, names, strict=True):
            answers.append(_as_answer(question, generator, kept.get(name)))
        return answers

    def put(
        self,
        label: str,
        generator: Any,
        question: Question,
        context: str | None,
        answer: Answer,
    ) -> None:
        """Keep an answer; a failure is asked again."""
        keys = self._keys_of(label, generator)
        if keys is None or answer.meta.get("error"):
            return
        messages = _messages(question, context)
        kept = {"ok": True, "text": answer.text, "seconds": answer.seconds}
        request = keys.request(messages)
        self._open().put(
            keys.key(messages), request, kept, step="generation", prompt_id=question.id
        )

    def close(self, *, whole: bool) -> None:
        """Close the file, and drop it once the run is whole, unless a generator has a key."""
        if self._cassette is not None:
            self._cassette.close()
        if whole and not self._lasting:
            self.path.unlink(missing_ok=True)

    def _open(self) -> Cassette:
        if self._cassette is None:
            self._cassette = Cassette(self.path)
        return self._cassette

    def _keys_of(self, label: str, generator: Any) -> Keys | None:
        if label not in self._keys:
            version = getattr(generator, "key", "")
            if version:
                self._lasting.add(label)
            else:
                version = _version(generator)
            self._keys[label] = Keys("function", label, version, {}) if version else None
        return self._keys[label]


def _as_answer(question: Question, generator: Any, kept: Mapping | None) -> Answer | None:
    if kept is None:
        return None
    seconds = math.nan if kept["seconds"] is None else kept["seconds"]
    return Answer(question.id, kept["text"], generator.name, seconds)


def _messages(question: Question, context: str | None) -> list[dict[str, Any]]:
    return [{"question": question.text, "context": context}]


def _version(generator: Any) -> str:
    """Return a digest of the source and the plain settings; "" where there is no source."""
    function = generator.answer
    owner = function if inspect.isfunction(function) else type(generator)
    try:
        source = inspect.getsource(owner)
    except (OSError, TypeError):
        return ""
    state = {} if owner is function else vars(generator)
    text = source + json.dumps(state, sort_keys=True, default=lambda value: type(value).__name__)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
