"""The whole way with a model, from configurations to keypoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ragbench.datagen.configuration import make_configurations
from ragbench.datagen.document import left_out
from ragbench.datagen.generate import Generated
from ragbench.datagen.live import model_documents, model_values
from ragbench.datagen.live_questions import model_keypoints, model_questions, model_references, model_refine
from ragbench.datagen.questions import PER_DOCUMENT
from ragbench.datagen.schema import Schema

if TYPE_CHECKING:
    from ragbench.llm import Cassette


def make_model_set(
    model: Any,
    schema: Schema,
    documents: int,
    seed: int = 0,
    per_document: Mapping[str, int] = PER_DOCUMENT,
    *,
    cassette: Cassette | None = None,
) -> tuple[Generated, tuple[tuple[str, str], ...]]:
    """Generate a set with a model at every step of the paper.

    Parameters
    ----------
    model, cassette : as for `ragbench.llm.ask`.
    schema : a shipped one or your own.
    documents, seed : as for `ragbench.datagen.make_set`.
    per_document : questions per type and document.

    Returns
    -------
    the set, and what failed on the way as (id, reason). ``problems()`` of the set runs the validator; a model's set
    seldom passes it whole, and `ragbench.datagen.write_set` refuses what does not: take the questions it names out.
    """
    failed: list[tuple[str, str]] = []

    def kept(done: Any) -> tuple:
        failed.extend(done.failed)
        return done.made

    settled = kept(model_values(model, schema, make_configurations(schema, documents, seed), cassette=cassette))
    drop = [[name for fact in left_out(schema, c, seed) for name in fact.fields] for c in settled]
    written = kept(model_documents(model, schema, settled, drop=drop, cassette=cassette))
    texts = {d.id: d for d in written}
    used = tuple(c for c in settled if c.id in texts)
    questions = kept(model_questions(model, schema, used, written, per_document, cassette=cassette))
    questions = kept(model_references(model, questions, texts, cassette=cassette))
    questions = kept(model_refine(model, questions, texts, cassette=cassette))
    questions = kept(model_keypoints(model, questions, cassette=cassette))
    return Generated(schema, used, written, questions), tuple(failed)
