"""RAGChecker's benchmark: its ten domains, and the counts of Table 1 as far as the recorded files tell them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragbench.data.files import read_json
from ragbench.errors import DataError
from ragbench.paths import mirror

# Row of Table 1 -> name in the recorded data, and the table that holds the domain's results (Tables 6-15).
BENCHMARK = {
    "ClapNQ": ("clapnq", "Table 6"),
    "NovelQA": ("novelqa", "Table 7"),
    "RobustQA Writing": ("robustqa/writing", "Table 8"),
    "RobustQA BioASQ": ("robustqa/bioasq", "Table 9"),
    "RobustQA Finance": ("robustqa/fiqa", "Table 10"),
    "RobustQA Lifestyle": ("robustqa/lifestyle", "Table 11"),
    "RobustQA Recreation": ("robustqa/recreation", "Table 12"),
    "RobustQA Science": ("robustqa/science", "Table 13"),
    "RobustQA Technology": ("robustqa/technology", "Table 14"),
    "KIWI": ("kiwi", "Table 15"),
}
_QUERIES = ("{0}_ids.json", "{0}_queries.json", "{0}_metadata.json", "{0}_queries_metadata.json", "{0}_qid2gt.json")


def load_ragchecker_counts(path: str | Path | None = None) -> dict[str, dict[str, int]]:
    """Count the benchmark's questions and documents in its metadata files.

    Parameters
    ----------
    path : folder with RAGChecker's ``data/benchmark/metadata`` files. Default: ``RAGBENCH_DATA/ragchecker/benchmark``.

    Returns
    -------
    Row of Table 1 -> {"queries": n, "documents": n}; "documents" only where the files tell (the corpora themselves
    are elsewhere).

    Raises
    ------
    DataError when the folder, or the questions of a domain, are not there.

    Source: RAGChecker, Table 1.
    """
    folder = Path(path).expanduser() if path is not None else mirror("ragchecker", "benchmark")
    if folder is None or not folder.is_dir():
        raise DataError(
            f"RAGChecker's benchmark metadata are not in {folder or 'RAGBENCH_DATA/ragchecker/benchmark'}",
            "the folder data/benchmark/metadata of RAGChecker's repository",
            "set RAGBENCH_DATA, or give the folder as path",
        )
    return {row: _counts(folder, name.removeprefix("robustqa/")) for row, (name, _) in BENCHMARK.items()}


def _counts(folder: Path, name: str) -> dict[str, int]:
    forms = [*(form.format(name) for form in _QUERIES), f"{name}_question_ids.json"]
    file = next((folder / form for form in forms if (folder / form).is_file()), None)
    if file is None:
        raise DataError(f"{folder} holds no questions of {name!r}", f"one of {', '.join(forms)}", "complete the folder")
    questions = read_json(file)
    counts = {}
    if isinstance(questions, dict) and "input_data" in questions:
        questions = questions["input_data"]
        # NovelQA: every question belongs to one novel, and the novels are the documents.
        counts["documents"] = len({question["novel"] for question in questions})
    corpus = next(folder.glob(f"{name}_doc_indices.json*"), None)
    if corpus is not None:
        counts["documents"] = len(read_json(corpus))
    return {"queries": _size(questions)} | counts


def _size(questions: Any) -> int:
    if isinstance(questions, dict) and all(isinstance(part, list) for part in questions.values()):
        return sum(map(len, questions.values()))  # BioASQ: question ids by the file they come from
    return len(questions)
