"""Record Recall and EIR of E5 and BM25 on DRAGONBall's Chinese half, for notebook 44.

    RAGBENCH_DATA=... python scripts/record_rageval_dense.py

Chunks carry their titles, as in notebook 42. It takes about 300 CPU seconds, so `ragbench
reproduce` only reads what this writes: one row per question, setting and retriever. It holds no
text of the data set. ``document`` is the first that a question is about; a third of the questions
are about two.
"""

from functools import partial

from ragbench import make_embedder
from ragbench.papers import rageval
from ragbench.paths import packaged_data
from ragbench.retrieval import make_retriever

dragonball = rageval.dragonball("zh")
# it is TopK 2
settings = {name: size for name, size in rageval.SETTINGS.items() if name != "Chunk-TopK 512-2"}
e5 = partial(make_retriever, "SIM", embedder=make_embedder("e5"))
systems = {"BM25": rageval.bm25("zh"), "E5-small": e5}
rows = rageval.retrieval_rows(dragonball, systems, settings, prefix=[True])
rows["document"] = rows["question_id"].map(
    {q.id: q.meta["doc_ids"][0] for q in dragonball.questions}
)
path = packaged_data("recordings") / "rageval_dense.csv.gz"
columns = ["question_id", "kind", "document", "retriever", "setting", *rageval.MEASURES]
rows[columns].round(6).to_csv(path, index=False, compression={"method": "gzip", "mtime": 0})
print(f"{path}: {len(rows)} rows, {rows['question_id'].nunique()} questions")
