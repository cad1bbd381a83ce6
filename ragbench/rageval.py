"""RAGEval's retrieval experiment (Zhu et al. 2024, sections 5.1, 5.3, 5.4): the retrieval half of Tables 4 and 5.

data set x chunk size x metadata prefix x retriever x top-k -> one row per question with Recall and EIR. How documents
are cut, and what "512" means, is in `ragbench.rageval_index`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from ragbench.errors import ConfigError, DataError, unknown
from ragbench.rageval_index import (
    CUTS,
    TOKENIZERS,
    Make,
    bm25,
    character_bigrams,
    chinese_tokenizer,
    cut,
    cut_queries,
    dense,
    jieba_words,
    sentence_chunks,
    with_metadata,
)
from ragbench.records import Dataset, Document, Question

if TYPE_CHECKING:
    import pandas as pd

    from ragbench.datagen import Generated

__all__ = [
    "CUTS",
    "MEASURES",
    "SETTINGS",
    "TOKENIZERS",
    "as_dataset",
    "bm25",
    "character_bigrams",
    "chinese_tokenizer",
    "cut",
    "cut_queries",
    "dataset",
    "dense",
    "jieba_words",
    "retrieval_rows",
    "sentence_chunks",
    "with_metadata",
]

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
MEASURES = ("recall", "eir")


def dataset(
    name: str = "auto",
    language: str = "en",
    domain: str = "finance",
    *,
    per_type: int | None = None,
    documents: int = 40,
    seed: int = 7,
) -> Dataset:
    """Load the questions of the experiment.

    Parameters
    ----------
    name : ``"dragonball"``, ``"generated"`` (by templates, offline), or ``"auto"``: DRAGONBall where it is there.
    language, domain : one of each; the paper's tables are finance.
    per_type : keep the first so many questions of each type (the paper's protocol: 50); None for all.
    documents : the first so many, and the questions about no others; DRAGONBall has 40 on finance in each language.
    seed : of the generated set.

    Raises
    ------
    ConfigError for an unknown name, language or domain, or a number that keeps nothing; DataError when DRAGONBall is
    asked for and absent.

    Source: RAGEval, section 5.2 (first 50 per type, domain and language).
    """
    from ragbench.data import load_dragonball
    from ragbench.data.dragonball import DOCUMENTS_FILE
    from ragbench.datagen import load_schema, make_set
    from ragbench.paths import mirror

    if name == "auto":
        name = "dragonball" if mirror("rageval", DOCUMENTS_FILE) else "generated"
    if name == "dragonball":
        data = _first(load_dragonball(language=language, domain=domain), documents)
    elif name == "generated":
        data = as_dataset(make_set(load_schema(domain, language), documents, seed), seed=seed)
    else:
        raise unknown("data set", name, ("auto", "dragonball", "generated"))
    if per_type is None:
        return data
    if per_type < 1:
        raise ConfigError(f"per_type={per_type}", "at least 1, or None for all questions", "the paper took 50")
    seen: Counter[str] = Counter()
    kept = []
    for question in data.questions:
        seen[question.kind] += 1
        if seen[question.kind] <= per_type:
            kept.append(question)
    return replace(data, questions=tuple(kept))


def _first(data: Dataset, documents: int) -> Dataset:
    if documents < 1:
        raise ConfigError(f"documents={documents}", "at least 1", "leave it out for 40")
    kept = data.documents[:documents]
    ids = {d.id for d in kept}
    return replace(
        data, documents=kept, questions=tuple(q for q in data.questions if ids.issuperset(q.meta["doc_ids"]))
    )


def as_dataset(generated: Generated, *, seed: int | None = None) -> Dataset:
    """Turn a generated set into a `Dataset`, questions and documents as `load_dragonball` has them."""
    schema = generated.schema
    about = {"domain": schema.domain, "language": schema.language}
    questions = tuple(
        Question(
            q.id,
            q.question,
            q.answer,
            tuple(r.text for r in q.references),
            q.kind,
            "",
            {**about, "doc_ids": q.doc_ids, "keypoints": q.keypoints},
        )
        for q in generated.questions
    )
    documents = tuple(Document(d.id, d.title, d.text, (), about) for d in generated.documents)
    setting = "templates" if seed is None else f"templates, seed {seed}"
    return Dataset("generated", questions, documents, meta={**about, "setting": setting})


def retrieval_rows(
    data: Dataset,
    retrievers: Mapping[str, Make],
    settings: Mapping[str, tuple[int, int]] = SETTINGS,
    *,
    prefix: Sequence[bool] = (False, True),
    how: str = "characters",
    variant: str = "paper",
    empty: float = float("nan"),
    query_tokens: int = 128,
) -> pd.DataFrame:
    """Run the experiment: Recall and EIR of every question under every setting.

    Parameters
    ----------
    data : questions with references, in one language (``meta["language"]``).
    retrievers : name -> what builds one from chunks (`bm25`, `dense`, or your own).
    settings : name -> (chunk size, passages).
    prefix : index the chunks with (True) and without (False) their document's title. Scores are always taken on the
        chunks themselves: the title is not retrieved text.
    how : how documents are cut; see `ragbench.rageval_index.cut`.
    variant, empty : as for `ragbench.metrics.keypoints.passage_table`.
    query_tokens : queries are cut at so many.

    Returns
    -------
    DataFrame, one row per setting, prefix, retriever and question, in this order. Columns question_id, kind, retriever,
    setting, size, k, cut, prefix, recall, eir (NaN without references, unless ``empty`` says otherwise), references
    and words.

    Raises
    ------
    DataError for questions in several languages or none; ConfigError for impossible settings.

    Source: RAGEval, sections 5.3 and 5.4, Tables 4 and 5.
    """
    import pandas as pd

    from ragbench.metrics.keypoints import passage_table

    if not retrievers or not settings or not prefix:
        lacking = "retriever" if not retrievers else "setting" if not settings else "prefix"
        raise ConfigError(f"no {lacking}", "at least one retriever, setting and prefix", "see bm25, SETTINGS, (True,)")
    for name, (size, k) in settings.items():
        if size < 1 or k < 1:
            raise ConfigError(f"setting {name!r}: size {size}, k {k}", "both at least 1", "mend that setting")
    languages = {q.meta.get("language") for q in data.questions}
    if len(languages) != 1:
        shown = ", ".join(sorted(map(str, languages))) or "no questions"
        raise DataError(f"a data set with {shown}", "questions in one language", "load one language at a time")
    language = languages.pop()
    queries = cut_queries([q.text for q in data.questions], query_tokens)
    about = {"question_id": [q.id for q in data.questions], "kind": [q.kind for q in data.questions]}
    references = [q.references for q in data.questions]
    frames = {}
    for size in dict.fromkeys(size for size, _ in settings.values()):
        wanted = {name: k for name, (own, k) in settings.items() if own == size}
        plain = cut(data.documents, size, how, language)
        texts = {c.id: c.text for c in plain}
        for marked in prefix:
            for retriever, make in retrievers.items():
                system = make(with_metadata(plain) if marked else plain)
                # One search with the largest k: the hits for a smaller one are its beginning.
                found = system.search(queries, max(wanted.values()))
                for name, k in wanted.items():
                    passages = [[texts[h.chunk.id] for h in hits[:k]] for hits in found]
                    scores = passage_table(references, passages, language, variant, empty, prefix=False)
                    place = {
                        "retriever": retriever,
                        "setting": name,
                        "size": size,
                        "k": k,
                        "cut": how,
                        "prefix": marked,
                    }
                    frames[name, marked, retriever] = pd.DataFrame({**about, **place}).join(scores)
    in_order = (frames[key] for key in product(settings, prefix, retrievers))
    return pd.concat(in_order, ignore_index=True)
