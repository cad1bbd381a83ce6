"""Claims of a text, and whether other texts entail them (RAGChecker, section 3.2).

By a model: `extract_claims`, `check_claims`, and both over whole results, `ragchecker_labels`. How
far a checker agrees with labels by others: `checker_intervals`. MiniHop's `load_labelled_claims`
are reference labels, assigned by a strong language model under a written guideline; checked by a
person: 0; the second pass measures repeatability, not human agreement.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from ragbench.data.files import read_jsonl
from ragbench.data.ragchecker import LABELS, Claim, RagResult, RagResults, claim_text
from ragbench.errors import DataError, check_known
from ragbench.labelling.asking import (
    JointStep,
    LabelResult,
    LabelStep,
    StepReport,
    names_of,
    texts_schema,
)
from ragbench.labelling.checkers import ENTAILMENT, check_lists
from ragbench.labelling.graded_answers import check_split
from ragbench.llm.models import not_named
from ragbench.paths import packaged_data
from ragbench.records import check_records
from ragbench.stats import Interval, bootstrap_ci, correlation
from ragbench.stats.inputs import same_length
from ragbench.text.sentences import split_sentences

_Form = Literal["sentence", "triple"]
_READ = {
    "sentence": lambda reply: tuple(reply.claims),
    "triple": lambda reply: tuple(map(tuple, reply.claims)),
}
_EXTRACT = {
    "sentence": LabelStep(
        "claims", "steps_claims", texts_schema("claims"), "passage", _READ["sentence"]
    ),
    "triple": LabelStep(
        "claims", "steps_triples", texts_schema("claims", parts=3), "passage", _READ["triple"]
    ),
}
_CHECK = JointStep("claim check", "steps_check", LABELS, "Neutral", "reference", "claims")
_JOINT = 1  # claims per prompt: small models label several by their place
_NO_QUESTION = "(none)"
_SHORT_WORDS = 5
_SHORT_CHARACTERS = 40


def extract_claims(
    model: Any,
    texts: Sequence[str],
    form: _Form = "sentence",
    questions: Sequence[str] | None = None,
    **options: Any,
) -> LabelResult:
    """Split texts into claims: what each says in answer to its question, each different pair once.

    An empty text has no claim and needs no call. A short text, such as a name, a number or "yes",
    is one claim made of question and text (`short_claim`), without a call: a model that sees a name
    alone invents claims about it.

    ``form`` : "sentence", or "triple" (subject, predicate, object), which is what RAGChecker's
    recorded files hold. ``questions`` : one per text; None where texts answer none, and all that
    they state is taken apart. ``options`` : see `ragbench.labelling.asking`.

    Source: RAGChecker, section 3.2 (text-to-claim extractor; the wording of the prompt is ours).
    """
    check_known("form of claims", [form], _EXTRACT)
    names = names_of(options, texts=texts, questions=questions)
    asked = (
        [_NO_QUESTION] * len(names)
        if questions is None
        else [question.strip() for question in questions]
    )
    short = {
        place: (short_claim(question, text, form),)
        for place, (question, text) in enumerate(zip(asked, texts, strict=True))
        if question != _NO_QUESTION and _is_short(text)
    }
    passages = ["" if place in short else text for place, text in enumerate(texts)]
    result = _EXTRACT[form].ask(model, names, {"question": asked, "passage": passages}, options)
    return replace(
        result, labels=tuple(short.get(place, claims) for place, claims in enumerate(result.labels))
    )


def short_claim(question: str, text: str, form: _Form = "sentence") -> Claim:
    """Return the claim that a short answer makes.

    >>> short_claim("Who wrote Emma?", "Jane Austen")
    'The answer to "Who wrote Emma?" is: Jane Austen.'
    """
    question = question.strip()
    said = text.strip().rstrip(".")
    if form == "triple":
        return f'The answer to "{question}"', "is", said
    return f'The answer to "{question}" is: {said}.'


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
    number of labels is not
        used: its claims are checked one by one.
    questions : the question that each list of claims and its text are about, since a short text
    means something only
        as an answer to it; None where there is none.
    options : as for `extract_claims`. In a prompt of your own keep the text before the claims, for
    the server's cache.

    Source: RAGChecker, section 3.2 (claim-entailment checker; the wording of the prompt is ours).
    """
    asked = [_NO_QUESTION] * len(claims) if questions is None else questions
    return _CHECK.ask(model, claims, references, joint, options, question=asked)


