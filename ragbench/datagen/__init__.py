"""Generated data: RAGEval's (Zhu et al. 2024, section 3), and pairs for RAGAS (Es et al. 2023, section 4).

Reading order: `schema` -> `configuration` (values) -> `document` -> `questions` (drafts, references, answers that agree
with them, keypoints) -> `sets` (all of it, and the validator). Each step has its rules, and beside them the way a model
does it: ``model`` and ``options`` (``cassette`` ...) go to `ragbench.llm.ask`, except ``prompt``, the id
or file of another prompt. `parts` are the records they hand on, `wording` the patterns of sentences.
`drafts`: questions about a user's own documents. `ragas_pairs`: texts made better and worse. `curation`: other
people's data made into a benchmark.
"""

from ragbench.datagen.configuration import make_configurations, real_names
from ragbench.datagen.document import write_documents
from ragbench.datagen.parts import KINDS, QRA, Configuration, GeneratedDocument, Reference
from ragbench.datagen.questions import (
    facts_needed,
    find_references,
    keypoints,
    refine,
    template_questions,
)
from ragbench.datagen.schema import DOMAINS, Schema, build_schema, load_schema, read_schema
from ragbench.datagen.sets import GeneratedSet, answer_questions, generate_set, make_model_set, make_set, write_set
