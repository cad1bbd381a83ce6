"""Functions that stand in a notebook, for tests with hand-made data."""

import ast
import re
from importlib import import_module
from types import SimpleNamespace

import nbformat

from ragbench.notebooks import find


def _without_magic(source):
    """Turn lines of IPython, which are no Python, into comments."""
    return re.sub(r"(?m)^( *)%(?=\w)", r"\1pass  # %", source)


def parts(number):
    """Execute the imports, functions, classes and CONSTANTS of a notebook, in its order, and
    nothing else; with them comes what the modules in its folder hold.
    """
    (path,) = (path for path in find() if path.stem.startswith(f"{number}_"))
    source = "\n".join(
        cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"
    )
    source = _without_magic(source)
    kept = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
    imports = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
    # a table of the package stays as it is
    imported = {alias.name for node in imports for alias in node.names}

    def constant(node):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        # a column that is added
        target = target.value if isinstance(target, ast.Subscript) else target
        return all(
            isinstance(name, ast.Name) and name.id.isupper() and name.id not in imported
            for name in (target.elts if isinstance(target, ast.Tuple) else [target])
        )

    body = [node for node in ast.parse(source).body if isinstance(node, kept) or constant(node)]
    names = {"__name__": "notebook"}
    for node in imports:
        if path.with_name(f"{node.module}.py").is_file():
            names |= vars(import_module(node.module))
    exec(compile(ast.Module(body, []), str(path), "exec"), names)
    return SimpleNamespace(**names)


def run_up_to(number, words, **values):
    """Execute the cells of a notebook up to the one with these words (None: all), with other values
    of its parameters; return its names.
    """
    (path,) = (path for path in find() if path.stem.startswith(f"{number}_"))
    names = {"__name__": "notebook"}
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type != "code":
            continue
        exec(compile(_without_magic(cell.source), str(path), "exec"), names)
        if "parameters" in cell.metadata.get("tags", ()):
            names.update(values)
        if words is not None and words in cell.source:
            break
    return names
