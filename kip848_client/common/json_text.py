"""JSON that the package writes: event logs, results of commands, reports. One line each, encoded by msgspec."""

from __future__ import annotations

import msgspec


def to_json(value: object) -> str:
    """*value* as compact JSON: structs as objects, tuples and sets as arrays, ids as text, infinities as null.

    A lone surrogate, as in the name of a file that is not UTF-8, becomes a question mark: a log must not fail for it.
    Characters that a terminal would obey, or that cannot be seen, are escaped.

    Raises:
        TypeError: *value* holds an object that has no JSON.
    """
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        import json  # here: nearly no value needs it, and every consumer imports this module

        plain = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":"))
        text = plain.encode("utf-8", "replace").decode()
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
