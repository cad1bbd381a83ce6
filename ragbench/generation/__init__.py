"""Answers with and without retrieved documents (thesis §2.4), by a chat model or an object that
answers.
"""

from ragbench.generation.answers import PROMPTS, generate