@dataclass(frozen=True, slots=True)
class _Labelled:
    """Results with the claims and labels that could be had.

    In ``results`` claims and checks that could not be read stay None, also a check of which one
    label is unread: RAGChecker's format and its metrics have no fourth label.
    """

    results: RagResults
    # ids of the results that lack a check for this reason; ``scored`` are the others
    unscored: tuple[str | int, ...]
    # id -> check -> its labels, None for the unread ones
    partial: Mapping[str | int, Mapping[str, tuple]]
    reports: Mapping[str, StepReport]  # "claims" and "claim check" -> what the step took

    @property
    def scored(self) -> RagResults:
        """The results with all labels, which `ragbench.metrics.claims.claim_metrics_table` takes."""
        out = set(self.unscored)
        return replace(
            self.results, results=tuple(r for r in self.results.results if r.id not in out)
        )


class _Pair(NamedTuple):
    """Claims of a result (None where not known), to be checked against one text;

    ``name`` is for messages.
    """

    result: int
    check: str
    claims: Any
    text: str
    name: str
    question: str


def ragchecker_labels(
    model: Any,
    results: RagResults | Sequence[RagResult],
    *,
    joint: int | None = _JOINT,
    form: _Form = "sentence",
    checker: Any = None,
    **options: Any,
) -> _Labelled:
    """Extract and check the claims of results: everything that RAGChecker's eleven metrics need.

    ``model``, ``form``, ``options``: as for `extract_claims`; ``joint``: as for `check_claims`.
    ``results``: from `ragbench.data.ragchecker.read_ragchecker`, or records of your own, each id
    once. Claims and labels that are there stay; only what is missing is asked, the same claims
    against the same chunk once. ``checker``: who checks the claims in place of the model, any
    object whose ``check_many(claims, texts)`` gives a label per claim and text. With one, ``model``
    may be None where all claims are there; ConfigError where some are not.

    Source: RAGChecker, section 3.2 and appendix B.
    """

    def extract(texts: list[str], questions: list[str], ids: list[str]) -> LabelResult:
        if model is None and any(text.strip() and not _is_short(text) for text in texts):
            raise not_named(
                "model that writes claims", " beside the checker, or the claims in the results"
            )
        return extract_claims(model, texts, form, questions, ids=ids, **options)

    def check(
        claims: list[Any], texts: list[str], questions: list[str], ids: list[str]
    ) -> LabelResult:
        if checker is not None:
            return _checked(checker, claims, texts)
        return check_claims(model, claims, texts, joint, questions, ids=ids, **options)

    return _label(results, extract, check)


def _checked(checker: Any, claims: Sequence[Any], texts: Sequence[str]) -> LabelResult:
    labels = check_lists(checker, claims, texts)
    pairs: set[tuple[str, str]] = set()
    for claim_list, text in zip(claims, texts, strict=True):
        pairs.update((claim_text(claim), text) for claim in claim_list or ())
    return LabelResult(
        tuple(labels), StepReport("claim check", items=len(pairs), settled=len(pairs))
    )


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
    for pair in _pairs(rows):
        claims = claims_per_text if pair.claims is None else len(pair.claims)
        checks += math.ceil(claims / (joint or max(claims, 1))) if pair.text.strip() else 0
    texts = {
        (rows[n].question, text)
        for n, _, text in _texts_to_split(rows)
        if text.strip() and not _is_short(text)
    }
    return {"claims": len(texts), "claim check": checks}


def _records(results: RagResults | Sequence[RagResult]) -> list[RagResult]:
    """Return the records of results, each id once."""
    rows = list(results.results if isinstance(results, RagResults) else results)
    check_records(rows, RagResult, "results to label")
    if twice := [name for name, count in Counter(str(row.id) for row in rows).items() if count > 1]:
        got = f"the id {twice[0]!r} belongs to several results"
        do = "put the system's name into the ids"
        raise DataError(got, "an id used once", do)
    return rows


def _texts_to_split(rows: Sequence[RagResult]) -> list[tuple[int, str, str]]:
    """Return place, field and text of the claims that are needed and not known."""
    return [
        (n, f"{name}_claims", getattr(row, name))
        for n, row in enumerate(rows)
        for name in ("response", "reference")
        if getattr(row, f"{name}_claims") is None
        and any(check.startswith(name) for check in row.missing())
    ]


def _claims_of(check: str) -> str:
    return "response_claims" if check.startswith("response") else "reference_claims"


def _pairs(rows: Sequence[RagResult]) -> Iterator[_Pair]:
    for n, row in enumerate(rows):
        for check in row.missing():
            name = f"{row.id} {check}"
            claims = getattr(row, _claims_of(check))
            if check.endswith("chunks"):
                for j, chunk in enumerate(row.chunks):
                    yield _Pair(n, check, claims, chunk.text, f"{name}[{j}]", row.question)
            else:
                text = row.reference if check.startswith("response") else row.response
                yield _Pair(n, check, claims, text, name, row.question)


