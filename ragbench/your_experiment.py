"""`ragbench init`: a folder to start an experiment of one's own from."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from ragbench.errors import ConfigError
from ragbench.paths import packaged_data

TEMPLATES = ("91_your_experiment.ipynb", "93_score_your_answers.ipynb")  # the wheel carries these (pyproject.toml)


def create_project(folder: str | os.PathLike[str]) -> Path:
    """Make a new folder to start from: an experiment file, data, template notebooks, the manual in ``help``."""
    target = Path(folder).expanduser().resolve()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise ConfigError(f"{target} is there already", "the name of a new or empty folder", "choose another name")
    try:
        target.mkdir(exist_ok=True)
    except OSError as error:
        got = f"{target} cannot be made: {error.strerror}"
        raise ConfigError(got, "a folder to write to", "check path and rights") from None
    shutil.copytree(Path(__file__).parent / "template", target, dirs_exist_ok=True)
    shutil.copytree(packaged_data("docs"), target / "help")
    for page in (target / "help").glob("*.md"):
        page.write_text(_only_links_within(page.read_text(encoding="utf-8"), page.parent), encoding="utf-8")
    for name in TEMPLATES:
        book = json.loads(packaged_data("notebooks", name).read_text(encoding="utf-8"))
        _set_to_folder(book)
        for cell in book["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = _only_links_within(cell["source"], target)
        (target / name).write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return target


def _only_links_within(text: str, folder: Path) -> str:
    """Turn links and pictures whose file is not in that folder into their words."""

    def kept(found: re.Match[str]) -> str:
        target = found[2].partition("#")[0]
        return found[0] if "://" in target or (".." not in target and (folder / target).exists()) else found[1]

    return re.sub(r"!?\[([^\]]*)\]\(([^)\s]+)\)", kept, text)


def _set_to_folder(book: dict[str, Any]) -> None:
    """Take the results out of a template notebook, and set it to the files beside it."""
    for cell in book["cells"]:
        cell["source"] = "".join(cell["source"]).replace("](../docs/", "](help/").replace("data/results/", "results/")
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
            if "parameters" in cell["metadata"].get("tags", []):
                for name, value in {"DOCUMENTS": "docs", "QUESTIONS": "questions.csv"}.items():
                    cell["source"] = re.sub(rf"(?m)^{name} = None\b", f'{name} = "{value}"', cell["source"])
