"""Data sets in, `Dataset` out. Malformed input is one error with file and line; nothing is loaded by halves."""

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

__all__ = [
    "Problem",
    "RagasSample",
    "build_wiki_corpus",
    "dragonball_statistics",
    "fetch_hotpotqa",
    "load_clapnq",
    "load_csv",
    "load_documents",
    "load_dragonball",
    "load_dragonball_answers",
    "load_hotpotqa",
    "load_jsonl",
    "load_minihop",
    "load_ragchecker_counts",
    "load_ragchecker_meta",
    "load_refchecker",
    "load_wikieval",
    "load_wikieval_runs",
    "ragas_from_pandas",
    "ragas_to_pandas",
    "read_ragas",
    "read_ragchecker",
    "validate",
    "validate_files",
    "write_ragas",
    "write_ragchecker",
]
