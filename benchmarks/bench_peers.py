"""ragas and RAGChecker beside ragbench on the same labels: values, CPU seconds, calls and tokens
per answer.

    python benchmarks/bench_peers.py [--folder FOLDER] [--answers 60] [--results 10000]

Each peer is installed as it comes from the package index, in an environment of its own (RAGChecker
brings torch: some GB), in a temporary folder or in one that is kept for the next time. No language
model runs: in all three packages a chat model that replays the same claims, labels, statements,
verdicts and questions stands in its place, and every prompt is kept. Tokens are estimated alike for
all (4 characters each). Answers and texts are MiniHop's, labels are those that ragbench makes
without a model. The second table has random labels: the formulas alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import PrivateAttr

import ragbench as rb
from ragbench.data import load_minihop
from ragbench.embedding import embed_distinct, make_embedder
from ragbench.llm.wire import estimate_tokens
from ragbench.metrics.claims import (
    CHECKS,
    CLAIM_METRICS,
    RAGCHECKER_NAMES,
    claim_metrics_table,
)
from ragbench.metrics.reference_free import answer_relevance, faithfulness
from ragbench.prompts import load_prompt
from ragbench.text.sentences import split_sentences

HERE = Path(__file__).parent
# Tried in this order until one imports.
RAGAS = (["ragas"], ["ragas", "langchain-community<0.4.2"])
RAGCHECKER = (["ragchecker"],)
WHY = "The context says so."  # in place of the reasons that a model gives
LABELS = np.array(["Neutral", "Entailment", "Contradiction"], object)
THEIR_CHECKS = ("answer2response", "response2answer", "retrieved2response", "retrieved2answer")
PROMPTS = (
    "steps_claims",
    "steps_check",
    "steps_statements",
    "steps_verdicts",
    "steps_questions",
    "steps_sentences",
)


# Environments


def environment(folder: Path, packages: Sequence[str]) -> Path:
    """Install packages into an environment of their own, unless they lie there; return its Python."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if (folder / "ready").exists():
        return python
    if uv := shutil.which("uv"):
        commands = [[uv, "venv", "-q", "--clear", "-p", sys.executable, str(folder)]]
        commands += [[uv, "pip", "install", "-q", "-p", str(python), *packages]]
    else:
        commands = [[sys.executable, "-m", "venv", "--clear", str(folder)]]
        commands += [[str(python), "-m", "pip", "install", "-q", *packages]]
    start = time.perf_counter()
    for command in commands:
        subprocess.run(command, check=True)
    (folder / "ready").touch()
    size = sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    )
    print(
        f"installed {' '.join(packages)}: {size / 1e9:.1f} GB, {time.perf_counter() - start:.0f} s"
    )
    return python


def importable(folder: Path, module: str, choices: Sequence[Sequence[str]]) -> Path | None:
    """Return the Python of the first environment in which the module imports; say what failed in
    the others.
    """
    for packages in choices:
        python = environment(folder / re.sub(r"[^\w.]+", "-", "_".join(packages)), packages)
        done = subprocess.run(
            [python, "-c", f"import {module}"], capture_output=True, text=True, env=quiet()
        )
        if done.returncode == 0:
            print(f"import {module} works: {' '.join(packages)}")
            return python
        print(
            f"import {module} fails: {' '.join(packages)}: {done.stderr.strip().splitlines()[-1]}"
        )
    return None


def quiet() -> dict[str, str]:
    return os.environ | {
        "RAGAS_DO_NOT_TRACK": "true",
        "TQDM_DISABLE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "true",
    }


def peer(script: str, python: Path | None, given: Path) -> dict[str, Any] | None:
    """Run a peer's side, and return what it found."""
    if python is None:
        return None
    out = given.with_name(f"{script}.json")
    done = subprocess.run(
        [python, HERE / script, given, out], capture_output=True, text=True, env=quiet()
    )
    if done.returncode:
        print(f"{script} fails: {done.stderr.strip().splitlines()[-1]}")
        return None
    return json.loads(out.read_text(encoding="utf-8"))


# What all are given


def triple(claim: str) -> list[str]:
    """Cut a claim into the three parts that RAGChecker wants; joined by spaces they are the claim
    again.
    """
    words = claim.replace('"', "'").split()
    words += ["indeed"] * (3 - len(words))
    return [words[0], words[1], " ".join(words[2:])]


