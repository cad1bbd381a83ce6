"""RAGEval's experiment (Zhu et al. 2024, section 5): answers from the first k chunks of so many
characters, each headed by its document's title, judged by the key points of the true answers.

`grid` is the experiment behind the generation half of Tables 3, 4 and 5, `key_point_scores` the
judge's part. Notebook 42 has the retrieval half, which needs no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from ragbench.chunking import sentence_chunks
from ragbench.experiment import Experiment
from ragbench.labelling.keypoints import extract_keypoints, keypoint_verdicts
from ragbench.metrics.keypoints import VERDICTS, keypoint_metrics
from ragbench.records import Chunk, Dataset, Document, Question, questions_of

MEASURES = ("completeness", "hallucination", "irrelevance")


def _titled_chunks(documents: Iterable[Document], size: int, language: str) -> list[Chunk]:
    """Cut documents into whole sentences up to ``size`` characters, each chunk after its title in
    brackets, as the paper's indexer writes it (section 5.1).
    """
    chunks = sentence_chunks(documents, size, "characters", language)
    return [replace(chunk, text=f"({chunk.title}) {chunk.text}") for chunk in chunks]


def grid(
    name: str,
    data: Dataset,
    language: str,
    retrievers: Mapping[str, Callable],
    generators: Mapping[str, Any],
    settings: Sequence[tuple[int, int]] = ((512, 5),),
    **options: Any,
) -> Experiment:
    """Build the experiment on the questions of one language, "en" or "zh".

    ``generators``: name -> chat model; the paper has at most 256 new tokens and the models' own
    sampling (of ChatGPT a temperature of .2), which are options of the model. ``settings``:
    (characters of a chunk, k), by default Table 4's. ``options``: for `Experiment`.

    Source: RAGEval, section 5.1; Tables 4 and 5.
    """
    wanted = {(f"{size} characters", k) for size, k in settings}
    sizes = {size for size, _ in settings}
    return Experiment(
        name,
        data={data.name: data},
        chunker={
            f"{size} characters": partial(_titled_chunks, size=size, language=language)
            for size in sorted(sizes)
        },
        retriever=retrievers,
        k=sorted({k for _, k in settings}),
        N=10**5,  # more tokens than the chunks have: nothing is cut off
        generator=generators,
        prompts=dict.fromkeys(generators, f"rageval_answer_{language}"),
        keep=lambda cell: (cell.chunker, cell.k) in wanted,
        **options,
    )


def key_point_scores(
    judge: Any, rows: pd.DataFrame, questions: Iterable[Question], **options: Any
) -> pd.DataFrame:
    """Judge answers by the key points of their questions: rows of `grid` with `MEASURES` (Eq 3-5),
    NaN where a verdict was not read.

    The data set's own key points are taken; of a question without any the judge takes them out of
    the true answer first (section 3.3). ``options``: see `ragbench.labelling.asking`.
    """
    questions = list(questions)
    points = {q.id: q.meta["keypoints"] for q in questions if q.meta.get("keypoints")}
    bare = [q for q in questions if q.id not in points]
    texts = [q.text for q in bare]
    extracted = extract_keypoints(judge, texts, [q.answer for q in bare], **options)
    points |= dict(zip((q.id for q in bare), extracted, strict=True))
    rows = rows[rows["status"] == "ok"].reset_index(drop=True)
    asked = [question.text for question in questions_of([*rows.itertuples()], questions)]
    of_rows = [points[name] for name in rows["question_id"]]
    verdicts = keypoint_verdicts(judge, asked, rows["answer"].tolist(), of_rows, **options)
    scores = pd.DataFrame([_scores(labels) for labels in verdicts], columns=list(MEASURES))
    return rows.join(scores)


def _scores(labels: tuple[str | None, ...] | None) -> dict[str, float]:
    if labels is None or not set(labels) <= set(VERDICTS):
        return {}
    return keypoint_metrics(labels)
