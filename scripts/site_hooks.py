"""Hooks of mkdocs: names of the API page become its docstrings, and formulas need no network."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import jupyter_server_mathjax


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Have each line ``- `rb.NAME``` of the API page show the signature and docstring of that name."""
    if page.file.src_uri != "docs/api.md":
        return markdown
    return re.sub(r"^- `rb\.([\w.]+)`$", r"::: ragbench.\1", markdown, flags=re.M)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Let the search show questions first, and the manual before names, notebooks, tables and plans."""
    if page.file.src_uri == "docs/questions.md":
        page.meta["search"] = {"boost": 4}
    if page.file.src_uri.startswith(
        ("docs/api.md", "notebooks/", "figures/", "docs/preregistration/")
    ):
        page.meta["search"] = {"boost": 0.2}
    return html


def on_pre_build(config: Any, **_: Any) -> None:
    """Leave out the code of the cells that are collapsed in JupyterLab; the notebook can be had."""
    for path in Path(config["docs_dir"], "notebooks").glob("*.ipynb"):
        book = json.loads(path.read_text(encoding="utf-8"))
        for cell in book["cells"]:
            if cell["metadata"].get("jupyter", {}).get("source_hidden"):
                cell["metadata"]["tags"] = ["hidden"]
        path.write_text(json.dumps(book), encoding="utf-8")


def on_post_build(config: Any, **_: Any) -> None:
    """Put MathJax beside the pages."""
    static = Path(jupyter_server_mathjax.__file__).parent / "static"
    shutil.copytree(static, Path(config["site_dir"], "mathjax"), dirs_exist_ok=True)
