"""Record the IR scores of the reranker in the box, for notebook 11.

    RAGBENCH_DATA=... python scripts/record_reranked.py

The first 50 hits of BM25 are scored by ms-marco-MiniLM-L-12-v2 in 8 bits, whose last digits depend
on the processor: so `ragbench reproduce` only reads what this writes, one row per question and N.
It holds no text of the data sets. 100 questions of HotpotQA and 100 of MiniHop are drawn by a
seed.
"""

import sys
import time
from dataclasses import replace
from functools import partial

import pandas as pd

import ragbench as rb
from ragbench.papers import thesis
from ragbench.paths import packaged_data
from ragbench.retrieval import CrossEncoder, make_retriever

drawn = int(sys.argv[1]) if len(sys.argv) > 1 else 100
reranked = {"reranked": partial(make_retriever, "Rerank", over="BM25", scorer=CrossEncoder())}
parts = []
for name in ("hotpotqa", "minihop"):
    data = rb.data.load_dataset(name)
    chunks = rb.semantic_chunks(data.documents, rb.make_embedder(), "merged")
    questions = pd.Series(data.questions)
    if drawn < len(questions):
        questions = questions.sample(drawn, random_state=0).sort_index()
    grid = thesis.experiment(
        "Table 3.1",
        replace(data, questions=tuple(questions)),
        chunker={"merged": lambda documents, chunks=chunks: chunks},
        retriever=reranked,
        k=10,
    )
    start = time.process_time()
    rows = grid.run(progress=False)
    seconds = (time.process_time() - start) / len(questions)
    parts.append(rows[["question_id", "N", "ir_score"]].assign(data=name, cpu_seconds=seconds))
    print(f"{name}: {len(questions)} questions, {seconds:.2f} CPU seconds a question", flush=True)
path = packaged_data("recordings") / "reranked.csv.gz"
table = pd.concat(parts)
table.to_csv(path, index=False, compression={"method": "gzip", "mtime": 0})
