"""Ready-made client-side assignors, for what people ask of Kafka consumers. docs/assignors.md shows them, one by one.

All are deterministic (the same group gives the same assignment in every member) and move as little as their goal
allows. A member describes itself by JSON in its metadata: small, and readable in a request log.
"""

from __future__ import annotations

from kip848_client.assignors.library.buckets import Buckets
from kip848_client.assignors.library.co_partitioned import CoPartitioned
from kip848_client.assignors.library.from_server import RackAware, Range, Uniform
from kip848_client.assignors.library.lag_aware import LagAware
from kip848_client.assignors.library.priority import Priority
from kip848_client.assignors.library.standby import Standby
from kip848_client.assignors.library.weighted import Weighted

__all__ = [
    "Buckets",
    "CoPartitioned",
    "LagAware",
    "Priority",
    "RackAware",
    "Range",
    "Standby",
    "Uniform",
    "Weighted",
]
