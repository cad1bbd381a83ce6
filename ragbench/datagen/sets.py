"""The whole way at once: a domain becomes a folder with documents and questions, by rules or with a model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ragbench.data.user import Problem
from ragbench.datagen import questions as steps
from ragbench.datagen.checks import check
from ragbench.datagen.configuration import make_configurations, model_values
from ragbench.datagen.document import left_out, model_documents, write_documents
from ragbench.datagen.parts import QRA, Configuration, Done, GeneratedDocument, json_lines, question_row
from ragbench.datagen.schema import Schema, load_schema
from ragbench.errors import DataError
from ragbench.records import Dataset, Document


@dataclass(frozen=True)
class GeneratedSet:
    """A generated set in memory; configurations and documents pair up."""

    schema: Schema
    configurations: tuple[Configuration, ...]
    documents: tuple[GeneratedDocument, ...]
    questions: tuple[QRA, ...]

    def problems(self) -> list[Problem]:
        """Run the validator, see `ragbench.datagen.checks`."""
        return check(self.configurations, self.documents, self.questions, self.schema.fact_fields)

    def dataset(self) -> Dataset:
        """Return it as the data set that `ragbench.data.load_questions` reads where `write_set` wrote it."""
        about = {"domain": self.schema.domain, "language": self.schema.language}
        texts = [Document(d.id, d.title, d.text, (), {**about, "writer": d.writer}) for d in self.documents]
        questions = []
        for q in self.questions:
            meta = {**about, "doc_ids": q.doc_ids, "reference_doc_ids": [r.doc_id for r in q.references]}
            meta |= {"keypoints": q.keypoints, "reasoning": [asdict(d) for d in q.derived]}
            questions.append(q.record("one document" if len(q.doc_ids) == 1 else "several documents", meta))
        return Dataset("generated", tuple(questions), tuple(texts), meta=about)

    def __repr__(self) -> str:
        name = f"{self.schema.domain}, {self.schema.language}"
        return f"GeneratedSet({name}: {len(self.documents)} documents, {len(self.questions)} questions)"


def make_set(schema: Schema, documents: int, seed: int = 0) -> GeneratedSet:
    """Generate a set in memory, offline; the same for the same schema, number of documents and seed."""
    configurations = make_configurations(schema, documents, seed)
    written = write_documents(schema, configurations, seed)
    drafts = steps.template_questions(schema, configurations, written, seed)
    questions = answer_questions(schema, configurations, written, drafts)
    return GeneratedSet(schema, tuple(configurations), tuple(written), tuple(questions))


def answer_questions(
    schema: Schema,
    configurations: Sequence[Configuration],
    documents: Sequence[GeneratedDocument],
    drafts: Sequence[QRA],
) -> list[QRA]:
    """Take drafts through references, refinement and keypoints."""
    by_id, texts = {c.id: c for c in configurations}, {d.id: d for d in documents}
    questions = []
    for draft in drafts:
        about = [by_id[i] for i in draft.doc_ids]
        answered = draft.kind != "unanswerable"
        facts = steps.facts_needed(draft, draft.answer, about, schema.fact_fields) if answered else []
        question = steps.refine(steps.find_references(draft, facts, texts), schema, by_id, texts)
        questions.append(replace(question, keypoints=steps.keypoints(question.answer, question.language)))
    return questions


def make_model_set(
    model: Any,
    schema: Schema,
    documents: int,
    seed: int = 0,
    per_document: Mapping[str, int] = steps.PER_DOCUMENT,
    **options: Any,
) -> tuple[GeneratedSet, tuple[tuple[str, str], ...]]:
    """Generate a set with a model at every step of the paper; ``options`` are of `ragbench.llm.ask`, e.g. ``cassette``.

    Returned are the set, and what failed on the way as (id, reason). ``problems()`` of the set runs the validator; a
    model's set seldom passes it whole, and `write_set` refuses what does not: take the questions it names out.
    """
    failed: list[tuple[str, str]] = []

    def kept(done: Done) -> tuple:
        failed.extend(done.failed)
        return done.made

    configurations = kept(model_values(model, schema, make_configurations(schema, documents, seed), **options))
    drop = [[name for fact in left_out(schema, c, seed) for name in fact.fields] for c in configurations]
    written = kept(model_documents(model, schema, configurations, drop=drop, **options))
    texts = {d.id: d for d in written}
    used = tuple(c for c in configurations if c.id in texts)
    questions = kept(steps.model_questions(model, schema, used, written, per_document, **options))
    questions = kept(steps.model_references(model, questions, texts, **options))
    questions = kept(steps.model_refine(model, questions, texts, **options))
    questions = kept(steps.model_keypoints(model, questions, **options))
    return GeneratedSet(schema, used, written, questions), tuple(failed)


def generate_set(
    domain: str, language: str = "en", documents: int = 40, seed: int = 0, out: str | Path = "generated"
) -> Path:
    """Generate a data set of a shipped domain ("finance", "law" or "medicine"; "en" or "zh"), see `write_set`.

    Same arguments, same files, bit for bit. Questions over several documents need 2 documents.

    Source: RAGEval, section 3.
    """
    return write_set(make_set(load_schema(domain, language), documents, seed), out, seed=seed)


def write_set(generated: GeneratedSet, out: str | Path, *, seed: int | None = None) -> Path:
    """Write a set to a folder that is new or empty, if it passes the validator, and return the folder.

    Files: ``documents.jsonl`` and ``questions.jsonl``, which ``ragbench.data.load_questions(FOLDER)`` reads;
    ``configurations.jsonl`` with each document's values and dropped facts; ``summary.json`` with counts.
    """
    folder = Path(out).expanduser()
    if folder.is_file() or (folder.exists() and any(folder.iterdir())):
        do = "choose another, or move its files away"
        raise DataError(f"{folder} is not an empty folder", "a folder that is new or empty", do)
    if problems := generated.problems():
        shown = "\n    ".join(map(str, problems[:8]))
        got = f"{len(problems)} problems in the generated set\n    {shown}"
        raise DataError(got, "a set that passes the validator", "mend these")
    folder.mkdir(parents=True, exist_ok=True)
    data, pairs = generated.dataset(), zip(generated.configurations, generated.documents, strict=True)
    documents = [{"id": d.id, "title": d.title, "text": d.text, **d.meta} for d in data.documents]
    values = [{"id": c.id, "subdomain": c.subdomain, "values": dict(c.text), "dropped": d.dropped} for c, d in pairs]
    summary = {
        **data.meta,
        "seed": seed,
        "documents": len(generated.documents),
        "questions": len(generated.questions),
        "types": Counter(sorted(q.kind for q in generated.questions)),
        "subdomains": Counter(sorted(c.subdomain for c in generated.configurations)),
    }
    files = {
        "documents.jsonl": json_lines(documents),
        "questions.jsonl": json_lines(map(question_row, data.questions)),
        "configurations.jsonl": json_lines(values),
        "summary.json": json.dumps(summary, ensure_ascii=False, indent=1) + "\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return folder
