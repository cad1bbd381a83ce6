"""Questions with first answers from configurations, and the references to them from documents (RAGEval, section 3.3).

A first answer knows the configuration only: it may state what the document left out, and it does not know what else the
references say. Both are put right by `ragbench.datagen.answers`. First the rules, then the model's way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from ragbench.datagen.wording import choose, derive, fields_of, fill_pattern, mentions, without
from ragbench.errors import DataError, check_known
from ragbench.llm import Cassette
from ragbench.llm.structured import MOST_ITEMS
from ragbench.prompts import Prompt, fill_prompt, load_prompt

# Questions per document, near the shares of Table 1; a question of several documents goes with the next document.
PER_DOCUMENT = {
    "factual": 3,
    "multi-hop": 2,
    "summary": 2,
    "information integration": 3,
    "numerical comparison": 1,
    "temporal sequence": 1,
    "unanswerable": 1,
}


def draft_questions(
    schema: Schema,
    configurations: Sequence[Configuration],
    documents: Sequence[GeneratedDocument],
    seed: int = 0,
    per_document: Mapping[str, int] = PER_DOCUMENT,
) -> list[QRA]:
    """Ask questions of all types about each document, with first answers from its configuration.

    Parameters
    ----------
    schema, configurations, documents : of one set; configurations and documents pair up.
    seed : chooses among the schema's questions and their wordings.
    per_document : how many of each type, at most: a schema has so many patterns. Types over several documents pair each
        document with the next (and the last with the first); with a single document there are none.

    Returns
    -------
    list of QRA without references or keypoints.

    Raises
    ------
    DataError when configurations and documents do not pair up; ConfigError for an unknown type.
    """
    if [c.id for c in configurations] != [d.id for d in documents]:
        raise DataError(
            f"{len(configurations)} configurations and {len(documents)} documents with different ids",
            "one document per configuration, in the same order",
            "write the documents from these configurations",
        )
    check_known("type of question", per_document, KINDS)
    drafts = []
    for number, configuration in enumerate(configurations):
        rng = random.Random(f"questions/{configuration.id}/{seed}")
        after = (number + 1) % len(configurations)
        pair = [(configuration, documents[number])]
        if after != number:
            pair.append((configurations[after], documents[after]))
        asked = [*_asked(schema, pair, rng, per_document), *_unanswerable(schema, pair[0], rng, per_document)]
        drafts += [replace(q, id=f"{configuration.id}-q{i + 1:02d}") for i, q in enumerate(asked)]
    return drafts


def find_references(question: QRA, facts: Sequence[Fact], documents: Mapping[str, GeneratedDocument]) -> QRA:
    """Add the sentences that state given facts (see `facts_needed`) as references, in the order of the documents."""
    wanted = {(d, name) for d, name in facts}
    stating = [
        Reference(doc_id, s.text)
        for doc_id in question.doc_ids
        for s in documents[doc_id].sentences
        if any((doc_id, name) in wanted for name in s.facts)
    ]
    return replace(question, references=tuple(dict.fromkeys((*question.references, *stating))))


def facts_in(text: str, configurations: Sequence[Configuration], fields: Sequence[str]) -> list[Fact]:
    """Return the facts a text states: (document id, field) of every configuration whose wording occurs in it.

    The name that one document is about may be a mere fact of another (two people of one name): it does not count.
    """
    stated = [(c.id, name) for c in configurations for name in fields if mentions(text, c.text[name])]
    if not stated or len(configurations) < 2:
        return stated
    by_id = {c.id: c for c in configurations}
    names = " | ".join(c.text[n] for c in configurations for n in c.text if n not in fields)
    return [(i, name) for i, name in stated if not mentions(names, by_id[i].text[name])]


def facts_needed(
    question: QRA, text: str, configurations: Sequence[Configuration], fields: Sequence[str]
) -> list[Fact]:
    """Return the facts that a text of an answer rests on: those it states, and those its derived values come from."""
    plain = text
    for d in question.derived:
        # A derived amount may happen to equal some other fact.
        plain = without(plain, d.text)
    derived = [fact for d in question.derived if mentions(text, d.text) for fact in d.of]
    return list(dict.fromkeys([*facts_in(plain, configurations, fields), *derived]))


def annotate(sentences: Sequence[str], configuration: Configuration, fields: Sequence[str]) -> tuple[FactSentence, ...]:
    """Mark which facts each sentence states, by their wording; for documents that a model or a person wrote."""
    return tuple(FactSentence(s, tuple(name for _, name in facts_in(s, [configuration], fields))) for s in sentences)


def plain_statement(schema: Schema, fact_id: str, configuration: Configuration) -> str:
    """State one fact in the schema's plainest words: its first pattern with the first alternatives."""
    pattern = next(f for f in schema.facts if f.id == fact_id).say[0]
    return fill_pattern(choose(pattern)[0], configuration.text)


