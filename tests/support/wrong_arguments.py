"""Arguments that no call takes, for every public method of a consumer."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from typing import Any, Final

from kip848_client import TopicPartition


async def never_awaited(*_: object) -> None:
    """A callback that the synchronous consumer cannot call."""


WRONG: Final[tuple[object, ...]] = (
    object(),
    "1",
    b"1",
    3.5,
    math.nan,
    10**30,
    True,
    [None],
    {"a": 1},
    ("orders", 0),
    TopicPartition("orders", 0),
    [TopicPartition("", 0)],
    [TopicPartition("orders", -1, -7)],
    never_awaited,
)

_RIGHT: Final = {
    "partitions": [TopicPartition("orders", 0, 0)],
    "partition": TopicPartition("orders", 0, 0),
    "topics": ["orders"],
    "timeout": 0.01,
    "reason": 1,
    "username": "alice",
    "password": "secret",
}
_WAITING: Final = {"poll", "consume", "batches"}
_WITHOUT_END: Final = {"process"}
"""Methods that go on for ever if an argument happens to be right; their arguments have a test of their own."""


def wrong_calls(consumer_class: type) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and keyword arguments, one of them wrong, of every public method but close()."""
    for name, method in inspect.getmembers(consumer_class, inspect.isfunction):
        parameters = [
            parameter
            for parameter in list(inspect.signature(method).parameters.values())[1:]
            if parameter.kind is not parameter.VAR_POSITIONAL  # refused whatever they are
        ]
        if name.startswith("_") or name == "close" or name in _WITHOUT_END:
            continue
        needed = {p.name: _RIGHT[p.name] for p in parameters if p.default is p.empty or p.name == "timeout"}
        for parameter in parameters:
            for value in WRONG:
                if name not in _WAITING or parameter.name != "timeout" or not isinstance(value, float | int):
                    yield name, {**needed, parameter.name: value}
