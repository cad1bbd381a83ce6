"""The grid of settings: one at a time around the paper's default, or all combinations, as one ``Experiment``."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ragbench.errors import ConfigError, DataError, unknown
from ragbench.records import Chunk, Dataset, Document, Question

if TYPE_CHECKING:
    from ragbench.experiment import Experiment

KS, SIZES, OVERLAPS = (5, 10, 20), (150, 300, 600), (0.0, 0.2, 0.4)
PROMPTS = {"default": "ragchecker_default", "optimised": "ragchecker_optimised"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One column of a figure: chunks, tokens in each, the share that neighbours share, the prompt (App. D)."""

    k: int = 20
    size: int = 300
    overlap: float = 0.2
    prompt: str = "default"

    @property
    def chunker(self) -> str:
        """Name of its chunker in the grid."""
        return f"{self.size} tokens, overlap {self.overlap:g}"

    @classmethod
    def of(cls, chunker: str, k: int = 20, prompt: str = "default") -> Setting:
        """Return the setting that a chunker's name and k stand for."""
        size, _, overlap = chunker.partition(" tokens, overlap ")
        return cls(int(k), int(size), float(overlap), prompt)


DEFAULT = Setting()
# Figure and setting: the values along its axis.
FACTORS: Mapping[str, tuple[Setting, ...]] = {
    "k": tuple(Setting(k=k) for k in KS),
    "size": tuple(Setting(size=size) for size in SIZES),
    "prompt": tuple(Setting(prompt=name) for name in PROMPTS),
    "overlap": tuple(Setting(overlap=overlap) for overlap in OVERLAPS),
}


def dataset(name: str = "auto", per_kind: int | None = None) -> Dataset:
    """Load questions over documents that are long enough for chunk sizes to differ.

    Parameters
    ----------
    name : ``"dragonball"``: its English part, three domains, documents of about 1,700 tokens; ``"minihop"``: its
        documents joined by topic into pages of about 2,200; ``"auto"``: DRAGONBall where it is there.
    per_kind : keep the first so many questions of each domain and type; None for all.

    Returns
    -------
    Dataset; ``meta["domain"]`` of every question is set.

    Raises
    ------
    ConfigError for another name or a ``per_kind`` below 1; DataError when DRAGONBall is asked for and absent.
    """
    from ragbench.data import load_dragonball, load_minihop
    from ragbench.data.dragonball import DOCUMENTS_FILE
    from ragbench.paths import mirror

    if per_kind is not None and per_kind < 1:
        raise ConfigError(f"per_kind={per_kind}", "at least 1, or None for all questions", "leave it out")
    if name == "auto":
        name = "dragonball" if mirror("rageval", DOCUMENTS_FILE) else "minihop"
    if name not in ("dragonball", "minihop"):
        raise unknown("data set", name, ("auto", "dragonball", "minihop"))
    data = load_dragonball(language="en") if name == "dragonball" else topic_pages(load_minihop())
    seen: dict[tuple[str, str], list[Question]] = defaultdict(list)
    for question in data.questions:
        seen[question.meta["domain"], question.kind].append(question)
    kept = {q.id for some in seen.values() for q in some[:per_kind]}
    return replace(data, questions=tuple(q for q in data.questions if q.id in kept))


def topic_pages(data: Dataset) -> Dataset:
    """Join the documents of each topic into one page; a question's domain is the group of its topic.

    Raises
    ------
    DataError naming a document or question without ``meta["topic"]``.
    """
    for record in (*data.documents, *data.questions):
        if not record.meta.get("topic"):
            raise DataError(f"{record.id!r} has no topic", "meta['topic'] everywhere", "join the documents yourself")
    pages: dict[str, list[str]] = defaultdict(list)
    for document in data.documents:
        pages[document.meta["topic"]].append(document.text)
    documents = tuple(Document(t, t, "\n\n".join(texts), (), {"topic": t}) for t, texts in pages.items())
    questions = tuple(replace(q, meta={**q.meta, "domain": q.meta["topic"].partition("/")[0]}) for q in data.questions)
    return replace(data, name=f"{data.name} pages", questions=questions, documents=documents)


def answerable(data: Dataset) -> Dataset:
    """Keep the questions whose answers can be taken apart: with references, and of MiniHop's those with a long answer.

    The others are in ``excluded``, with the reason.
    """
    long = any(q.meta.get("long_answer") for q in data.questions)
    why = {
        q.id: "no references" if not q.references else "no long answer"
        for q in data.questions
        if not q.references or (long and not q.meta.get("long_answer"))
    }
    kept = tuple(q for q in data.questions if q.id not in why)
    return replace(data, questions=kept, excluded=(*data.excluded, *why.items()))


def settings(
    ks: Sequence[int] = KS, sizes: Sequence[int] = SIZES, overlaps: Sequence[float] = OVERLAPS, full: bool = False
) -> list[Setting]:
    """List the settings of the retriever: one factor at a time around `DEFAULT`, or all combinations."""
    every = [Setting(k, size, overlap) for size in sizes for overlap in overlaps for k in ks]
    if DEFAULT not in every:
        raise ConfigError("axes without the default", f"{DEFAULT} among the settings", "add 20, 300 and 0.2")
    return every if full else [s for s in every if _changed(s) <= 1]


def _changed(setting: Setting) -> int:
    return sum(getattr(setting, name) != getattr(DEFAULT, name) for name in Setting.__slots__)


def grid(
    name: str,
    data: Dataset,
    retrievers: Mapping[str, Callable],
    generator: Any = None,
    wanted: Iterable[Setting] | None = None,
    **options: Any,
) -> Experiment:
    """Build the diagnosis as one experiment.

    Parameters
    ----------
    name : of the run, whose rows lie in ``data/results/<name>``.
    data : questions and documents.
    retrievers : name -> function chunks -> retriever.
    generator : None: retrieval only. A chat model (or its name) answers with the default prompt under every setting,
        and with the optimised one under `DEFAULT`. A reader knows no prompts.
    wanted : settings of the retriever; default `settings()`.
    options : for `Experiment`: ``folder``, ``concurrency``, ``cassette`` ...

    Returns
    -------
    Experiment; a context is all k chunks, uncut.

    Source: RAGChecker, appendices D and F (temperature 0, at most 2,048 new tokens: options of the chat model).
    """
    from ragbench.chunking import token_chunks
    from ragbench.experiment import Experiment
    from ragbench.experiment.identity import is_model

    wanted = list(settings() if wanted is None else wanted)
    if not wanted:
        raise ConfigError("no settings", "at least one", "leave wanted out for one factor at a time")

    def chunker(size: int, overlap: float) -> Callable[[Iterable[Document]], list[Chunk]]:
        # The run, its scores and what is reachable cut the same documents: once is enough.
        own = functools.cache(lambda: token_chunks(data.documents, size, overlap))
        return lambda documents: own() if documents is data.documents else token_chunks(documents, size, overlap)

    live = generator is not None and is_model(generator)
    near = {(s.chunker, s.k) for s in wanted}
    home = (DEFAULT.chunker, DEFAULT.k)
    return Experiment(
        name,
        data={data.name: data},
        chunker={s.chunker: chunker(s.size, s.overlap) for s in wanted},
        retriever=retrievers,
        k=sorted({s.k for s in wanted}),
        N=max(s.k * s.size for s in wanted),
        generator=dict.fromkeys(PROMPTS if live else ["default"], generator) if generator is not None else None,
        prompts=PROMPTS if live else None,
        keep=lambda c: (c.chunker, c.k) in near and (c.generator != "optimised" or (c.chunker, c.k) == home),
        **options,
    )
