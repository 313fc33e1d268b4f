"""Who gets which partition. Pure: an assignment is a function of the group's description alone.

`SERVER_ASSIGNORS` are the algorithms that a coordinator can run; which of them it offers, and which one it prefers, is
its configuration (``group.consumer.assignors``). The names are imported when they are first used: a consumer loads this
package for its client-side interface, and runs none of the server's algorithms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kip848_client.assignors.server.range import RangeAssignor
    from kip848_client.assignors.server.server_assignors import SERVER_ASSIGNORS
    from kip848_client.assignors.server.spec import (
        AssignorError,
        GroupAssignment,
        GroupSpec,
        ServerAssignor,
        TopicPartitions,
    )
    from kip848_client.assignors.server.uniform import UniformAssignor
    from kip848_client.assignors.server.uniform_rack_aware import RackAwareUniformAssignor

__all__ = [
    "SERVER_ASSIGNORS",
    "AssignorError",
    "GroupAssignment",
    "GroupSpec",
    "RackAwareUniformAssignor",
    "RangeAssignor",
    "ServerAssignor",
    "TopicPartitions",
    "UniformAssignor",
]

_HOMES = {
    "SERVER_ASSIGNORS": "server.server_assignors",
    "AssignorError": "server.spec",
    "GroupAssignment": "server.spec",
    "GroupSpec": "server.spec",
    "RackAwareUniformAssignor": "server.uniform_rack_aware",
    "RangeAssignor": "server.range",
    "ServerAssignor": "server.spec",
    "TopicPartitions": "server.spec",
    "UniformAssignor": "server.uniform",
}
"""Name -> the module that has it."""


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kip848_client.assignors' has no attribute {name!r}")
    import importlib  # with the first name that is used, for the same reason

    value = getattr(importlib.import_module(f"kip848_client.assignors.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
