"""A crash test for metrics and judges: one known error is planted into right answers, and all is scored again.

Reading order: ``ERRORS`` (what can be planted) -> `plant` (a record of each, read for naturalness by rule) ->
`crash_test` (every number before and after) -> `crash_table` (which error does which number see).

An error of your own is a function and one entry; None where it cannot be planted:

``ERRORS["shouting"] = PlantedError(lambda case: case.answer.upper(), SAME, "all in capitals")``
"""

from __future__ import annotations

import difflib
import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ragbench.data.answers import is_missing, read_answers
from ragbench.errors import DataError, check_known
from ragbench.metrics.table import lower_is_better
from ragbench.records import Document
from ragbench.scoring import LABELS, score
from ragbench.stats import compare_pairs
from ragbench.text.sentences import split_sentences

WRONG, LESS, PADDED, SAME = "wrong", "less", "padded", "same"  # the last is no error: a control
Chunks = list[tuple[Any, str]]  # (id of the document, text)


@dataclass(frozen=True, slots=True)
class Case:
    """A right answer with all that an error is planted with. ``others``: further right answers to the question."""

    question: str
    answer: str
    reference: str
    references: Sequence[str]
    chunks: Chunks
    others: Sequence[str]
    documents: Mapping[Any, Document]
    kinds: Mapping[Any, tuple[Any, str]]  # of the documents: see `_kind`
    random: random.Random

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences of the answer."""
        return split_sentences(self.answer, "claims")

    @property
    def gold(self) -> list[tuple[Any, str]]:
        """The chunks that hold a supporting sentence."""
        return [chunk for chunk in self.chunks if any(fact.strip() in chunk[1] for fact in self.references)]

    @property
    def gold_documents(self) -> list[Document]:
        """The documents of these chunks, as far as they are known."""
        return [self.documents[name] for name, _ in self.gold if name in self.documents]


@dataclass(frozen=True, slots=True)
class PlantedError:
    """How an error is planted, what it is claimed to do to a right answer, and in words.

    ``plant`` returns the new answer, or the new chunks. ``claim``: "wrong" (states something false), "less" (says less,
    or its evidence is gone), "padded" (all still true, and more of it), "same" (no error).
    """

    plant: Callable[[Case], str | Chunks | None]
    claim: str
    what: str


# -- errors in the answer ----------------------------------------------------------------------------------------------

_YEAR = re.compile(r"\b1[0-9]{3}\b|\b20[0-2][0-9]\b")
_WORDS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBER = re.compile(rf"(?<![\w.,-])(?:{'|'.join(_WORDS)}|[1-9][0-9]{{0,2}})(?![\w,-]|\.[0-9])")
_AUXILIARY = re.compile(r"\b(is|was|are|were)\b(?! not\b| never\b|n't)")
_PAST = {"died": "die", "lived": "live", "won": "win", "wrote": "write", "took": "take", "lies": "lie", "ends": "end"}
_VERB = re.compile(rf"\b({'|'.join(_PAST)})\b")
_TIME = re.compile(r"^([^,;:]+) (in (?:[A-Z][a-z]+ )?[0-9]{4})\.$")
_IDENTITY = re.compile(r"^The ([^,.;]+?) (is|was) ([A-Z][\w'-]*(?: (?:[A-Z][\w'.-]*|of|the|de|van|von))*)\.$")
_LEANS = re.compile(r"^(?:He|She|It|They|His|Her|Its|Their|This|That|These|Those|There|The same|Both|Here|Then)\b")
_ABSTENTIONS = (
    "The documents do not say.",
    "I cannot tell from the documents.",
    "This is not mentioned in the documents.",
    "There is not enough information to answer the question.",
)


def _put(text: str, match: re.Match[str], new: str) -> str:
    return text[: match.start()] + new + text[match.end() :]


def _another_year(text: str, chance: random.Random) -> str | None:
    found = _YEAR.search(text)
    return found and _put(text, found, str(int(found[0]) + chance.choice((-1, 1)) * chance.randint(3, 25)))


def _another_number(text: str, chance: random.Random) -> str | None:
    for found in _NUMBER.finditer(text):
        # "Toy Story 2", "Part 1": the number is a part of a name.
        if re.search(r"\b[A-Z][\w.]*,? $", text[: found.start()]):
            continue
        if found[0] in _WORDS:
            return _put(text, found, chance.choice([word for word in _WORDS if word != found[0]]))
        value = int(found[0])
        return _put(text, found, str(value + chance.choice([n for n in (-3, -2, 2, 3) if value + n > 1])))
    return None


def _negated(text: str) -> str | None:
    first = min(filter(None, (_AUXILIARY.search(text), _VERB.search(text))), key=lambda m: m.start(), default=None)
    if first is None:
        return None
    verb = first[0]
    does = "does" if verb.endswith("s") else "did"
    return _put(text, first, f"{does} not {_PAST[verb]}" if verb in _PAST else f"{verb} not")


def _short_title(document: Document) -> str:
    return re.sub(r" \([^()]*\)$", "", document.title)


def _kind(document: Document) -> tuple[Any, str]:
    """Return the topic, and whether the document speaks of a he, a she or an it."""
    openings = Counter(s.split()[0] for s in document.sentences if s.split()[:1])
    persons = {"he": openings["He"] + openings["His"], "she": openings["She"] + openings["Her"]}
    persons["it"] = openings["It"] + openings["Its"]
    return document.meta.get("topic"), max(persons, key=persons.__getitem__)


def _names_in(text: str, case: Case) -> Iterator[tuple[re.Match[str], Document, bool]]:
    """Yield the names of the case's documents in a text: by title, or by a person's last name (True)."""
    for document in case.gold_documents:
        title = _short_title(document)
        if found := re.search(rf"\b{re.escape(title)}\b", text):
            yield found, document, False
        elif case.kinds[document.id][1] != "it" and (found := re.search(rf"\b{re.escape(title.split()[-1])}\b", text)):
            yield found, document, True


def _another_name(case: Case) -> str | None:
    known = {name for name, _ in case.chunks}
    found = sorted(_names_in(case.answer, case), key=lambda name: _short_title(name[1]) != case.reference)
    for match, document, by_last in found:
        alike = [d for i, d in case.documents.items() if i not in known and case.kinds[i] == case.kinds[document.id]]
        titles = {_short_title(other) for other in alike} - {_short_title(document)}
        names = sorted({title.split()[-1] if by_last else title for title in titles} - {match[0]})
        if names:
            return _put(case.answer, match, case.random.choice(names))
    return None


def _hops_exchanged(case: Case) -> str | None:
    names = sorted(_names_in(case.answer, case), key=lambda name: name[0].start())
    for (first, one, _), (second, other, _) in itertools.pairwise(names):
        between = case.answer[first.end() : second.start()]
        # Not "X and Y", which says the same when exchanged.
        if len(between) > 5 and first[0] != second[0] and case.kinds[one.id] == case.kinds[other.id]:
            return case.answer[: first.start()] + second[0] + between + first[0] + case.answer[second.end() :]
    return None


def _second_half_dropped(case: Case) -> str | None:
    words = case.answer.split()
    left = " ".join(words[: len(words) // 2])
    return left if len(words) >= 6 and case.reference.casefold() not in left.casefold() else None


def _true_sentences(case: Case) -> list[str]:
    """Sentences of the question's documents that support nothing, and can be read on their own."""
    texts = []
    for document in case.gold_documents:
        for sentence in map(str.strip, document.sentences):
            alone = _short_title(document).split()[-1] in sentence and not _LEANS.match(sentence)
            if alone and sentence not in map(str.strip, case.references) and sentence not in case.answer:
                texts.append(sentence)
    return texts


