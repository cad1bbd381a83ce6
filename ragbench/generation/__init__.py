"""Answers with and without retrieved documents (thesis §2.4), by a chat model or by the embedded extractive reader."""

from ragbench.generation.answers import PROMPTS, contexts_from_hits, generate
from ragbench.generation.reader import ABSTENTION, ABSTENTIONS, ExtractiveReader
