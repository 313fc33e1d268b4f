"""The modules that are mutated: where they are, and how to import one of them from a changed syntax tree.

No file is written: a finder on `sys.meta_path` compiles the tree that it was given instead of the file.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Sequence
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
    "kip848_client.transactions",
    "kip848_client.partition_log",
    "kip848_client.producer_batches",
    "kip848_client.broker.transaction_admission",
)
"""Packages and modules."""
_SHELLS: Final = frozenset({"base", "callbacks", "config", "host", "observer", "runners", "worker"})
"""Modules of `kip848_client.worker` that are no part of its core."""


def modules() -> tuple[str, ...]:
    """Names of all modules that may be mutated, ascending."""
    packages = [name for name in TARGETS if not path_of(name).exists()]
    return tuple(name for name in TARGETS if name not in packages) + tuple(
        f"{package}.{path.stem}"
        for package in packages
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
    def __init__(self, fullname: str, path: str, tree: ast.Module) -> None:
        super().__init__(fullname, path)
        self._tree = tree

    def get_code(self, fullname: str) -> CodeType:
        return compile(ast.fix_missing_locations(self._tree), self.path, "exec", dont_inherit=True)


class ChangedModule(MetaPathFinder):
    """Imports the module *name* from *tree* in place of its file."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        if name in sys.modules:
            raise RuntimeError(f"{name} was imported already; a changed module must come first")
        self._name = name
        self._tree = tree

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As `importlib` asks for it."""
        if fullname != self._name:
            return None
        file = str(path_of(fullname))
        return importlib.util.spec_from_file_location(fullname, file, loader=_Loader(fullname, file, self._tree))
