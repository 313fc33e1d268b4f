r"""Reads a client's properties file: Java's format, or sections as in Confluent's examples. Knows no property.

Java's: ``key=value``, ``key: value`` or ``key value``; lines that begin with ``#`` or ``!`` are comments, a line that
ends with ``\`` goes on in the next, and elsewhere ``\`` escapes (``\\``, ``\t``, ``\u00e9``). With sections
(``[default]``, ``[consumer]``) a backslash is a backslash.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from kip848_client.errors import ConfigError

_SECTION: Final = re.compile(r"^[ \t]*\[[\w.-]+\][ \t]*$", re.MULTILINE)
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_PROPERTY: Final = re.compile(r"((?:[^\\=:\s]|\\.)+)(?:\s*[=:]\s*|\s+)(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CHARACTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_FIRST_SECTION: Final = "default"


def read_property_file(path: Path, *, source: str, sections: Collection[str]) -> dict[str, str]:
    """The properties in *path*.

    Args:
        source: what named the file, for error texts.
        sections: those that count; properties before the first section always do.

    Raises:
        ConfigError: it cannot be read. A line is not shown: it may be a secret.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{source} {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source} {path}: not UTF-8 text") from error
    try:
        if _SECTION.search(text) is not None:
            return dict(_with_sections(text, sections))
        return dict(_without_sections(text))
    except _LineError as error:
        # Not "from error": a chained exception of configparser would show the line.
        raise ConfigError(f"{source} {path}, line {error.number}: not KEY=VALUE") from None


class _LineError(Exception):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number: Final = number


def _without_sections(text: str) -> Iterator[tuple[str, str]]:
    for number, line in _logical_lines(text):
        found = _PROPERTY.fullmatch(line)
        if found is None:
            raise _LineError(number)
        yield _unescaped(found[1]), _unescaped(found[2])


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, joined with the lines that they go on in, and the number of the first."""
    begun: str | None = None
    began_at = 0
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        line = natural.lstrip()
        if begun is None:
            if not line or line[0] in "#!":
                continue
            began_at = number
        stripped = line.rstrip("\\")
        goes_on = (len(line) - len(stripped)) % 2 == 1
        begun = (begun or "") + (line[:-1] if goes_on else line)
        if not goes_on:
            yield began_at, _right_stripped(begun)
            begun = None
    if begun is not None:
        yield began_at, _right_stripped(begun)


def _right_stripped(line: str) -> str:
    """Remove the spaces at the end of a line, unless the first of them is escaped."""
    stripped = line.rstrip()
    escapes = len(stripped) - len(stripped.rstrip("\\"))
    return line[: len(stripped) + escapes % 2]


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        escaped = found[1]
        return chr(int(escaped[1:], 16)) if len(escaped) > 1 else _CHARACTERS.get(escaped, escaped)

    return _ESCAPE.sub(character, text)


def _with_sections(text: str, sections: Collection[str]) -> Iterator[tuple[str, str]]:
    parser = configparser.ConfigParser(
        interpolation=None,
        strict=False,
        default_section="",  # none: [default] is a section like any other
        comment_prefixes=("#", ";", "!"),
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names are not made lower case
    try:
        parser.read_string(f"[{_FIRST_SECTION}]\n{text}")
    except configparser.ParsingError as error:
        raise _LineError(error.errors[0][0] - 1) from None
    for section in parser.sections():
        if section in sections or section == _FIRST_SECTION:
            yield from parser.items(section)
