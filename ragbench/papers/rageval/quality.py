"""RAGEval's quality assessment (section 4): what people are asked, and Table 2, Figures 5 and 6 from their labels.

The protocol: 420 questions with answer and references (10 of each of 7 types, 2 languages, 3 domains) scored 0 to 5;
20, 20 and 19 documents per language ranked beside a zero-shot and a one-shot one; the 420 again, for verdicts on the
keypoints of answers. An item's name in a label file is ``domain/language/type/question`` (for documents
``domain/language/document``), so that the file can be counted without the data.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import pandas as pd

from ragbench.data.dragonball import DOMAINS, LANGUAGES, QUESTION_TYPES
from ragbench.errors import DataError
from ragbench.labelling.people import KINDS, Label, LabelItem, by_annotator, current
from ragbench.metrics.keypoints import keypoint_metrics
from ragbench.papers.rageval import PRINTED
from ragbench.records import Document, Question
from ragbench.stats import compare_pairs, means

PER_CELL = 10
DOCUMENTS_RANKED: Mapping[str, int] = {"finance": 20, "law": 20, "medicine": 19}
OURS, BASELINES = "RAGEval", ("zero-shot", "one-shot")
TOLERANCE = 0.015  # the paper finds less between people and judge (Figure 6)
_QUESTION_PARTS, _DOCUMENT_PARTS = ("domain", "language", "type", "id"), ("domain", "language", "id")
# Order of the rows: languages as printed, everything else as the paper lists it.
_ORDER = (*reversed(LANGUAGES), *DOMAINS, *QUESTION_TYPES, *KINDS["ranks"].aspects, OURS, *BASELINES)
_RANK = {name: place for place, name in enumerate(_ORDER)}
_ROUGE = {"en": "ROUGE-L of the released code", "zh": "ROUGE-L of characters; the released code has jieba's words"}


def _name(record: Question | Document) -> str:
    """The name of an item in label files."""
    kind = [record.kind] if isinstance(record, Question) else []
    return "/".join([record.meta["domain"], record.meta["language"], *kind, record.id])


def _drawn(records: Iterable[Any], n: int, seed: int) -> list[Any]:
    """Choose n records by a hash of seed and name: the choice stays when others are added to the set."""
    return sorted(records, key=lambda r: hashlib.sha256(f"{seed}/{_name(r)}".encode()).hexdigest())[:n]


def question_sample(
    questions: Iterable[Question], per_cell: int = PER_CELL, seed: int = 0
) -> tuple[tuple[Question, ...], pd.DataFrame]:
    """Choose the questions that people score: so many of each type, language and domain, at random.

    Returned are the sample, in the order of domain, language, type, and the 42 cells: domain, language, type,
    available, sampled, short. A cell with too few questions gives what it has.

    Source: RAGEval, section 4 (420 samples).
    """
    cells = defaultdict(list)
    for question in questions:
        cells[question.meta["domain"], question.meta["language"], question.kind].append(question)
    sample, counts = [], []
    for key in product(DOMAINS, LANGUAGES, QUESTION_TYPES):
        drawn = _drawn(cells[key], per_cell, seed)
        sample += drawn
        counts.append((*key, len(cells[key]), len(drawn), per_cell - len(drawn)))
    columns = ["domain", "language", "type", "available", "sampled", "short"]
    return tuple(sample), pd.DataFrame(counts, columns=columns)


def document_sample(documents: Iterable[Document], seed: int = 0) -> tuple[Document, ...]:
    """Choose the documents that people rank: 20 of finance, 20 of law, 19 of medicine per language, or all there are.

    Source: RAGEval, section 4.
    """
    cells = defaultdict(list)
    for document in documents:
        cells[document.meta["domain"], document.meta["language"]].append(document)
    parts = [_drawn(part, DOCUMENTS_RANKED[domain], seed) for (domain, _), part in sorted(cells.items())]
    return tuple(document for part in parts for document in part)


def question_items(questions: Iterable[Question], documents: Iterable[Document]) -> list[LabelItem]:
    """Make the items of Figure 3: document, question, its type, answer and references, to be scored 0 to 5.

    Source: RAGEval, section 4 (what annotators are given).
    """
    texts = {d.id: d.text if d.text.startswith(d.title) else f"{d.title}\n{d.text}" for d in documents}
    items = []
    for q in questions:
        shown = {"Question": f"{q.text}\n({q.kind})", "Answer": q.answer}
        shown["References"] = "\n".join(f"- {r}" for r in q.references) or "(none)"
        shown["Documents"] = "\n\n".join(texts[i] for i in q.meta.get("doc_ids", ()) if i in texts) or "(not named)"
        items.append(LabelItem(_name(q), shown))
    return items


def document_items(
    documents: Sequence[Document], baselines: Mapping[str, Mapping[str, str]]
) -> tuple[list[LabelItem], tuple[tuple[str, str], ...]]:
    """Make the items of Figure 4: each document beside those that a model wrote without a configuration.

    ``baselines`` are texts by writer and document id, see `write_baselines`. Returned are items and what is left out,
    as (document, reason), since a writer has no text.
    """
    items, left_out = [], []
    for document in documents:
        texts = {OURS: document.text} | {writer: written.get(document.id, "") for writer, written in baselines.items()}
        lacking = [writer for writer, text in texts.items() if not text.strip()]
        if lacking or len(texts) < 2:
            left_out.append((_name(document), f"no text by {', '.join(lacking) or 'another writer'}"))
        else:
            items.append(LabelItem(_name(document), {}, texts))
    return items, tuple(left_out)


def write_baselines(
    model: Any, schema: Any, configurations: Sequence[Any], sample: str, cassette: Any = None
) -> tuple[dict[str, dict[str, str]], tuple[tuple[str, str], ...]]:
    """Let a model write each document without its configuration: zero-shot, and one-shot with a sample document.

    Of schema and configurations only domain, subdomain and language reach the model. Returned are writer -> document
    id -> text, and what failed as (document, reason).
    """
    from ragbench.datagen.document import model_documents

    texts, failed = {}, []
    for mode in BASELINES:
        given = {"sample": sample} if mode == "one-shot" else {}
        done = model_documents(model, schema, configurations, mode, cassette=cassette, **given)
        texts[mode] = {d.id: d.text for d in done.made}
        failed += [(f"{name} {mode}", reason) for name, reason in done.failed]
    return texts, tuple(failed)


def keypoint_items(questions: Sequence[Question], answers: Sequence[str]) -> list[LabelItem]:
    """Make the items of Figure 6: question, answer, and the true answer's keypoints to be judged one by one."""
    items = []
    for question, answer in zip(questions, answers, strict=True):
        points = {str(n): text for n, text in enumerate(question.meta["keypoints"], 1)}
        shown = {"Question": question.text, "Answer": answer or "(empty)"}
        items.append(LabelItem(_name(question), shown, {}, points))
    return items


