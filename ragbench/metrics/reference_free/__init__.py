"""RAGAS's three metrics (Es et al. 2023, section 3), from labels and vectors; none of them calls a model.

Faithfulness takes one verdict per statement of the answer, answer relevance the vectors of the questions that a model
wrote for the answer, context relevance the sentences that a model copied from the context. The labels come from
`ragbench.labelling`, from a recorded run, or from a person.

Where nothing can be said (an answer without statements, no generated question, a zero vector, an empty context, a reply
that could not be read) the value is NaN unless the caller names another; the tables count, and say why.
"""

from ragbench.metrics.reference_free.scores import (
    NONCOMMITTAL,
    UNREAD,
    answer_relevance,
    context_relevance,
    faithfulness,
)
from ragbench.metrics.reference_free.tables import (
    answer_relevance_table,
    context_relevance_table,
    faithfulness_table,
)

__all__ = [
    "NONCOMMITTAL",
    "UNREAD",
    "answer_relevance",
    "answer_relevance_table",
    "context_relevance",
    "context_relevance_table",
    "faithfulness",
    "faithfulness_table",
]
