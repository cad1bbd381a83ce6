"""Three kinds of numbers and no fourth: nothing in the project stands in a language model's place."""

import re
import subprocess
from pathlib import Path

import pytest

from ragbench.paths import project_root

ROOT = project_root()
# History and plans made before labels are kept as they were written.
KEPT = ("CHANGELOG.md", "minihop.md", "hotpotqa.md", "clapnq.md", Path(__file__).name)
TEXTS = ".cff .csv .ipynb .jinja .json .md .py .sh .toml .txt .yaml .yml"
TOOLS = "grader|judge|checker|labels?|tools?|defaults?|reader|rules?|level|setting|Ragas|RAGAS|quality|keypoint"
BANNED = {
    "embedded, of a tool": (
        r"\bembedded[ "
        rf"_](?:{TOOLS})\b|\bEmbedded[A-Z]\w+|[\"'`*]embedded[\"'`*]|^embedded$"
    ),
    "stand-in": r"(?i:\bstand-?ins?\b)",
    "extractive": r"\bextractive\b|\bExtractive\w*",
    "no LLM": r"\bno LLM\b",
    "rules for sub-questions": r"\brule_decomposer\b",
    "claims by rule": r"\bsplit_claims\b",
}


def tracked():
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = map(Path, done.stdout.splitlines())
    return [path for path in paths if path.suffix in TEXTS.split() and path.name not in KEPT]


def group(path):
    return path.parts[0] if len(path.parts) > 1 else "pages"


GROUPS = sorted({group(path) for path in tracked()})


@pytest.mark.parametrize("folder", GROUPS)
def test_no_text_of_the_project_names_a_tool_in_a_models_place(folder):
    found = []
    for path in tracked():
        if group(path) != folder or not (ROOT / path).exists():
            continue
        text = (ROOT / path).read_text(encoding="utf-8", errors="replace")
        for what, pattern in BANNED.items():
            found += [f"{path}: {what}: {words}" for words in re.findall(pattern, text, re.M)]
    assert found == []


@pytest.mark.parametrize(
    ("text", "banned"),
    [
        ("graded by the embedded grader", True),
        ('judge = "embedded"', True),
        ("rb.EmbeddedChecker()", True),
        ("the extractive reader", True),
        ("a stand-in for Llama", True),
        ("lead 3 (no LLM)", True),
        ("embedded chunks are kept", False),
        ("a document that is embedded in it", False),
        ("an understanding judge", False),
    ],
)
def test_the_scan_sees_what_it_should(text, banned):
    assert any(re.search(pattern, text, re.MULTILINE) for pattern in BANNED.values()) is banned