def _asked(
    schema: Schema,
    pair: Sequence[tuple[Configuration, GeneratedDocument]],
    rng: random.Random,
    per_document: Mapping[str, int],
) -> Iterator[QRA]:
    for kind, count in per_document.items():
        patterns = [q for q in schema.questions if q.kind == kind]
        rng.shuffle(patterns)
        many = kind in MULTI
        if many and len(pair) < 2:
            continue
        asked = 0
        for pattern in patterns:
            draft = _summary(schema, pattern, pair[0], rng) if pattern.section else _draft(pattern, pair, many, rng)
            if draft is not None and asked < count:
                asked += 1
                yield draft


def _draft(
    pattern: QuestionPattern, pair: Sequence[tuple[Configuration, GeneratedDocument]], many: bool, rng: random.Random
) -> QRA | None:
    """A question from a pattern; None when a document left one of its facts out, or two derived values are equal."""
    used = dict(zip("ab", pair, strict=False)) if many else {"": pair[0]}
    values = {
        f"{mark}.{name}".lstrip("."): wording for mark, (c, _) in used.items() for name, wording in c.text.items()
    }
    dropped = {f"{mark}.{name}".lstrip(".") for mark, (_, d) in used.items() for name in d.dropped}
    needed = set().union(*map(fields_of, pattern.say), *(rule["of"] for rule in pattern.derive.values()))
    if needed & dropped:
        return None
    language = pair[0][0].language
    derived = []
    for name, rule in pattern.derive.items():
        names = tuple(fill_pattern(choose(n)[0], values, sentence=False) for n in rule.get("names", ()))
        result = derive(rule["rule"], [values[n] for n in rule["of"]], names, language)
        if result is None:
            return None
        values[name] = result
        of = tuple((used[n.rpartition(".")[0]][0].id, n.rpartition(".")[2]) for n in rule["of"])
        derived.append(Derived(result, rule["rule"], of, names))
    question = fill_pattern(choose(rng.choice(pattern.ask), rng)[0], values)
    statements = tuple(fill_pattern(choose(s, rng)[0], values) for s in pattern.say)
    return QRA(
        "", pattern.kind, language, question, statements, tuple(c.id for c, _ in used.values()), derived=tuple(derived)
    )


def _summary(
    schema: Schema, pattern: QuestionPattern, about: tuple[Configuration, GeneratedDocument], rng: random.Random
) -> QRA:
    configuration = about[0]
    facts = next(s for s in schema.sections if s.id == pattern.section).facts
    question = fill_pattern(choose(rng.choice(pattern.ask), rng)[0], configuration.text)
    statements = tuple(plain_statement(schema, fact.id, configuration) for fact in facts)
    return QRA("", "summary", schema.language, question, statements, (configuration.id,))


def _unanswerable(
    schema: Schema,
    about: tuple[Configuration, GeneratedDocument],
    rng: random.Random,
    per_document: Mapping[str, int],
) -> Iterator[QRA]:
    configuration, document = about
    lost = [f for f in schema.facts if f.lost and f.fields and set(f.fields) <= set(document.dropped)]
    for fact in lost[: per_document.get("unanswerable", 0)]:
        what, ask = fact.lost
        values = {**configuration.text, "what": fill_pattern(what, configuration.text, sentence=False)}
        yield QRA(
            "",
            "unanswerable",
            schema.language,
            fill_pattern(choose(ask, rng)[0], values),
            tuple(fill_pattern(choose(s, rng)[0], values) for s in schema.unanswerable),
            (configuration.id,),
            lost=tuple((configuration.id, name) for name in fact.fields),
        )


# -- by a model --------------------------------------------------------------------------------------------------------

# What the seven types ask for, in our words (Table 6).
MEANING = {
    "factual": "It asks for particular details of one document.",
    "multi-hop": "It needs several facts of one document that are linked by a chain of reasoning.",
    "summary": "It asks for a summary of one part of a document; the answer covers all that is relevant.",
    "information integration": "It needs different facts from both documents, put together.",
    "numerical comparison": "It compares a number of one document with the same kind of number of the other.",
    "temporal sequence": "It asks for the order in time of events from both documents.",
    "unanswerable": "It asks for a fact marked as missing. The documents do not state it; the answer says that it "
    "is not stated, that nothing else allows to infer it, and that the question cannot be answered.",
}


class QuestionReply(BaseModel):
    """A question and the statements of its answer."""

    question: str = Field(min_length=1)
    statements: list[str] = Field(min_length=3, max_length=5)


class ReferencesReply(BaseModel):
    """Numbers of sentences, from 1."""

    sentences: list[int] = Field(max_length=MOST_ITEMS)


