"""RAGEval's experiment (Zhu et al. 2024, section 5): answers from the first k chunks of so many
characters, each headed by its document's title, judged by the key points of the true answers.

`grid` is the experiment behind the generation half of Tables 3, 4 and 5; ``ragbench.score(rows,
["keypoints"], judge)`` is the judge's part. Notebook 42 has the retrieval half, which needs no
model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ragbench.chunking import sentence_chunks
from ragbench.experiment import Experiment
from ragbench.records import Chunk, Dataset, Document


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
