"""The public names: as the page lists them, and as the modules export them."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs/reference/index.md"


def names_on_the_page() -> dict[str, list[str]]:
    """Public module -> the names in its table."""
    names: dict[str, list[str]] = {}
    module = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if heading := re.fullmatch(r"## `([\w.]+)`", line):
            module = heading[1]
            names[module] = []
        elif row := re.match(r"\| (`.+?`) \|", line):
            names[module] += re.findall(r"`(\w+)`", row[1])
    return names


def exported_names(module: str) -> list[str]:
    """``__all__`` of a public module; without it, the names that it imports as themselves."""
    imported = importlib.import_module(module)
    listed: list[str] | None = getattr(imported, "__all__", None)
    if listed is not None:
        return list(listed)
    tree = ast.parse(Path(str(imported.__file__)).read_text(encoding="utf-8"))
    imports = [alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    return [alias.name for alias in imports if alias.name == alias.asname]
