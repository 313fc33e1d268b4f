"""Docstrings send the reader to other modules: each of them is where the docstring says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "kip848_client"
MODULES: Final = frozenset(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in PACKAGE.rglob("*.py")
)
FOLDERS: Final = frozenset(module.rpartition(".")[2] for module in MODULES)
MODULE: Final = re.compile(r"(?<!`)`([a-z_]\w*(?:\.(?!py`)[a-z_]\w*)*)(?:\.[A-Z]\w*)*(?:\.py)?`(?!`)")
ELSEWHERE: Final = re.compile(r"(?:Does not own|Not here|Does not belong here|Does not):(.*?)(?:\n\n|\Z)", re.DOTALL)
"""The sentence of a docstring that names the modules for everything else."""


def references(path: Path) -> Iterator[str]:
    """Modules that a file's docstring names: with their folder, or as the places of what does not belong here."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    for match in MODULE.finditer(text):
        if "." in match[1] and match[1].partition(".")[0] in FOLDERS:
            yield match[1]
    for elsewhere in ELSEWHERE.findall(text):
        yield from (match[1] for match in MODULE.finditer(elsewhere) if "." not in match[1])


def is_there(reference: str, path: Path) -> bool:
    """Whether a module, or a name in one, ends like this; without a folder in the same package, or at its root."""
    if "." not in reference:
        home = f"kip848_client.{path.relative_to(PACKAGE).parts[0]}.".removesuffix(".py.")
        return any(
            module.endswith(f".{reference}") and (module.startswith(home) or module.count(".") == 1)
            for module in MODULES
        )
    module, _, name = reference.rpartition(".")
    return any(
        f".{known}".endswith(f".{reference}") or (f".{known}".endswith(f".{module}") and name in source_of(known))
        for known in MODULES
    )


def source_of(module: str) -> str:
    place = ROOT.joinpath(*module.split("."))
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return path.read_text(encoding="utf-8")


def test_every_module_that_a_docstring_names_is_there() -> None:
    """A reader who follows a name that has moved searches the whole package."""
    named = [(path, reference) for path in sorted(PACKAGE.rglob("*.py")) for reference in references(path)]
    assert len(named) > 100
    assert [
        f"{path.relative_to(ROOT)}: {reference}" for path, reference in named if not is_there(reference, path)
    ] == []
