"""Generated data, by a model: RAGEval's (Zhu et al. 2024, section 3), and drafts of questions.

Reading order: `parts` (the records, and the writer that every step asks) -> `documents` (schema,
values, texts) -> `questions` (questions, references, answers that agree with them, key points) ->
`sets` (all of it). `checks`: what strings say of each. `drafts`: questions about a user's own
documents.

Every step takes a `Writer`, a model with options of `ragbench.llm.ask`; with ``cassette`` its
replies are recorded, and replayed.
"""

from ragbench.datagen.documents import make_configurations, summarise_schema, write_documents
from ragbench.datagen.parts import (
    KINDS,
    QRA,
    Configuration,
    GeneratedDocument,
    Reference,
    Rejected,
    Schema,
    Writer,
)
from ragbench.datagen.questions import (
    ask_questions,
    extract_keypoints,
    find_references,
    refine_answers,
)
from ragbench.datagen.sets import GeneratedSet, generate_set