def labelled_answers(count: int) -> dict[str, Any]:
    """Half right answers to MiniHop's questions, with five chunks, claims, labels, statements,
    verdicts, questions.
    """
    data = load_minihop()
    asked = [question for question in data.questions if "long_answer" in question.meta][:count]
    truths = [question.meta["long_answer"] for question in asked]
    retriever = rb.BM25(rb.token_chunks(data.documents, size=300))
    found = retriever.search([question.text for question in asked], 5)
    rows = [
        {
            "id": question.id,
            "question": question.text,
            "reference": truth,
            "answer": " ".join(
                [*split_sentences(truth, "en")[:-1], split_sentences(other, "en")[0]]
            ),
            "chunks": [hit.chunk.text.strip() for hit in hits],
        }
        for question, truth, other, hits in zip(
            asked, truths, truths[1:] + truths[:1], found, strict=True
        )
    ]
    labels: dict[str, dict[str, str]] = {}
    claims: dict[str, list[list[str]]] = {}
    for row in rows:
        for own, other in ((row["answer"], row["reference"]), (row["reference"], row["answer"])):
            # Labels that all three read alike: a sentence that stands in a text. A claim made twice
            # is dropped by RAGChecker, so it is given once.
            triples = {
                " ".join(triple(claim)): (claim, triple(claim))
                for claim in split_sentences(own, "en")
            }
            claims[own] = [parts for _, parts in triples.values()]
            for text in (other, *row["chunks"]):
                said = {
                    name: LABELS[1 if claim in text else 0] for name, (claim, _) in triples.items()
                }
                labels.setdefault(text, {}).update(said)
        row["statements"] = [" ".join(parts) for parts in claims[row["answer"]]]
        row["verdicts"] = [
            any(labels[chunk][said] == "Entailment" for chunk in row["chunks"])
            for said in row["statements"]
        ]
        row["why"] = WHY
    for i, (row, after) in enumerate(zip(rows, rows[1:] + rows[:1], strict=True)):
        row["questions"] = [
            row["question"],
            after["question"],
            f"What is true of this: {row['statements'][0]}",
        ]
        # none, one or all of three
        row["evasive"] = [i % 10 == 0 or i % 10 == 5, i % 10 == 0, i % 10 == 0]
    texts = {text for row in rows for text in row["questions"]}
    vectors = embed_distinct(make_embedder(), sorted(texts))
    return {
        "rows": rows,
        "claims": claims,
        "labels": labels,
        "vectors": {text: vectors[text].tolist() for text in texts},
    }


def random_labels(results: int, chunks: int = 20) -> list[dict[str, Any]]:
    """Random labels as words: 0-24 claims on either side, a tenth of the pairs of claim and chunk
    entailed.
    """
    rng = np.random.default_rng(0)

    def words(*shape: int) -> list[Any]:
        entailed = 0.5 if len(shape) == 1 else 0.1
        return LABELS[rng.choice(3, shape, p=[0.9 - entailed, entailed, 0.1])].tolist()

    sizes = rng.integers(0, 25, (results, 2)).tolist()
    sample = []
    for i, (n, m) in enumerate(sizes):
        tables = (words(n), words(m), words(n, chunks), words(m, chunks))
        sample.append({"id": str(i), **dict(zip(CHECKS, tables, strict=True))})
    return sample


