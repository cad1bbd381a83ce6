"""Answers with and without retrieved documents (thesis §2.4), by a chat model or by the embedded extractive reader.

Reading order: ``contexts`` (what the generator gets to see) -> ``answers`` (generate)
-> ``reader`` (the embedded default) with ``compare``.
"""

from __future__ import annotations

from ragbench.generation.answers import PROMPTS, generate
from ragbench.generation.contexts import BUDGETS, Task, contexts_from_hits, generation_tasks
from ragbench.generation.reader import ABSTENTION, ABSTENTIONS, ExtractiveReader
