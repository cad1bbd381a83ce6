"""Imports point down the list of rooms, those inside functions included, and go in no circle."""

import ast
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import ragbench

PACKAGE = Path(ragbench.__file__).parent
# From the ground up. A module imports from its own room and from those before it.
ROOMS = """
    errors _lazy paths weights _compiled records | text | prompts llm | onnx_models embedding chunking | data
    | stats | metrics | retrieval | generation | labelling | rows | scoring comparison | experiment | datagen | papers
    | plots | widgets | report | notebooks doctor cli __main__
"""
LEVEL = {room: level for level, rooms in enumerate(ROOMS.split("|")) for room in rooms.split()}


def imports_of(source, module, modules, is_package=False):
    """Return the modules of a package that a source imports, in functions too; names of a package
    count as modules.
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.rsplit(".", node.level - is_package)[0]
                base = f"{above}.{base}".removesuffix(".")
            found |= {f"{base}.{alias.name}" for alias in node.names} & modules or {base}
    return found & modules - {module}


def graph():
    files = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        files[".".join(parts).removesuffix(".__init__")] = path
    return {
        name: imports_of(path.read_text(encoding="utf-8"), name, {*files}, path.stem == "__init__")
        for name, path in files.items()
    }


def room_of(module):
    return module.split(".")[1] if "." in module else ""


def test_imports_point_down():
    upward = [
        f"{module} -> {other}"
        for module, others in sorted(graph().items())
        for other in sorted(others)
        if room_of(module) and room_of(other) and LEVEL[room_of(other)] > LEVEL[room_of(module)]
    ]
    assert upward == []


def test_no_modules_import_each_other():
    edges = {module: others - {"ragbench"} for module, others in graph().items()}
    TopologicalSorter(edges).prepare()  # a CycleError names a circle


def test_a_public_constant_has_its_name_to_itself():
    homes = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            for name in (target.id for target in targets if isinstance(target, ast.Name)):
                if name.isupper() and not name.startswith("_"):
                    homes[name].append(str(path.relative_to(PACKAGE)))
    del homes["HOMES"]  # each package's table of its lazy names
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_every_room_has_its_level():
    assert set(map(room_of, graph())) - {""} <= set(LEVEL)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from a.b import name", {"a.b"}),
        ("from a import b", {"a.b"}),
        ("def f():\n    import a.c", {"a.c"}),
        ("from . import c", {"a.c"}),
        ("import json", set()),
    ],
)
def test_imports_are_found_in_functions_too(source, expected):
    assert imports_of(source, "a.d", {"a", "a.b", "a.c", "a.d"}) == expected
