"""Getting ready: data, chunks, retrievers and models are built once, and every row of the grid gets its key."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ragbench.chunking import token_chunks
from ragbench.embedding import CachedEmbeddings, NotOnDiskError, only_from_disk
from ragbench.errors import ConfigError
from ragbench.experiment import identity
from ragbench.experiment.rows import NOT_TOLD, Rows, without_gc
from ragbench.experiment.spec import Cell, Experiment
from ragbench.experiment.work import ANSWER_FIELDS, Failure, FunctionReader, Item, Search
from ragbench.labelling.grades import PROMPT
from ragbench.llm.drivers import driver_for
from ragbench.prompts import prompt_hash
from ragbench.records import Chunk, Dataset, Question
from ragbench.retrieval.base import check_retriever
from ragbench.retrieval.multiquery import dense_searches

_BETWEEN_MOVES = 64  # texts embedded between two moves of the bar


@dataclass
class Texts:
    """Texts that one embedder has to have vectors of before some searches, as documents or as queries."""

    embedder: Any
    as_queries: bool = False
    texts: dict[str, None] = field(default_factory=dict)
    searches: set[Search] = field(default_factory=set)

    def missing(self) -> list[str]:
        """List those without a vector on disk: all, where the embedder keeps none there."""
        if isinstance(self.embedder, CachedEmbeddings):
            return self.embedder.not_on_disk(list(self.texts), queries=self.as_queries)
        return list(self.texts)


@dataclass
class Stage:
    """Everything a run needs, built once: what is retrieved from, who answers, who grades, and who they are.

    Attributes
    ----------
    data : data sets by name. question_hashes : of each, in order. retrievers : by (data, chunker, retriever).
    uncut : what a chunker has to embed first, by (data, chunker); in a plan its chunks are estimated.
    readers, generators : who answers: in this or another process, or on a server (one model per host).
    graders, judges : who grades, likewise.
    identity : what goes into the manifest and, hashed, into row keys. prompts : their hashes, by axis.
    """

    data: dict[str, Dataset] = field(default_factory=dict)
    question_hashes: dict[str, list[str]] = field(default_factory=dict)
    retrievers: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    uncut: dict[tuple[str, str], Texts] = field(default_factory=dict)
    readers: dict[str, Any] = field(default_factory=dict)
    generators: dict[str, list[Any]] = field(default_factory=dict)
    graders: dict[str, Any] = field(default_factory=dict)
    judges: dict[str, list[Any]] = field(default_factory=dict)
    identity: dict[str, dict[str, Any]] = field(default_factory=dict)
    prompts: dict[str, dict[str, str]] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    truncated: str = "score"
    hashes: dict[tuple, str] = field(default_factory=dict)

    def model_facts(self, axis: str, name: str) -> dict[str, Any]:
        """Return what a row says of the model that made it."""
        who = self.identity[axis][name]
        options = {**who["options"], **who["options"].get("options", {})}
        digest = NOT_TOLD if who["digest"] == "" else who["digest"]
        facts = {"model": f"{who['provider']}:{who['model']}", "digest": digest, "num_ctx": who["num_ctx"]}
        return facts | {"temperature": options.get("temperature"), "seed": options.get("seed")}

    def judge_facts(self, name: str) -> dict[str, Any]:
        """Return what a row says of the model that graded it."""
        facts = {f"judge_{key}": value for key, value in self.model_facts("judge", name).items()}
        return facts | {"judge_prompt_sha256": next(iter(self.prompts["judge"].values()))}


def build_stage(experiment: Experiment, cassette: Any, digests: Mapping[str, str], *, ask_server: bool) -> Stage:
    """Build a Stage; ``digests``: of an earlier manifest. A plan asks no server for its digest and embeds nothing."""
    stage = Stage(truncated=experiment.truncated)
    _people(stage, experiment, cassette, digests, ask_server)
    grid = experiment.grid
    known: dict[str, dict[str, Any]] = {"data": {}, "chunker": {}, "retriever": {}}
    chunks: dict[tuple[str, str], Any] = {}
    for name, value in grid.data.items():
        data = value if isinstance(value, Dataset) else value()
        if not isinstance(data, Dataset) or not data.questions:
            what = "no questions" if isinstance(data, Dataset) else type(data).__name__
            raise ConfigError(f"data {name!r} gives {what}", "a Dataset with questions", "check its loader")
        repeated = len(data.questions) - len({q.id for q in data.questions})
        if repeated:
            raise ConfigError(f"data {name!r} has {repeated} repeated ids", "each question once", "rename them")
        stage.data[name] = data
        stage.question_hashes[name] = [identity.question_hash(question) for question in data.questions]
        known["data"][name] = identity.data_identity(data, stage.question_hashes[name])
        for chunker, retriever, _ in grid.searches():
            if (name, chunker) not in chunks:
                cut = chunks[name, chunker] = _cut(stage, name, chunker, grid.chunker[chunker], embeds=ask_server)
                known["chunker"][f"{name}/{chunker}"] = identity.chunks_identity(cut)
            place = (name, chunker, retriever)
            if place not in stage.retrievers:
                built = check_retriever(grid.retriever[retriever](chunks[name, chunker]))
                stage.retrievers[place] = built
                settings = identity.object_identity(built)
                if "state" in settings:
                    settings["factory"] = identity.object_identity(grid.retriever[retriever])
                known["retriever"]["/".join(place)] = settings
    stage.identity = known | stage.identity
    for axis, settings in stage.identity.items():
        stage.hashes |= {(axis, name): identity.digest_of(facts) for name, facts in settings.items()}
    stage.hashes["cutting",] = identity.digest_of(experiment.cutting_identity())
    stage.hashes["grading",] = identity.digest_of([experiment.grading_identity(), stage.prompts.get("judge")])
    for name in stage.generators:
        stage.hashes["prompts", name] = identity.digest_of(identity.prompt_hashes(experiment.prompts.get(name)))
    return stage


def _cut(stage: Stage, name: str, chunker: str, function: Callable, *, embeds: bool) -> list[Chunk]:
    documents = stage.data[name].documents
    try:
        with contextlib.nullcontext() if embeds else only_from_disk():
            return list(function(documents))
    except NotOnDiskError as error:
        stage.uncut[name, chunker] = Texts(error.embedder, texts=dict.fromkeys(error.texts))
        return token_chunks(documents)


def _people(stage: Stage, experiment: Experiment, cassette: Any, digests: Mapping[str, str], ask: bool) -> None:
    secrets: list[str] = []
    for axis, values, here, there in (
        ("generator", experiment.grid.generator, stage.readers, stage.generators),
        ("judge", experiment.grid.judge, stage.graders, stage.judges),
    ):
        identities: dict[str, Any] = {}
        for name, value in values.items():
            if identity.is_model(value):
                there[name] = hosts = identity.hosts_of(value)
                drivers = [driver_for(model) for model in hosts]
                secrets += [secret for driver in drivers for secret in driver.secrets]
                recorded = digests.get(f"{axis}/{name}/{drivers[0].name}")
                identities[name] = identity.model_identity(hosts, cassette, recorded, ask_server=ask)
                own = {PROMPT: prompt_hash(PROMPT)}
                if axis == "generator":
                    own = identity.prompt_hashes(experiment.prompts.get(name))
                stage.prompts.setdefault(axis, {}).update(own)
            else:
                here[name] = _one_here(axis, name, value)
                identities[name] = identity.object_identity(here[name])
        stage.identity[axis] = identities
    stage.secrets = tuple(sorted(set(secrets), key=len, reverse=True))


def _one_here(axis: str, name: str, value: Any) -> Any:
    if callable(getattr(value, "answer" if axis == "generator" else "grade_all", None)):
        return value
    if axis == "generator" and callable(value):
        return FunctionReader(value, name)
    wanted = "answer(question, context)" if axis == "generator" else "grade_all(questions, answers)"
    raise ConfigError(
        f"{axis} {name!r} is {type(value).__name__}",
        f"a chat model, a name such as 'ollama:llama3:8b', or an object with {wanted}",
        f"pass for instance {'ExtractiveReader()' if axis == 'generator' else 'EmbeddedGrader()'}",
    )


def key_makers(stage: Stage, cell: Cell) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """Return what makes (key of the row, key of its answer) of a question's hash, for one cell."""
    h = stage.hashes
    parts = [cell.data, *cell.answer]
    if cell.N:
        place = (cell.data, cell.chunker, cell.retriever)
        parts += [h["chunker", "/".join(place[:2])], h["retriever", "/".join(place)], h["cutting",]]
    if cell.generator in stage.identity["generator"]:
        parts.append(h["generator", cell.generator])
        if cell.generator in stage.generators:
            parts.append(h["prompts", cell.generator])
    answer = identity.row_keys("answer", *parts)
    if cell.judge in stage.identity["judge"]:
        parts.append(h["judge", cell.judge])
        if cell.judge in stage.judges:
            parts.append(h["grading",])
        if stage.truncated != "score" and cell.generator in stage.generators:
            parts.append(stage.truncated)
    return identity.row_keys("row", *parts, cell.judge), answer


