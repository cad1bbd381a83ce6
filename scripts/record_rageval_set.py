"""Record RAGEval's pipeline by a model: notebook 40 run live, a set of one domain from two short
texts of ours.

    python scripts/record_rageval_set.py FILE             # asks; run again to go on
    python scripts/record_rageval_set.py FILE --ship 10   # writes a set of so many documents

FILE is the cassette on which the recording grows. Shipped are `rageval_set.jsonl.gz`, the replies,
and `rageval_set.json`, the manifest: who was asked what, with the hashes of the prompts.
"""

import argparse
import json
import sys
from importlib import metadata
from pathlib import Path

from ship_recording import file_facts

import ragbench
from ragbench import notebooks
from ragbench.llm import Cassette
from ragbench.llm.endpoints import Endpoint
from ragbench.paths import packaged_data
from ragbench.prompts import prompt_hash

sys.path.append(str(Path(__file__).parents[1] / "notebooks"))
from recorded import RECORDINGS

NAME = "rageval_set"
DOCUMENTS = 10
STEPS = ("schema", "configuration", "document", "question", "references", "refine", "keypoints")
OPTIONS = {"num_ctx": 4096, "num_predict": 640}
ABOUT = {
    "recording": NAME,
    "domain": "finance",
    "kinds": ("factual", "numerical comparison", "unanswerable"),  # one of each group of Table 6
}
SUMS = {  # over the replies, in the manifest
    "replies": "count(*)",
    "prompt_tokens": "sum(json_extract(answer, '$.usage.prompt_tokens'))",
    "output_tokens": "sum(json_extract(answer, '$.usage.output_tokens'))",
    "seconds": "round(sum(json_extract(answer, '$.seconds')))",
    "first_recorded": "min(recorded_at)",
    "last_recorded": "max(recorded_at)",
}


def record(file: Path, documents: int) -> None:
    """Run notebook 40 with so many documents; its replies go to the file."""
    (book,) = (path for path in notebooks.find() if path.stem.startswith("40_"))
    parameters = {"CASSETTE": str(file.resolve()), "DOCUMENTS": documents}
    print(notebooks.execute(book, parameters, timeout_s=10**6))


def ship(file: Path, documents: int) -> None:
    """Write the replies behind a set of so many documents, and their manifest."""
    record(file, documents)
    folder = packaged_data("recordings")
    shipped = folder / f"{NAME}.jsonl.gz"
    with Cassette(file) as cassette:
        cassette.export(shipped)
    about = ABOUT | {"documents": documents} | _model() | file_facts(shipped, SUMS)
    (folder / f"{NAME}.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _model() -> dict:
    """Return what replies depend on besides the texts."""
    recording = RECORDINGS["qwen"]
    endpoint = Endpoint.of(recording.chat_model(**OPTIONS))
    return {
        "model": endpoint.model,
        "digest": endpoint.pinned_digest,
        "options": endpoint.options,
        "prompts": {f"rageval_{step}": prompt_hash(f"rageval_{step}") for step in STEPS},
        "licence": {
            "weights": recording.licence,
            "texts in the prompts": "ours and the model's own",
        },
        "versions": {
            "ragbench": ragbench.__version__,
            "xllamacpp": metadata.version("xllamacpp"),
        },
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--ship", type=int, metavar="DOCUMENTS")
    arguments = parser.parse_args()
    if arguments.ship:
        ship(arguments.file, arguments.ship)
    else:
        # two documents, then two more, so that what is recorded is whole as soon as can be
        for n_documents in range(2, DOCUMENTS + 1, 2):
            record(arguments.file, n_documents)
