"""Record RAGAS on WikiEval by a model: its three metrics and its two baselines, without a text, for
notebook 30.

    RAGBENCH_DATA=... python scripts/record_ragas.py gguf:MODEL.gguf FILE [metrics] [baselines]

FILE is the cassette of the replies, which stays here: prompts and replies hold Wikipedia's texts.
Run again to go on. Metrics are those that notebook 30 wrote to ``ragas/texts.jsonl`` with MODEL and
CASSETTE (``num_predict=2048``: a copied context is long). Shipped are numbers: `ragas_metrics.jsonl.gz` has a line per judged text
(verdicts, cosines of the guessed questions to the question, sentences needed of all),
`ragas_baselines.csv` one per pair.
"""

import gzip
import json
import math
import sys

import pandas as pd

from ragbench import data
from ragbench.data.wikieval import DIMENSIONS
from ragbench.labelling.preferences import gpt_ranking, gpt_score
from ragbench.llm import Cassette, chat_model
from ragbench.paths import packaged_data, results_dir


def baselines(model, pair, dimension, **options):
    """Ask about one pair: its texts one after the other, so that a server reads a shared context
    once.
    """
    contexts = [pair.context] if dimension == "faithfulness" else None
    twice = contexts and contexts * 2
    options = {"concurrency": 1, "num_predict": 64, **options}
    scores = gpt_score(
        model, dimension, [pair.question] * 2, [pair.better, pair.worse], twice, **options
    )
    ranked = gpt_ranking(
        model, dimension, [pair.question], [pair.better], [pair.worse], contexts, **options
    )
    return (dimension, pair.id, *scores, *ranked.choices[0])


def rows_of(table):
    """Return each text's own columns: those of its dimension."""
    return [
        {
            name: value
            for name, value in row.items()
            if not (isinstance(value, float) and math.isnan(value))
        }
        for row in table.astype(object).to_dict("records")
    ]


def write_metrics(*_):
    """Write the labels of RAGAS's three metrics."""
    table = pd.read_json(results_dir("ragas") / "texts.jsonl", lines=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows_of(table))
    path = packaged_data("recordings") / "ragas_metrics.jsonl.gz"
    path.write_bytes(gzip.compress(lines.encode(), mtime=0))
    print(f"{path}: {len(table)} texts")


def write_baselines(model, pairs, replies):
    """Write the scores and choices of the two baselines."""
    rows = [baselines(model, pair, d, cassette=replies) for d in pairs for pair in pairs[d]]
    columns = ["dimension", "id", "better", "worse", "better_first", "better_second"]
    table = pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[2:], "Int64"))
    path = packaged_data("recordings") / "ragas_baselines.csv"
    table.to_csv(path, index=False)
    print(f"{path}: {len(table)} pairs, {int(table.isna().any(axis=1).sum())} with an unread reply")


PARTS = {"metrics": write_metrics, "baselines": write_baselines}


def main(name, cassette, *parts):
    """Ask about every pair of every dimension and write the tables."""
    model = chat_model(name, num_ctx=8192)
    wikieval = data.load_wikieval()
    pairs = {dimension: data.wikieval_pairs(wikieval, dimension) for dimension in DIMENSIONS}
    with Cassette(cassette) as replies:
        for part in parts or PARTS:
            PARTS[part](model, pairs, replies)


if __name__ == "__main__":
    main(*sys.argv[1:])
