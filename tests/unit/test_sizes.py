"""No function and no class of the product grows beyond what a reader takes in at once; a class name means one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parents[2] / "src/pinfold"
LINES = 40
"""The most lines of a function, its docstring included."""
METHODS = 20
CLASSES_IN = ("daemon", "manager", "node", "runtimes", "serve", "settings")
"""The packages whose classes are limited; a CPUSet in `core` has an operator for each law of sets."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def nodes(package: str = "") -> Iterator[tuple[Path, ast.AST]]:
    """Yield all syntax nodes of a package, with their file; generated modules are left out."""
    for path in sorted((SOURCE / package).rglob("*.py")):
        if "proto" not in path.parts:
            yield from ((path.relative_to(SOURCE), node) for node in ast.walk(ast.parse(path.read_text())))


def test_no_function_has_more_than_40_lines() -> None:
    found = ((path, node) for path, node in nodes() if isinstance(node, _FUNCTIONS))
    sizes = {f"{path}:{node.name}": (node.end_lineno or 0) - node.lineno + 1 for path, node in found}
    assert not {name: size for name, size in sizes.items() if size > LINES}


def test_no_class_that_acts_on_the_node_has_more_than_20_methods() -> None:
    found = ((path, node) for package in CLASSES_IN for path, node in nodes(package) if isinstance(node, ast.ClassDef))
    sizes = {f"{path}:{node.name}": sum(isinstance(part, _FUNCTIONS) for part in node.body) for path, node in found}
    assert not {name: size for name, size in sizes.items() if size > METHODS}


def test_one_class_name_means_one_thing() -> None:
    places = defaultdict(list)
    for path, node in nodes():
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            places[node.name].append(str(path))
    assert not {name: paths for name, paths in places.items() if len(paths) > 1}
