"""RAGEval's quality assessment (Zhu et al. 2024, section 4): what people are asked, and Table 2, Figures 5 and 6.

The protocol: 420 questions with answer and references (10 of each of 7 types, 2 languages, 3 domains) scored 0 to 5;
20, 20 and 19 documents per language ranked beside a zero-shot and a one-shot one; the 420 again, for verdicts on the
keypoints of answers. ``items`` makes what is labelled (with `ragbench.widgets.LabellingTool`), ``tables`` computes the
numbers from the label files. An item's name in the file is ``domain/language/type/question`` (for documents
``domain/language/document``), so that a label file can be counted without the data.
"""

from ragbench.rageval_quality.items import (
    BASELINES,
    DOCUMENTS_RANKED,
    OURS,
    PER_CELL,
    document_items,
    document_name,
    document_sample,
    keypoint_items,
    question_items,
    question_name,
    question_sample,
    verdict_labels,
    write_baselines,
)
from ragbench.rageval_quality.tables import TOLERANCE, apart, figure_5, figure_6, quality_means, rank_shares, table_2

__all__ = [
    "BASELINES",
    "DOCUMENTS_RANKED",
    "OURS",
    "PER_CELL",
    "TOLERANCE",
    "apart",
    "document_items",
    "document_name",
    "document_sample",
    "figure_5",
    "figure_6",
    "keypoint_items",
    "quality_means",
    "question_items",
    "question_name",
    "question_sample",
    "rank_shares",
    "table_2",
    "verdict_labels",
    "write_baselines",
]
