"""Data sets in, `Dataset` out. Malformed input is one error with file and line; nothing is loaded by halves."""

from collections.abc import Callable
from typing import Any

from ragbench.data.clapnq import load_clapnq
from ragbench.data.dragonball import dragonball_statistics, load_dragonball, load_dragonball_answers
from ragbench.data.fetch import fetch_hotpotqa
from ragbench.data.hotpotqa import load_hotpotqa
from ragbench.data.minihop import load_minihop
from ragbench.data.ragas_io import RagasSample, ragas_from_pandas, ragas_to_pandas, read_ragas, write_ragas
from ragbench.data.ragchecker import (
    load_ragchecker_counts,
    load_ragchecker_meta,
    load_refchecker,
    read_ragchecker,
    write_ragchecker,
)
from ragbench.data.user import load_csv, load_documents, load_jsonl
from ragbench.data.validate import Problem, validate, validate_files
from ragbench.data.wiki import build_wiki_corpus
from ragbench.data.wikieval import load_wikieval
from ragbench.data.wikieval_runs import load_wikieval_runs
from ragbench.errors import unknown
from ragbench.records import Dataset

# One of your own is a function that returns a Dataset, and one entry.
DATASETS: dict[str, Callable[..., Dataset]] = {
    "minihop": load_minihop,
    "hotpotqa": load_hotpotqa,
    "clapnq": load_clapnq,
    "dragonball": load_dragonball,
}


def load_dataset(name: str, **options: Any) -> Dataset:
    """Load a data set by its name in `DATASETS`, with the options of its loader.

    Raises
    ------
    ConfigError for an unknown name; DataError for a data set that is not there.
    """
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name](**options)
