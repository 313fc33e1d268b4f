"""docs/architecture.md is a map: its places exist, and its layers are those that import-linter checks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_layers_of_the_page_are_the_checked_ones() -> None:
    """A reader who believes the page would otherwise write an import that the check refuses, or miss a package."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "layers")
    shown = re.search(r"## Who may import whom\n.*?```\n(.*?)```", TEXT, re.DOTALL)
    assert shown is not None
    assert shown[1].splitlines() == [re.sub(r"[()]", "", layer) for layer in layers]


def test_every_place_of_the_map_is_there() -> None:
    """A file that was renamed sends the reader searching, which the map is there to spare."""
    places = re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", TEXT)
    package = ROOT / "kip848_client"
    wanted = [place for place in places if "/" in place]
    assert len(wanted) > 20
    assert [place for place in wanted if not (package / place).exists() and not (ROOT / place).exists()] == []