def _label(
    results: RagResults | Sequence[RagResult],
    extract: Callable[[list[str], list[str], list[str]], LabelResult],
    check: Callable[[list[Any], list[str], list[str], list[str]], LabelResult],
) -> _Labelled:
    """Extract the claims that are not known, do the checks that are missing, and put both into the
    rows.
    """
    rows = _records(results)
    before = list(rows)
    unsplit = _texts_to_split(rows)
    texts = [text for *_, text in unsplit]
    questions = [rows[n].question for n, *_ in unsplit]
    extracted = extract(texts, questions, [f"{rows[n].id} {field}" for n, field, _ in unsplit])
    for (n, field, _), claims in zip(unsplit, extracted.labels, strict=True):
        if claims is not None:
            rows[n] = replace(rows[n], metrics=None, **{field: claims})
    pairs = list(_pairs(rows))
    claims = [pair.claims for pair in pairs]
    texts = [pair.text for pair in pairs]
    judged = check(claims, texts, [pair.question for pair in pairs], [pair.name for pair in pairs])
    parts: dict[tuple[int, str], list] = defaultdict(list)
    for pair, labels in zip(pairs, judged.labels, strict=True):
        parts[pair.result, pair.check].append(labels)
    partial: dict[Any, dict[str, tuple]] = defaultdict(dict)
    for n, row in enumerate(rows):
        for name in row.missing():
            claims = getattr(row, _claims_of(name))
            columns = parts[n, name]
            if claims is None:
                continue
            matrix = name.endswith("chunks")
            table = (
                tuple(tuple(c[i] for c in columns) for i in range(len(claims)))
                if matrix
                else columns[0]
            )
            if any(None in labels for labels in (table if matrix else [table])):
                partial[row.id][name] = table
            else:
                rows[n] = replace(rows[n], metrics=None, **{name: table})
    labelled = (
        replace(results, results=tuple(rows))
        if isinstance(results, RagResults)
        else RagResults(tuple(rows))
    )
    if rows != before:
        labelled = replace(labelled, metrics=None)  # averages of other labels
    unscored = tuple(row.id for row in rows if row.missing())
    return _Labelled(
        labelled,
        unscored,
        dict(partial),
        {"claims": extracted.report, "claim check": judged.report},
    )


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

    check_split(split)
    claims = pd.DataFrame(
        [row for _, row in read_jsonl(packaged_data("minihop", "labelled_claims.jsonl"))]
    )
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
    of `_MEASURES`.

    Parameters
    ----------
    human, predicted : a label per claim: Entailment, Neutral or Contradiction. A claim to which the
    checker gave none
        (None) is left out.
    responses : the response or document that each claim is from. The two correlations are between
    the shares of claims
        not entailed, per response (None: undefined); the bootstrap draws a response with all its
        claims.

    Accuracy is of two classes, entailed or not; the factual F1 is of Entailment, the non-factual
    one of the others.

    Source: RAGChecker, appendix G, Table 16. Paper value (Llama3 + Llama3, zero context): accuracy
    91.89, F1 83.06 and
    94.67, Pearson 81.77, Spearman 80.83 (x100). That accuracy is of two classes follows from the
    published numbers.
    """
    same_length(
        human=human, predicted=predicted, responses=predicted if responses is None else responses
    )
    if strange := [
        label for label in (*human, *(p for p in predicted if p is not None)) if label not in LABELS
    ]:
        raise DataError(
            f"the label {strange[0]!r}", f"one of {', '.join(LABELS)}", "check that claim again"
        )
    kept = [i for i, label in enumerate(predicted) if label is not None]
    truth, guess = (np.array([labels[i] for i in kept], str) for labels in (human, predicted))
    true = truth == ENTAILMENT
    said = guess == ENTAILMENT
    # 0: neither says entailed, 1: the checker alone, 2: the reference alone, 3: both
    both = 2 * true + said
    index = None
    correlations = [Interval(math.nan, math.nan, math.nan, 0)] * 2
    if responses is not None and kept:
        index = pd.factorize(
            pd.Series([responses[i] for i in kept], dtype=object), use_na_sentinel=False
        )[0]
        shares = [np.bincount(index, ~entailed) / np.bincount(index) for entailed in (true, said)]
        # type: ignore[arg-type]
        correlations = [
            correlation(*shares, method, resamples=resamples) for method in ("pearson", "spearman")
        ]
    values = ((true == said, np.mean), (both, _f1), (3 - both, _f1), (truth == guess, np.mean))
    # type: ignore[arg-type]
    rows = [
        bootstrap_ci(v, statistic, groups=index, resamples=resamples) for v, statistic in values
    ]
    return dict(zip(_MEASURES, rows + correlations, strict=True))


def _f1(codes: np.ndarray) -> float:
    both = (codes == 3).sum()
    one = ((codes == 1) | (codes == 2)).sum()
    return 2 * both / (2 * both + one) if both + one else math.nan
