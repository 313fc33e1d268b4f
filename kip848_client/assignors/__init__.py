"""Who gets which partition. Pure: an assignment is a function of the group's description alone.

`SERVER_ASSIGNORS` are the algorithms that a coordinator can run; which of them it offers, and which one it prefers, is
its configuration (``group.consumer.assignors``).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kip848_client.assignors.range import RangeAssignor
from kip848_client.assignors.spec import AssignorError, GroupAssignment, GroupSpec, ServerAssignor, TopicPartitions
from kip848_client.assignors.uniform import UniformAssignor
from kip848_client.assignors.uniform_rack_aware import RackAwareUniformAssignor

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

SERVER_ASSIGNORS: Final[Mapping[str, ServerAssignor]] = MappingProxyType(
    {assignor.name: assignor for assignor in (UniformAssignor(), RangeAssignor(), RackAwareUniformAssignor())}
)
"""Name -> assignor. The first two are Kafka's own, and the default of ``group.consumer.assignors``."""
