"""What workers of a classic group tell each other in JoinGroup and SyncGroup, as msgpack. Values only.

`Claim` travels from a worker to the leader, `Given` back. DescribeGroups shows both to administrators.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from kip848_client.common.model import Unit

PROTOCOL_TYPE: Final = "kip848-worker"
"""Type of these groups, beside Kafka's `consumer` and `connect`."""

Pair: TypeAlias = tuple[str, int]
"""A unit: its name and index."""


class Claim(msgspec.Struct, frozen=True):
    """What a member says of itself in JoinGroup.

    Args:
        generation: of the last plan that it has as this member; -1 for none.
        version, units: the newest list that it knows, its own or another worker's.
        running: units that may be running here; *tokens* and *since* (milliseconds since 1970) belong to them.
        target: its units in the last plan.
        state_age_ms: since the plan with *state*.
        drain: an administrator's request, for the workers with these worker ids. Such a member gets no units.
        members: checksums of the ids of the members in the last plan.
        refused: units that it has given up, each with the generation in which it did so.
    """

    worker_id: str = ""
    generation: int = -1
    version: int = 0
    units: list[Pair] = []
    running: list[Pair] = []
    target: list[Pair] = []
    trigger_seq: int = 0
    draining: bool = False
    state: bytes | None = None
    state_version: int = 0
    state_age_ms: int = -1
    tokens: list[int] = []
    since: list[int] = []
    drain: list[str] | None = None
    members: list[int] = []
    refused: list[tuple[str, int, int]] = []


class Given(msgspec.Struct, frozen=True):
    """What the leader gives a member in SyncGroup.

    Args:
        conflict: why the member may not stay.
        moving: a worker has to stop units before others can start them, so another round follows soon.
        drain: an administrator asks this worker to give up its units for good.
        planned_ms: when the leader planned, in milliseconds since 1970.
        members: checksums of the ids of all members.
        again: for the leader: another round is due, since units wait for it.
        version, units: the list of units that counts, if it is newer than the one that the member knows; else -1.
    """

    assigned: list[Pair] = []
    pending: list[Pair] = []
    metadata: bytes = b""
    state: bytes | None = None
    state_version: int = 0
    status: int = 0
    conflict: str | None = None
    moving: bool = False
    drain: bool = False
    planned_ms: int = 0
    members: list[int] = []
    again: bool = False
    version: int = -1
    units: list[Pair] = []


def to_pairs(units: Iterable[Unit]) -> list[Pair]:
    """Units as they are sent, ascending."""
    return sorted((unit.name, unit.index) for unit in units)


def from_pairs(pairs: Iterable[Pair]) -> list[Unit]:
    """Units as they were sent."""
    return [Unit(*pair) for pair in pairs]


def transactional_id(group_id: str, unit: Unit | str) -> str:
    """The transactional id whose epochs are the fencing tokens of a unit, or of what ``str`` makes of one."""
    return f"{PROTOCOL_TYPE}/{group_id}/{unit}"


def token_of(producer_id: int, producer_epoch: int) -> int:
    """The fencing token that belongs to an epoch of a transactional id. At least 1, since 0 is false in Python."""
    return (producer_id << 16 | producer_epoch) + 1
