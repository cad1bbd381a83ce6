"""Sets of WikiEval's shape (RAGAS, section 4): from MiniHop by rule, offline; from a user's own pages with a model.

Each row holds a text made better and a text made worse for each of the three dimensions: grounded / ungrounded answer,
complete / incomplete answer, focused / padded context. Padding comes from pages that mention the page (back-links).
"""

from ragbench.ragas_data.minihop import INCOMPLETE, exchanged, minihop_graded_pairs, minihop_ragas_set
from ragbench.ragas_data.padding import back_linked
from ragbench.ragas_data.pages import PROMPTS, make_ragas_set, steps_for_ragas_set

__all__ = [
    "INCOMPLETE",
    "PROMPTS",
    "back_linked",
    "exchanged",
    "make_ragas_set",
    "minihop_graded_pairs",
    "minihop_ragas_set",
    "steps_for_ragas_set",
]
