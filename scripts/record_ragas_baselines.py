"""Record RAGAS's two baselines by a model on WikiEval: scores and choices without a text, for notebook 30.

    RAGBENCH_DATA=... python scripts/record_ragas_baselines.py gguf:MODEL.gguf FILE

FILE is the cassette of the replies, which stays here: the prompts hold WikiEval's texts. Run again to go on. Shipped is
one row per pair: the scores of both texts, and the place chosen (1 or 2) with the better text shown first and second.
"""

import sys

import pandas as pd

from ragbench import data
from ragbench.data.wikieval import DIMENSIONS
from ragbench.labelling.preferences import gpt_ranking, gpt_score
from ragbench.llm import Cassette, chat_model
from ragbench.paths import packaged_data


def recorded(model, pair, dimension, cassette):
    """Ask about one pair: its texts one after the other, so that a server reads a shared context once."""
    contexts = [pair.context] if dimension == "faithfulness" else None
    options = {"cassette": cassette, "concurrency": 1}
    twice = contexts and contexts * 2
    scores = gpt_score(model, dimension, [pair.question] * 2, [pair.better, pair.worse], twice, **options).labels
    ranked = gpt_ranking(model, dimension, [pair.question], [pair.better], [pair.worse], contexts, **options)
    return (dimension, pair.id, *scores, *ranked.choices[0])


def main(name, cassette):
    """Ask about every pair of every dimension and write the table."""
    model = chat_model(name, num_ctx=8192, num_predict=64)
    pairs = [(d, pair) for d in DIMENSIONS for pair in data.load_wikieval().pairs(d)]
    with Cassette(cassette) as replies:
        rows = [recorded(model, pair, d, replies) for d, pair in pairs]
    columns = ["dimension", "id", "better", "worse", "better_first", "better_second"]
    table = pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[2:], "Int64"))
    path = packaged_data("recordings") / "ragas_baselines.csv"
    table.to_csv(path, index=False)
    print(f"{path}: {len(table)} pairs, {int(table.isna().any(axis=1).sum())} with a reply that nobody could read")


if __name__ == "__main__":
    main(*sys.argv[1:])