def as_ragchecker(sample: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The labels in RAGChecker's form, texts left out."""
    texts = {"query": "", "gt_answer": "", "response": "", "retrieved_context": []}
    rows = []
    for labels in sample:
        checks = {name: labels[check] for name, check in zip(THEIR_CHECKS, CHECKS, strict=True)}
        rows.append({"query_id": labels["id"]} | texts | checks)
    return {"results": rows}


# Our side


class Replay(BaseChatModel):
    """Answers ragbench's prompts with what was given."""

    _given: dict[str, Any] = PrivateAttr()  # no setting of the model
    _log: list = PrivateAttr(default_factory=list)

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        self._given = given

    @property
    def _llm_type(self) -> str:
        return "replay"

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        prompt = messages[-1].content
        name, fields = next(
            (n, match.groupdict()) for n in PROMPTS if (match := pattern(n).fullmatch(prompt))
        )
        reply = json.dumps(self.answer(name, fields), ensure_ascii=False)
        self._log.append((prompt, reply))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=reply))])

    def answer(self, name: str, fields: dict[str, str]) -> dict[str, Any]:
        if name in ("steps_claims", "steps_statements"):
            text = fields.get("passage") or fields["answer"]
            return {"claims": [" ".join(parts) for parts in self._given["claims"][text]]}
        if name == "steps_check":
            labels = self._given["labels"][fields["reference"]]
            return {"labels": [labels[claim] for claim in numbered(fields["claims"])]}
        rows = self._given["rows"]
        if name == "steps_questions":
            return {
                "questions": next(
                    row["questions"] for row in rows if row["answer"] == fields["answer"]
                )
            }
        row = next(row for row in rows if " ".join(row["chunks"]) == fields["context"])
        if name == "steps_verdicts":
            said = dict(zip(row["statements"], row["verdicts"], strict=True))
            words = {True: "Yes", False: "No"}
            return {
                "labels": [
                    {"why": WHY, "verdict": words[said[s]]} for s in numbered(fields["statements"])
                ]
            }
        return {"sentences": split_sentences(fields["context"], "en")[:1]}


@cache
def pattern(name: str) -> re.Pattern[str]:
    """The prompt as a pattern that finds its fields."""
    seen: set[str] = set()

    def group(match: re.Match[str]) -> str:
        first = match[1] not in seen
        seen.add(match[1])
        return f"(?P<{match[1]}>.*)" if first else f"(?P={match[1]})"

    return re.compile(re.sub(r"\\{(\w+)\\}", group, re.escape(load_prompt(name))), re.DOTALL)


def numbered(text: str) -> list[str]:
    return [line.partition(". ")[2] for line in text.splitlines()]


def ours(
    given: dict[str, Any], metrics: Sequence[str]
) -> tuple[pd.DataFrame, list[tuple[str, str]], float]:
    """Score the rows; return the table, what was asked and replied, and the CPU seconds."""
    rows = [
        {name: row[name] for name in ("id", "question", "answer", "reference", "chunks")}
        for row in given["rows"]
    ]
    rb.score(rows[:1], metrics, labels=Replay(given), progress=False)  # imports
    model = Replay(given)
    start = time.process_time()
    table = rb.score(rows, metrics, labels=model, progress=False)
    seconds = time.process_time() - start
    print(
        f"  rb.plan_score says {rb.plan_score(rows, metrics, model).total.calls / len(rows):.1f} "
        "calls an answer"
    )
    return table, model._log, seconds


# Side by side


def timed(function: Callable[[], Any], repeat: int = 5) -> tuple[float, Any]:
    """Median seconds of CPU, and the result."""
    seconds = []
    for _ in range(repeat):
        start = time.process_time()
        result = function()
        seconds.append(time.process_time() - start)
    return sorted(seconds)[repeat // 2], result


def gap(a: Any, b: Any) -> str:
    """The largest difference where both are numbers, and how often one alone is none."""
    a = np.asarray(a, float)
    b = np.asarray(b, float)
    both = ~(np.isnan(a) | np.isnan(b))
    alone = int((np.isnan(a) != np.isnan(b)).sum())
    return f"{np.abs(a - b)[both].max():.1e} over {both.sum()}" + (
        f", {alone} undefined on one side" if alone else ""
    )


def spent(log: Sequence[Sequence[str]], answers: int) -> str:
    asked, replied = (sum(estimate_tokens(pair[i]) for pair in log) / answers for i in (0, 1))
    return (
        f"{len(log) / answers:>7.1f} calls {asked:>8.0f} prompt tokens {replied:>6.0f} reply tokens"
    )


def line(name: str, log: Sequence[Sequence[str]], seconds: float, answers: int) -> None:
    print(
        f"  {name:<22}{spent(log, answers)} {seconds / answers * 1e3:>8.2f} ms of CPU without "
        "the model"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--folder",
        type=Path,
        help="where the peers' environments are kept; default a temporary one",
    )
    parser.add_argument("--answers", type=int, default=60)
    parser.add_argument(
        "--results", type=int, default=10_000, help="random labels for our formulas"
    )
    parser.add_argument("--sample", type=int, default=300, help="of them for RAGChecker's")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.folder or Path(scratch)).resolve()
        given = labelled_answers(options.answers)
        words = random_labels(options.results)
        file = Path(scratch) / "given.json"
        labelled = as_ragchecker(words[: options.sample])
        file.write_text(json.dumps(given | {"labelled": labelled}), encoding="utf-8")
        ragas = peer("peer_ragas.py", importable(folder, "ragas", RAGAS), file)
        checker = peer("peer_ragchecker.py", importable(folder, "ragchecker", RAGCHECKER), file)
    count = len(given["rows"])
    print(f"\nthe same labels, {count} answers, 5 chunks each")
    if ragas:
        report_ragas(ragas, given)
    if checker:
        report_ragchecker(checker, given, words)


