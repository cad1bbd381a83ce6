"""Record RAGAS on WikiEval by a model: its three metrics and its two baselines, without a text, for notebook 30.

    RAGBENCH_DATA=... python scripts/record_ragas.py gguf:MODEL.gguf FILE

FILE is the cassette of the replies, which stays here: prompts and replies hold Wikipedia's texts. Run again to go on.
Shipped are numbers: `ragas_metrics.jsonl.gz` has a line per judged text (verdicts, cosines of the guessed questions to
the question, sentences needed of all), `ragas_baselines.csv` one per pair.
"""

import gzip
import json
import sys

import pandas as pd

from ragbench import data
from ragbench.data.wikieval import DIMENSIONS
from ragbench.embedding import default_embedder, embed_distinct
from ragbench.labelling.preferences import gpt_ranking, gpt_score
from ragbench.labelling.statements import ModelRagas
from ragbench.llm import Cassette, chat_model
from ragbench.metrics.reference_free import answer_relevance
from ragbench.papers import ragas
from ragbench.paths import packaged_data

ROOM = 2048  # tokens of a reply: a copied context is long


def metrics(model, pairs, embedder=None, **options):
    """Score both texts of every pair by RAGAS's three metrics, a dict of tables by dimension; print what it took."""
    scorer = ModelRagas(model, embedder, joint=1, num_predict=ROOM, **options)
    tables = {dimension: ragas.score_texts(scorer, pairs[dimension], dimension) for dimension in DIMENSIONS}
    print(*scorer.reports, sep="\n")
    return tables


def labels(tables, wikieval, embedder):
    """Return what is shipped: per text its verdicts, the cosines of its guessed questions, or its sentences."""
    rows = []
    questions = {row.id: row.question for row in wikieval}
    for dimension, table in tables.items():
        for text in table.to_dict("records"):
            row = {"dimension": dimension, "id": text["id"], "side": text["side"]}
            if dimension == "faithfulness":
                row["verdicts"] = text["verdicts"]
            elif dimension == "answer_relevance":
                row["cosines"] = cosines(questions[text["id"]], text["questions"], embedder)
            else:
                read = text["status"] != "extraction unread"
                row |= {"extracted": text["extracted"] if read else None}
                row |= {"sentences": text["n"], "altered": text["altered"]}
            rows.append(row)
    return rows


def cosines(question, guesses, embedder):
    """Return the cosine of each guessed question to the question; None where the guesses could not be read."""
    if guesses is None:
        return None
    vectors = embed_distinct(embedder, [question, *guesses])
    return [round(answer_relevance(vectors[question], [vectors[guess]]), 6) for guess in guesses]


def baselines(model, pair, dimension, **options):
    """Ask about one pair: its texts one after the other, so that a server reads a shared context once."""
    contexts = [pair.context] if dimension == "faithfulness" else None
    twice = contexts and contexts * 2
    options = {"concurrency": 1, "num_predict": 64, **options}
    scores = gpt_score(model, dimension, [pair.question] * 2, [pair.better, pair.worse], twice, **options).labels
    ranked = gpt_ranking(model, dimension, [pair.question], [pair.better], [pair.worse], contexts, **options)
    return (dimension, pair.id, *scores, *ranked.choices[0])


def main(name, cassette):
    """Ask about every pair of every dimension and write the two tables."""
    model = chat_model(name, num_ctx=8192)
    wikieval = data.load_wikieval()
    pairs = {dimension: wikieval.pairs(dimension) for dimension in DIMENSIONS}
    folder = packaged_data("recordings")
    embedder = default_embedder()
    with Cassette(cassette) as replies:
        tables = metrics(model, pairs, embedder, cassette=replies)
        rows = [baselines(model, pair, d, cassette=replies) for d in DIMENSIONS for pair in pairs[d]]
    lines = [json.dumps(row) + "\n" for row in labels(tables, wikieval, embedder)]
    (folder / "ragas_metrics.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode(), mtime=0))
    columns = ["dimension", "id", "better", "worse", "better_first", "better_second"]
    table = pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[2:], "Int64"))
    table.to_csv(folder / "ragas_baselines.csv", index=False)
    print(f"{len(table)} pairs, {int(table.isna().any(axis=1).sum())} with a baseline's reply that nobody could read")


if __name__ == "__main__":
    main(*sys.argv[1:])
