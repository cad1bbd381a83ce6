"""What a move of a slider costs on the server: the retrieval explorer, beside doing the work anew
at every move.

    python benchmarks/bench_widgets.py

The retrieval explorer scores all cut-offs of a question once and only redraws; its peer cuts and
scores every context at every move. The way to the browser and back is not in these numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import numpy as np

import ragbench as rb
from ragbench import data
from ragbench.papers import thesis
from ragbench.widgets import RetrievalExplorer


def milliseconds(move: Callable, values: Iterable) -> tuple[float, float]:
    """The median and the largest time of a move, in ms."""
    spent = []
    for value in values:
        start = time.perf_counter()
        move(value)
        spent.append(1e3 * (time.perf_counter() - start))
    return float(np.median(spent)), max(spent)


def main() -> None:
    dataset = data.load_minihop()
    chunks = rb.token_chunks(dataset.documents, size=100, overlap=0.2)
    retrievers = {name: build(chunks) for name, build in thesis.retrievers().items()}
    explorer = RetrievalExplorer(dataset.questions, retrievers)
    question = dataset.questions[0]
    texts = [
        " ".join(hit.chunk.text for hit in one.search([question.text], 10)[0])
        for one in retrievers.values()
    ]

    def anew(tokens: int) -> None:
        for text in texts:
            rb.ir_score(question.references, rb.truncate(text, tokens))

    cuts = [*range(50, 1000, 50)] * 5
    table = {
        f"retrieval explorer, {len(retrievers)} retrievers": (
            milliseconds(lambda n: setattr(explorer.slider, "value", n), cuts),
            milliseconds(anew, cuts),
        )
    }
    for name, ((ours, slowest), (peer, _)) in table.items():
        print(
            f"{name}: {ours:.2f} ms a move (largest {slowest:.1f}); anew {peer:.1f} ms, "
            f"{peer / ours:.0f} x"
        )


if __name__ == "__main__":
    main()
