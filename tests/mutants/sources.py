"""The modules that are mutated: where they are, and how to import one of them from a changed syntax tree.

No file is written: a finder on `sys.meta_path` compiles the tree that it was given instead of the file.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TARGETS: Final = (
    "kip848_client.member",
    "kip848_client.coordinator",
    "kip848_client.coordinator.classic",
    "kip848_client.coordinator.connect",
    "kip848_client.worker",
)
_SHELLS: Final = frozenset({"base", "callbacks", "config", "host", "runners", "worker"})
"""Modules of `kip848_client.worker` that are no part of its core."""

Change = Callable[[str, ast.Module], ast.Module]
"""(module name, its tree) -> the tree to run."""


def modules() -> tuple[str, ...]:
    """Names of all modules that may be mutated, ascending."""
    return tuple(
        f"{package}.{path.stem}"
        for package in TARGETS
        for path in sorted((ROOT / package.replace(".", "/")).glob("*.py"))
        if path.stem != "__init__" and not (package.endswith(".worker") and path.stem in _SHELLS)
    )


def path_of(module: str) -> Path:
    """The file of a module."""
    return ROOT / (module.replace(".", "/") + ".py")


def short(module: str) -> str:
    """``kip848_client.member.heartbeat`` as ``member/heartbeat``."""
    return module.removeprefix("kip848_client.").replace(".", "/")


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, change: Change) -> None:
        super().__init__(fullname, path)
        self._change = change

    def get_code(self, fullname: str) -> CodeType:
        tree = self._change(fullname, ast.parse(Path(self.path).read_bytes(), self.path))
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)


class ChangedModules(MetaPathFinder):
    """Imports the modules *names* as *change* makes them."""

    def __init__(self, names: Sequence[str], change: Change) -> None:
        early = [name for name in names if name in sys.modules]
        if early:
            raise RuntimeError(f"{early} were imported already; a changed module must come first")
        self._names = frozenset(names)
        self._change = change

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As `importlib` asks for it."""
        if fullname not in self._names:
            return None
        file = str(path_of(fullname))
        loader = _Loader(fullname, file, self._change)
        return importlib.util.spec_from_file_location(fullname, file, loader=loader)
