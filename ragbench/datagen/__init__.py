"""RAGEval's data generation (Zhu et al. 2024, section 3): from a schema to documents, questions, references, answers.

Reading order: `schema` -> `configuration` (values by rule) -> `document` (template writer) -> `questions` (drafts and
references) -> `refine` (answers and references made to agree; keypoints) -> `checks` (the validator) -> `generate`
(all of it). `live` has the steps that a model does; `names` invents names, `patterns` and `derive` word things.
"""

from ragbench.datagen.checks import check, require_references
from ragbench.datagen.configuration import make_configuration, make_configurations
from ragbench.datagen.document import write_document, write_documents
from ragbench.datagen.generate import Generated, answer_questions, generate, make_set, write_set
from ragbench.datagen.names import invent, real_names
from ragbench.datagen.parts import QRA, Configuration, Derived, GeneratedDocument, Reference, Section, Sentence
from ragbench.datagen.questions import annotate, draft_questions, facts_in, facts_needed, find_references
from ragbench.datagen.refine import add_keypoints, keypoints, refine
from ragbench.datagen.schema import DOMAINS, Schema, build_schema, load_schema, read_schema

__all__ = [
    "DOMAINS",
    "QRA",
    "Configuration",
    "Derived",
    "Generated",
    "GeneratedDocument",
    "Reference",
    "Schema",
    "Section",
    "Sentence",
    "add_keypoints",
    "annotate",
    "answer_questions",
    "build_schema",
    "check",
    "draft_questions",
    "facts_in",
    "facts_needed",
    "find_references",
    "generate",
    "invent",
    "keypoints",
    "load_schema",
    "make_configuration",
    "make_configurations",
    "make_set",
    "read_schema",
    "real_names",
    "refine",
    "require_references",
    "write_document",
    "write_documents",
    "write_set",
]
