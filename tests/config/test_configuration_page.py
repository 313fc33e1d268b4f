"""docs/configuration.md names every key that the consumer reads, with its type and default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

import pytest

from kip848_client.config import consumer as module
from kip848_client.config.assignors import OWN_ASSIGNOR_KEYS
from kip848_client.config.reader import ConfigReader

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


def rows() -> dict[str, list[str]]:
    """Key -> the other cells of its row."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            first, *cells = [cell.strip() for cell in line.strip("|").split("|")]
            found.update(dict.fromkeys(re.findall(r"`([a-z_.]+)`", first), cells))
    return found


class Recording(ConfigReader):
    """Keeps the defaults and bounds of the numbers and flags that are read."""

    read: ClassVar[dict[str, tuple[str, str]]] = {}

    def integer(self, key: str, *, default: int, low: int, high: int) -> int:
        """Keep it."""
        self.read[key] = (f"{low:,} to {high:,}", f"{default:,}")
        return super().integer(key, default=default, low=low, high=high)

    def flag(self, key: str, *, default: bool) -> bool:
        """Keep it."""
        self.read[key] = ("true, false", str(default).lower())
        return super().flag(key, default=default)


def test_the_page_names_the_keys_that_are_read() -> None:
    """A key that is not there cannot be found; one that is gone misleads."""
    read = module._OWN_KEYS | module.CLASSIC_KEYS.keys() | OWN_ASSIGNOR_KEYS | {"topic.metadata.refresh.interval.ms"}
    assert rows().keys() == read - {"group.protocol.type"}


def test_the_page_tells_defaults_and_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users tune by docs/configuration.md; a wrong default there leads them astray."""
    monkeypatch.setattr(module, "ConfigReader", Recording)
    conf = {"bootstrap.servers": "localhost:9092", "group.id": "orders"}
    module.parse_consumer_config(conf)
    module.parse_consumer_config(conf | {"group.protocol": "classic", "heartbeat.interval.max.ms": 1000})
    read = {key: told for key, told in Recording.read.items() if key in rows()}
    assert len(read) > 12
    told = {key: (rows()[key][0], rows()[key][1]) for key in read}
    read["heartbeat.interval.max.ms"] = (read["heartbeat.interval.max.ms"][0], "the broker's")
    assert told == read