def _closed(text: str) -> str:
    return text if text.rstrip().endswith((".", "!", "?")) else f"{text.rstrip()}."


def _with_true_sentence(case: Case) -> str | None:
    texts = _true_sentences(case)
    return f"{_closed(case.answer)} {case.random.choice(texts)}" if texts else None


def _with_false_sentence(case: Case) -> str | None:
    for text in _true_sentences(case):
        if false := _another_year(text, case.random) or _another_number(text, case.random) or _negated(text):
            return f"{_closed(case.answer)} {false}"
    return None


def _said_twice(case: Case) -> str | None:
    *before, last = case.sentences or ("",)
    return " ".join([*before, _closed(last), _closed(last)]) if len(last.split()) > 2 else None


def _another_order(case: Case) -> str | None:
    first, *rest = case.sentences or ("",)
    if found := _TIME.match(first):
        opening, year = found[1], found[2]
        if opening.split()[0] in ("The", "He", "She", "It", "They"):
            opening = opening[:1].lower() + opening[1:]
        return " ".join([f"{year[:1].upper()}{year[1:]}, {opening}.", *rest])
    if found := _IDENTITY.match(first):
        return " ".join([f"{found[3]} {found[2]} the {found[1]}.", *rest])
    return None


def _in_german(case: Case) -> str | None:
    own = [word for word in case.reference.split() if not (word[:1].isupper() or word.strip(",.").isdigit())]
    return None if own or len(case.sentences) != 1 else f"Die richtige Antwort lautet: {case.reference}."


