"""RAGAS's three metrics without a language model: words, numbers, names and MiniLM vectors. Labelled *embedded*.

``answer`` says how far a text answers a question; ``scorer`` has the three metrics. Rules and constants were made on
MiniHop (`ragbench.datagen.ragas_pairs`) and never on WikiEval, which they are measured on.
"""

from ragbench.embedded_ragas.answer import AnswerParts, answer_parts, asked_for
from ragbench.embedded_ragas.scorer import EmbeddedRagas, Needed

__all__ = ["AnswerParts", "EmbeddedRagas", "Needed", "answer_parts", "asked_for"]
