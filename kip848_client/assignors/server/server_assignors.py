"""`SERVER_ASSIGNORS`: the algorithms that a coordinator can run, by name. The algorithms have files of their own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kip848_client.assignors.server.range import RangeAssignor
from kip848_client.assignors.server.spec import ServerAssignor
from kip848_client.assignors.server.uniform import UniformAssignor
from kip848_client.assignors.server.uniform_rack_aware import RackAwareUniformAssignor

SERVER_ASSIGNORS: Final[Mapping[str, ServerAssignor]] = MappingProxyType(
    {assignor.name: assignor for assignor in (UniformAssignor(), RangeAssignor(), RackAwareUniformAssignor())}
)
"""Name -> assignor. The first two are Kafka's own, and the default of ``group.consumer.assignors``."""
