"""``python -m tests.source.rooms``: is every folder of the package a room that a reader can take in?

A folder has at most 16 files, or a sentence in its ``__init__`` that begins with "More than 16 files" and says why. A
package with folders has a contract of import-linter (pyproject.toml) that puts them in order, so that none of them
imports what is above it.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "kip848_client"
FILES_MAX: Final = 16
REASON: Final = "More than 16 files"


def crowded(package: Path) -> list[str]:
    """Folders of *package* with too many files and no reason."""
    return [
        _name(folder, package)
        for folder in _folders(package)
        if len(list(folder.glob("*.py"))) > FILES_MAX and REASON not in _docstring(folder)
    ]


def unordered(package: Path, ordered: Collection[str]) -> list[str]:
    """Folders of *package* that hold folders, and are not among the modules whose folders have an order."""
    return [
        _name(folder, package)
        for folder in _folders(package)
        if any(folder.glob("*/__init__.py"))
        and ".".join((package.name, *folder.relative_to(package).parts)) not in ordered
    ]


def ordered_packages() -> frozenset[str]:
    """Packages whose folders have an order that ``lint-imports`` checks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    return frozenset(name for contract in contracts for name in contract.get("containers", ()))


def _folders(package: Path) -> list[Path]:
    return [init.parent for init in sorted(package.rglob("__init__.py"))]


def _docstring(folder: Path) -> str:
    return ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""


def _name(folder: Path, package: Path) -> str:
    name = folder.relative_to(package).as_posix()
    return "" if name == "." else name


if __name__ == "__main__":
    faults = [f"{name}: more than {FILES_MAX} files, and no reason" for name in crowded(PACKAGE)]
    faults += [
        f"{name}: no contract in pyproject.toml puts its folders in order"
        for name in unordered(PACKAGE, ordered_packages())
    ]
    print("\n".join(faults) or "every folder is a room")
    sys.exit(bool(faults))