# -- errors in the retrieved text --------------------------------------------------------------------------------------


def _gold_removed(case: Case) -> Chunks | None:
    last = [chunk for chunk in case.gold if case.references[-1].strip() in chunk[1]]
    return [chunk for chunk in case.chunks if chunk not in last] if last else None


def _namesake_added(case: Case) -> Chunks | None:
    known, wanted = {name for name, _ in case.chunks}, case.gold_documents
    titles = {word for document in wanted for word in _short_title(document).split() if word[:1].isupper()}
    kinds = {case.kinds[document.id] for document in wanted}

    def likeness(name: Any) -> tuple[int, bool, str]:
        return len(titles & set(_short_title(case.documents[name]).split())), case.kinds[name] in kinds, str(name)

    nearest = max((name for name in case.documents if name not in known), key=likeness, default=None)
    if nearest is None or not any(likeness(nearest)[:2]):
        return None
    return [*case.chunks, (nearest, case.documents[nearest].text)]


ERRORS: dict[str, PlantedError] = {
    "another number": PlantedError(lambda c: _another_number(c.answer, c.random), WRONG, "two -> five"),
    "another date": PlantedError(lambda c: _another_year(c.answer, c.random), WRONG, "1858 -> 1871"),
    "another name": PlantedError(_another_name, WRONG, "a name of the same kind and topic"),
    "negation": PlantedError(lambda c: _negated(c.answer), WRONG, "was -> was not"),
    "hops exchanged": PlantedError(_hops_exchanged, WRONG, "the names of the two hops change places"),
    "false sentence": PlantedError(_with_false_sentence, WRONG, "a sentence of the documents with an error, added"),
    "second half dropped": PlantedError(_second_half_dropped, LESS, "the answer stops before its end"),
    "abstention": PlantedError(lambda c: c.random.choice(_ABSTENTIONS), LESS, "The documents do not say."),
    "irrelevant sentence": PlantedError(_with_true_sentence, PADDED, "a true sentence about something else, added"),
    "said twice": PlantedError(_said_twice, PADDED, "the last sentence again"),
    "paraphrase": PlantedError(lambda c: c.random.choice(c.others) if c.others else None, SAME, "another right answer"),
    "word order": PlantedError(_another_order, SAME, "Z was the author; In 1858, ..."),
    "lower case": PlantedError(lambda c: c.answer.lower(), SAME, "no capital"),
    "in German": PlantedError(_in_german, SAME, "Die richtige Antwort lautet: ..."),
    "gold chunk removed": PlantedError(_gold_removed, LESS, "the text of the last hop is not retrieved"),
    "gold chunk doubled": PlantedError(
        lambda c: [c.gold[0], *c.chunks] if c.gold else None, PADDED, "the first gold chunk twice"
    ),
    "namesake added": PlantedError(_namesake_added, PADDED, "one more chunk, of like title"),
    "gold chunks last": PlantedError(
        lambda c: sorted(c.chunks, key=lambda chunk: chunk in c.gold), SAME, "the same chunks, the gold ones last"
    ),
}

# -- planting ----------------------------------------------------------------------------------------------------------

_FAULTS = {
    "article": re.compile(r"\ba (?=[aeio]\w)(?!one\b|once\b|eu)|\ban (?=[b-df-gj-np-tv-z])", re.I),
    "word twice": re.compile(r"\b(\w+) \1\b", re.I),
    "agreement": re.compile(r"\b(he|she|it) (are|were|have)\b|\bthey (is|was|has)\b|\bd(id|oes) not \w+ed\b", re.I),
    "space before a mark": re.compile(r"\s[,.;:!?](?:\s|$)"),
    "two marks": re.compile(r"[,;:.!?][,;:]|[^.]\.\.(?!\.)"),
}


