"""Import circles of the package: modules that import each other, directly or through others.

::

    python -m tests.source.import_circles

Every import counts: also one inside a function, and one for type checkers only. import-linter checks the layers between
packages; this is about the modules inside them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def modules(package: str = "kip848_client") -> dict[str, Path]:
    """Dotted name of every module -> its file."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(tree: ast.AST, known: Mapping[str, object]) -> Iterator[str]:
    """The modules among *known* that *tree* imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in known:
                    yield inner
                elif node.module in known:
                    yield node.module


def circles(graph: Mapping[str, frozenset[str]]) -> list[frozenset[str]]:
    """Sets of modules that reach each other (Tarjan's strongly connected components of more than one)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[frozenset[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            circle = set()
            while module not in circle:
                circle.add(stack.pop())
            if len(circle) > 1:
                found.append(frozenset(circle))

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return found


def circles_of_the_package() -> list[frozenset[str]]:
    """The circles of kip848_client, names without the package."""
    known = modules()
    graph = {
        name: frozenset(imports(ast.parse(path.read_text(encoding="utf-8")), known)) - {name}
        for name, path in known.items()
    }
    return [frozenset(name.removeprefix("kip848_client.") for name in circle) for circle in circles(graph)]


def main() -> int:
    """Print the circles; the exit status is 1 if there are any."""
    found = circles_of_the_package()
    for circle in found:
        print(f"import circle: {', '.join(sorted(circle))}")
    if not found:
        print("no import circles")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
