"""The round in flight: which member computes the target of a group, and the snapshot that it got. Values only.

Soft state: lost with the process, and started again by the first heartbeat after a load.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import msgspec


class Prepared(msgspec.Struct, frozen=True):
    """The snapshot that the chosen member got; the target that it submits is checked against this alone.

    Args:
        group_epoch: the epoch that the target will be of.
        instance_ids: member id -> instance id, static members only.
    """

    group_epoch: int
    instance_ids: Mapping[str, str]


class PreparedGroup(Prepared, frozen=True):
    """A consumer group.

    Args:
        subscriptions: member id -> ids of the topics that it subscribes to and that exist.
        topics: id of every subscribed topic -> number of its partitions.
    """

    subscriptions: Mapping[str, tuple[UUID, ...]]
    topics: Mapping[UUID, int]


class PreparedConnectGroup(Prepared, frozen=True):
    """A connect group.

    Args:
        readable: member id -> (least, greatest) version of assignment metadata that it reads.
        units: the catalogue: name -> indexes.
    """

    readable: Mapping[str, tuple[int, int]]
    units: Mapping[str, tuple[int, ...]]


class AssignmentRound(msgspec.Struct, frozen=True):
    """One member was chosen to compute the target. There is at most one round per group.

    Args:
        is_notified: an answer asked the member to compute, and its timer runs.
        tried: members that were chosen before and failed.
        prepared: what its last ConsumerGroupPrepareAssignment was answered; None before the first one.
    """

    assignor_name: str
    member_id: str
    is_notified: bool = False
    tried: frozenset[str] = msgspec.field(default_factory=frozenset)
    prepared: Prepared | None = None
