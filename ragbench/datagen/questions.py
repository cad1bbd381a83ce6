"""Questions with first answers from configurations, and the references to them from documents (RAGEval, section 3.3).

A first answer knows the configuration only: it may state what the document left out, and it does not know what else the
references say. Both are put right by `ragbench.datagen.refine`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ragbench.datagen.derive import derive
from ragbench.datagen.parts import (
    KINDS,
    QRA,
    Configuration,
    Derived,
    Fact,
    GeneratedDocument,
    Reference,
    Sentence,
    mentions,
    without,
)
from ragbench.datagen.patterns import choose, fields_of, fill
from ragbench.datagen.schema import QuestionPattern, Schema
from ragbench.errors import DataError, unknown

MULTI = ("information integration", "numerical comparison", "temporal sequence")
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
    for kind in per_document:
        if kind not in KINDS:
            raise unknown("type of question", kind, KINDS)
    drafts = []
    for number, configuration in enumerate(configurations):
        rng = random.Random(f"questions/{configuration.id}/{seed}")
        after = (number + 1) % len(configurations)
        pair = [(configuration, documents[number])]
        if after != number:
            pair.append((configurations[after], documents[after]))
        made = [*_asked(schema, pair, rng, per_document), *_unanswerable(schema, pair[0], rng, per_document)]
        drafts += [replace(q, id=f"{configuration.id}-q{i + 1:02d}") for i, q in enumerate(made)]
    return drafts


def find_references(question: QRA, facts: Sequence[Fact], documents: Mapping[str, GeneratedDocument]) -> QRA:
    """Add the sentences that state given facts as references, in the order of the documents.

    Parameters
    ----------
    question : a draft.
    facts : (document id, field) of what the answer needs; see `facts_needed`.
    documents : by id.
    """
    wanted = {(d, name) for d, name in facts}
    found = [
        Reference(doc_id, s.text)
        for doc_id in question.doc_ids
        for s in documents[doc_id].sentences
        if any((doc_id, name) in wanted for name in s.facts)
    ]
    return replace(question, references=tuple(dict.fromkeys((*question.references, *found))))


def facts_in(text: str, configurations: Sequence[Configuration], fields: Sequence[str]) -> list[Fact]:
    """Return the facts a text states: (document id, field) of every configuration whose wording occurs in it.

    The name that one document is about may be a mere fact of another (two people of one name): it does not count.
    """
    found = [(c.id, name) for c in configurations for name in fields if mentions(text, c.text[name])]
    if not found or len(configurations) < 2:
        return found
    by_id = {c.id: c for c in configurations}
    names = " | ".join(c.text[n] for c in configurations for n in c.text if n not in fields)
    return [(i, name) for i, name in found if not mentions(names, by_id[i].text[name])]


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


def annotate(sentences: Sequence[str], configuration: Configuration, fields: Sequence[str]) -> tuple[Sentence, ...]:
    """Mark which facts each sentence states, by their wording; for documents that a model or a person wrote."""
    return tuple(Sentence(s, tuple(name for _, name in facts_in(s, [configuration], fields))) for s in sentences)


def canonical(schema: Schema, fact_id: str, configuration: Configuration) -> str:
    """State one fact in the schema's plainest words: its first pattern with the first alternatives."""
    pattern = next(f for f in schema.facts if f.id == fact_id).say[0]
    return fill(choose(pattern)[0], configuration.text)


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
        names = tuple(fill(choose(n)[0], values, sentence=False) for n in rule.get("names", ()))
        result = derive(rule["rule"], [values[n] for n in rule["of"]], names, language)
        if result is None:
            return None
        values[name] = result
        of = tuple((used[n.rpartition(".")[0]][0].id, n.rpartition(".")[2]) for n in rule["of"])
        derived.append(Derived(result, rule["rule"], of, names))
    question = fill(choose(rng.choice(pattern.ask), rng)[0], values)
    statements = tuple(fill(choose(s, rng)[0], values) for s in pattern.say)
    return QRA(
        "", pattern.kind, language, question, statements, tuple(c.id for c, _ in used.values()), derived=tuple(derived)
    )


def _summary(
    schema: Schema, pattern: QuestionPattern, own: tuple[Configuration, GeneratedDocument], rng: random.Random
) -> QRA:
    configuration = own[0]
    facts = next(s for s in schema.sections if s.id == pattern.section).facts
    question = fill(choose(rng.choice(pattern.ask), rng)[0], configuration.text)
    statements = tuple(canonical(schema, fact.id, configuration) for fact in facts)
    return QRA("", "summary", schema.language, question, statements, (configuration.id,))


def _unanswerable(
    schema: Schema,
    own: tuple[Configuration, GeneratedDocument],
    rng: random.Random,
    per_document: Mapping[str, int],
) -> Iterator[QRA]:
    configuration, document = own
    lost = [f for f in schema.facts if f.lost and f.fields and set(f.fields) <= set(document.dropped)]
    for fact in lost[: per_document.get("unanswerable", 0)]:
        what, ask = fact.lost
        values = {**configuration.text, "what": fill(what, configuration.text, sentence=False)}
        yield QRA(
            "",
            "unanswerable",
            schema.language,
            fill(choose(ask, rng)[0], values),
            tuple(fill(choose(s, rng)[0], values) for s in schema.unanswerable),
            (configuration.id,),
            lost=tuple((configuration.id, name) for name in fact.fields),
        )
