"""What stands before the first question of a run: data, chunks and retrievers, and who the models
are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ragbench.embedding import NotOnDiskError
from ragbench.errors import ConfigError
from ragbench.experiment.axes import is_model
from ragbench.experiment.grid import Grid
from ragbench.labelling.grades import grade_bound
from ragbench.llm import Cassette
from ragbench.llm.endpoints import Endpoint
from ragbench.llm.models import BOUNDS
from ragbench.records import Answer, Chunk, Dataset, Grade
from ragbench.retrieval.base import check_retriever, inner_searches


@dataclass(frozen=True)
class Built:
    """The data of an experiment, and what is searched for their questions."""

    data: dict[str, Dataset] = field(default_factory=dict)
    chunks: dict[tuple[str, str], list[Chunk]] = field(default_factory=dict)  # by data and chunker
    # of a plan: chunks that need vectors which are not on disk
    not_cut: dict[tuple[str, str], NotOnDiskError] = field(default_factory=dict)
    # by data, chunker and retriever
    retrievers: dict[tuple[str, str, str], Any] = field(default_factory=dict)

    @classmethod
    def of(cls, experiment: Grid) -> Built:
        """Load the data, cut their documents, and build the retrievers over the chunks."""
        built = cls()
        for data, source in experiment.data.items():
            dataset = _load(data, source)
            built.data[data] = dataset
            searches = dict.fromkeys(cell.search[:2] for cell in experiment.cells(data) if cell.N)
            for chunker in dict.fromkeys(chunker for chunker, _ in searches):
                try:
                    chunks = list(experiment.chunker[chunker](dataset.documents))
                except NotOnDiskError as error:
                    built.not_cut[data, chunker] = error
                else:
                    built.chunks[data, chunker] = chunks
            for chunker, retriever in searches:
                if (data, chunker) in built.chunks:
                    engine = experiment.retriever[retriever](built.chunks[data, chunker])
                    built.retrievers[data, chunker, retriever] = _with_data(engine, dataset)
        return built


def _with_data(engine: Any, dataset: Dataset) -> Any:
    """Return a retriever; what in it needs the data set, as `Gold` does, is told it."""
    for part, _ in inner_searches(check_retriever(engine), ()):
        if hasattr(part, "of"):
            part.of(dataset)
    return engine


def _load(name: str, source: Any) -> Dataset:
    data = source
    if not isinstance(source, Dataset):
        data = source()
    ids = {question.id for question in getattr(data, "questions", ())}
    if not ids or len(ids) < len(data.questions):
        raise ConfigError(
            f"data {name!r} gives {str(data)[:60]}",
            "a Dataset with questions, each with an id of its own",
            "check its loader",
        )
    return data


@dataclass(frozen=True)
class Person:
    """A chat model that answers or grades, and what held while it did."""

    facts: Endpoint
    servers: Counter[tuple[str, str]] = field(default_factory=Counter)  # by version and day
    limits: dict[str, int] = field(default_factory=dict)  # num_ctx and num_predict, of the latest

    def note(self, results: Iterable[Answer | Grade]) -> None:
        """Count answers or grades; failures are none."""
        for each in results:
            held = each.meta.get("held")
            if held is not None and each.failure is None:
                self.servers[held.get("server", ""), held.get("at", "")[:10]] += 1
                for limit in held.keys() & {"num_ctx", "num_predict"}:
                    self.limits[limit] = held[limit]

    def to_dict(self) -> dict[str, Any]:
        """Return what a manifest says of it."""
        servers = [[*place, count] for place, count in sorted(self.servers.items())]
        return {**self.facts.to_dict(), "servers": servers, **self.limits}

    @classmethod
    def meet(cls, experiment: Grid, cassette: Cassette | None) -> People:
        """Ask the servers of the chat models who they are."""
        bounds = {"generator": BOUNDS["text"], "judge": grade_bound(experiment.per_prompt)}
        people = {}
        for axis, bound in bounds.items():
            for name, value in getattr(experiment, axis).items():
                if is_model(value):
                    facts = Endpoint.identified(value, cassette, num_predict=bound)
                    people[axis, name] = cls(facts)
        return people


People = Mapping[tuple[str, str], Person]  # the chat models, by axis and name
