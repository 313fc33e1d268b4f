"""Text for people: names that others chose, and counted nouns. Pure."""

from __future__ import annotations


def printable(text: str, *, keep: str = "") -> str:
    r"""*text* with every character that a terminal would obey, or that cannot be seen, as Python writes it: ``\x1b``.

    Group, client and member ids may hold any character: a line break would begin a line that looks like another fact.

    Args:
        keep: characters that stay.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else _escaped(each) for each in text)


def counted(count: int, noun: str) -> str:
    """``1 record``, ``2,000 records``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
