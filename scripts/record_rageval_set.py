"""Record RAGEval's pipeline by a model: a set of one domain from two short texts of ours, for
notebook 40.

    python scripts/record_rageval_set.py FILE             # asks; run again to go on
    python scripts/record_rageval_set.py FILE --ship 10   # writes a set of so many documents

FILE is the cassette on which the recording grows. Shipped are `rageval_set.jsonl.gz`, the replies,
and `rageval_set.json`, the manifest: who was asked what, with the hashes of the prompts.
"""

import argparse
import json
from importlib import metadata
from pathlib import Path

from ship_recording import NotingCassette, file_facts

import ragbench
from ragbench import data
from ragbench.datagen import GeneratedSet, generate_set
from ragbench.llm import Cassette
from ragbench.llm.endpoints import Endpoint
from ragbench.paths import packaged_data
from ragbench.prompts import prompt_hash
from ragbench.recordings import RECORDINGS

NAME = "rageval_set"
DOMAIN = "finance"
DOCUMENTS = 10
KINDS = ("factual", "numerical comparison", "unanswerable")  # one of each group of Table 6
STEPS = ("schema", "configuration", "document", "question", "references", "refine", "keypoints")
OPTIONS = {"num_ctx": 4096, "num_predict": 640}
SUMS = {  # over the replies, in the manifest
    "replies": "count(*)",
    "prompt_tokens": "sum(json_extract(answer, '$.usage.prompt_tokens'))",
    "output_tokens": "sum(json_extract(answer, '$.usage.output_tokens'))",
    "seconds": "round(sum(json_extract(answer, '$.seconds')))",
    "first_recorded": "min(recorded_at)",
    "last_recorded": "max(recorded_at)",
}


def make(documents: int, cassette: Cassette) -> GeneratedSet:
    """Make the set with so many documents, one call at a time."""
    seeds = [
        seed.text for seed in data.load_documents(packaged_data("recordings", "rageval_seeds"))
    ]
    model = RECORDINGS["qwen"].chat_model(**OPTIONS)
    return generate_set(
        model, DOMAIN, seeds, documents, KINDS, cassette=cassette, concurrency=1, progress=False
    )


def record(file: Path) -> None:
    """Ask for two documents, then for two more, so that what is recorded is whole as soon as can
    be.
    """
    with Cassette(file) as cassette:
        for documents in range(2, DOCUMENTS + 1, 2):
            print(make(documents, cassette), flush=True)


def ship(file: Path, documents: int) -> None:
    """Write the replies behind a set of so many documents, and their manifest."""
    folder = packaged_data("recordings")
    shipped = folder / f"{NAME}.jsonl.gz"
    with NotingCassette(file) as cassette:
        print(make(documents, cassette))
        cassette.export(shipped, cassette.asked)
    about = {"recording": NAME, "domain": DOMAIN, "documents": documents, "kinds": KINDS}
    about |= _model() | file_facts(shipped, SUMS)
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
        record(arguments.file)
