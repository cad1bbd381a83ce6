"""Generated data: RAGEval's (Zhu et al. 2024, section 3), and pairs for RAGAS (Es et al. 2023, section 4).

Reading order: `schema` -> `configuration` (values) -> `document` -> `questions` (drafts and references) -> `answers`
(made to agree with references; keypoints) -> `checks` (the validator) -> `sets` (all of it). Each step has its rules
first, then the way a model does it. `parts` are the records they hand on, `wording` the patterns of sentences.
`ragas_pairs`: texts made better and worse.
"""

from ragbench.datagen.answers import add_keypoints, keypoints, refine
from ragbench.datagen.checks import check, require_references
from ragbench.datagen.configuration import invent, make_configuration, make_configurations, real_names
from ragbench.datagen.document import write_document, write_documents
from ragbench.datagen.parts import (
    KINDS,
    QRA,
    Configuration,
    Derived,
    FactSentence,
    GeneratedDocument,
    Reference,
    Section,
)
from ragbench.datagen.questions import annotate, draft_questions, facts_in, facts_needed, find_references
from ragbench.datagen.schema import DOMAINS, Schema, build_schema, load_schema, read_schema, schema_from_documents
from ragbench.datagen.sets import GeneratedSet, answer_questions, generate_set, make_model_set, make_set, write_set
