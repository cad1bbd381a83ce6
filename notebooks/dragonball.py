"""DRAGONBall in notebook 41: counts of Table 1, package rouge, forms for people and what comes back."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

import ragbench as rb
from ragbench import papers
from ragbench.data.dragonball import DOMAINS, LANGUAGES, QUESTION_TYPES
from ragbench.labelling.keypoints import extract_keypoints
from ragbench.labelling.people import LabelItem
from ragbench.records import Dataset

# Rows of Table 1: our name of a domain or type, and the paper's.
ROWS = {
    "finance": "Finance", "law": "Legal", "medicine": "Medical",
    "information integration": "Information Integration", "factual": "Factual", "multi-hop": "Multi-hop Reasoning",
    "summary": "Summary", "numerical comparison": "Numerical Comparison", "temporal sequence": "Time-series",
    "unanswerable": "Irrelevant/Unanswerable",
}  # fmt: skip
PRINTED = {"zh": "CN", "en": "EN", "finance": "Finance", "law": "Law", "medicine": "Medical"}
COUNTS = ("0 Documents", "1 Document", "2 Documents", "3 Documents", "4 Documents", "More than 4")


def table_1(dataset):
    """Table 1 counted from the files, beside the paper's cells; shares are percent of the n questions behind them."""
    documents = Counter((d.meta["domain"], d.meta["language"]) for d in dataset.documents)
    kinds = Counter(q.kind for q in dataset.questions)
    sizes = Counter(min(len(q.references), 5) for q in dataset.questions)
    places = [(d, language) for d in DOMAINS for language in reversed(LANGUAGES)]
    counts = [(f"{ROWS[d]} {PRINTED[language]}", "documents", documents[d, language]) for d, language in places]
    counts += [(row, "share of questions", kinds[k]) for k, row in ROWS.items() if k not in DOMAINS]
    counts += [(row, "share by reference count", sizes[i]) for i, row in enumerate(COUNTS)]
    total = len(dataset.questions)
    table = pd.DataFrame([*counts, ("All", "questions", total)], columns=["row", "column", "n"])
    share = table["column"].str.startswith("share")
    table.insert(2, "value", (100 * table["n"] / total).where(share, table["n"]))
    paper = papers.published("rageval", "Table 1").rename(columns={"value": "paper"})[["row", "column", "paper"]]
    return table.merge(paper, on=["row", "column"], how="left", validate="1:1")


def common_words(true, answer):
    """The longest common subsequence that package rouge finds: from the ends, on a tie the answer's word is dropped."""
    lengths = [[0] * (len(answer) + 1)]
    for word in true:
        above, row = lengths[-1], [0]
        for j, other in enumerate(answer):
            row.append(above[j] + 1 if word == other else max(above[j + 1], row[j]))
        lengths.append(row)
    common, i, j = set(), len(true), len(answer)
    while i and j:
        if true[i - 1] == answer[j - 1]:
            common.add(true[i - 1])
            i, j = i - 1, j - 1
        elif lengths[i - 1][j] > lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return common


def package_rouge_l(answer, true):
    """ROUGE-L as package rouge 1.0.1 counts it: *distinct* words, of sentences that end at full stops."""
    sides = [[" ".join(s.split()).split(" ") for s in text.split(".") if s] for text in (answer, true)]
    if not all(sides):
        return np.nan
    common = set().union(*(common_words(t, a) for a, t in product(*sides)))
    return 2 * len(common) / sum(len(set().union(*sentences)) for sentences in sides)


PER_CELL, SEED = 10, 7


def item_name(record):
    """The name in a label file; it says domain, language and type, so the file can be counted without the data."""
    return "/".join([record.meta["domain"], record.meta["language"], record.kind, record.id])


def drawn(records, n):
    """The first n by a hash of seed and name."""
    return sorted(records, key=lambda r: hashlib.sha256(f"{SEED}/{item_name(r)}".encode()).hexdigest())[:n]


def question_item(question, documents):
    """What a person sees who scores a question: question, answer, references, documents."""
    shown = [documents[name] for name in question.meta.get("doc_ids", ()) if name in documents]
    texts = [d.text if d.text.startswith(d.title) else f"{d.title}\n{d.text}" for d in shown]
    evidence = "\n".join(f"- {reference}" for reference in question.references) or "(none)"
    parts = {"Question": f"{question.text}\n({question.kind})", "Answer": question.answer, "References": evidence}
    return LabelItem(item_name(question), parts | {"Documents": "\n\n".join(texts) or "(not named)"})


def keypoint_item(question, answer):
    """What a person sees who judges key points: question, answer, points."""
    points = {str(n): text for n, text in enumerate(question.meta["keypoints"], 1)}
    return LabelItem(item_name(question), {"Question": question.text, "Answer": answer or "(empty)"}, points)


def quality_means(labels, by):
    """Mean score over items, each the mean over people, and the share of scores 4 and 5."""
    names = pd.DataFrame(labels["item"].str.split("/", n=3).tolist(), columns=["domain", "language", "type", "id"])
    scores = labels.reset_index(drop=True).join(names).astype({"label": float})
    items = scores.groupby(["item", *by])["label"].mean().rename("score").reset_index()
    share = items.assign(share_4_5=items["score"] >= 4).groupby(by)["share_4_5"].mean()
    return rb.means(items, by, "score", resamples=2000).drop(columns="unscored").join(share, on=by)


def table_2(labels):
    """Table 2's cells from people's labels; n = 0 where there are none."""
    cells = pd.MultiIndex.from_product([("zh", "en"), DOMAINS], names=["language", "domain"])
    if len(labels):
        table = quality_means(labels, ["language", "domain"]).set_index(["language", "domain"])[["mean", "n"]]
    else:
        table = pd.DataFrame(columns=["mean", "n"], dtype=float)
    table = table.reindex(cells).reset_index()
    n = table["n"].fillna(0).astype(int)
    names = {"row": table["language"].map(PRINTED), "column": table["domain"].map(PRINTED)}
    unscored = (PER_CELL * len(QUESTION_TYPES) - n).clip(lower=0)
    return pd.DataFrame({**names, "value": table["mean"], "n": n, "unscored": unscored})


def with_key_points(judge: Any, data: Dataset, **options: Any) -> Dataset:
    """Add the key points of the questions that have none, taken out of their true answers by the
    judge.

    They travel in the rows of `grid`, where ``ragbench.score(rows, ["keypoints"], judge)`` reads
    them. ``options``: see `ragbench.labelling.asking`.

    Source: RAGEval, section 3.3.
    """
    bare = [q for q in data.questions if not q.meta.get("keypoints")]
    extracted = extract_keypoints(judge, [q.text for q in bare], [q.answer for q in bare], **options)
    points = dict(zip((q.id for q in bare), extracted, strict=True))
    questions = [
        replace(q, meta={**q.meta, "keypoints": points.get(q.id, q.meta.get("keypoints"))}) for q in data.questions
    ]
    return replace(data, questions=tuple(questions))
