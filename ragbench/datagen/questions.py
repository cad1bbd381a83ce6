"""Questions, references, answers that agree with them, keypoints (RAGEval, section 3.3): by rule, and by a model.

A first answer knows the configuration only: it may state what the document left out, and it does not know what else the
references say. `refine` puts both right.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, Field

from ragbench.datagen.parts import (
    KINDS,
    LANGUAGES,
    MULTI,
    QRA,
    Configuration,
    Derived,
    Done,
    Fact,
    FactSentence,
    GeneratedDocument,
    Reference,
    ask_step,
    field_list,
)
from ragbench.datagen.schema import QuestionPattern, Schema
from ragbench.datagen.wording import choose, derive, fields_of, fill_pattern, mentions, without, worded
from ragbench.errors import check_known
from ragbench.llm.structured import MOST_ITEMS
from ragbench.text.sentences import split_sentences

# Questions per document, near the shares of Table 1; a question of several documents goes with the next document.
PER_DOCUMENT: Mapping[str, int] = dict(zip(KINDS, (3, 2, 2, 3, 1, 1, 1), strict=True))
_MOST_KEYPOINTS = 5
_CLAUSE = {"en": re.compile(r"(?<=;)\s+"), "zh": re.compile(r"(?<=；)")}
_Pair = tuple[Configuration, GeneratedDocument]

# Questions, with first answers


def template_questions(
    schema: Schema,
    configurations: Sequence[Configuration],
    documents: Sequence[GeneratedDocument],
    seed: int = 0,
    per_document: Mapping[str, int] = PER_DOCUMENT,
) -> list[QRA]:
    """Ask questions of all types about each document, with first answers from its configuration, without references.

    ``per_document`` : how many of each type, at most. Types over several documents pair each document with the next
    (and the last with the first); with a single document there are none.
    """
    check_known("type of question", per_document, KINDS)
    pairs = list(zip(configurations, documents, strict=True))
    drafts = []
    for pair, following in zip(pairs, pairs[1:] + pairs[:1], strict=True):
        rng, asked = random.Random(f"questions/{pair[0].id}/{seed}"), []
        for kind, count in per_document.items():
            patterns = list(schema.questions.get(kind, ()))
            rng.shuffle(patterns)
            if kind not in MULTI or len(pairs) > 1:
                # All are drafted, also those beyond the count: each takes its turn in the random stream.
                made = [_draft(schema, kind, pattern, [pair, following], rng) for pattern in patterns]
                asked += [draft for draft in made if draft is not None][:count]
        asked += list(_unanswerable(schema, pair, rng))[: per_document.get("unanswerable", 0)]
        drafts += [replace(q, id=f"{pair[0].id}-q{i:02d}") for i, q in enumerate(asked, 1)]
    return drafts


def _draft(
    schema: Schema, kind: str, pattern: QuestionPattern, pairs: Sequence[_Pair], rng: random.Random
) -> QRA | None:
    """A question from a pattern; None when a document left one of its facts out, or two derived values are equal."""
    used = dict(zip("ab", pairs, strict=True)) if kind in MULTI else {"": pairs[0]}
    doc_ids = tuple(c.id for c, _ in used.values())
    values = {f"{mark}.{name}".lstrip("."): text for mark, (c, _) in used.items() for name, text in c.text.items()}
    if pattern.section:
        facts = next(s for s in schema.sections if s.id == pattern.section).facts
        question = worded(pattern.ask, values, rng)
        return QRA("", kind, schema.language, question, tuple(worded(f.say[0], values) for f in facts), doc_ids)
    dropped = {f"{mark}.{name}".lstrip(".") for mark, (_, d) in used.items() for name in d.dropped}
    needed = set().union(*map(fields_of, pattern.say), *(d.of for d in pattern.derive.values()))
    if needed & dropped:
        return None
    derived = []
    for name, derivation in pattern.derive.items():
        names = tuple(fill_pattern(choose(n), values, sentence=False) for n in derivation.names)
        result = derive(derivation.rule, [values[n] for n in derivation.of], names, schema.language)
        if result is None:
            return None
        values[name] = result
        of = tuple((used[mark][0].id, field) for mark, _, field in (n.rpartition(".") for n in derivation.of))
        derived.append(Derived(result, derivation.rule, of, names))
    question = worded(pattern.ask, values, rng)
    statements = tuple(worded(s, values, rng) for s in pattern.say)
    return QRA("", kind, schema.language, question, statements, doc_ids, derived=tuple(derived))


def _unanswerable(schema: Schema, pair: _Pair, rng: random.Random) -> Iterator[QRA]:
    configuration, document = pair
    for fact in schema.facts:
        if fact.lost and fact.fields and set(fact.fields) <= set(document.dropped):
            what = fill_pattern(fact.lost.what, configuration.text, sentence=False)
            values = {**configuration.text, "what": what}
            question = worded(fact.lost.ask, values, rng)
            statements = tuple(worded(s, values, rng) for s in schema.unanswerable)
            lost = tuple((document.id, name) for name in fact.fields)
            yield QRA("", "unanswerable", schema.language, question, statements, (document.id,), lost=lost)


# What the seven types ask for, in our words (Table 6).
_MEANING = {
    "factual": "It asks for particular details of one document.",
    "multi-hop": "It needs several facts of one document that are linked by a chain of reasoning.",
    "summary": "It asks for a summary of one part of a document; the answer covers all that is relevant.",
    "information integration": "It needs different facts from both documents, put together.",
    "numerical comparison": "It compares a number of one document with the same kind of number of the other.",
    "temporal sequence": "It asks for the order in time of events from both documents.",
    "unanswerable": "It asks for a fact marked as missing. The documents do not state it; the answer says that it "
    "is not stated, that nothing else allows to infer it, and that the question cannot be answered.",
}


class _QuestionReply(BaseModel, title="QuestionReply"):
    """A question and the statements of its answer."""

    question: str = Field(min_length=1)
    statements: list[str] = Field(min_length=3, max_length=5)


def model_questions(
    model: Any,
    schema: Schema,
    configurations: Sequence[Configuration],
    documents: Sequence[GeneratedDocument],
    per_document: Mapping[str, int] = PER_DOCUMENT,
    **options: Any,
) -> Done[QRA]:
    """Let a model ask questions with first answers from configurations; it sees the facts, not the documents.

    Questions of a type are asked one after another, each shown those before. A document without dropped facts gets no
    unanswerable question, a single document none over several; both are listed in ``failed``.
    """
    check_known("type of question", per_document, KINDS)
    pairs = list(zip(configurations, documents, strict=True))
    drafts, failed = [], []
    asked: dict[str, list[str]] = {c.id: [] for c in configurations}

    def settle(draft: QRA, reply: _QuestionReply) -> QRA:
        asked[draft.doc_ids[0]].append(reply.question)
        return replace(draft, question=reply.question, statements=tuple(s.strip() for s in reply.statements))

    for kind, turn in ((kind, turn) for kind, count in per_document.items() for turn in range(1, count + 1)):
        calls = []
        for (c, document), following in zip(pairs, pairs[1:] + pairs[:1], strict=True):
            name = f"{c.id}-{kind.replace(' ', '-')}-{turn}"
            about = [(c, document), following] if kind in MULTI else [(c, document)]
            if kind in MULTI and len(pairs) < 2:
                failed.append((name, "needs a second document"))
            elif kind == "unanswerable" and not document.dropped:
                failed.append((name, "no fact was left out"))
            else:
                shown = {
                    "language": LANGUAGES[schema.language],
                    "kind": kind,
                    "meaning": _MEANING[kind],
                    "facts": "\n\n".join(_facts(schema, pair, kind) for pair in about),
                    "names": "; ".join(configuration.text[n] for configuration, _ in about for n in schema.named),
                    "asked": " | ".join(asked[c.id]) or "none yet",
                }
                lost = tuple((c.id, n) for n in document.dropped) if kind == "unanswerable" else ()
                draft = QRA(name, kind, schema.language, "", (), tuple(c.id for c, _ in about), lost=lost)
                calls.append((name, shown, draft))
        done = ask_step(model, "questions", "rageval_question", calls, _QuestionReply, settle, options)
        drafts += done.made
        failed += done.failed
    return Done(tuple(drafts), tuple(failed))


def _facts(schema: Schema, pair: _Pair, kind: str) -> str:
    configuration, document = pair
    stated = [n for n in schema.fact_fields if n not in document.dropped]
    text = f"{document.title}\n{field_list(configuration, [*schema.context, *stated])}"
    if kind == "unanswerable":
        text += "\nMissing: " + "; ".join(n.replace("_", " ") for n in document.dropped)
    return text


# References


def _facts_in(text: str, configurations: Sequence[Configuration], fields: Sequence[str]) -> list[Fact]:
    """Return the facts a text states: (document id, field) of every configuration whose wording occurs in it.

    The name that one document is about may be a mere fact of another (two people of one name): it does not count.
    """
    stated = [(c, name) for c in configurations for name in fields if mentions(text, c.text[name])]
    if stated and len(configurations) > 1:
        names = " | ".join(c.text[n] for c in configurations for n in c.text if n not in fields)
        stated = [(c, name) for c, name in stated if not mentions(names, c.text[name])]
    return [(c.id, name) for c, name in stated]


def facts_needed(
    question: QRA, text: str, configurations: Sequence[Configuration], fields: Sequence[str]
) -> list[Fact]:
    """Return the facts that a text of an answer rests on: those it states, and those its derived values come from."""
    # A derived amount may happen to equal some other fact.
    plain = without(text, *(d.text for d in question.derived))
    derived = [fact for d in question.derived if mentions(text, d.text) for fact in d.of]
    return list(dict.fromkeys([*_facts_in(plain, configurations, fields), *derived]))


def find_references(question: QRA, facts: Sequence[Fact], documents: Mapping[str, GeneratedDocument]) -> QRA:
    """Add the sentences that state given facts (see `facts_needed`) as references, in the order of the documents."""
    wanted = set(facts)
    stating = [
        Reference(doc_id, s.text)
        for doc_id in question.doc_ids
        for s in documents[doc_id].sentences
        if any((doc_id, name) in wanted for name in s.facts)
    ]
    return replace(question, references=tuple(dict.fromkeys((*question.references, *stating))))


def annotate(sentences: Sequence[str], configuration: Configuration, fields: Sequence[str]) -> tuple[FactSentence, ...]:
    """Mark which facts each sentence states, by their wording."""
    return tuple(FactSentence(s, tuple(name for _, name in _facts_in(s, [configuration], fields))) for s in sentences)


class _ReferencesReply(BaseModel, title="ReferencesReply"):
    """Numbers of sentences, from 1."""

    sentences: list[int] = Field(max_length=MOST_ITEMS)


def model_references(
    model: Any, questions: Sequence[QRA], documents: Mapping[str, GeneratedDocument], **options: Any
) -> Done[QRA]:
    """Let a model choose the references. It names sentences by number, so a reference is always word for word.

    A number that does not exist is a failure. Unanswerable questions pass without being asked.
    """

    def fields(q: QRA) -> dict[str, str]:
        sentences = _numbered(s.text for s in _sentences(q, documents))
        return {"question": q.question, "answer": q.answer, "sentences": sentences}

    def settle(q: QRA, reply: _ReferencesReply) -> QRA | str:
        sentences = _sentences(q, documents)
        if not all(1 <= n <= len(sentences) for n in reply.sentences):
            return f"sentences {reply.sentences}, but there are {len(sentences)}"
        return replace(q, references=tuple(sentences[n - 1] for n in sorted(set(reply.sentences))))

    calls = [(q.id, None if q.kind == "unanswerable" else fields(q), q) for q in questions]
    return ask_step(model, "references", "rageval_references", calls, _ReferencesReply, settle, options)


def _sentences(question: QRA, documents: Mapping[str, GeneratedDocument]) -> list[Reference]:
    return [Reference(i, s.text) for i in question.doc_ids for s in documents[i].sentences]


def _numbered(texts: Iterable[str]) -> str:
    return "\n".join(f"{i}. {text}" for i, text in enumerate(texts, 1))


# Answers and references made to agree


def refine(
    question: QRA,
    schema: Schema,
    configurations: Mapping[str, Configuration],
    documents: Mapping[str, GeneratedDocument],
) -> QRA:
    """Make answer and references say the same, by the paper's rules.

    1. A fact of the answer that no reference states: look it up in the documents. Found: its sentence becomes a
       reference and the answer stays. Not found: the statement is removed from the answer.
    2. A fact of the references that the answer lacks: the answer is supplemented, in the schema's plainest words.

    Configurations and documents are given by id. ``changes`` of the result tells what was done. An unanswerable
    question stays as it is.
    """
    if question.kind == "unanswerable":
        return question
    about = [configurations[i] for i in question.doc_ids]
    references, kept, changes = list(question.references), [], []
    for statement in question.statements:
        added: list[Reference] = []
        for doc_id, name in facts_needed(question, statement, about, schema.fact_fields):
            value = configurations[doc_id].text[name]
            # A value that two documents share may stand in either's sentences.
            if any(mentions(r.text, value) for r in (*references, *added)):
                continue
            stating = next((s.text for s in documents[doc_id].sentences if mentions(s.text, value)), None)
            if stating is None:
                changes.append(f"removed: {statement}")
                break
            added.append(Reference(doc_id, stating))
        else:
            kept.append(statement)
            changes += [f"reference added: {r.text}" for r in added]
            references += added
    answer = " ".join(kept)
    for fact in schema.facts:
        for c in about:
            values = [c.text[name] for name in fact.fields]
            stated = any(r.doc_id == c.id and mentions(r.text, value) for r in references for value in values)
            if stated and not any(mentions(answer, value) for value in values):
                kept.append(worded(fact.say[0], c.text))
                changes.append(f"supplemented: {kept[-1]}")
    ordered = _in_order(references, _sentences(question, documents))
    return replace(question, statements=tuple(kept), references=ordered, changes=(*question.changes, *changes))


def _in_order(references: Sequence[Reference], sentences: Sequence[Reference]) -> tuple[Reference, ...]:
    """Sort references as the documents have them, each once."""
    place = {sentence: number for number, sentence in enumerate(sentences)}
    return tuple(sorted(dict.fromkeys(references), key=lambda r: place.get(r, len(place))))


class _RefineReply(BaseModel, title="RefineReply"):
    """What to mend."""

    class Unsupported(BaseModel):
        """A statement without support, and the sentence that supports it after all (0: none)."""

        statement: int
        sentence: int

    unsupported: list[Unsupported] = Field(max_length=MOST_ITEMS)
    missing: list[str] = Field(max_length=MOST_ITEMS)


def model_refine(
    model: Any, questions: Sequence[QRA], documents: Mapping[str, GeneratedDocument], **options: Any
) -> Done[QRA]:
    """Let a model compare answers with references; what it reports is mended by the paper's rules, see `refine`.

    Unanswerable questions pass without being asked.
    """

    def fields(q: QRA) -> dict[str, str]:
        return {
            "language": LANGUAGES[q.language],
            "question": q.question,
            "statements": _numbered(q.statements),
            "references": "\n".join(f"- {r.text}" for r in q.references) or "none",
            "sentences": _numbered(s.text for s in _sentences(q, documents)),
        }

    def settle(q: QRA, report: _RefineReply) -> QRA | str:
        sentences = _sentences(q, documents)
        references, changes, removed = list(q.references), list(q.changes), set()
        for item in report.unsupported:
            if not (1 <= item.statement <= len(q.statements) and 0 <= item.sentence <= len(sentences)):
                return f"statement {item.statement} or sentence {item.sentence} does not exist"
            if item.sentence:
                references.append(sentences[item.sentence - 1])
                changes.append(f"reference added: {references[-1].text}")
            else:
                removed.add(item.statement)
                changes.append(f"removed: {q.statements[item.statement - 1]}")
        kept = [s for i, s in enumerate(q.statements, 1) if i not in removed]
        added = [s.strip() for s in report.missing if s.strip()]
        changes += [f"supplemented: {s}" for s in added]
        ordered = _in_order(references, sentences)
        return replace(q, statements=(*kept, *added), references=ordered, changes=tuple(changes))

    calls = [(q.id, None if q.kind == "unanswerable" else fields(q), q) for q in questions]
    return ask_step(model, "refine", "rageval_refine", calls, _RefineReply, settle, options)


# Keypoints


def keypoints(answer: str, language: str = "en") -> tuple[str, ...]:
    """Cut an answer into keypoints, by rule: its sentences, or clauses of fewer than three; more than five are joined.

    Source: RAGEval, section 3.3, which has a model do it (`model_keypoints`).
    """
    points = list(split_sentences(answer, language))
    if len(points) < 3:
        points = [part for point in points for part in _CLAUSE[language].split(point)]
    if len(points) <= _MOST_KEYPOINTS:
        return tuple(points)
    size, extra = divmod(len(points), _MOST_KEYPOINTS)
    ends = [i * size + min(i, extra) for i in range(_MOST_KEYPOINTS + 1)]
    blank = " " if language == "en" else ""
    return tuple(blank.join(points[a:b]) for a, b in itertools.pairwise(ends))


class _KeypointsReply(BaseModel, title="KeypointsReply"):
    """Three to five key points."""

    keypoints: list[str] = Field(min_length=3, max_length=5)


def model_keypoints(model: Any, questions: Sequence[QRA], **options: Any) -> Done[QRA]:
    """Let a model cut answers into three to five keypoints; a reply with fewer or more is a failure."""

    def settle(q: QRA, reply: _KeypointsReply) -> QRA:
        return replace(q, keypoints=tuple(reply.keypoints))

    calls = [
        (q.id, {"language": LANGUAGES[q.language], "question": q.question, "answer": q.answer}, q) for q in questions
    ]
    return ask_step(model, "keypoints", "rageval_keypoints", calls, _KeypointsReply, settle, options)
