"""Who gets which partition. Pure: an assignment is a function of the group's description alone.

`SERVER_ASSIGNORS` are the algorithms that a coordinator runs; their order is the order of preference.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kip848_client.assignors.range import RangeAssignor
from kip848_client.assignors.spec import AssignorError, GroupAssignment, GroupSpec, ServerAssignor, TopicPartitions
from kip848_client.assignors.uniform import UniformAssignor

__all__ = [
    "SERVER_ASSIGNORS",
    "AssignorError",
    "GroupAssignment",
    "GroupSpec",
    "RangeAssignor",
    "ServerAssignor",
    "TopicPartitions",
    "UniformAssignor",
]

SERVER_ASSIGNORS: Final[Mapping[str, ServerAssignor]] = MappingProxyType(
    {assignor.name: assignor for assignor in (UniformAssignor(), RangeAssignor())}
)
"""Name -> assignor; Kafka's default list ``group.consumer.assignors``."""
