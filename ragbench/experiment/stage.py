"""Getting ready: data, chunks, retrievers and models are built once, every row gets its key, and hits are found."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tqdm.auto import tqdm

from ragbench.chunking import token_chunks
from ragbench.embedding import CachedEmbeddings, NotOnDiskError, only_from_disk
from ragbench.errors import ConfigError
from ragbench.experiment import identity
from ragbench.experiment.rows import ANSWER_COLUMNS, NOT_TOLD, Rows, without_gc
from ragbench.experiment.spec import Cell, Experiment
from ragbench.experiment.work import Batch, Call, Failure, FunctionReader, Item, Search, answer_calls, grade_calls
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


class Stage:
    """What a run needs, built once: what is retrieved from, who answers, who grades, and who they are.

    Attributes
    ----------
    data : data sets by name. question_hashes : of each, in order. retrievers : by (data, chunker, retriever).
    uncut : what a chunker has to embed first, by (data, chunker); in a plan its chunks are estimated.
    readers, graders : who answers and grades in this or another process.
    generators, judges : who does so on a server, one model per host.
    identity : what goes into the manifest and, hashed, into row keys. prompts : their hashes, by axis.
    """

    def __init__(self, experiment: Experiment, cassette: Any, digests: Mapping[str, str], *, ask_server: bool) -> None:
        """Build it; ``digests``: of an earlier manifest. A plan asks no server for its digest and embeds nothing."""
        self.experiment = experiment
        self.data: dict[str, Dataset] = {}
        self.question_hashes: dict[str, list[str]] = {}
        self.retrievers: dict[tuple[str, str, str], Any] = {}
        self.uncut: dict[tuple[str, str], Texts] = {}
        self.readers: dict[str, Any] = {}
        self.graders: dict[str, Any] = {}
        self.generators: dict[str, list[Any]] = {}
        self.judges: dict[str, list[Any]] = {}
        axes = ("data", "chunker", "retriever", "generator", "judge")
        self.identity: dict[str, dict[str, Any]] = {axis: {} for axis in axes}
        self.prompts: dict[str, dict[str, str]] = {"generator": {}, "judge": {}}
        self.secrets: set[str] = set()
        self._people("generator", self.readers, self.generators, cassette, digests, ask_server)
        self._people("judge", self.graders, self.judges, cassette, digests, ask_server)
        for name, value in experiment.grid.data.items():
            self._load(name, value if isinstance(value, Dataset) else value())
            self._index(name, embeds=ask_server)
        self._hashes: dict[tuple, str] = {}
        for axis, facts in self.identity.items():
            self._hashes |= {(axis, name): identity.digest_of(of_it) for name, of_it in facts.items()}
        self._hashes["cutting",] = identity.digest_of(experiment.cutting_identity())
        self._hashes["grading",] = identity.digest_of([experiment.grading_identity(), self.prompts["judge"]])
        for name in self.generators:
            hashes = identity.prompt_hashes(experiment.prompts.get(name))
            self._hashes["prompts", name] = identity.digest_of(hashes)

    def _people(
        self, axis: str, here: dict, there: dict, cassette: Any, digests: Mapping[str, str], ask_server: bool
    ) -> None:
        for name, value in getattr(self.experiment.grid, axis).items():
            if not identity.is_model(value):
                here[name] = _one_here(axis, name, value)
                self.identity[axis][name] = identity.object_identity(here[name])
                continue
            there[name] = hosts = identity.hosts_of(value)
            drivers = [driver_for(model) for model in hosts]
            self.secrets.update(secret for driver in drivers for secret in driver.secrets)
            recorded = digests.get(f"{axis}/{name}/{drivers[0].name}")
            self.identity[axis][name] = identity.model_identity(hosts, cassette, recorded, ask_server=ask_server)
            prompts = {PROMPT: prompt_hash(PROMPT)}
            if axis == "generator":
                prompts = identity.prompt_hashes(self.experiment.prompts.get(name))
            self.prompts[axis] |= prompts

    def _load(self, name: str, data: Any) -> None:
        if not isinstance(data, Dataset) or not data.questions:
            what = "no questions" if isinstance(data, Dataset) else type(data).__name__
            raise ConfigError(f"data {name!r} gives {what}", "a Dataset with questions", "check its loader")
        if repeated := len(data.questions) - len({question.id for question in data.questions}):
            raise ConfigError(f"data {name!r} has {repeated} repeated ids", "each question once", "rename them")
        self.data[name] = data
        self.question_hashes[name] = [identity.question_hash(question) for question in data.questions]
        self.identity["data"][name] = identity.data_identity(data, self.question_hashes[name])

    def _index(self, name: str, *, embeds: bool) -> None:
        """Cut the documents of a data set into chunks, and build the retrievers over them."""
        grid, chunks = self.experiment.grid, {}
        for chunker, retriever, _ in grid.searches():
            if chunker not in chunks:
                chunks[chunker] = self._chunks(name, chunker, embeds=embeds)
                self.identity["chunker"][f"{name}/{chunker}"] = identity.chunks_identity(chunks[chunker])
            place = (name, chunker, retriever)
            if place not in self.retrievers:
                self.retrievers[place] = check_retriever(grid.retriever[retriever](chunks[chunker]))
                settings = identity.object_identity(self.retrievers[place])
                if "state" in settings:
                    settings["factory"] = identity.object_identity(grid.retriever[retriever])
                self.identity["retriever"]["/".join(place)] = settings

    def _chunks(self, name: str, chunker: str, *, embeds: bool) -> list[Chunk]:
        documents = self.data[name].documents
        try:
            with contextlib.nullcontext() if embeds else only_from_disk():
                return list(self.experiment.grid.chunker[chunker](documents))
        except NotOnDiskError as error:
            self.uncut[name, chunker] = Texts(error.embedder, texts=dict.fromkeys(error.texts))
            return token_chunks(documents)

    def facts(self, axis: str, name: str) -> dict[str, Any]:
        """Return what a row says of the model that answered or graded."""
        who = self.identity[axis][name]
        options = {**who["options"], **who["options"].get("options", {})}
        digest = NOT_TOLD if who["digest"] == "" else who["digest"]
        facts = {"model": f"{who['provider']}:{who['model']}", "digest": digest, "num_ctx": who["num_ctx"]}
        facts |= {"temperature": options.get("temperature"), "seed": options.get("seed")}
        if axis == "generator":
            return facts
        prompt = next(iter(self.prompts["judge"].values()))
        return {f"judge_{key}": value for key, value in facts.items()} | {"judge_prompt_sha256": prompt}

    def answer_calls(self, batch: Batch, name: str) -> list[Call]:
        """List the prompts of one generator for the answers that a batch lacks."""
        return answer_calls(self.experiment, batch, name, self.facts("generator", name), self.graders)

    def grade_calls(self, batch: Batch, name: str) -> list[Call]:
        """List the prompts of one judge for the grades that a batch lacks."""
        return grade_calls(self.experiment, batch, name, self.facts("judge", name))

    # -- what is left to do --------------------------------------------------------------------------------------------

    def _key_makers(self, cell: Cell) -> tuple[Callable[[str], str], Callable[[str], str]]:
        """Return what makes (key of the row, key of its answer) of a question's hash, for one cell."""
        h = self._hashes
        parts = [cell.data, *cell.answer]
        if cell.N:
            place = (cell.data, cell.chunker, cell.retriever)
            parts += [h["chunker", "/".join(place[:2])], h["retriever", "/".join(place)], h["cutting",]]
        if cell.generator in self.identity["generator"]:
            parts.append(h["generator", cell.generator])
            if cell.generator in self.generators:
                parts.append(h["prompts", cell.generator])
        answer = identity.row_keys("answer", *parts)
        if cell.judge in self.identity["judge"]:
            parts.append(h["judge", cell.judge])
            if cell.judge in self.judges:
                parts.append(h["grading",])
            if self.experiment.truncated != "score" and cell.generator in self.generators:
                parts.append(self.experiment.truncated)
        return identity.row_keys("row", *parts, cell.judge), answer

    @without_gc()
    def left_to_do(self, name: str, rows: Rows, *, retry: bool = False) -> tuple[list[Item], list[str], int]:
        """Say what is left to do of one data set, given the rows that are there; ``retry``: failed ones are missing.

        Returns (questions with something to do, keys of all rows in grid order, how many of them are there).
        """
        together = bool(self.judges) and self.experiment.per_prompt != "one"
        makers = [(cell, *self._key_makers(cell)) for cell in self.experiment.grid.cells(name)]
        todo, every, there, known = [], [], 0, rows.place
        for question, sha in zip(self.data[name].questions, self.question_hashes[name], strict=True):
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

    # -- embed and retrieve --------------------------------------------------------------------------------------------

    def texts_to_embed(self, name: str, items: Sequence[Item]) -> list[Texts]:
        """Return what dense retrievers need vectors of to search for some questions, as far as it is known before."""
        wanted = _searches(items)
        groups: dict[Any, Texts] = {}
        for (data, chunker), texts in self.uncut.items():
            if data == name:
                groups[chunker] = replace(texts, searches={search for search in wanted if search[0] == chunker})
        for search, asking in wanted.items():
            engine = self.retrievers[name, search[0], search[1]]
            for dense, queries in dense_searches(engine, [item.question.text for item in asking]):
                documents = [chunk.text for chunk in dense.chunks] if dense.embeds else []
                for as_queries, texts in ((False, documents), (True, queries)):
                    place = getattr(dense.embedder, "path", id(dense.embedder)), as_queries
                    group = groups.setdefault(place, Texts(dense.embedder, as_queries))
                    group.texts |= dict.fromkeys(texts)
                    group.searches.add(search)
        return list(groups.values())

    def embed(self, left: Mapping[str, Sequence[Item]], stopped: Callable[[], bool], *, show: bool) -> None:
        """Embed what searches will need, before the first of them; an embedder that fails at chunks ends the run."""
        groups = [group for name, items in left.items() for group in self.texts_to_embed(name, items)]
        # Without a file for its vectors, an embedder would embed the questions twice.
        missing = [(g, sorted(g.missing(), key=len)) for g in groups if isinstance(g.embedder, CachedEmbeddings)]
        total = sum(len(texts) for _, texts in missing)
        with tqdm(total=total, unit="text", desc="embedding", disable=not show or not total) as bar:
            for group, texts in missing:
                vectors_of = group.embedder.embed_queries if group.as_queries else group.embedder.embed_array
                # A question that cannot be embedded is a row that failed: its search says so.
                with contextlib.suppress(Exception) if group.as_queries else contextlib.nullcontext():
                    for i in range(0, len(texts), _BETWEEN_MOVES):
                        if stopped():
                            return
                        bar.update(len(vectors_of(texts[i : i + _BETWEEN_MOVES])))
        for place, engine in self.retrievers.items():
            for dense, _ in dense_searches(engine, []):
                if place[0] in left and not stopped():
                    _ = dense.vectors

    def retrieve(self, name: str, items: Sequence[Item]) -> None:
        """Search for a few hundred questions at once, each search once; put the hits into the items."""
        for search, asking in _searches(items).items():
            chunker, retriever, k = search
            hits = _search(self.retrievers[name, chunker, retriever], [item.question for item in asking], k)
            for item, found in zip(asking, hits, strict=True):
                item.found[search] = found