def report_ragas(ragas: dict[str, Any], given: dict[str, Any]) -> None:
    rows = given["rows"]
    count = len(given["rows"])
    # Context relevance is asked with the others here, and in ragas is another metric: two grades of
    # 0 to 2.
    table, log, seconds = ours(given, ["ragas"])
    log = [pair for pair in log if not pattern("steps_sentences").fullmatch(pair[0])]
    print(f"ragas {ragas['version']}: faithfulness and answer relevance")
    line("ragas", ragas["log"], ragas["whole_seconds"], count)
    line("ragbench", log, seconds, count)
    theirs = pd.DataFrame(ragas["values"])
    print(
        "  faithfulness: largest difference "
        f"{gap(table['ragas_faithfulness'], theirs['faithfulness'])}"
    )
    vectors = {text: np.array(vector) for text, vector in given["vectors"].items()}
    generated = [np.array([vectors[q] for q in row["questions"]]) for row in rows]
    flagged = np.array([sum(row["evasive"]) for row in rows])
    for flags, name in enumerate(("none", "one", "two", "all")):
        if (own := flagged == flags).any():
            print(
                f"  answer relevance, {name} of three questions flagged evasive: largest "
                "difference "
                f"{gap(table['answer_relevance'][own], theirs['answer_relevance'][own])} (Eq 1)"
            )
    alone, _ = timed(
        lambda: [
            (faithfulness(row["verdicts"]), answer_relevance(vectors[row["question"]], own))
            for row, own in zip(rows, generated, strict=True)
        ]
    )
    print(
        f"  formulas alone: ragas {ragas['formula_seconds'] / count * 1e6:.0f} us, ours "
        f"{alone / count * 1e6:.0f} us"
    )


def report_ragchecker(
    checker: dict[str, Any], given: dict[str, Any], words: Sequence[dict[str, Any]]
) -> None:
    count = len(given["rows"])
    table, log, seconds = ours(given, ["ragchecker"])
    print(f"ragchecker {checker['version']}: eleven metrics")
    line("ragchecker", checker["log"], checker["whole_seconds"], count)
    line("ragbench", log, seconds, count)
    theirs = pd.DataFrame(checker["values"])[[RAGCHECKER_NAMES[name] for name in CLAIM_METRICS]]
    print(f"  eleven metrics: largest difference {gap(table[list(CLAIM_METRICS)], theirs)}")
    sample = words[: len(checker["labelled"])]
    expected = pd.DataFrame(checker["labelled"])[
        [RAGCHECKER_NAMES[name] for name in CLAIM_METRICS]
    ].to_numpy()
    each = checker["formula_seconds"] / len(sample)
    print(f"formulas alone, random labels, 20 chunks: ragchecker {each * 1e6:.0f} us a result")
    arrays = [
        {check: np.array(labels[check], object) == "Entailment" for check in CHECKS}
        for labels in words
    ]
    for what, results in (("label words", words), ("booleans", arrays)):
        seconds, values = timed(lambda results=results: in_a_table(results), 3)
        own = seconds / len(results)
        print(
            f"  claim_metrics_table, {len(results)} results as {what}: {own * 1e6:.0f} us each, "
            f"{each / own:.1f} x"
        )
        print(f"    largest difference {gap(values[: len(sample)], expected)}")
    undefined = claim_metrics_table(sample)[list(CLAIM_METRICS)].to_numpy()
    print(f"  where undefined is NaN, our default: {gap(undefined, expected)}")


def in_a_table(results: Sequence[dict[str, Any]]) -> np.ndarray:
    return claim_metrics_table(results, empty=0.0)[list(CLAIM_METRICS)].to_numpy()


if __name__ == "__main__":
    main()
