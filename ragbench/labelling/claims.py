"""Claims of a text, and whether other texts entail them (RAGChecker, section 3.2).

By a model: `extract_claims`, `check_claims`, and both over whole results, `ragchecker_labels`. For
measuring a checker: MiniHop's reference labels, `load_labelled_claims` (``data/minihop/README.md``
says whose they are).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ragbench.data.ragchecker import CLAIM_LABELS, Claim, RagResult
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.labelling.asking import LabelStep
from ragbench.llm.models import not_named
from ragbench.paths import packaged_data
from ragbench.stats.inputs import as_list, same_length
from ragbench.text.sentences import split_sentences

ENTAILMENT, NEUTRAL, CONTRADICTION = CLAIM_LABELS
_EXTRACT = LabelStep.of_texts("claims", "steps_claims", "passage", "claims")
_CHECK = LabelStep.of_choices(
    "claim check", "steps_check", CLAIM_LABELS, needs="reference", blank=NEUTRAL, items="claims"
)
_NO_QUESTION = "(none)"
_SHORT_WORDS = 5
_SHORT_CHARACTERS = 40
_CLAIMS_PER_SENTENCE = 1.5  # for plans


def extract_claims(
    model: Any,
    texts: Sequence[str],
    questions: Sequence[str] | None = None,
    **options: Any,
) -> list[tuple[str, ...] | None]:
    """Split texts into claims: what each says in answer to its question, each different pair once.

    An empty text has no claim and needs no call. A short text, such as a name, a number or "yes",
    is one claim made of question and text, without a call: a model that sees a name alone invents
    claims about it. A claim is a sentence; the triples of RAGChecker's own files can be checked,
    too.

    ``questions`` : one per text; None where texts answer none, and all that they state is taken
    apart. ``options`` : see `ragbench.labelling.asking`.

    Source: RAGChecker, section 3.2 (text-to-claim extractor; the wording of the prompt is ours).

    >>> from langchain_core.language_models import FakeListChatModel
    >>> model = FakeListChatModel(responses=['{"claims": ["Ada built it.", "It burnt down."]}'])
    >>> rb.extract_claims(model, ["Ada built the mill, which burnt down in 1902."], progress=False)
    [('Ada built it.', 'It burnt down.')]
    """
    texts = as_list(texts, "texts", object)
    if questions is None:
        questions = [_NO_QUESTION] * len(texts)
    same_length(texts=texts, questions=questions)
    passages = []  # what the model is asked about
    short = {}
    for place, (question, text) in enumerate(zip(questions, texts, strict=True)):
        if question != _NO_QUESTION and _is_short(text):
            answer = text.strip().rstrip(".。")
            short[place] = (f'The answer to "{question.strip()}" is: {answer}.',)
            text = ""
        passages.append(text)
    extracted = _EXTRACT.ask(model, options, question=questions, passage=passages)
    return [short.get(place, claims) for place, claims in enumerate(extracted)]


def _is_short(text: str) -> bool:
    """Whether a text is a name, a number, a date, yes or no: one sentence of a few words."""
    if not 0 < len(text.split()) <= _SHORT_WORDS or len(text.strip()) > _SHORT_CHARACTERS:
        return False
    return len(split_sentences(text, "claims")) == 1


def check_claims(
    model: Any,
    claims: Sequence[Sequence[Claim] | None],
    references: Sequence[str],
    questions: Sequence[str] | None = None,
    **options: Any,
) -> list[tuple[str | None, ...] | None]:
    """Check lists of claims, each against its own text: Entailment, Neutral or Contradiction per
    claim, in one call each; with ``joint=True`` in one call a text, as in the paper.

    Parameters
    ----------
    claims : for each text its claims (sentences or triples); None where they are not known, as
        `extract_claims` says.
    references : the texts, shape (n,): a reference answer, a response, a chunk. An empty one
        entails nothing: Neutral.
    questions : the question that each list of claims and its text are about, since a short text
        means something only as an answer to it; None where there is none.
    options : as for `extract_claims`. In a prompt of your own keep the text before the claims, for
        the server's cache.

    Source: RAGChecker, section 3.2 (claim-entailment checker, which is shown all claims of a text
    in one prompt; the wording is ours).

    >>> from langchain_core.language_models import FakeListChatModel
    >>> model = FakeListChatModel(responses=['{"labels": ["Entailment"]}'])
    >>> rb.check_claims(model, [["Ada built it."]], ["It was built by Ada."], progress=False)
    [('Entailment',)]
    """
    if questions is None:
        questions = [_NO_QUESTION] * len(claims)
    return _CHECK.ask_items(model, options, claims, reference=references, question=questions)


def ragchecker_labels(
    model: Any, results: Sequence[RagResult], *, checker: Any = None, **options: Any
) -> list[RagResult]:
    """Extract and check the claims of results: everything that RAGChecker's eleven metrics need.

    ``model``, ``options``: as for `extract_claims`. ``results``: of
    `ragbench.data.ragchecker.read_ragchecker`, or records of your own, each id once. Claims and
    labels that are there stay; only what is missing is asked, the same claims against the same
    chunk once. ``checker``: who checks the claims in place of the model, any object whose
    ``check_many(claims, texts)`` gives a label per claim and text. With one, ``model`` may be None
    where all claims are there; ConfigError where some are not.

    Claims that could not be read are None, and so is each unread label: the ``missing()`` of such a
    result names what `ragbench.metrics.claims.claim_metrics_table` would lack.

    Source: RAGChecker, section 3.2 and appendix B.

    >>> from langchain_core.language_models import FakeListChatModel
    >>> from ragbench.data.ragchecker import RagResult
    >>> model = FakeListChatModel(responses=['{"labels": ["Entailment"]}'])
    >>> result = RagResult("q1", "Who?", "It was Ada.", "Ada built it.")
    >>> (labelled,) = rb.ragchecker_labels(model, [result], progress=False)
    >>> labelled.response_in_reference
    ('Entailment',)
    """
    rows = _with_claims(_records(results), model, options)
    checks = [check for check in _missing_checks(rows) if check.claims is not None]
    if checker is None:
        labels = iter(_labels_of_model(model, checks, options))
    else:
        labels = iter(_labels_of_checker(checker, checks))
    for check in checks:
        columns = [next(labels) for _ in check.texts]
        if check.field.endswith("chunks"):
            table = tuple(zip(*columns, strict=True)) or ((),) * len(check.claims or ())
        else:
            (table,) = columns
        place = check.place
        rows[place] = replace(rows[place], metrics=None, **{check.field: table})
    return rows


def ragchecker_calls(results: Sequence[RagResult], joint: bool = False) -> dict[str, int]:
    """Count the calls that `ragchecker_labels` takes about: step -> calls, for
    `ragbench.llm.plan`.

    Where claims are not known yet, a short text has one, and each sentence of a longer one and a
    half. Equal prompts are counted once, as they are asked. ``joint`` : with all claims of a text
    in one prompt.
    """
    rows = _records(results)
    to_split = set()
    for place, _, text in _unknown_claims(rows):
        if _is_long(text):
            to_split.add((rows[place].question, text))
    n_checks: dict[Any, int] = {}  # by what makes prompts equal
    for check in _missing_checks(rows):
        parts = _counted(check, getattr(rows[check.place], check.field.split("_")[0]), joint)
        for text in filter(str.strip, check.texts):
            n_checks |= {(check.question, part, text): parts[part] for part in parts}
    return {"claims": len(to_split), "claim check": sum(n_checks.values())}


def _counted(check: _Check, side: str, joint: bool) -> dict[Any, int]:
    """Return what is checked, claims or the text that has them, and how many prompts each takes."""
    parts: dict[Any, int] = dict.fromkeys(check.claims or (), 1)
    if check.claims is None:
        parts = {side: claim_count(side)}
    if joint:
        parts = {check.claims or side: int(any(parts.values()))}
    return parts


def claim_count(text: str) -> int:
    """Return about how many claims a model finds in a text."""
    if not _is_long(text):
        return int(bool(text.strip()))
    return math.ceil(_CLAIMS_PER_SENTENCE * len(split_sentences(text, "claims")))


def _is_long(text: str) -> bool:
    """Whether a model is asked for the claims of a text."""
    return bool(text.strip()) and not _is_short(text)


def _records(results: Sequence[RagResult]) -> list[RagResult]:
    """Return the records of results, each id once."""
    rows = as_list(results, "results", RagResult)
    for name, count in Counter(str(row.id) for row in rows).items():
        if count > 1:
            raise DataError(
                f"the id {name!r} belongs to several results",
                "an id used once",
                "put the system's name into the ids",
            )
    return rows


def _unknown_claims(rows: Sequence[RagResult]) -> Iterator[tuple[int, str, str]]:
    """Yield place, field and text of claims that are needed and not known."""
    for place, row in enumerate(rows):
        for side in ("response", "reference"):
            field = f"{side}_claims"
            is_needed = any(check.startswith(side) for check in row.missing())
            if is_needed and getattr(row, field) is None:
                yield place, field, getattr(row, side)


def _with_claims(rows: list[RagResult], model: Any, options: Mapping[str, Any]) -> list[RagResult]:
    """Take the texts apart whose claims are needed and not known."""
    unknown = list(_unknown_claims(rows))
    texts = []
    questions = []
    ids = []
    for place, field, text in unknown:
        row = rows[place]
        texts.append(text)
        questions.append(row.question)
        ids.append(f"{row.id} {field}")
    if model is None and any(map(_is_long, texts)):
        raise not_named("model that writes claims", " beside the checker, or the claims themselves")
    extracted = extract_claims(model, texts, questions, ids=ids, **options)
    for (place, field, _), claims in zip(unknown, extracted, strict=True):
        if claims is not None:
            rows[place] = replace(rows[place], metrics=None, **{field: claims})
    return rows


class _Check(NamedTuple):
    """Claims of a result (None where not known), to be checked against each of the texts."""

    place: int  # of the result
    field: str  # of the result, that takes the labels
    claims: tuple[Claim, ...] | None
    texts: list[str]
    question: str
    name: str  # for messages


def _missing_checks(rows: Sequence[RagResult]) -> Iterator[_Check]:
    for place, row in enumerate(rows):
        for field in row.missing():
            side, _, other = field.split("_")  # such as response_in_reference
            if other == "chunks":
                texts = [chunk.text for chunk in row.chunks]
            else:
                texts = [getattr(row, other)]
            claims = getattr(row, f"{side}_claims")
            yield _Check(place, field, claims, texts, row.question, f"{row.id} {field}")


def _labels_of_model(
    model: Any, checks: Sequence[_Check], options: Mapping[str, Any]
) -> Sequence[Any]:
    """Return the labels of each check's claims against each of its texts."""
    columns: dict[str, list[Any]] = {"claims": [], "references": [], "questions": [], "ids": []}
    for check in checks:
        count = len(check.texts)
        columns["claims"] += [check.claims] * count
        columns["references"] += check.texts
        columns["questions"] += [check.question] * count
        columns["ids"] += [f"{check.name}[{number}]" for number in range(count)]
    return check_claims(model, **columns, **options)