@without_gc()
def left_to_do(
    stage: Stage, experiment: Experiment, name: str, rows: Rows, retry: bool
) -> tuple[list[Item], list[str], int]:
    """Say what is left to do of one data set, given the rows that are there; ``retry``: failed ones count as missing.

    Returns (questions with something to do, keys of all rows in grid order, how many of them are there).
    """
    cells = experiment.grid.cells(name)
    together = bool(stage.judges) and experiment.per_prompt != "one"
    makers = [(cell, *key_makers(stage, cell)) for cell in cells]
    todo, every, there, known = [], [], 0, rows.place
    for question, sha in zip(stage.data[name].questions, stage.question_hashes[name], strict=True):
        keys = [row_key(sha) for _, row_key, _ in makers]
        every += keys
        missing = [
            (cell, key, answer_key(sha))
            for key, (cell, _, answer_key) in zip(keys, makers, strict=True)
            if key not in known or (retry and rows.failed(key))
        ]
        there += len(keys) - len(missing)
        if missing:
            item = Item(question, missing)
            if together:
                gone = {key for _, key, _ in missing}
                item.done = [rows.row(key) for key in keys if key not in gone]
                item.places = {key: i for i, key in enumerate(keys)}
            todo.append(item)
    answers = _answers(rows, {answer_key for item in todo for _, _, answer_key in item.wanted})
    for item in todo:
        item.known = {a: answers[a] for _, _, a in item.wanted if a in answers}
    return todo, every, there


