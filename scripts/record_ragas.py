"""Ship RAGAS on WikiEval by a model, its three metrics and its two baselines, without a text, for
notebook 30.

    python scripts/record_ragas.py

Notebook 30, run with MODEL and CASSETTE (``num_predict=2048``: a copied context is long), writes
``ragas/texts.jsonl`` and ``ragas/baselines.csv``. The cassette stays here: prompts and replies hold
Wikipedia's texts. Shipped are numbers: `ragas_metrics.jsonl.gz` has a line per judged text
(verdicts, cosines of the guessed questions to the question, sentences needed of all),
`ragas_baselines.csv` one per pair.
"""

import gzip
import json
import math

import pandas as pd

from ragbench.paths import packaged_data, results_dir


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


def write_metrics():
    """Write the labels of RAGAS's three metrics."""
    table = pd.read_json(results_dir("ragas") / "texts.jsonl", lines=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows_of(table))
    path = packaged_data("recordings") / "ragas_metrics.jsonl.gz"
    path.write_bytes(gzip.compress(lines.encode(), mtime=0))
    print(f"{path}: {len(table)} texts")


def write_baselines():
    """Write the scores and choices of the two baselines."""
    table = pd.read_csv(results_dir("ragas") / "baselines.csv")
    table = table.astype(dict.fromkeys(table.columns[2:], "Int64"))
    path = packaged_data("recordings") / "ragas_baselines.csv"
    table.to_csv(path, index=False)
    print(f"{path}: {len(table)} pairs, {int(table.isna().any(axis=1).sum())} with an unread reply")


if __name__ == "__main__":
    write_metrics()
    write_baselines()
