"""``python -m tests.source.import_circles``: do modules of the package import each other, directly or through others?

Every import counts: also one inside a function, and one for type checkers only. import-linter checks the layers between
packages; this is about the modules inside them.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter

import grimp


def circle(graph: Mapping[str, Collection[str]]) -> list[str]:
    """Modules each of which is imported by the next one, ending with the first; empty if no module reaches itself.

    Args:
        graph: module -> what it imports.
    """
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def circle_of_the_package() -> list[str]:
    """A circle of kip848_client."""
    graph = grimp.build_graph("kip848_client")
    return circle({module: graph.find_modules_directly_imported_by(module) for module in graph.modules})


if __name__ == "__main__":
    found = circle_of_the_package()
    print(f"import circle: {' <- '.join(found)}" if found else "no import circle")
    sys.exit(bool(found))