def verdict_labels(questions: Sequence[Question], verdicts: Sequence[Sequence[str | None]], judge: str) -> list[Label]:
    """Write a judge's verdicts as labels, for `figure_6` and ``agreement``; one that could not be read makes none."""
    return [
        Label("keypoints", _name(question), str(n), verdict, judge, "")
        for question, judged in zip(questions, verdicts, strict=True)
        for n, verdict in enumerate(judged, 1)
        if verdict is not None
    ]


def _scored(rows: list[dict[str, Any]], columns: Sequence[str], by: Sequence[str]) -> pd.DataFrame:
    """Rows of labels in the order in which the paper lists their groups; within a group they stay as they are."""
    frame = pd.DataFrame(rows, columns=list(columns))
    return frame.sort_values(list(by), key=lambda column: column.map(_RANK), kind="stable")


def quality_means(
    labels: Iterable[Label], by: Sequence[str] = ("language", "domain"), *, resamples: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Average the rubric scores by any of domain, language, type; several people's scores of one item are averaged.

    Columns beside those of means: share_4_5 (of items with 4 or more), annotators.

    Source: RAGEval, section 4, Table 2.
    """
    by = list(by)
    scores = [
        {**_parts(label.item, _QUESTION_PARTS), "item": label.item, "who": label.annotator, "score": float(label.label)}
        for label in current(labels, "rubric")
    ]
    scores = _scored(scores, [*_QUESTION_PARTS, "item", "who", "score"], by)
    items = scores.groupby(["item", *_QUESTION_PARTS], sort=False)["score"].mean().reset_index()
    table = means(items, by, "score", resamples=resamples, seed=seed).drop(columns="unscored")
    share = items.assign(share_4_5=items["score"] >= 4).groupby(by)["share_4_5"].mean()
    people = scores.groupby(by)["who"].nunique().rename("annotators")
    return table.join(share, on=by).join(people, on=by)


def table_2(labels: Iterable[Label], per_cell: int = PER_CELL) -> pd.DataFrame:
    """Compute every cell of Table 2 from rubric labels; without labels value is NaN and n is 0.

    ``unscored`` counts items of the protocol without a label.

    Source: RAGEval, Table 2. Paper value: 4.94 (CN, Finance).
    """
    table = _every_cell(quality_means(labels), language=reversed(LANGUAGES), domain=DOMAINS)  # CN first
    table = table.assign(row=table["language"].map(PRINTED), column=table["domain"].map(PRINTED), value=table["mean"])
    table["unscored"] = (per_cell * len(QUESTION_TYPES) - table["n"]).clip(lower=0)
    return table[["row", "column", "value", "low", "high", "n", "unscored"]]


def _every_cell(table: pd.DataFrame, **values: Iterable[str]) -> pd.DataFrame:
    """One row for each combination of the values, n = 0 where the table has none."""
    cells = pd.MultiIndex.from_product(values.values(), names=list(values))
    table = table.set_index(list(values)).reindex(cells).reset_index()
    return table.assign(n=table["n"].fillna(0).astype(int))


def rank_shares(
    labels: Iterable[Label],
    by: Sequence[str] = ("language", "domain", "criterion", "writer"),
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Count how often each writer's document is ranked first, and its mean rank.

    Several people's ranks of one document are averaged. A tie on the first rank counts for each, and ties share the
    better rank: 1, 1, 2. ``by`` are "criterion" and "writer", and any of domain, language; n counts documents.

    Source: RAGEval, section 4, Figure 5. Paper value: above 0.85 (richness, clarity, safety, both languages).
    """
    by = list(by)
    ranks = [
        _parts(label.item, _DOCUMENT_PARTS)
        | dict(zip(("criterion", "writer"), label.aspect.split("/", 1), strict=True))
        | {"item": label.item, "who": label.annotator, "rank": int(label.label)}
        for label in current(labels, "ranks")
    ]
    ranks = _scored(ranks, ["domain", "language", "item", "criterion", "writer", "who", "rank"], by)
    orders = ranks.groupby(["item", "criterion", "who"])["rank"]
    ranks = ranks.assign(rank=orders.rank("dense"), of=orders.transform("size"))  # only the order counts
    ranks = ranks[ranks["of"] == ranks["of"].max()]  # an order that lacks a document is none
    documents = ranks.assign(first=ranks["rank"] == 1).groupby([*by, "item"], sort=False)[["first", "rank"]].mean()
    documents = documents.reset_index()
    table = means(documents, by, "first", resamples=resamples, seed=seed).rename(columns={"mean": "first"})
    mean_rank = documents.groupby(by)["rank"].mean().rename("mean_rank")
    return table.join(mean_rank, on=by)[[*by, "first", "low", "high", "mean_rank", "n"]]


def figure_5(labels: Iterable[Label]) -> pd.DataFrame:
    """Compute the numbers the paper gives of Figure 5: how often (percent) its own document is first.

    Rows are criterion and language, e.g. "Safety CN"; without labels value is NaN and n is 0.
    """
    shares = rank_shares(labels, ("criterion", "language", "writer"), resamples=0).query("writer == @OURS")
    table = _every_cell(shares, criterion=KINDS["ranks"].aspects, language=reversed(LANGUAGES))
    table["row"] = table["criterion"].str.capitalize() + " " + table["language"].map(PRINTED)
    table = table.assign(column="share ranked first, more than", value=100 * table["first"].astype(float))
    return table[["row", "column", "value", "n"]]


def figure_6(
    people: Iterable[Label],
    judge: Iterable[Label],
    *,
    tolerance: float = TOLERANCE,
    resamples: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare the three measures as people and a judge (or two judges) see them, over the same answers.

    Either side has verdicts of one annotator; a judge's are from `verdict_labels`. One row per language and measure,
    and for both languages together ("all"): people, judge (means), difference, low, high (paired over answers), within
    (whether the means are less than ``tolerance`` apart), n (answers with the same keypoints judged by both), unscored
    (others).

    Source: RAGEval, section 4, Figure 6 (absolute differences below 0.015).
    """
    first, second = _verdicts(people), _verdicts(judge)
    items = sorted(first.keys() | second.keys())
    both = [i for i in items if first.get(i, {}).keys() == second.get(i, {}).keys()]
    measures = ["completeness", "hallucination", "irrelevance"]
    sides = [
        pd.DataFrame([keypoint_metrics(list(side[i].values())) for i in both], both, measures, float)
        for side in (first, second)
    ]
    languages = pd.Series([_parts(i, _QUESTION_PARTS)["language"] for i in items], items, dtype=object)
    pairs, asked = {}, []
    for language in (*reversed(LANGUAGES), "all"):
        wanted = languages.index if language == "all" else languages.index[languages == language]
        for measure in measures:
            pairs[language, measure] = tuple(side.loc[side.index.isin(wanted), measure] for side in sides)
            asked.append(len(wanted))
    table = compare_pairs(pairs, ["language", "measure"], resamples=resamples, seed=seed)
    table = table.rename(columns={"mean a": "people", "mean b": "judge"})
    table = table.assign(within=table["difference"].abs() < tolerance, unscored=asked - table["n"])
    columns = ["language", "measure", "people", "judge", "difference", "low", "high", "within", "n", "unscored"]
    return table[columns]


def _parts(item: str, names: Sequence[str]) -> dict[str, str]:
    parts = dict(zip(names, item.split("/", len(names) - 1), strict=False))
    if len(parts) < len(names) or parts["domain"] not in DOMAINS or parts["language"] not in LANGUAGES:
        raise DataError(
            f"an item named {item!r}", "/".join(names), "make items with question_items, or leave these out"
        )
    return parts


def _verdicts(labels: Iterable[Label]) -> dict[str, dict[str, str]]:
    held = current(labels, "keypoints")
    if len(by_annotator(held)) > 1:
        who = ", ".join(by_annotator(held))
        raise DataError(f"verdicts by {who}", "one annotator on each side", "part them with by_annotator(labels)")
    verdicts: dict[str, dict[str, str]] = defaultdict(dict)
    for label in held:
        verdicts[label.item][label.aspect] = label.label
    return verdicts


def apart(cells: pd.DataFrame, judge: str | None, sight: pd.DataFrame) -> pd.DataFrame:
    """Give cells of Tables 3 to 5 that the embedded checker judged rows of their own, not the paper's, and a note.

    ``judge`` is the model that judged, whose cells stay in the paper's rows, or None. ``sight`` is the completeness
    that the checker finds, index (language, text) with a row for ``"its references"``.
    """
    notes = {f"Rouge-L {PRINTED[g]}": note for g, note in _ROUGE.items()}
    if judge is None:
        cells = cells.assign(row=cells["row"] + ", embedded checker")
        for g in LANGUAGES:
            seen = f"{sight.loc[(g, 'its references'), 'completeness']:.2f}"
            note = f"the embedded checker finds {seen} of the keypoints in the true references"
            notes |= dict.fromkeys(
                (f"{m} {PRINTED[g]}" for m in ("Completeness", "Hallucination", "Irrelevance")), note
            )
    return cells.assign(note=[notes.get(column) for column in cells["column"]])