def unnatural(text: str) -> list[str]:
    """Name what a rule finds unnatural in a text: article, agreement, a word twice, marks.

    >>> unnatural("He were born in an town in in 1806 .")
    ['article', 'word twice', 'agreement', 'space before a mark']
    """
    return [fault for fault, pattern in _FAULTS.items() if pattern.search(text)]


def plant(
    rows: Any,
    documents: Iterable[Document] = (),
    *,
    errors: Sequence[str] | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Plant each error once into each right answer where its rule allows it.

    Parameters
    ----------
    rows : right answers, as for `ragbench.score`: ``answer``, ``reference``, ``question``; for errors of the retrieved
        text ``chunks``, their documents' ids in ``retrieved``, and the supporting sentences ``references``.
        ``other_answers``: lists of further right answers, for the paraphrase.
    documents : those of ``retrieved``, for names, sentences and namesakes. ``meta["topic"]`` says what is alike.
    errors : names in `ERRORS`; None: all.

    Returns
    -------
    DataFrame, one row per answer and error: ``row`` (its number), ``error``, ``claim``, ``part`` ("answer" or
    "chunks"), ``change`` (in words), and ``answer``, ``chunks``, ``retrieved`` after it. ``attrs["refused"]`` counts by
    error what a rule found unnatural, ``attrs["not_planted"]`` the answers that gave it no place.
    """
    check_known("error", errors or (), ERRORS)
    table, known = read_answers(rows), {document.id: document for document in documents}
    kinds = {name: _kind(document) for name, document in known.items()}
    planted, refused, no_place = [], Counter(), Counter()
    for number, row in enumerate(table.to_dict("records")):
        row = {name: value for name, value in row.items() if not is_missing(value)}
        texts = list(row.get("chunks", ()))
        before = list(zip(row.get("retrieved", range(len(texts))), texts, strict=True))
        fields = [row.get(name, "") for name in ("question", "answer", "reference")]
        shared = (list(row.get("references", ())), before, list(row.get("other_answers", ())), known, kinds)
        for name in errors or ERRORS:
            after = ERRORS[name].plant(Case(*fields, *shared, random.Random(f"{seed}/{number}/{name}")))
            if after is None or after in (row.get("answer"), before):
                no_place[name] += 1
            elif isinstance(after, str) and set(unnatural(after)) - set(unnatural(fields[1])):
                refused[name] += 1
            else:
                about = {"row": number, "error": name, "claim": ERRORS[name].claim}
                planted.append(about | _planted(after, row.get("answer"), before))
    frame = pd.DataFrame(planted, columns=["row", "error", "claim", "part", "change", "answer", "chunks", "retrieved"])
    frame.attrs = {"refused": dict(refused), "not_planted": dict(no_place)}
    return frame


def _planted(after: str | Chunks, answer: str | None, before: Chunks) -> dict[str, Any]:
    if isinstance(after, str):
        part, change, answer, chunks = "answer", _change(answer.split(), after.split()), after, before
    else:
        part, chunks = "chunks", after
        change = _change(*([str(name) for name, _ in side] for side in (before, after)))
    retrieved, texts = zip(*chunks, strict=True) if chunks else ((), ())
    kept = {"chunks": list(texts), "retrieved": list(retrieved)} if before else {"chunks": None, "retrieved": None}
    return {"part": part, "change": change, "answer": answer, **kept}


def _change(before: Sequence[str], after: Sequence[str]) -> str:
    """Say which words were replaced by which."""
    steps = difflib.SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes()
    moved = [(before[a:b], after[c:d]) for tag, a, b, c, d in steps if tag != "equal"]
    return "; ".join(f"{' '.join(old) or '(nothing)'} -> {' '.join(new) or '(nothing)'}" for old, new in moved)


# -- scoring before and after ------------------------------------------------------------------------------------------


def crash_test(
    rows: Any,
    metrics: Sequence[str],
    labels: Any = None,
    documents: Iterable[Document] = (),
    *,
    errors: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    seed: int = 0,
    **options: Any,
) -> pd.DataFrame:
    """Score right answers before and after each planted error.

    ``rows``, ``documents``, ``errors``, ``columns``, ``seed`` are for `plant`; ``metrics``, ``labels`` and ``options``
    for `ragbench.score`. Labels that came with ``rows`` are of the answers as they were, and are not used.

    Returns
    -------
    DataFrame, one row per planted error and number: ``row``, ``error``, ``claim``, ``part``, ``change``, ``answer``,
    ``number``, ``before``, ``after`` (NaN where undefined), and ``worse``: how much worse the number became, whichever
    of its ends is the better one. The columns of ``rows`` that are texts or numbers (``question_id``, a cluster) stay
    beside. `crash_table` sums it up.
    """
    table, documents = read_answers(rows, columns), list(documents)
    planted = plant(table, documents, errors=errors, seed=seed)
    if planted.empty:
        do = "give whole sentences as answers; for errors of chunks, chunks, retrieved and references"
        raise DataError("no error could be planted", "one at least", do)
    of_answers = {name for name, method in LABELS.items() if "answer" in method.needs}
    base = table.drop(columns=[name for name in ("system", "other_answers", *of_answers) if name in table])
    base = base.drop(columns="context") if {"context", "chunks"} <= set(base) else base
    texts = [name for name in ("answer", "chunks", "retrieved") if name in base]
    after = base.iloc[planted["row"]].reset_index(drop=True).assign(**planted[texts])
    together = pd.concat([base, after], ignore_index=True).assign(question_id=lambda every: range(len(every)))
    scored = score(together, metrics, labels, **options)
    lists = [name for name in table if table[name].map(lambda value: isinstance(value, list | tuple)).any()]
    beside = table.drop(columns={*lists, *planted} & {*table}).reset_index(drop=True)
    about = planted[["row", "error", "claim", "part", "change", "answer"]].join(beside, on="row")
    lower, parts = lower_is_better(), []
    for number in scored.attrs["numbers"]:
        values = scored[number].to_numpy(float)
        before, after = values[planted["row"]], values[len(table) :]
        worse = np.round((after - before) * (1 if number in lower else -1), 5)  # vectors differ in the last digits
        parts.append(about.assign(number=number, before=before, after=after, worse=worse))
    result = pd.concat(parts, ignore_index=True)
    result.attrs = planted.attrs
    return result


def crash_table(results: pd.DataFrame, groups: str | None = None) -> pd.DataFrame:
    """Say of every error and number whether the number sees it.

    ``results`` are from `crash_test`, of one model or several in a row. Answers that share their value in the column
    ``groups`` (the question, its documents) are resampled and flipped together.

    Returns
    -------
    DataFrame, one row per error and number: ``claim``, ``n`` (answers with both numbers), ``undefined``, ``fell`` and
    ``rose`` (shares of answers whose number became worse or better by more than 0.001), ``worse`` with ``low`` and
    ``high`` (mean change for the worse, 95% clustered bootstrap), ``p_holm`` (over the errors of a number) and
    ``verdict`` at level 0.05: "sees" (significantly worse), "fooled" (significantly better), "blind" (no significant
    change), "hardly" (one below 0.05). For a control, which is no error, "false alarm" for any change of that size,
    else "steady". Without two numbers to compare "undefined".
    """
    check_known("column", [groups] if groups else [], results.columns)
    tables = []
    for number, of_number in results.groupby("number", sort=False):
        parts = dict(iter(of_number.groupby("error", sort=False)))
        scores = {(name,): (part["worse"].to_numpy(float), np.zeros(len(part))) for name, part in parts.items()}
        labels = {(name,): part[groups].to_numpy() for name, part in parts.items()} if groups else None
        table = compare_pairs(scores, ["error"], groups=labels)
        table["number"], table["claim"] = number, [parts[name]["claim"].iloc[0] for name in table["error"]]
        for name, sign in (("fell", 1), ("rose", -1)):
            changes = [sign * parts[error]["worse"].dropna().to_numpy(float) for error in table["error"]]
            table[name] = [(change > 1e-3).mean() if change.size else np.nan for change in changes]
        tables.append(table)
    table = pd.concat(tables, ignore_index=True).rename(columns={"difference": "worse", "missing": "undefined"})
    table["verdict"] = [_verdict(row) for row in table.to_dict("records")]
    changes = ["fell", "rose", "worse", "low", "high", "p_holm", "verdict"]
    return table[["error", "claim", "number", "n", "undefined", *changes]]


def _verdict(row: Mapping[str, Any]) -> str:
    if not row["n"]:
        return "undefined"
    shown, large = row["p_holm"] < 0.05, abs(row["worse"]) >= 0.05
    if row["claim"] == SAME:
        return "false alarm" if shown and large else "steady"
    return "blind" if not shown else "hardly" if not large else "sees" if row["worse"] > 0 else "fooled"
