"""Talking to models: Ollama and others, recorded, resumable, and never silently wrong.

Reading order: ``models`` (a name becomes a chat model) -> ``endpoints`` (its options, its digest,
one call) over ``wire`` -> ``asking`` (many prompts in threads, one Reply each) with
``structured`` (is the reply whole?), ``failures`` (eight kinds) and ``cassette`` (what is recorded,
under which key). Before a run: ``planning``.
"""

from ragbench.llm.asking import ask
from ragbench.llm.cassette import Cassette
from ragbench.llm.endpoints import Endpoint, model_name
from ragbench.llm.failures import KINDS, CallError
from ragbench.llm.models import chat_model
from ragbench.llm.planning import Plan, plan
from ragbench.llm.reply import Reply, Usage
from ragbench.llm.structured import label_schema
from ragbench.llm.wire import estimate_tokens
