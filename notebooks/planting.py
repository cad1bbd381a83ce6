"""Errors that notebook 97 plants into right answers, and the controls that change nothing that
matters.

An error is a function from a `Case` (a right answer with its question and documents) to a wrong
answer, or to other retrieved documents; None where it finds no place. `ERRORS` has them all by name,
`planted_in` plants them. Notebook 52 moves a judge from one kind to another.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from ragbench.data import load_minihop
from ragbench.data.relevance import judgements
from ragbench.paths import packaged_data
from ragbench.records import Chunk, Document
from ragbench.retrieval import BM25
from ragbench.stats.clusters import document_clusters
from ragbench.text.sentences import split_sentences

Kind = tuple[str | None, tuple[str, str]]  # topic, and the words that open sentences about a he, she or it


@dataclass
class Case:
    """A right answer, and all that an error is planted with."""

    answer: str
    reference: str  # the short true answer
    facts: list[str]  # the supporting sentences
    retrieved: list[str]  # ids of the documents
    others: list[str]  # further right answers to the question
    random: random.Random
    documents: Mapping[str, Document]
    kinds: Mapping[str, Kind]

    @property
    def gold(self) -> list[str]:
        """The retrieved documents that hold a supporting sentence."""
        return [
            name for name in self.retrieved if any(fact.strip() in self.documents[name].text for fact in self.facts)
        ]


def put(text: str, match: re.Match, new: str) -> str:
    return text[: match.start()] + new + text[match.end() :]


def closed(text: str) -> str:
    return text if text.rstrip().endswith((".", "!", "?")) else f"{text.rstrip()}."


# -- numbers, dates, negation: 1858 -> 1871, two -> five, was -> was not

YEAR = re.compile(r"\b1[0-9]{3}\b|\b20[0-2][0-9]\b")
COUNTS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
NUMBER = re.compile(rf"(?<![\w.,-])(?:{'|'.join(COUNTS)}|[1-9][0-9]{{0,2}})(?![\w,-]|\.[0-9])")
AUXILIARY = re.compile(r"\b(is|was|are|were)\b(?! not\b| never\b|n't)")
PAST = {"died": "die", "lived": "live", "won": "win", "wrote": "write", "took": "take", "lies": "lie", "ends": "end"}
VERB = re.compile(rf"\b({'|'.join(PAST)})\b")


def another_year(text: str, chance: random.Random) -> str | None:
    year = YEAR.search(text)
    return year and put(text, year, str(int(year[0]) + chance.choice((-1, 1)) * chance.randint(3, 25)))


def another_number(text: str, chance: random.Random) -> str | None:
    for number in NUMBER.finditer(text):
        if re.search(r"\b[A-Z][\w.]*,? $", text[: number.start()]):
            continue  # "Toy Story 2": a part of a name
        if number[0] in COUNTS:
            return put(text, number, chance.choice([word for word in COUNTS if word != number[0]]))
        value = int(number[0])
        return put(text, number, str(value + chance.choice([n for n in (-3, -2, 2, 3) if value + n > 1])))
    return None


def negated(text: str) -> str | None:
    verbs = [match for match in (AUXILIARY.search(text), VERB.search(text)) if match]
    if not verbs:
        return None
    first = min(verbs, key=lambda match: match.start())
    does = "does" if first[0].endswith("s") else "did"
    return put(text, first, f"{does} not {PAST[first[0]]}" if first[0] in PAST else f"{first[0]} not")


# -- names: one of the same kind and topic in its place, or those of the two hops exchanged


def title_of(document: Document) -> str:
    return re.sub(r" \([^()]*\)$", "", document.title)


def kind_of(document: Document) -> Kind:
    """The topic, and whether the document speaks of a he, a she or an it."""
    openings = Counter(sentence.split()[0] for sentence in document.sentences if sentence.split())
    persons = {who: sum(openings[word] for word in who) for who in (("He", "His"), ("She", "Her"), ("It", "Its"))}
    return document.meta.get("topic"), max(persons, key=persons.get)


def kinds_of(documents: Mapping[str, Document]) -> dict[str, Kind]:
    return {name: kind_of(document) for name, document in documents.items()}


def names_in(text: str, case: Case) -> Iterator[tuple[re.Match, Document, bool]]:
    """Names of the case's documents in a text: by title, or by a person's last name (True)."""
    for document in [case.documents[name] for name in case.gold]:
        title = title_of(document)
        if match := re.search(rf"\b{re.escape(title)}\b", text):
            yield match, document, False
            continue
        last_name = re.search(rf"\b{re.escape(title.split()[-1])}\b", text)
        if last_name and case.kinds[document.id][1][0] != "It":
            yield last_name, document, True


def another_name(case: Case) -> str | None:
    names = sorted(names_in(case.answer, case), key=lambda name: title_of(name[1]) != case.reference)
    for match, document, by_last in names:
        alike = [
            d for i, d in case.documents.items() if i not in case.retrieved and case.kinds[i] == case.kinds[document.id]
        ]
        titles = {title_of(other) for other in alike} - {title_of(document)}
        others = sorted({title.split()[-1] if by_last else title for title in titles} - {match[0]})
        if others:
            return put(case.answer, match, case.random.choice(others))
    return None


def hops_exchanged(case: Case) -> str | None:
    names = sorted(names_in(case.answer, case), key=lambda name: name[0].start())
    for (first, one, _), (second, other, _) in itertools.pairwise(names):
        between = case.answer[first.end() : second.start()]
        # Not "X and Y", which says the same when exchanged.
        if len(between) > 5 and first[0] != second[0] and case.kinds[one.id] == case.kinds[other.id]:
            return case.answer[: first.start()] + second[0] + between + first[0] + case.answer[second.end() :]
    return None


# -- sentences: a true or a false one added, the last one twice, half dropped, an abstention

LEANS = re.compile(r"^(?:He|She|It|They|His|Her|Its|Their|This|That|These|Those|There|The same|Both|Here|Then)\b")
ABSTENTIONS = (
    "The documents do not say.",
    "I cannot tell from the documents.",
    "This is not mentioned in the documents.",
    "There is not enough information to answer the question.",
)


def true_sentences(case: Case) -> list[str]:
    """Sentences of the question's documents that support nothing, and can be read on their own."""
    facts = [fact.strip() for fact in case.facts]
    texts = []
    for document in [case.documents[name] for name in case.gold]:
        for sentence in map(str.strip, document.sentences):
            alone = title_of(document).split()[-1] in sentence and not LEANS.match(sentence)
            if alone and sentence not in facts and sentence not in case.answer:
                texts.append(sentence)
    return texts


