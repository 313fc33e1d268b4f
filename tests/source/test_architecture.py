"""docs/architecture.md is a map: its places and names exist, and its layers and rooms are the checked ones."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "kip848_client"
TEXT: Final = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONTRACTS: Final[list[dict[str, Any]]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["contracts"]


def test_the_layers_of_the_page_are_the_checked_ones() -> None:
    """A reader who believes the page would otherwise write an import that the check refuses, or miss a package."""
    layers = next(contract["layers"] for contract in CONTRACTS if contract["id"] == "layers")
    shown = re.search(r"## Who may import whom\n.*?```\n(.*?)```", TEXT, re.DOTALL)
    assert shown is not None
    assert shown[1].splitlines() == [re.sub(r"[()]", "", layer) for layer in layers]


def test_the_rooms_of_the_page_are_the_checked_ones() -> None:
    """The order of the rooms is the first thing that a reader of a package wants to know."""
    checked = {
        package.removeprefix("kip848_client."): " > ".join(layer.replace(" | ", ", ") for layer in contract["layers"])
        for contract in CONTRACTS
        for package in contract.get("containers", ())
        if package != "kip848_client"
    }
    table = TEXT.partition("| package | its rooms")[2]
    assert dict(re.findall(r"^\| `([\w.]+)` \| (.*) \|$", table, re.MULTILINE)) == checked


def test_every_place_of_the_map_is_there() -> None:
    """A file that was renamed sends the reader searching, which the map is there to spare."""
    places = re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", TEXT)
    wanted = [place for place in places if "/" in place]
    assert len(wanted) > 20
    assert [place for place in wanted if not (PACKAGE / place).exists() and not (ROOT / place).exists()] == []


def test_every_name_of_the_map_is_in_its_file() -> None:
    """A function that was renamed or moved cannot be found where the page sends the reader."""
    name = r"`[A-Za-z_.]+`"
    said = [
        *re.findall(rf"((?:{name}(?:, | and ))*{name}) in `([a-z_]+/[a-z_/]+\.py)`", TEXT),
        *re.findall(rf"({name}) \(`([a-z_]+/[a-z_/]+\.py)`\)", TEXT),
    ]
    assert len(said) > 20
    missing = []
    for names, place in said:
        code = next(root / place for root in (PACKAGE, ROOT) if (root / place).exists()).read_text(encoding="utf-8")
        missing += [
            f"{found} in {place}"
            for found in re.findall(r"`([A-Za-z_.]+)`", names)
            if not re.search(rf"\b{found.rpartition('.')[2]}\b", code)
        ]
    assert missing == []