def _one_here(axis: str, name: str, value: Any) -> Any:
    method = "answer" if axis == "generator" else "grade_all"
    if callable(getattr(value, method, None)):
        return value
    if axis == "generator" and callable(value):
        return FunctionReader(value, name)
    wanted = "answer(question, context)" if axis == "generator" else "grade_all(questions, answers)"
    raise ConfigError(
        f"{axis} {name!r} is {type(value).__name__}",
        f"a chat model, a name such as 'ollama:llama3:8b', or an object with {wanted}",
        f"pass for instance {'ExtractiveReader()' if axis == 'generator' else 'EmbeddedGrader()'}",
    )


def _answers(rows: Rows, wanted: set[str]) -> dict[str, dict[str, Any]]:
    """Return the answers that are there, of those wanted, by their keys."""
    if not wanted:
        return {}
    answered = zip(rows.place, rows.values("answer_key"), rows.values("answer"), strict=True)
    row_of = {answer_key: key for key, answer_key, text in answered if answer_key in wanted and isinstance(text, str)}
    whole = {answer_key: rows.row(key) for answer_key, key in row_of.items()}
    return {answer_key: {n: row[n] for n in ANSWER_COLUMNS if n in row} for answer_key, row in whole.items()}


def _searches(items: Sequence[Item]) -> dict[Search, list[Item]]:
    """Return the items by the searches that they have no hits of yet."""
    wanted: dict[Search, list[Item]] = {}
    for item in items:
        for search in dict.fromkeys(cell.search for cell, _, _ in item.wanted if cell.N):
            if search not in item.found:
                wanted.setdefault(search, []).append(item)
    return wanted


def _search(engine: Any, questions: Sequence[Question], k: int) -> list[Any]:
    """Return hits by question; one whose search fails has a Failure, and the others are searched without it."""
    try:
        return list(engine.search([question.text for question in questions], k))
    except Exception as error:
        if len(questions) == 1:
            return [Failure.of("retrieve", error)]
        return [_search(engine, [question], k)[0] for question in questions]