def irrelevant_sentence(case: Case) -> str | None:
    texts = true_sentences(case)
    return f"{closed(case.answer)} {case.random.choice(texts)}" if texts else None


def false_sentence(case: Case) -> str | None:
    for text in true_sentences(case):
        if false := another_year(text, case.random) or another_number(text, case.random) or negated(text):
            return f"{closed(case.answer)} {false}"
    return None


def said_twice(case: Case) -> str | None:
    *before, last = split_sentences(case.answer, "claims") or ("",)
    return " ".join([*before, closed(last), closed(last)]) if len(last.split()) > 2 else None


def second_half_dropped(case: Case) -> str | None:
    words = case.answer.split()
    left = " ".join(words[: len(words) // 2])
    return left if len(words) >= 6 and case.reference.casefold() not in left.casefold() else None


# -- controls: another order, German

TIME = re.compile(r"^([^,;:]+) (in (?:[A-Z][a-z]+ )?[0-9]{4})\.$")
IDENTITY = re.compile(r"^The ([^,.;]+?) (is|was) ([A-Z][\w'-]*(?: (?:[A-Z][\w'.-]*|of|the|de|van|von))*)\.$")


def word_order(case: Case) -> str | None:
    first, *rest = split_sentences(case.answer, "claims") or ("",)
    if match := TIME.match(first):
        opening, year = match.groups()
        if opening.split()[0] in ("The", "He", "She", "It", "They"):
            opening = opening[:1].lower() + opening[1:]
        return " ".join([f"{year[:1].upper()}{year[1:]}, {opening}.", *rest])
    if match := IDENTITY.match(first):
        return " ".join([f"{match[3]} {match[2]} the {match[1]}.", *rest])
    return None


def in_german(case: Case) -> str | None:
    english = [word for word in case.reference.split() if not (word[:1].isupper() or word.strip(",.").isdigit())]
    sentences = split_sentences(case.answer, "claims")
    return None if english or len(sentences) != 1 else f"Die richtige Antwort lautet: {case.reference}."


# -- the retrieved text


def gold_removed(case: Case) -> list[str] | None:
    last = [name for name in case.gold if case.facts[-1].strip() in case.documents[name].text]
    return [name for name in case.retrieved if name not in last] if last else None


def gold_doubled(case: Case) -> list[str] | None:
    return [case.gold[0], *case.retrieved] if case.gold else None


def namesake_added(case: Case) -> list[str] | None:
    titles = [word for name in case.gold for word in title_of(case.documents[name]).split()]
    titles = {word for word in titles if word[:1].isupper()}
    alike = {case.kinds[name] for name in case.gold}

    def likeness(name: str) -> tuple[int, bool, str]:
        return len(titles & set(title_of(case.documents[name]).split())), case.kinds[name] in alike, str(name)

    nearest = max((name for name in case.documents if name not in case.retrieved), key=likeness)
    return [*case.retrieved, nearest] if any(likeness(nearest)[:2]) else None


def gold_last(case: Case) -> list[str]:
    return sorted(case.retrieved, key=lambda name: name in case.gold)


# -- all of them

WRONG, LESS, PADDED, SAME = "wrong", "less", "padded", "same"  # the last is no error: a control
ERRORS = {
    "another number": (WRONG, "two -> five", lambda c: another_number(c.answer, c.random)),
    "another date": (WRONG, "1858 -> 1871", lambda c: another_year(c.answer, c.random)),
    "another name": (WRONG, "a name of the same kind and topic", another_name),
    "negation": (WRONG, "was -> was not", lambda c: negated(c.answer)),
    "hops exchanged": (WRONG, "the names of the two hops change places", hops_exchanged),
    "false sentence": (WRONG, "a sentence of the documents with an error, added", false_sentence),
    "second half dropped": (LESS, "the answer stops before its end", second_half_dropped),
    "abstention": (LESS, "The documents do not say.", lambda c: c.random.choice(ABSTENTIONS)),
    "irrelevant sentence": (PADDED, "a true sentence about something else, added", irrelevant_sentence),
    "said twice": (PADDED, "the last sentence again", said_twice),
    "paraphrase": (SAME, "another right answer", lambda c: c.random.choice(c.others) if c.others else None),
    "word order": (SAME, "Z was the author; In 1858, ...", word_order),
    "lower case": (SAME, "no capital", lambda c: c.answer.lower()),
    "in German": (SAME, "Die richtige Antwort lautet: ...", in_german),
    "gold chunk removed": (LESS, "the text of the last hop is not retrieved", gold_removed),
    "gold chunk doubled": (PADDED, "the first gold chunk twice", gold_doubled),
    "namesake added": (PADDED, "one more chunk, of like title", namesake_added),
    "gold chunks last": (SAME, "the same chunks, the gold ones last", gold_last),
}
CLAIM = {name: claim for name, (claim, _, _) in ERRORS.items()}
OF_CHUNKS = ("gold chunk removed", "gold chunk doubled", "namesake added", "gold chunks last")


# -- what they are planted into

DRAWN = 80  # questions
_FILES = ("graded_answers", "model_answers", "evidence_answers")


def every_right() -> pd.DataFrame:
    """The answers to MiniHop with grade 5, in three files of labels: question_id, answer."""
    folder = packaged_data("minihop", "labels", "answers")
    labelled = pd.concat([pd.read_json(folder / f"{name}.jsonl", lines=True) for name in _FILES])
    return labelled.loc[labelled["grade"] == 5, ["question_id", "answer"]].drop_duplicates()


def right_answers(questions: int = DRAWN) -> pd.DataFrame:
    """One right answer of each of the first so many questions drawn, and its long answer beside it where there is
    one. The retrieved text is the supporting documents and one more, the first that BM25 finds.
    """
    minihop = load_minihop()
    short = every_right().sample(frac=1, random_state=20261201).drop_duplicates("question_id")[:DRAWN]
    long = short[["question_id"]].assign(system="long")
    long["answer"] = [minihop.question(name).meta.get("long_answer") for name in long["question_id"]]
    rows = pd.concat([short.assign(system="short"), long.dropna()], ignore_index=True).rename_axis("seed").reset_index()
    rows = rows[rows["question_id"].isin(short["question_id"][:questions])].reset_index(drop=True)
    index = BM25([Chunk(d.id, d.text, d.id, d.title) for d in minihop.documents], variant="terrier")
    asked = [minihop.question(name) for name in rows["question_id"]]
    retrieved = []
    for question, hits in zip(asked, index.search([question.text for question in asked], 20), strict=True):
        gold = list(question.meta["doc_ids"])
        one_more = next(hit.chunk.doc_id for hit in hits if hit.chunk.doc_id not in gold)
        retrieved.append([*gold, one_more])
    rows["retrieved"] = retrieved
    rows["cluster"] = rows["question_id"].map(document_clusters(minihop))
    rows["relevant"] = rows["question_id"].map(judgements(minihop))
    return rows


def planted_in(rows: pd.DataFrame) -> pd.DataFrame:
    """Every error of `ERRORS` in every right answer that has a place for it: row (its number), error, claim, answer,
    retrieved.
    """
    minihop = load_minihop()
    documents = {document.id: document for document in minihop.documents}
    every = every_right().groupby("question_id")["answer"].agg(list)
    kinds = kinds_of(documents)
    planted = []
    for number, row in enumerate(rows.itertuples()):
        question = minihop.question(row.question_id)
        others = [other for other in every[row.question_id] if row.system == "short" and other != row.answer]
        for name, (claim, _, plant) in ERRORS.items():
            chance = random.Random(f"0/{row.seed}/{name}")  # each error of each answer has a seed of its own
            facts = list(question.references)
            case = Case(row.answer, question.answer, facts, row.retrieved, others, chance, documents, kinds)
            after = plant(case)
            if after is not None and after not in (row.answer, row.retrieved):
                changed = {"retrieved": after} if name in OF_CHUNKS else {"answer": after}
                before = {"answer": row.answer, "retrieved": row.retrieved}
                planted.append({"row": number, "error": name, "claim": claim} | before | changed)
    return pd.DataFrame(planted)