def model_questions(
    model: Any,
    schema: Schema,
    configurations: Sequence[Configuration],
    documents: Sequence[GeneratedDocument],
    per_document: Mapping[str, int] = PER_DOCUMENT,
    *,
    cassette: Cassette | None = None,
    prompt: Prompt = "rageval_question",
) -> Done[QRA]:
    """Let a model ask questions with first answers from configurations.

    Parameters
    ----------
    model, cassette : as for `ragbench.llm.ask`.
    schema, configurations, documents : configurations and documents pair up. The model sees the facts, not the texts.
    per_document : how many of each type, see `KINDS`; asked one after another, so that each differs from those before.

    Returns
    -------
    Done with QRA without references. A document without dropped facts gets no unanswerable question, a single document
    none over several; both are listed in ``failed``.
    """
    check_known("type of question", per_document, KINDS)
    text = load_prompt(prompt)
    drafts: list[QRA] = []
    failed: list[tuple[str, str]] = []
    asked: dict[str, list[str]] = {c.id: [] for c in configurations}
    rounds = [(kind, turn) for kind, count in per_document.items() for turn in range(count)]
    for kind, turn in rounds:
        jobs, prompts = [], []
        for number, c in enumerate(configurations):
            name = f"{c.id}-{kind.replace(' ', '-')}-{turn + 1}"
            after = (number + 1) % len(configurations)
            about = [number, after] if kind in MULTI else [number]
            reason = _impossible(kind, about, documents[number])
            if reason:
                failed.append((name, reason))
                continue
            facts = "\n\n".join(_facts(schema, configurations[i], documents[i], kind) for i in about)
            named = "; ".join(configurations[i].text[n] for i in about for n in schema.named)
            before = " | ".join(asked[c.id]) or "none yet"
            fields = {"language": LANGUAGES[schema.language], "kind": kind, "meaning": MEANING[kind], "facts": facts}
            prompts.append(fill_prompt(text, **fields, names=named, asked=before))
            jobs.append((name, c, tuple(configurations[i].id for i in about), documents[number]))
        replies = ask_step(model, prompts, QuestionReply, cassette, [job[0] for job in jobs], "questions")
        for (name, c, doc_ids, document), reply in zip(jobs, replies, strict=True):
            if not reply.ok:
                failed.append((name, str(reply.error)))
                continue
            asked[c.id].append(reply.parsed.question)
            lost = tuple((c.id, n) for n in document.dropped) if kind == "unanswerable" else ()
            statements = tuple(s.strip() for s in reply.parsed.statements)
            drafts.append(QRA(name, kind, schema.language, reply.parsed.question, statements, doc_ids, lost=lost))
    return Done(tuple(drafts), tuple(failed))


def _impossible(kind: str, about: Sequence[int], document: GeneratedDocument) -> str:
    if kind in MULTI and len(set(about)) < 2:
        return "needs a second document"
    return "no fact was left out" if kind == "unanswerable" and not document.dropped else ""


def _facts(schema: Schema, configuration: Configuration, document: GeneratedDocument, kind: str) -> str:
    stated = [n for n in schema.fact_fields if n not in document.dropped]
    text = f"{document.title}\n{field_list(configuration, [*schema.context, *stated])}"
    if kind == "unanswerable":
        text += "\nMissing: " + "; ".join(n.replace("_", " ") for n in document.dropped)
    return text


def model_references(
    model: Any,
    questions: Sequence[QRA],
    documents: Mapping[str, GeneratedDocument],
    *,
    cassette: Cassette | None = None,
    prompt: Prompt = "rageval_references",
) -> Done[QRA]:
    """Let a model choose the references. It names sentences by number, so a reference is always word for word.

    Returns
    -------
    Done; a reply with a number that does not exist is a failure. Unanswerable questions pass without being asked.
    """
    text = load_prompt(prompt)

    def write(q: QRA) -> str:
        return fill_prompt(text, question=q.question, answer=q.answer, sentences=numbered(references_of(q, documents)))

    def settle(q: QRA, report: ReferencesReply) -> QRA | str:
        sentences = references_of(q, documents)
        if not all(1 <= n <= len(sentences) for n in report.sentences):
            return f"sentences {report.sentences}, but there are {len(sentences)}"
        return replace(q, references=tuple(sentences[n - 1] for n in sorted(set(report.sentences))))

    return ask_about(model, questions, write, ReferencesReply, cassette, "references", settle)


def ask_about(
    model: Any,
    questions: Sequence[QRA],
    write: Callable[[QRA], str],
    reply_type: type[BaseModel],
    cassette: Cassette | None,
    step: str,
    settle: Callable[[QRA, Any], QRA | str],
) -> Done[QRA]:
    """Ask about each question that has an answer, and settle what the replies say of it.

    ``write`` makes a question's prompt. ``settle`` makes the question anew; a text in its place says why it failed.
    """
    asked = [q for q in questions if q.kind != "unanswerable"]
    ids = [q.id for q in asked]
    replies = ask_step(model, [write(q) for q in asked], reply_type, cassette, ids, step)
    got = dict(zip(ids, replies, strict=True))
    changed, failed = [], []
    for q in questions:
        if q.id not in got:
            changed.append(q)
            continue
        reply = got[q.id]
        done = settle(q, reply.parsed) if reply.ok else str(reply.error)
        if isinstance(done, str):
            failed.append((q.id, done))
        else:
            changed.append(done)
    return Done(tuple(changed), tuple(failed))


def references_of(question: QRA, documents: Mapping[str, GeneratedDocument]) -> list[Reference]:
    return [Reference(i, s.text) for i in question.doc_ids for s in documents[i].sentences]


def numbered(items: Sequence[Any]) -> str:
    return "\n".join(f"{i}. {getattr(item, 'text', item)}" for i, item in enumerate(items, 1))