def _labels_of_checker(checker: Any, checks: Sequence[_Check]) -> list[tuple[str, ...]]:
    """Do the same; each different list of claims is checked once, against all its texts."""
    texts_of: dict[Any, dict[str, None]] = defaultdict(dict)  # a dict keeps the order of texts
    for check in checks:
        if check.claims:
            texts_of[check.claims] |= dict.fromkeys(check.texts)
    labels_of: dict[Any, tuple[str, ...]] = {}
    for claims, texts in texts_of.items():
        columns = _checked_by(checker, list(claims), list(texts)).T
        for text, column in zip(texts, columns, strict=True):
            labels_of[claims, text] = tuple(column)
    labels = []
    for check in checks:
        labels += [labels_of.get((check.claims, text), ()) for text in check.texts]
    return labels


def _checked_by(checker: Any, claims: list[Claim], texts: list[str]) -> np.ndarray:
    """Return a checker's labels: a row per claim, a column per text."""
    shape = (len(claims), len(texts))
    if 0 in shape:
        return np.empty(shape, object)
    labels = np.array(checker.check_many(claims, texts), object)
    if labels.shape != shape:
        raise ConfigError(
            f"labels of {checker!r} of shape {labels.shape}",
            f"shape {shape}: a row per claim, a column per text",
            "correct its check_many; do not pad the labels",
        )
    return labels


# Reference labels


def load_labelled_claims(split: str | None = None) -> pd.DataFrame:
    """Load the labelled claims over MiniHop: id, document (its title), claim, label, split, and the
    document's text.

    ``first_label`` and ``second_label`` are two labellings of the same wording, missing for a claim
    reworded after them; ``label`` is what they led to. ``split``: "dev" to set a checker's
    thresholds, "test" when they are fixed.
    """
    from ragbench.data import load_minihop

    claims = pd.read_json(
        packaged_data("minihop", "labels", "claims", "labelled_claims.jsonl"), lines=True
    )
    texts = {document.title: document.text for document in load_minihop().documents}
    claims["text"] = claims["document"].map(texts)
    # a first label stands there where it was changed
    unchanged = claims["label"].where(claims["second_label"].notna())
    claims["first_label"] = claims["first_label"].fillna(unchanged)
    if split is not None:
        check_known("split", [split], claims["split"].unique())
        claims = claims[claims["split"] == split].reset_index(drop=True)
    return claims
