"""Plays seeds with sets that are walked in a random order, and prints those whose history changes with that order.

::

    python -m tests.simulation.shuffled_sets mixed 0 100

PYTHONHASHSEED shuffles sets of strings only, and small sets seldom. Here the cores and the simulation are compiled so
that *every* walk over a set (a loop, a comprehension, `list`, `join`, `sorted` by a key ...) goes in an order that is
drawn anew each time: a place where that order reaches the outside shows after a few runs.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import json
import random
import sys
from collections.abc import Iterable, Sequence
from types import CodeType, ModuleType
from typing import Any, Final

SHUFFLED: Final = ("assignors", "coordinator", "faults", "member", "model", "simulation")
"""Parts of the package that are compiled so."""
ORDERS: Final = (1, 2)
"""Seeds of the shuffling; each run is played once with each."""
WALK: Final = "__walk__"
_FUNCTIONS: Final = frozenset(
    "list tuple iter enumerate map filter zip reversed deque islice chain insort heapify sorted min max".split()
)
_METHODS: Final = frozenset({"fromkeys", "join", "extend", "from_iterable", "update"})

_rng: Final = random.Random()


def walk(value: Any) -> Any:
    """*value*, or if it is a set its items in some order."""
    if type(value) not in (set, frozenset) or len(value) < 2:
        return value
    items = sorted(value, key=repr)  # the drawn order may not depend on the hashes
    _rng.shuffle(items)
    return items


class Shuffler(ast.NodeTransformer):
    """Puts `walk` around everything that is walked."""

    def _walked(self, node: ast.expr) -> ast.expr:
        return ast.copy_location(ast.Call(ast.Name(WALK, ast.Load()), [node], []), node)

    def visit_For(self, node: ast.For) -> ast.AST:
        """``for x in <set>``."""
        self.generic_visit(node)
        node.iter = self._walked(node.iter)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        """``[... for x in <set>]``."""
        self.generic_visit(node)
        node.iter = self._walked(node.iter)
        return node

    def visit_Starred(self, node: ast.Starred) -> ast.AST:
        """``(*<set>,)``."""
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = self._walked(node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """``list(<set>)``, ``", ".join(<set>)``."""
        self.generic_visit(node)
        function = node.func
        if (isinstance(function, ast.Name) and function.id in _FUNCTIONS) or (
            isinstance(function, ast.Attribute) and function.attr in _METHODS
        ):
            node.args = [one if isinstance(one, ast.Starred) else self._walked(one) for one in node.args]
        return node


def shuffled(source: str | bytes, path: str) -> CodeType:
    """Compile *source* with shuffled walks; it needs `walk` under the name `WALK`."""
    tree = ast.fix_missing_locations(Shuffler().visit(ast.parse(source)))
    code: CodeType = compile(tree, path, "exec", dont_inherit=True)
    return code


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        return shuffled(self.get_data(self.path), self.path)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[WALK] = walk
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, prefixes: Iterable[str]) -> None:
        self._prefixes = tuple(prefixes)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(self._prefixes):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def differing(scenario: str, seeds: Iterable[int]) -> list[int]:
    """The seeds whose history depends on an order of sets. To be called before the cores are imported."""
    sys.meta_path.insert(0, _Finder(f"kip848_client.{part}" for part in SHUFFLED))
    from kip848_client.testing.simulation import SCENARIOS, run

    found = []
    for seed in seeds:
        digests = set()
        for order in ORDERS:
            _rng.seed(order)
            digests.add(run(SCENARIOS[scenario], seed=seed).digest)
        if len(digests) > 1:
            found.append(seed)
    return found


if __name__ == "__main__":
    print(json.dumps(differing(sys.argv[1], range(int(sys.argv[2]), int(sys.argv[3])))))
