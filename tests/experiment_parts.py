"""A tiny made world for the tests of experiments: importable, so that other processes can have it
too.
"""

import json
import re
import sys
import time
from pathlib import Path

import numpy as np
from langchain_core.embeddings import Embeddings

from ragbench.chunking import Chunk
from ragbench.embedding import CachedEmbeddings
from ragbench.experiment import Experiment, run
from ragbench.llm import chat_model
from ragbench.metrics.lexical import contained
from ragbench.records import Dataset, Document, Grade, Hit, Question
from ragbench.retrieval import Dense

QUICK = {"retries": 0, "backoff_s": 0.01, "patience_s": 0.1}  # options of model calls
NOTHING = "There is not enough information."
TOWNS = ["Ely", "York", "Bath", "Ripon", "Truro", "Wells", "Leeds", "Derby"]


def graded(request, grade=5):
    """The reply of a judge that gives this grade to whatever it is shown; None where a generator is
    asked.
    """
    if not request.get("format"):
        return None
    (name, spec), *_ = request["format"]["properties"].items()
    return json.dumps({name: [grade] * spec.get("minItems", 1)})


def towns(request):
    """The reply of a model that knows where Person0 was born, and finds every answer right."""
    prompt = request["messages"][-1]["content"]
    # Every prompt has an answer of its own, or equal gradings would be asked once.
    return (
        graded(request)
        or f"{'Ely' if 'Person0 Lee born?' in prompt else 'Rome'}, after {len(prompt)} characters."
    )


def words(text):
    """A tokenizer: end offsets of words."""
    return [m.end() for m in re.finditer(r"\S+", text)]


def write_lines(path, *records):
    """Write records as JSON lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def people(count=6):
    """One document and one question per person."""
    documents = []
    questions = []
    for i in range(count):
        name = f"Person{i} Lee"
        town = TOWNS[i % len(TOWNS)]
        fact = f"{name} was born in {town}."
        asked = f"In which town was {name} born?"
        documents.append(Document(f"d{i}", name, f"{fact} She sang well for {i} years.", (fact,)))
        questions.append(Question(f"q{i}", asked, town, (fact,), "bridge", "easy"))
    return Dataset("people", tuple(questions), tuple(documents))


def whole(documents):
    return [Chunk(f"{d.id}#0", d.text, d.id, d.title) for d in documents]


class Named:
    """Finds the chunks of the named person first; counts its searches."""

    def __init__(self, chunks, broken=""):
        self.chunks = chunks
        self.broken = broken
        self.searched = []

    def settings(self):
        return {"retriever": "Named", "broken": self.broken}

    def search(self, queries, k):
        if any(self.broken and self.broken in q for q in queries):
            raise ValueError("no index for this one")
        self.searched += queries
        found = []
        for query in queries:
            name = re.search(r"Person\d+", query)[0]
            best = sorted(self.chunks, key=lambda c: (not c.title.startswith(name + " "), c.id))[:k]
            found.append([Hit(c, 1.0 / (i + 1), i + 1) for i, c in enumerate(best)])
        return found


class Interrupted(Named):
    """Is stopped by Ctrl-C at the block of a person."""

    person = "Person4"

    def search(self, queries, k):
        if any(self.person in query for query in queries):
            raise KeyboardInterrupt
        return super().search(queries, k)


class Copier:
    """Answers with its context; notes every call in a file, and may be slow or broken."""

    name = "copier"

    def __init__(self, log="", seconds=0.0, broken=""):
        self.log = log
        self.seconds = seconds
        self.broken = broken

    def settings(self):
        return {"generator": "copier"}

    def answer(self, question, context):
        if self.broken and self.broken in question:
            raise ValueError("cannot answer this")
        time.sleep(self.seconds)
        if self.log:
            with open(self.log, "a") as file:  # one write, at its end: of many processes too
                file.write(f"{question}|{len(context)}\n")
        return context or NOTHING


class JudgeDouble:
    """Grades 5 where the true answer stands in the answer, 1 an answer that is `NOTHING`, else 4."""

    name = "judge double"

    def settings(self):
        return {"judge": self.name}

    def grade_all(self, questions, answers):
        true = {question.id: question.answer for question in questions}
        return [
            Grade(a.question_id, self.grade(a.text, true[a.question_id]), self.name)
            for a in answers
        ]

    @staticmethod
    def grade(text, true):
        if text == NOTHING:
            return 1
        return 5 if contained(text, true) else 4


def experiment(folder, count=6, name="made", **changes):
    """A small grid over ``people``."""
    settings = {
        "data": {"people": people(count)},
        "chunker": {"whole": whole},
        "retriever": {"named": Named},
        "k": 2,
        "N": (0, 4, 20),
        "generator": {"copier": Copier()},
        "judge": {"double": JudgeDouble()},
        "tokenizer": words,
        "folder": folder,
    }
    return Experiment(name, **(settings | changes))


def rows_of(folder, count=6, **changes):
    """Run the small grid, and return its rows."""
    return experiment(folder, count, **changes).run(progress=False)


def live(folder, server, count=2, seed=3, **changes):
    """The same with a model of a server that answers and grades."""
    model = server.model(seed=seed, num_ctx=4096)
    settings = {"generator": {"llama": model}, "judge": {"llama": model}, "options": QUICK}
    return experiment(folder, count, **(settings | changes))


def live_rows(folder, server, count=2, **changes):
    """Run the grid of a server's model, and return its rows."""
    return live(folder, server, count, **changes).run(progress=False)


class Counting(Embeddings):
    """A vector of a text's letters; keeps what it was asked, and in a file where one is named."""

    model_id = "counting"

    def __init__(self, log=None):
        self.asked = []
        self.log = log

    def embed_documents(self, texts):
        self.asked += texts
        if self.log:
            with self.log.open("a") as file:
                file.writelines(f"{text}\n" for text in texts)
        letters = ([ord(character) % 32 for character in text] for text in texts)
        return [np.bincount(row, minlength=32).astype(float).tolist() for row in letters]

    def embed_query(self, text):
        return self.embed_documents([text])[0]


def killable(where, host):
    """A grid whose vectors are kept on disk, and whose model answers and grades."""
    embedder = CachedEmbeddings(Counting(where / "embedded.txt"), folder=where)
    model = chat_model("ollama:llama3:8b", host=host)
    axes = {
        "generator": {"llama": model},
        "judge": {"llama": model},
        "N": (0, 4, 20),
        "options": QUICK,
    }
    return experiment(
        where / "run", 40, retriever={"SIM": lambda chunks: Dense(chunks, embedder)}, **axes
    )


if __name__ == "__main__":
    run.BLOCK_OF_ANSWERS = 15  # five questions
    killable(Path(sys.argv[1]), sys.argv[2]).run(progress=False)
