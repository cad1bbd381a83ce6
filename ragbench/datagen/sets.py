"""RAGEval's pipeline as a whole: from a few seed documents to a checked set of documents and
questions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ragbench.data.user import save_questions
from ragbench.datagen.documents import make_configurations, summarise_schema, write_documents
from ragbench.datagen.parts import (
    KINDS,
    QRA,
    Configuration,
    GeneratedDocument,
    Rejected,
    Schema,
    Writer,
)
from ragbench.datagen.questions import (
    ask_questions,
    extract_keypoints,
    find_references,
    refine_answers,
)
from ragbench.errors import DataError, ModelError
from ragbench.records import Dataset, Document


@dataclass(frozen=True)
class GeneratedSet:
    """Documents and questions that passed the checks, and what was rejected on the way.

    A configuration and a document with the same id belong together.
    """

    schema: Schema
    configurations: tuple[Configuration, ...]
    documents: tuple[GeneratedDocument, ...]
    questions: tuple[QRA, ...]
    rejected: tuple[Rejected, ...] = ()

    def __repr__(self) -> str:
        counts = (
            f"{len(self.documents)} documents, {len(self.questions)} questions, "
            f"{len(self.rejected)} rejected"
        )
        return f"GeneratedSet({self.schema.domain}: {counts})"

    def rejections(self) -> pd.DataFrame:
        """Return a row for each thing that was rejected: id, step, reason, and what was seen."""
        return pd.DataFrame(self.rejected, columns=list(Rejected._fields))

    def dataset(self) -> Dataset:
        """Return it as the data set that `ragbench.data.load_questions` reads where `write`
        wrote it.
        """
        origin = {"domain": self.schema.domain, "language": "en"}
        documents = [
            Document(document.id, document.title, document.text, (), origin)
            for document in self.documents
        ]
        questions = []
        for question in self.questions:
            level = "one document" if len(question.doc_ids) == 1 else "several documents"
            meta = {
                **origin,
                "doc_ids": question.doc_ids,
                "reference_doc_ids": [reference.doc_id for reference in question.references],
                "keypoints": question.keypoints,
            }
            questions.append(question.as_question(level, meta))
        return Dataset("generated", tuple(questions), tuple(documents), meta=origin)

    def write(self, out: str | Path) -> Path:
        """Write it to a folder that is new or empty, and return the folder.

        Files: ``documents.jsonl`` and ``questions.jsonl``, which `ragbench.data.load_questions`
        reads; ``configurations.jsonl``, each document's values; ``rejected.csv``.
        """
        folder = Path(out).expanduser()
        if folder.is_file() or (folder.exists() and any(folder.iterdir())):
            raise DataError(
                f"{folder} is not an empty folder",
                "a folder that is new or empty",
                "choose another, or move its files away",
            )
        folder.mkdir(parents=True, exist_ok=True)
        data = self.dataset()
        documents = [
            {"id": document.id, "title": document.title, "text": document.text, **document.meta}
            for document in data.documents
        ]
        files = {
            "documents.jsonl": _json_lines(documents),
            "configurations.jsonl": _json_lines(map(asdict, self.configurations)),
            "rejected.csv": self.rejections().to_csv(index=False),
        }
        save_questions(data.questions, folder / "questions.jsonl")
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
        return folder


def generate_set(
    model: Any,
    domain: str,
    seeds: Sequence[str],
    documents: int = 10,
    kinds: Sequence[str] = KINDS,
    **options: Any,
) -> GeneratedSet:
    """Generate documents and questions of a domain with a model, by every step of the paper, and
    check them.

    Calls: 1 for the schema; for each document 1 for its configuration, 1 a section, and 4 for each
    kind of question.

    Parameters
    ----------
    model : a chat model or its name.
    seeds : two or three short documents of the domain, as texts.
    kinds : of `KINDS`; one question of each about each document.
    options : for `ragbench.llm.ask`; with a ``cassette`` a run that was broken off goes on.

    Source: RAGEval, section 3. The checks are ours; people remove poor questions in the paper
    (3.4).
    """
    writer = Writer(model, **options)
    schema = summarise_schema(writer, domain, seeds)
    if schema is None:
        reasons = "; ".join(f"{one.reason} {one.detail}" for one in writer.rejected)
        raise ModelError(
            f"no usable schema ({reasons})",
            "a schema with six fields or more",
            "take a larger model",
        )
    configurations = make_configurations(writer, schema, documents, seeds)
    written = write_documents(writer, schema, configurations)
    by_id = {document.id: document for document in written}
    questions = ask_questions(writer, written, kinds)
    questions = find_references(writer, questions, by_id)
    questions = refine_answers(writer, questions, by_id)
    questions = extract_keypoints(writer, questions)
    return GeneratedSet(
        schema, tuple(configurations), tuple(written), tuple(questions), tuple(writer.rejected)
    )


def _json_lines(rows: Iterable[Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
