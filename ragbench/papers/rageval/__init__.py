"""RAGEval (Zhu et al. 2024): its data sets, Table 1, and the settings of sections 5.1 to 5.4.

``retrieval`` has the retrieval half of Tables 4 and 5, ``generation`` Table 3 and the other half, ``quality`` what
people are asked: Table 2, Figures 5 and 6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from ragbench.data import load_dragonball
from ragbench.data.dragonball import DOMAINS, LANGUAGES
from ragbench.errors import ConfigError, DataError
from ragbench.records import Dataset, Document, Question

if TYPE_CHECKING:  # slow import
    from ragbench.datagen import GeneratedSet

# Chunk size and passages: of Table 4 (section 5.1: 512 and 5), then the rows of Table 5 by their names.
SETTINGS: Mapping[str, tuple[int, int]] = {
    "TopK 5": (512, 5),
    "TopK 2": (512, 2),
    "TopK 4": (512, 4),
    "TopK 6": (512, 6),
    "Chunk-TopK 128-8": (128, 8),
    "Chunk-TopK 256-4": (256, 4),
    "Chunk-TopK 512-2": (512, 2),
}
PRINTED = {"zh": "CN", "en": "EN", "finance": "Finance", "law": "Law", "medicine": "Medical"}
# Rows of Table 1: our name of a type, and the paper's.
_TABLE_1 = {
    "information integration": "Information Integration",
    "factual": "Factual",
    "multi-hop": "Multi-hop Reasoning",
    "summary": "Summary",
    "numerical comparison": "Numerical Comparison",
    "temporal sequence": "Time-series",
    "unanswerable": "Irrelevant/Unanswerable",
}
_COUNTS = ("0 Documents", "1 Document", "2 Documents", "3 Documents", "4 Documents", "More than 4")


def dragonball(language: str = "en", domain: str = "finance", documents: int = 40, seed: int = 0) -> Dataset:
    """Load the first so many documents of one language and domain, and the questions about no others.

    Parameters
    ----------
    language, domain : one of each; the paper's tables are finance.
    documents : DRAGONBall has 40 on finance in each language.
    seed : has no effect; see `generated`.
    """
    _check_documents(documents)
    data = load_dragonball(language=language, domain=domain)
    kept = data.documents[:documents]
    ids = {d.id for d in kept}
    questions = tuple(q for q in data.questions if ids.issuperset(q.meta["doc_ids"]))
    return replace(data, documents=kept, questions=questions)


def generated(language: str = "en", domain: str = "finance", documents: int = 20, seed: int = 7) -> Dataset:
    """Make documents and questions of one language and domain by templates, offline."""
    from ragbench.datagen import load_schema, make_set

    _check_documents(documents)
    return as_dataset(make_set(load_schema(domain, language), documents, seed), seed=seed)


DATA: Mapping[str, Callable[..., Dataset]] = {"dragonball": dragonball, "generated": generated}


def _check_documents(documents: int) -> None:
    if documents < 1:
        raise ConfigError(f"documents={documents}", "at least 1", "leave it out for the default")


def as_dataset(generated: GeneratedSet, *, seed: int | None = None) -> Dataset:
    """Turn a generated set into a `Dataset`, questions and documents as `load_dragonball` has them."""
    schema = generated.schema
    about = {"domain": schema.domain, "language": schema.language}
    questions = []
    for q in generated.questions:
        meta = {**about, "doc_ids": q.doc_ids, "keypoints": q.keypoints}
        questions.append(Question(q.id, q.question, q.answer, tuple(r.text for r in q.references), q.kind, "", meta))
    documents = tuple(Document(d.id, d.title, d.text, (), about) for d in generated.documents)
    setting = "templates" if seed is None else f"templates, seed {seed}"
    return Dataset("generated", tuple(questions), documents, meta={**about, "setting": setting})


def one_language(questions: Sequence[Question]) -> str:
    """Return the one language of the questions; DataError where they have several, or none."""
    languages = {q.meta.get("language") for q in questions}
    if len(languages) != 1:
        shown = ", ".join(sorted(map(str, languages))) or "no questions"
        raise DataError(f"a data set with {shown}", "questions in one language", "load one language at a time")
    return languages.pop()


def table_1(dataset: Dataset) -> pd.DataFrame:
    """Recompute Table 1 from the files, beside the paper's cells.

    Parameters
    ----------
    dataset : what `load_dragonball` gave; load both languages and all domains for the paper's table.

    Returns
    -------
    DataFrame with columns row, column, value, n, paper: documents per domain and language, questions by type and by
    number of references (percent; n is the count behind), and the number of questions. The last column is the paper's.

    Source: RAGEval, Table 1. Its "reference document count" is taken as the number of references: no question's
    references come from more than three documents.
    """
    from ragbench.papers import published

    total = len(dataset.questions)
    if not total:
        raise DataError("a data set without questions", "at least one question", "load it without a filter")
    names = {"finance": "Finance", "law": "Legal", "medicine": "Medical"}
    documents = Counter((d.meta["domain"], d.meta["language"]) for d in dataset.documents)
    cells = [
        (f"{names[d]} {PRINTED[language]}", "documents", documents[d, language], documents[d, language])
        for d in DOMAINS
        for language in reversed(LANGUAGES)
    ]
    kinds = Counter(q.kind for q in dataset.questions)
    cells += [(row, "share of questions", 100 * kinds[k] / total, kinds[k]) for k, row in _TABLE_1.items()]
    sizes = Counter(min(len(q.references), 5) for q in dataset.questions)
    cells += [(row, "share by reference count", 100 * sizes[i] / total, sizes[i]) for i, row in enumerate(_COUNTS)]
    cells.append(("All", "questions", total, total))
    table = pd.DataFrame(cells, columns=["row", "column", "value", "n"])
    paper = published("rageval", "Table 1").rename(columns={"value": "paper"})[["row", "column", "paper"]]
    return table.merge(paper, on=["row", "column"], how="left", validate="1:1")
