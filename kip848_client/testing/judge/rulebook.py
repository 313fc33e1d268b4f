"""The rules of docs/protocol.md as data: number, sentence, source, chapter. The page is the only place that has them.

A wheel contains the page beside this file; in a checkout it is in ``docs``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from kip848_client.errors import ConfigError

_PLACES: Final = (
    Path(__file__).with_name("protocol.md"),
    Path(__file__).resolve().parents[3] / "docs" / "protocol.md",
)
_LINE: Final = re.compile(
    r"^(?P<level>##+) (?P<heading>.+)$|^\* \*\*R(?P<number>\d+)\*\* (?P<text>.+?)$(?P<rest>(?:\n  .+)*)", re.MULTILINE
)
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")


class ProtocolRule(msgspec.Struct, frozen=True):
    """One numbered sentence.

    Args:
        source: what is in the brackets that close it: where the rule comes from.
        chapter: the heading above it, and the one above that: ``Share groups: Its membership``.
    """

    number: int
    sentence: str
    source: str
    chapter: str

    @property
    def name(self) -> str:
        """``R57``."""
        return f"R{self.number}"

    @property
    def plain_sentence(self) -> str:
        """The sentence without Markdown's links and marks."""
        return _LINK.sub(r"\1", self.sentence).replace("`", "").replace("*", "")


def read_rules(text: str) -> list[ProtocolRule]:
    """All rules of the page *text*, in its order."""
    found = []
    chapter = above = ""
    for match in _LINE.finditer(text):
        if match["heading"]:
            above = above if len(match["level"]) > 2 else ""
            chapter = f"{above}: {match['heading']}" if above else match["heading"]
            above = above or chapter
            continue
        whole = " ".join((match["text"] + match["rest"]).split())
        sentence, _, source = whole.rpartition(" *(")
        found.append(ProtocolRule(int(match["number"]), sentence, source.removesuffix(")*"), chapter))
    return found


@functools.cache
def rulebook() -> Mapping[int, ProtocolRule]:
    """Every rule by its number, in the order of the page.

    Raises:
        ConfigError: the page is not there: the package was copied without it.
    """
    for place in _PLACES:
        if place.is_file():
            return MappingProxyType({rule.number: rule for rule in read_rules(place.read_text(encoding="utf-8"))})
    raise ConfigError(f"the rules are missing: install the package as a wheel, or put docs/protocol.md at {_PLACES[0]}")
