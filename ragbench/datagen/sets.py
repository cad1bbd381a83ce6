"""The whole way at once: a domain becomes a checked folder of documents and questions, by rules or with a model."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ragbench.data.user import Problem
from ragbench.datagen import questions as steps
from ragbench.datagen.configuration import make_configurations, model_values, real_names
from ragbench.datagen.document import left_out, model_documents, write_documents
from ragbench.datagen.parts import QRA, Configuration, Done, GeneratedDocument, json_lines, question_row
from ragbench.datagen.schema import Schema, load_schema
from ragbench.datagen.wording import NUMBER, derive, mentions, without
from ragbench.errors import DataError
from ragbench.records import Dataset, Document

# A capital inside an English sentence; a family name with 某 as our Chinese records write people.
_NAME = {"en": re.compile(r"(?<=[a-z,;:] )[A-Z][a-z]+"), "zh": re.compile(r"[\u4e00-\u9fff]某[某甲乙丙丁]")}
# Words that carry meaning; in Chinese, characters.
_WORD = re.compile(r"[a-z]{4,}|[\u4e00-\u9fff]")
_SHARED = 0.5


@dataclass(frozen=True)
class GeneratedSet:
    """A generated set in memory; configurations and documents pair up."""

    schema: Schema
    configurations: tuple[Configuration, ...]
    documents: tuple[GeneratedDocument, ...]
    questions: tuple[QRA, ...]

    def problems(self) -> list[Problem]:
        """Run the validator, which checks from texts alone what a set promises.

        There are none when a document states every fact that is not listed as dropped, and no other; nothing names
        somebody real; references are copies; each fact, number and name of an answer is in its references or the
        question, or is derived from values that are; a statement about one of two documents states no fact of the other
        alone, and one without a fact shares half of its words with references and question; what an unanswerable
        question asks for is in none of its documents; each question has 3 to 5 keypoints. That two values of a document
        changed places is not seen.
        """
        by_id, texts = {c.id: c for c in self.configurations}, {d.id: d for d in self.documents}
        fields, found = self.schema.fact_fields, []
        for d in self.documents:
            known = d.id in by_id
            faults = _document(d, by_id[d.id], fields) if known else ["a document without its configuration"]
            found += [(d.id, what) for what in faults]
        for q in self.questions:
            missing = [i for i in q.doc_ids if i not in texts or i not in by_id]
            absent = [f"asks about {i!r}, which is not in the set" for i in missing[:1]]
            found += [(q.id, what) for what in absent or _question(q, by_id, texts, fields)]
        return [Problem(name, what, "mend it, or generate it again with another seed") for name, what in found]

    def dataset(self) -> Dataset:
        """Return it as the data set that `ragbench.data.load_questions` reads where `write_set` wrote it."""
        about = {"domain": self.schema.domain, "language": self.schema.language}
        texts = [Document(d.id, d.title, d.text, (), {**about, "writer": d.writer}) for d in self.documents]
        questions = []
        for q in self.questions:
            meta = {**about, "doc_ids": q.doc_ids, "reference_doc_ids": [r.doc_id for r in q.references]}
            meta |= {"keypoints": q.keypoints, "reasoning": [asdict(d) for d in q.derived]}
            questions.append(q.as_question("one document" if len(q.doc_ids) == 1 else "several documents", meta))
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


# The validator


def _document(document: GeneratedDocument, configuration: Configuration, fields: Sequence[str]) -> Iterator[str]:
    for name in fields:
        value = configuration.text[name]
        stated, dropped = mentions(document.text, value), name in document.dropped
        if stated and dropped:
            yield f"{name} is listed as dropped, but the document states {value!r}"
        if not stated and not dropped:
            yield f"{name} = {value!r} is neither in the document nor listed as dropped"
    yield from (f"names {name!r}, which is real" for name in real_names(document.text))


def _question(
    q: QRA,
    configurations: Mapping[str, Configuration],
    documents: Mapping[str, GeneratedDocument],
    fields: Sequence[str],
) -> Iterator[str]:
    yield from (f"names {name!r}, which is real" for name in real_names(f"{q.question} {q.answer}"))
    for reference in q.references:
        if reference.doc_id not in q.doc_ids:
            yield f"a reference to {reference.doc_id!r}, which is not among its documents"
        elif reference.text not in documents[reference.doc_id].text:
            yield f"the reference {reference.text[:60]!r} is not in document {reference.doc_id}"
    if not 3 <= len(q.keypoints) <= 5:
        yield f"{len(q.keypoints)} keypoints, not 3 to 5"
    if q.kind == "unanswerable":
        if q.references:
            yield "an unanswerable question with references"
        for doc_id, name in q.lost:
            if mentions(documents[doc_id].text, configurations[doc_id].text[name]):
                yield f"an unanswerable question, but document {doc_id} states {name}"
    elif not q.references or not q.statements:
        yield "no reference or no answer"
    else:
        facts = {(d, name): configurations[d].text[name] for d in q.doc_ids for name in fields}
        context = {d: [text for n, text in configurations[d].text.items() if n not in fields] for d in q.doc_ids}
        stated = {d: " ".join(r.text for r in q.references if r.doc_id == d) for d in q.doc_ids}
        yield from _derived(q, configurations, stated)
        yield from _answer(q, facts, context, stated)
        yield from _statements(q, facts, context, documents)


def _derived(q: QRA, configurations: Mapping[str, Configuration], stated: Mapping[str, str]) -> Iterator[str]:
    for d in q.derived:
        values = [configurations[doc_id].text[name] for doc_id, name in d.of]
        for (doc_id, name), value in zip(d.of, values, strict=True):
            if mentions(q.answer, d.text) and not mentions(stated.get(doc_id, ""), value):
                yield f"{d.text!r} is derived from {name} of {doc_id}, which no reference states"
        if derive(d.rule, values, d.names, q.language) != d.text:
            yield f"{d.text!r} is not the {d.rule} of {', '.join(values)}"


def _answer(
    q: QRA, facts: Mapping[tuple[str, str], str], context: Mapping[str, Sequence[str]], stated: Mapping[str, str]
) -> Iterator[str]:
    """What the answer says that neither references nor question do."""
    given = " ".join((*stated.values(), q.question, *(d.text for d in q.derived)))
    for (_, name), value in facts.items():
        if mentions(q.answer, value) and not mentions(given, value):
            yield f"the answer states {name} = {value!r}, which no reference does"
    allowed = " ".join((given, *(text for texts in context.values() for text in texts)))
    known = set(NUMBER.findall(allowed))
    for number in NUMBER.findall(q.answer):
        if number not in known:
            yield f"the number {number} of the answer is in no reference"
    for name in _NAME[q.language].findall(q.answer):
        if name not in allowed:
            yield f"the name {name!r} of the answer is in no reference"


def _statements(
    q: QRA,
    facts: Mapping[tuple[str, str], str],
    context: Mapping[str, Sequence[str]],
    documents: Mapping[str, GeneratedDocument],
) -> Iterator[str]:
    """What is wrong with single statements: facts of the other document, and nothing of the references."""
    names = {}  # what a document is called: context in its title that no other document of the question has
    for d in q.doc_ids:
        others = " ".join(documents[i].text for i in q.doc_ids if i != d)
        names[d] = [text for text in context[d] if mentions(documents[d].title, text) and not mentions(others, text)]
    known_words = set(_WORD.findall(" ".join((q.question, *(r.text for r in q.references))).lower()))
    for statement in q.statements:
        plain = without(statement, *(d.text for d in q.derived))
        said = [(name, value) for (_, name), value in facts.items() if mentions(plain, value)]
        about = [d for d, called in names.items() if any(mentions(statement, name) for name in called)]
        if 0 < len(about) < len(q.doc_ids):
            known = " ".join((*(r.text for r in q.references if r.doc_id in about), q.question))
            for name, value in said:
                if not mentions(known, value):
                    yield f"{statement[:60]!r} is about {', '.join(about)}, whose references do not state {name}"
        words = set(_WORD.findall(statement.lower()))
        if not said and plain == statement and len(words & known_words) < _SHARED * len(words):
            yield f"{statement[:60]!r} has no fact of the references, and few of their words"
