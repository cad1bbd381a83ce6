"""Talking to models: Ollama and others, recorded, resumable, and never silently wrong.

Reading order: ``models`` (a name becomes a chat model) -> ``asking`` (many prompts, one Reply each) with ``schedule``
(order, hosts, second tries), ``drivers`` (the wire), ``structured`` and ``context`` (is the reply whole?), ``failures``
(what can go wrong) and ``cassette`` (what is recorded). Beside them ``planning`` (before a run) and ``doctor``.
"""

from ragbench.llm.asking import Interrupted, ask
from ragbench.llm.cassette import Cassette
from ragbench.llm.context import estimate_tokens
from ragbench.llm.doctor import Fitness, fitness
from ragbench.llm.failures import KINDS, CallError
from ragbench.llm.models import chat_model
from ragbench.llm.planning import Plan, PlannedStep, Step, plan
from ragbench.llm.reply import Reply, Usage
from ragbench.llm.structured import label_schema
