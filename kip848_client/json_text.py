"""JSON that the package writes: event logs, results of commands, reports. One line each, encoded by msgspec."""

from __future__ import annotations

import msgspec

__all__ = ["to_json"]


def to_json(value: object) -> str:
    """*value* as compact JSON: structs as objects, tuples and sets as arrays, ids as text, infinities as null.

    A lone surrogate, as in the name of a file that is not UTF-8, becomes a question mark: a log must not fail for it.

    Raises:
        TypeError: *value* holds an object that has no JSON.
    """
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        import json  # here: nearly no value needs it, and every consumer imports this module

        plain = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":"))
        return plain.encode("utf-8", "replace").decode()