def _answers(rows: Rows, wanted: set[str]) -> dict[str, dict[str, Any]]:
    """Return the answers that are there, of those wanted, by their keys."""
    if not wanted:
        return {}
    answered = zip(rows.place, rows.values("answer_key"), rows.values("answer"), strict=True)
    found = {answer_key: key for key, answer_key, text in answered if answer_key in wanted and isinstance(text, str)}
    rest = {answer_key: rows.row(key) for answer_key, key in found.items()}
    return {answer_key: {n: row[n] for n in ANSWER_FIELDS if n in row} for answer_key, row in rest.items()}


def _searches(some: Iterable[Item]) -> dict[Search, list[Item]]:
    """Return the items by the searches that they have no hits of yet."""
    wanted: dict[Search, list[Item]] = {}
    for item in some:
        for search in dict.fromkeys(cell.search for cell, _, _ in item.wanted if cell.N):
            if search not in item.found:
                wanted.setdefault(search, []).append(item)
    return wanted


def texts_to_embed(stage: Stage, name: str, some: Sequence[Item]) -> list[Texts]:
    """Return what dense retrievers need vectors of to search for some questions, as far as it is known before."""
    wanted = _searches(some)
    groups: dict[Any, Texts] = {}
    for (data, chunker), texts in stage.uncut.items():
        if data == name:
            groups[chunker] = replace(texts, searches={search for search in wanted if search[0] == chunker})
    for search, asking in wanted.items():
        engine = stage.retrievers[name, search[0], search[1]]
        for dense, queries in dense_searches(engine, [item.question.text for item in asking]):
            documents = [chunk.text for chunk in dense.chunks] if dense.embeds else []
            for as_queries, texts in ((False, documents), (True, queries)):
                place = getattr(dense.embedder, "path", id(dense.embedder)), as_queries
                group = groups.setdefault(place, Texts(dense.embedder, as_queries))
                group.texts |= dict.fromkeys(texts)
                group.searches.add(search)
    return list(groups.values())


def embed(stage: Stage, left: Mapping[str, Sequence[Item]], stopped: Callable[[], bool], *, show: bool) -> None:
    """Embed what searches will need, before the first of them; an embedder that fails at chunks ends the run here."""
    from tqdm.auto import tqdm

    groups = [group for name, some in left.items() for group in texts_to_embed(stage, name, some)]
    # Without a file for its vectors, an embedder would embed the questions twice.
    missing = [(g, sorted(g.missing(), key=len)) for g in groups if isinstance(g.embedder, CachedEmbeddings)]
    total = sum(len(texts) for _, texts in missing)
    with tqdm(total=total, unit="text", desc="embedding", disable=not show or not total) as bar:
        for group, texts in missing:
            make = group.embedder.embed_queries if group.as_queries else group.embedder.embed_array
            # A question that cannot be embedded is a row that failed: its search says so.
            with contextlib.suppress(Exception) if group.as_queries else contextlib.nullcontext():
                for i in range(0, len(texts), _BETWEEN_MOVES):
                    if stopped():
                        return
                    bar.update(len(make(texts[i : i + _BETWEEN_MOVES])))
    for place, engine in stage.retrievers.items():
        for dense, _ in dense_searches(engine, []):
            if place[0] in left and not stopped():
                _ = dense.vectors


def retrieve(stage: Stage, name: str, some: Sequence[Item]) -> None:
    """Search for a few hundred questions at once, each (chunker, retriever, k) once; put the hits into the items.

    A search that fails is tried question by question, so that a failure is a row and not the end of the run.
    """
    for search, asking in _searches(some).items():
        chunker, retriever, k = search
        engine = stage.retrievers[name, chunker, retriever]
        questions = [item.question for item in asking]
        for item, hits in zip(asking, _search(engine, questions, k), strict=True):
            item.found[search] = hits


def _search(engine: Any, questions: Sequence[Question], k: int) -> list[Any]:
    try:
        return list(engine.search([q.text for q in questions], k))
    except Exception as error:
        if len(questions) == 1:
            return [Failure.of("retrieve", error)]
        return [_search(engine, [q], k)[0] for q in questions]
