"""ragbench: a Jupyter-first research workbench for evaluating retrieval-augmented generation.

``import ragbench as rb`` costs a few milliseconds: every name below loads its module when it is
first used.

To read the package, take ten files in the order in which a question passes them:

1. ``records.py``: what a question, a document, a chunk, a hit and an answer hold.
2. ``data/user.py``: questions and documents from files.
3. ``chunking.py``: documents become chunks.
4. ``retrieval/bm25.py``: chunks are ranked for a question. ``retrieval/table.py`` names all
  retrievers.
5. ``metrics/ir_score.py``: how much of the evidence stands in the retrieved text, cut at N tokens.
6. ``llm/asking.py``: prompts become replies. ``llm/cassette.py`` keeps them.
7. ``labelling/claims.py``: an answer becomes claims, and each claim a label.
8. ``metrics/claims.py``: labels become RAGChecker's numbers. All metrics are written in this way.
9. ``experiment/run.py``: all of it over a grid of data, chunkers, retrievers and models.
10. ``scoring.py``: metrics for rows of any origin. ``stats/intervals.py`` says how sure a mean is.
"""

from __future__ import annotations

from ragbench._lazy import lazy

__version__ = "0.2.0"

# Where each public name lives. Reading order: records -> data -> chunking -> embedding -> retrieval
# -> metrics.
HOMES = {
    "records": [
        "Answer",
        "Chunk",
        "Dataset",
        "Document",
        "GRADES",
        "Grade",
        "Hit",
        "Question",
    ],
    "text.tokens": ["TokenOffsets", "default_tokenizer", "joined_cutoffs", "truncate"],
    "chunking": ["segment", "semantic_chunks", "split_chunks", "token_chunks"],
    "embedding": ["CachedEmbeddings", "MiniLM", "make_embedder"],
    "retrieval": [
        "BM25",
        "MMR",
        "Dense",
        "FromLangChain",
        "Hybrid",
        "LongContextReorder",
        "MultiQuery",
        "llm_decomposer",
        "reorder",
        "to_langchain",
    ],
    "experiment": ["Experiment"],
    "rows": ["load_rows"],
    "report.audit": ["audit", "audit_rows"],
    "llm": ["Cassette", "Reply", "Usage", "ask", "chat_model"],
    "labelling.checkers": ["ModelChecker"],
    "labelling.claims": ["check_claims", "extract_claims", "ragchecker_labels"],
    "datagen.drafts": ["accept_drafts", "draft_items", "draft_questions"],
    "errors": ["ConfigError", "DataError", "ModelError", "RagbenchError"],
    "metrics.claims": ["claim_metrics", "claim_metrics_table"],
    "generation": ["generate"],
    "metrics.ir_score": ["ir_score", "ir_score_curve", "ir_score_table"],
    "metrics.keypoints": [
        "effective_information_rate",
        "keypoint_metrics",
        "passage_table",
        "reference_recall",
    ],
    "metrics.lexical": [
        "bleu",
        "claim_overlap",
        "contained",
        "exact_match",
        "idf_weights",
        "rouge_l",
        "token_f1",
    ],
    "metrics.ranking": ["rank_table"],
    "metrics.reference_free": [
        "answer_relevance",
        "context_relevance",
        "faithfulness",
    ],
    "labelling.statements": ["ModelRagas"],
    "labelling.preferences": ["better_of_two"],
    "labelling.keypoints": ["keypoint_verdicts"],
    "labelling.exam": ["measure_judge"],
    "labelling.grades": ["grade", "load_graded_answers"],
    "labelling.people": ["LabelItem", "append_labels", "load_labels"],
    "stats": [
        "Interval",
        "binomial_ci",
        "mean_interval",
        "compare",
        "compare_scores",
        "correlation",
        "holm",
        "kappa",
        "means",
        "paired_difference",
        "paired_permutation_test",
        "pairwise_agreement",
        "power_analysis",
        "ppi_mean",
        "preference_correlation",
    ],
    "scoring": ["Scores", "label_items", "metric_table", "plan_score", "score", "with_labels"],
    "metrics.thresholds": ["best_threshold", "fit_thresholds"],
}
_MODULES = [
    "data",
    "datagen",
    "experiment",
    "llm",
    "metrics",
    "papers",
    "plots",
    "retrieval",
    "stats",
    "widgets",
]

__all__ = [*(name for names in HOMES.values() for name in names), "__version__"]
__getattr__, __dir__ = lazy(__name__, HOMES, [*_MODULES, "__version__"])
