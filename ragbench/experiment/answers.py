"""The rows of a run with the texts behind them, as `ragbench.score` takes them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ragbench.comparison import system_names
from ragbench.data.formats import judgements
from ragbench.errors import DataError
from ragbench.experiment.spec import Experiment
from ragbench.metrics.cutoffs import TokenOffsets, joined_cutoffs
from ragbench.records import Chunk, Dataset
from ragbench.retrieval.base import before


def with_texts(experiment: Experiment, rows: pd.DataFrame) -> pd.DataFrame:
    """Do what ``Experiment.answers`` says."""
    grid, cutting = experiment.grid, experiment.cutting
    offsets = TokenOffsets(cutting.tokenizer)
    data = {name: _loaded(grid.data, name) for name in dict.fromkeys(rows["data"])}
    questions = {name: {question.id: question for question in loaded.questions} for name, loaded in data.items()}
    relevant = {name: judgements(loaded) for name, loaded in data.items()}
    chunks: dict[tuple[str, str], dict[str, Chunk]] = {}
    texts = []
    for row in rows.itertuples():
        question = questions[row.data].get(row.question_id)
        if question is None:
            raise _stranger(f"the question {row.question_id!r}", row.data)
        found, context = None, None
        if not row.N:
            found = []
        elif isinstance(row.hits, list):
            place = (row.data, row.chunker)
            if place not in chunks:
                cut = grid.chunker.get(row.chunker)
                chunks[place] = {chunk.id: chunk for chunk in cut(data[row.data].documents)} if cut else {}
            if strangers := [name for name in row.hits if name not in chunks[place]]:
                raise _stranger(f"the chunk {strangers[0]!r} of {row.chunker!r}", row.data)
            found = [chunks[place][name] for name in row.hits]
            listed = [chunk.text for chunk in found]
            context = " ".join(listed)[: joined_cutoffs(listed, [row.N], offsets, cutting.begin_token)[0]]
        said = {"question": question.text, "reference": question.answer, "references": list(question.references)}
        said["chunks"] = None if found is None else [chunk.text for chunk in before(len(context or ""), found)]
        said["context"] = context
        said["retrieved"] = None if found is None else [chunk.doc_id for chunk in found]
        texts.append(said | {"relevant": relevant[row.data].get(row.question_id)})
    names = [f"{name}@{n}" for name, n in zip(system_names(rows), rows["N"], strict=True)]
    if len(data) > 1:
        names = [f"{name} on {where}" for name, where in zip(names, rows["data"], strict=True)]
    columns = {name: [text[name] for text in texts] for name in (texts[0] if texts else ())}
    return rows.assign(system=names, **columns)


def _loaded(data: Any, name: str) -> Dataset:
    if name not in data:
        raise _stranger("the data set", name)
    return data[name] if isinstance(data[name], Dataset) else data[name]()


def _stranger(what: str, data: str) -> DataError:
    return DataError(
        f"a row names {what} of {data!r}, which this experiment does not have",
        "rows of this experiment, as its data and chunkers are now",
        "take those that its run() returns",
    )
