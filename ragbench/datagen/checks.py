"""The validator: what a generated set promises, checked from its texts alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ragbench.data.user import Problem
from ragbench.datagen.configuration import real_names
from ragbench.datagen.parts import QRA, Configuration, GeneratedDocument
from ragbench.datagen.wording import NUMBER, derive, mentions, without

# A capital inside an English sentence; a family name with 某 as our Chinese records write people.
_NAME = {"en": re.compile(r"(?<=[a-z,;:] )[A-Z][a-z]+"), "zh": re.compile(r"[\u4e00-\u9fff]某[某甲乙丙丁]")}
# Words that carry meaning; in Chinese, characters.
_WORD = re.compile(r"[a-z]{4,}|[\u4e00-\u9fff]")
_SHARED = 0.5


def check(
    configurations: Sequence[Configuration],
    documents: Sequence[GeneratedDocument],
    questions: Sequence[QRA],
    fields: Sequence[str],
) -> list[Problem]:
    """Check a generated set.

    Parameters
    ----------
    questions : with references and keypoints.
    fields : the fields that count as facts (``schema.fact_fields``).

    Returns
    -------
    Problems; none when a document states every fact that is not listed as dropped, and no other; nothing names somebody
    real; references are copies; each fact, number and name of an answer is in its references or the question, or is
    derived from values that are; a statement about one of two documents states no fact of the other alone, and one
    without a fact shares half of its words with references and question; what an unanswerable question asks for is in
    none of its documents; each question has 3 to 5 keypoints. That two values of a document changed places is not seen.
    """
    by_id = {c.id: c for c in configurations}
    texts = {d.id: d for d in documents}
    findings = [(d.id, "a document without its configuration") for d in documents if d.id not in by_id]
    findings += [(d.id, what) for d in documents if d.id in by_id for what in _document(d, by_id[d.id], fields)]
    for q in questions:
        missing = [i for i in q.doc_ids if i not in texts or i not in by_id]
        if missing:
            findings.append((q.id, f"asks about {missing[0]!r}, which is not in the set"))
        else:
            findings += [(q.id, what) for what in _question(q, by_id, texts, fields)]
    return [Problem(i, what, "mend it, or generate it again with another seed") for i, what in findings]


def _document(document: GeneratedDocument, configuration: Configuration, fields: Sequence[str]) -> Iterator[str]:
    for name in fields:
        value = configuration.text[name]
        there, dropped = mentions(document.text, value), name in document.dropped
        if there and dropped:
            yield f"{name} is listed as dropped, but the document states {value!r}"
        if not there and not dropped:
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
