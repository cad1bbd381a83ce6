"""Write the stubs of packages whose names load when they are first used, so that editors know them.

python scripts/write_stubs.py           # writes ragbench/**/__init__.pyi
python scripts/write_stubs.py --check   # status 1 where one differs from its table of names
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
LAZY_PACKAGES = (
    "ragbench",
    "ragbench.labelling",
    "ragbench.metrics",
    "ragbench.report",
    "ragbench.stats",
    "ragbench.widgets",
)


def stub(package: ModuleType) -> str:
    """Return the text of a package's stub: its docstring, and an import of each name that it offers
    from the module where the name lives.
    """
    lines = ['"""' + (package.__doc__ or "").strip() + '\n"""', ""]
    for name in dir(package):
        value = getattr(package, name)
        if isinstance(value, ModuleType):
            lines.append(f"from {package.__name__} import {name} as {name}")
        elif name == "__version__":
            lines.append("__version__: str")
        else:
            home = _home(package, name)
            lines.append(f"from {home} import {name} as {name}")
    return "\n".join(lines) + "\n"


def _home(package: ModuleType, name: str) -> str:
    """Return the module in which a package's table of names has a name."""
    for module, names in package.HOMES.items():
        if name in names:
            return f"{package.__name__}.{module}"
    raise KeyError(f"{package.__name__} offers {name}, and its table HOMES has no home for it")


def stubs() -> dict[Path, str]:
    """Return each stub's file and text."""
    texts = {}
    for name in LAZY_PACKAGES:
        folder = ROOT.joinpath(*name.split("."))
        texts[folder / "__init__.pyi"] = stub(importlib.import_module(name))
    return texts


def main() -> int:
    texts = stubs()
    if "--check" not in sys.argv:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        return 0
    old = []
    for path, text in texts.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            old.append(str(path.relative_to(ROOT)))
    if old:
        print(f"not as the tables of names say: {', '.join(old)}; run scripts/write_stubs.py")
    return len(old)


if __name__ == "__main__":
    sys.exit(main())
