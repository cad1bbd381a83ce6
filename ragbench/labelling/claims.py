"""Claims of a text, and whether other texts entail them (RAGChecker, section 3.2).

By a model: `extract_claims`, `check_claims`, and both over whole results, `ragchecker_labels`. How
far a checker agrees with labels by others: `checker_intervals`, with MiniHop's reference labels
(`load_labelled_claims`; ``data/minihop/README.md`` says whose they are).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ragbench.data.files import read_jsonl
from ragbench.data.ragchecker import LABELS, Claim, RagResult, RagResults
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.labelling.asking import (
    JointStep,
    LabelResult,
    LabelStep,
    StepReport,
    names_of,
    texts_schema,
)
from ragbench.labelling.checkers import ENTAILMENT
from ragbench.labelling.graded_answers import SPLITS
from ragbench.llm.models import not_named
from ragbench.paths import packaged_data
from ragbench.records import check_records
from ragbench.stats import Interval, bootstrap_ci, correlation
from ragbench.stats.inputs import same_length
from ragbench.text.sentences import split_sentences

_EXTRACT = LabelStep(
    "claims", "steps_claims", texts_schema("claims"), "passage", lambda reply: tuple(reply.claims)
)
_CHECK = JointStep("claim check", "steps_check", LABELS, "Neutral", "reference", "claims")
_JOINT = 1  # claims per prompt: small models label several by their place
_NO_QUESTION = "(none)"
_SHORT_WORDS = 5
_SHORT_CHARACTERS = 40


def extract_claims(
    model: Any,
    texts: Sequence[str],
    questions: Sequence[str] | None = None,
    **options: Any,
) -> LabelResult:
    """Split texts into claims: what each says in answer to its question, each different pair once.

    An empty text has no claim and needs no call. A short text, such as a name, a number or "yes",
    is one claim made of question and text, without a call: a model that sees a name alone invents
    claims about it. A claim is a sentence; the triples of RAGChecker's own files can be checked,
    too.

    ``questions`` : one per text; None where texts answer none, and all that they state is taken
    apart. ``options`` : see `ragbench.labelling.asking`.

    Source: RAGChecker, section 3.2 (text-to-claim extractor; the wording of the prompt is ours).
    """
    names = names_of(options, texts=texts, questions=questions)
    if questions is None:
        questions = [_NO_QUESTION] * len(names)
    questions = [question.strip() for question in questions]
    short: dict[int, tuple[str]] = {}
    for place, (question, text) in enumerate(zip(questions, texts, strict=True)):
        if question != _NO_QUESTION and _is_short(text):
            answer = text.strip().rstrip(".")
            short[place] = (f'The answer to "{question}" is: {answer}.',)
    passages = ["" if place in short else text for place, text in enumerate(texts)]
    result = _EXTRACT.ask(model, names, {"question": questions, "passage": passages}, options)
    labels = [short.get(place, claims) for place, claims in enumerate(result.labels)]
    return replace(result, labels=tuple(labels))


def _is_short(text: str) -> bool:
    """Whether a text is a name, a number, a date, yes or no: one sentence of a few words."""
    words = text.split()
    sentences = split_sentences(text, "claims")
    return (
        0 < len(words) <= _SHORT_WORDS
        and len(text.strip()) <= _SHORT_CHARACTERS
        and len(sentences) == 1
    )


def check_claims(
    model: Any,
    claims: Sequence[Sequence[Claim] | None],
    references: Sequence[str],
    joint: int | None = _JOINT,
    questions: Sequence[str] | None = None,
    **options: Any,
) -> LabelResult:
    """Check lists of claims, each against its own text: Entailment, Neutral or Contradiction per
    claim.

    Parameters
    ----------
    claims : for each text its claims (sentences or triples); None where they are not known, as
        `extract_claims` says.
    references : the texts, shape (n,): a reference answer, a response, a chunk. An empty one
        entails nothing: Neutral.
    joint : claims per prompt; None puts all claims of one text into one. A reply with another
        number of labels is not used: its claims are checked one by one.
    questions : the question that each list of claims and its text are about, since a short text
        means something only as an answer to it; None where there is none.
    options : as for `extract_claims`. In a prompt of your own keep the text before the claims, for
        the server's cache.

    Source: RAGChecker, section 3.2 (claim-entailment checker; the wording of the prompt is ours).
    """
    if questions is None:
        questions = [_NO_QUESTION] * len(claims)
    return _CHECK.ask(model, claims, references, joint, options, question=questions)


@dataclass(frozen=True, slots=True)
class LabelledResults:
    """Results with the claims and labels that could be had.

    Claims that could not be read are None, and so is each unread label of a check.
    """

    results: RagResults
    reports: Mapping[str, StepReport]  # "claims" and "claim check" -> what the step took

    @property
    def unscored(self) -> tuple[str | int, ...]:
        """The ids of the results that lack claims or labels."""
        return tuple(result.id for result in self.results.results if result.missing())

    @property
    def scored(self) -> RagResults:
        """The results with all labels, for `ragbench.metrics.claims.claim_metrics_table`."""
        whole = tuple(result for result in self.results.results if not result.missing())
        return replace(self.results, results=whole)


def ragchecker_labels(
    model: Any,
    results: RagResults | Sequence[RagResult],
    *,
    joint: int | None = _JOINT,
    checker: Any = None,
    **options: Any,
) -> LabelledResults:
    """Extract and check the claims of results: everything that RAGChecker's eleven metrics need.

    ``model``, ``options``: as for `extract_claims`; ``joint``: as for `check_claims`.
    ``results``: from `ragbench.data.ragchecker.read_ragchecker`, or records of your own, each id
    once. Claims and labels that are there stay; only what is missing is asked, the same claims
    against the same chunk once. ``checker``: who checks the claims in place of the model, any
    object whose ``check_many(claims, texts)`` gives a label per claim and text. With one, ``model``
    may be None where all claims are there; ConfigError where some are not.

    Source: RAGChecker, section 3.2 and appendix B.
    """
    before = _records(results)
    rows, extracted = _with_claims(before, model, options)
    checks = list(_missing_checks(rows))
    claims = [check.claims for check in checks]
    texts = [check.text for check in checks]
    if checker is None:
        questions = [rows[check.row].question for check in checks]
        ids = [check.name for check in checks]
        judged = check_claims(model, claims, texts, joint, questions, ids=ids, **options)
    else:
        judged = _labels_of_checker(checker, claims, texts)
    rows = _with_labels(rows, checks, judged.labels)
    labelled = results if isinstance(results, RagResults) else RagResults(())
    labelled = replace(labelled, results=tuple(rows))
    if rows != before:
        labelled = replace(labelled, metrics=None)  # averages of other labels
    return LabelledResults(labelled, {"claims": extracted.report, "claim check": judged.report})


def _with_claims(
    rows: Sequence[RagResult], model: Any, options: Mapping[str, Any]
) -> tuple[list[RagResult], LabelResult]:
    """Take the texts apart whose claims are needed and not known."""
    missing = _texts_to_split(rows)
    if model is None and any(_needs_model(each.text) for each in missing):
        raise not_named("model that writes claims", " beside the checker, or the claims themselves")
    extracted = extract_claims(
        model,
        [each.text for each in missing],
        [rows[each.row].question for each in missing],
        ids=[f"{rows[each.row].id} {each.field}" for each in missing],
        **options,
    )
    rows = list(rows)
    for each, claims in zip(missing, extracted.labels, strict=True):
        if claims is not None:
            rows[each.row] = replace(rows[each.row], metrics=None, **{each.field: claims})
    return rows, extracted


def _with_labels(
    rows: Sequence[RagResult], checks: Sequence[_Check], labels: Sequence[Any]
) -> list[RagResult]:
    """Put the labels into the tables of their checks: a list, or with a column per chunk."""
    columns: dict[tuple[int, str], list[Any]] = defaultdict(list)
    for check, column in zip(checks, labels, strict=True):
        columns[check.row, check.field].append(column)
    labelled = []
    for place, row in enumerate(rows):
        tables = {}
        for field in row.missing():
            claims = _claims_of(row, field)
            if claims is None:
                continue
            if field.endswith("chunks"):
                by_chunk = columns[place, field]
                tables[field] = tuple(
                    tuple(column[claim] for column in by_chunk) for claim in range(len(claims))
                )
            else:
                (tables[field],) = columns[place, field]
        labelled.append(replace(row, metrics=None, **tables) if tables else row)
    return labelled


def _labels_of_checker(checker: Any, claims: Sequence[Any], texts: Sequence[str]) -> LabelResult:
    """Label lists of claims, each against its own text; None where the claims are not known.

    Each different list is checked once, against all of its texts.
    """
    texts_of: dict[tuple, dict[str, None]] = defaultdict(dict)  # a dict keeps the order of texts
    for listed, text in zip(claims, texts, strict=True):
        if listed:
            texts_of[listed][text] = None
    labels: dict[tuple[tuple, str], tuple[str, ...]] = {}
    for listed, own_texts in texts_of.items():
        table = np.array(checker.check_many(listed, list(own_texts)), object)
        if table.shape != (len(listed), len(own_texts)):
            got = f"labels of {checker!r} of shape {table.shape}"
            expected = f"shape {(len(listed), len(own_texts))}: a row per claim, a column per text"
            raise ConfigError(got, expected, "mend its check_many; do not pad the labels")
        for column, text in enumerate(own_texts):
            labels[listed, text] = tuple(table[:, column])
    of_lists = []
    for listed, text in zip(claims, texts, strict=True):
        of_lists.append(None if listed is None else labels.get((listed, text), ()))
    pairs = sum(map(len, labels.values()))
    return LabelResult(tuple(of_lists), StepReport("claim check", items=pairs, settled=pairs))


def ragchecker_calls(
    results: RagResults | Sequence[RagResult], joint: int | None = _JOINT, claims_per_text: int = 10
) -> dict[str, int]:
    """Count the calls that `ragchecker_labels` takes at most: step -> calls, for
    `ragbench.llm.plan`.

    A text whose claims are not known yet counts as ``claims_per_text``. Equal prompts are asked
    once, but all counted here.
    """
    rows = _records(results)
    checks = 0
    for check in _missing_checks(rows):
        claims = claims_per_text if check.claims is None else len(check.claims)
        if check.text.strip():
            checks += math.ceil(claims / (joint or max(claims, 1)))
    texts = {
        (rows[each.row].question, each.text)
        for each in _texts_to_split(rows)
        if _needs_model(each.text)
    }
    return {"claims": len(texts), "claim check": checks}


def _records(results: RagResults | Sequence[RagResult]) -> list[RagResult]:
    """Return the records of results, each id once."""
    rows = list(results.results if isinstance(results, RagResults) else results)
    check_records(rows, RagResult, "results to label")
    name, count = Counter(str(row.id) for row in rows).most_common(1)[0] if rows else ("", 0)
    if count > 1:
        got = f"the id {name!r} belongs to several results"
        raise DataError(got, "an id used once", "put the system's name into the ids")
    return rows


class _Text(NamedTuple):
    """A text whose claims are needed and not known."""

    row: int
    field: str  # of the result, that takes the claims
    text: str


def _texts_to_split(rows: Sequence[RagResult]) -> list[_Text]:
    texts = []
    for place, row in enumerate(rows):
        for side in ("response", "reference"):
            field = f"{side}_claims"
            needed = any(check.startswith(side) for check in row.missing())
            if needed and getattr(row, field) is None:
                texts.append(_Text(place, field, getattr(row, side)))
    return texts


def _needs_model(text: str) -> bool:
    return bool(text.strip()) and not _is_short(text)


class _Check(NamedTuple):
    """Claims of a result (None where not known), to be checked against one text."""

    row: int
    field: str  # of the result, that takes the labels
    claims: Any
    text: str
    name: str  # for messages


def _claims_of(row: RagResult, field: str) -> tuple[Claim, ...] | None:
    return row.response_claims if field.startswith("response") else row.reference_claims


def _missing_checks(rows: Sequence[RagResult]) -> Iterator[_Check]:
    for place, row in enumerate(rows):
        for field in row.missing():
            claims = _claims_of(row, field)
            name = f"{row.id} {field}"
            if field.endswith("chunks"):
                for number, chunk in enumerate(row.chunks):
                    yield _Check(place, field, claims, chunk.text, f"{name}[{number}]")
            elif field == "response_in_reference":
                yield _Check(place, field, claims, row.reference, name)
            else:
                yield _Check(place, field, claims, row.response, name)


_MEASURES = (
    "accuracy",
    "factual f1",
    "non-factual f1",
    "accuracy, three labels",
    "pearson",
    "spearman",
)


def load_labelled_claims(split: str | None = None) -> pd.DataFrame:
    """Load the labelled claims over MiniHop: id, document (its title), claim, label, split, and the
    document's text.

    ``first_label`` and ``second_label`` are two labellings of the same wording, None for a claim
    reworded after them; ``label`` is what they led to. ``split``: "dev" to set a checker's
    thresholds, "test" when they are fixed.
    """
    from ragbench.data import load_minihop

    check_known("split", [split or "dev"], SPLITS)
    path = packaged_data("minihop", "labels", "claims", "labelled_claims.jsonl")
    claims = pd.DataFrame([row for _, row in read_jsonl(path)])
    claims["text"] = claims["document"].map({d.title: d.text for d in load_minihop().documents})
    # a first label stands there where it was changed
    unchanged = claims["label"].where(claims["second_label"].notna())
    claims["first_label"] = claims["first_label"].fillna(unchanged)
    claims = claims.astype(object).where(claims.notna(), None)
    return claims if split is None else claims[claims["split"] == split].reset_index(drop=True)


def checker_intervals(
    human: Sequence[str],
    predicted: Sequence[str | None],
    responses: Sequence[Hashable] | None = None,
    *,
    resamples: int = 2000,
) -> dict[str, Interval]:
    """Measure a checker's labels against reference labels, people's or others: an Interval for each
    of accuracy, factual f1, non-factual f1, accuracy of three labels, pearson and spearman.

    Parameters
    ----------
    human, predicted : a label per claim: Entailment, Neutral or Contradiction. A claim to which the
        checker gave none (None) is left out.
    responses : the response or document that each claim is from. The two correlations are between
        the shares of claims not entailed, per response (None: undefined); the bootstrap draws a
        response with all its claims.

    Accuracy is of two classes, entailed or not; the factual F1 is of Entailment, the non-factual
    one of the others: F1 = 2 both / (2 both + one), of the claims that both call so, or one alone.

    Source: RAGChecker, appendix G, Table 16. Paper value (Llama3 + Llama3, zero context): accuracy
    91.89, F1 83.06 and
    94.67, Pearson 81.77, Spearman 80.83 (x100). That accuracy is of two classes follows from the
    published numbers.
    """
    table = _both_labels(human, predicted, responses)
    entailed = table[["human", "predicted"]].eq(ENTAILMENT)
    # 0: neither says entailed, 1: the checker alone, 2: the reference alone, 3: both
    codes = 2 * entailed["human"].astype(int) + entailed["predicted"]
    per_claim = {
        "accuracy": (entailed["human"] == entailed["predicted"], np.mean),
        "factual f1": (codes, _f1),
        "non-factual f1": (3 - codes, _f1),
        "accuracy, three labels": (table["human"] == table["predicted"], np.mean),
    }
    groups = None if responses is None or table.empty else table["response"].to_numpy()
    measured = {
        name: bootstrap_ci(values.to_numpy(), statistic, groups=groups, resamples=resamples)
        for name, (values, statistic) in per_claim.items()
    }
    shares = (~entailed).groupby(table["response"]).mean()
    for method in ("pearson", "spearman"):
        measured[method] = Interval(math.nan, math.nan, math.nan, 0)
        if groups is not None:
            sides = shares["human"].to_numpy(), shares["predicted"].to_numpy()
            measured[method] = correlation(*sides, method, resamples=resamples)
    return measured


def _both_labels(
    human: Sequence[str], predicted: Sequence[str | None], responses: Sequence[Hashable] | None
) -> pd.DataFrame:
    """Lay out the labels of claims that have two, with the number of each claim's response."""
    of = list(range(len(predicted)) if responses is None else responses)
    same_length(human=human, predicted=predicted, responses=of)
    check_known("label", [*human, *filter(None, predicted)], LABELS)
    table = pd.DataFrame({"human": list(human), "predicted": list(predicted)}, dtype=object)
    table["response"] = pd.factorize(pd.Series(of, dtype=object), use_na_sentinel=False)[0]
    return table[table["predicted"].notna()]


def _f1(codes: np.ndarray) -> float:
    both = (codes == 3).sum()
    one = ((codes == 1) | (codes == 2)).sum()
    return 2 * both / (2 * both + one) if both + one else math.nan
