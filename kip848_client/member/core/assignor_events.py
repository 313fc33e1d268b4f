"""Events and effects between a member and its client-side assignors; a part of `MemberEvent` and `MemberEffect`.

Effects here are calls of the user's code. The shell makes them in a thread of their own, one at a time, and answers
each with the event of the same `call_id`, however late. Values only, no rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias
from uuid import UUID

import msgspec

from kip848_client.assignors.client.interface import ConsumerGroupMetadata
from kip848_client.common.model import TopicIdPartition
from kip848_client.errors import Kip848Error
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor
from kip848_client.wire.messages.consumer_group_install_assignment import Member as InstallMember
from kip848_client.wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentResponse

# --- events


class AssignorsDescribed(msgspec.Struct, frozen=True):
    """``metadata()`` of every local assignor was called.

    Args:
        assignors: all of them, in the order of priority; one whose call failed as it was described last.
        call_id: of the `DescribeAssignors`; None if no effect asked for it.
    """

    assignors: tuple[Assignor, ...]
    call_id: int | None = None


class ReassignmentRequested(msgspec.Struct, frozen=True):
    """request_reassignment() was called.

    Args:
        reason: not 0; one of the assignor's own.
    """

    reason: int


class AssignorDone(msgspec.Struct, frozen=True):
    """``assign()`` ended, and its result was checked.

    Args:
        members: the target of every member; empty if there is an error.
        error: 0, an error of the assignor's own (1..127), or `ASSIGNOR_RAISED` or `ASSIGNMENT_INVALID`.
    """

    call_id: int
    members: tuple[InstallMember, ...] = ()
    error: int = 0


class OnAssignmentDone(msgspec.Struct, frozen=True):
    """``on_assignment()`` returned or raised."""

    call_id: int


AssignorEvent: TypeAlias = AssignorsDescribed | ReassignmentRequested | AssignorDone | OnAssignmentDone

# --- effects


class DescribeAssignors(msgspec.Struct, frozen=True):
    """Call ``metadata()`` of every local assignor; answer with `AssignorsDescribed`."""

    call_id: int


class RunAssignor(msgspec.Struct, frozen=True):
    """Call ``assign()`` of the assignor that *snapshot* names, check the result; answer with `AssignorDone`.

    Args:
        racks: by topic id, as in `TopicSpec`; the snapshot has none.
    """

    call_id: int
    snapshot: ConsumerGroupPrepareAssignmentResponse
    racks: Mapping[UUID, tuple[frozenset[str], ...]] = msgspec.field(default_factory=dict)


class CallOnAssignment(msgspec.Struct, frozen=True):
    """Call ``on_assignment()``; answer with `OnAssignmentDone`.

    Args:
        assignor_name: the assignor to call, or "" for all of them: the target was not computed by one.
        error: as the group's assignor reported it.
        partitions: the complete target, sorted.
    """

    call_id: int
    assignor_name: str
    error: int
    partitions: tuple[TopicIdPartition, ...]
    metadata: bytes
    version: int
    group_metadata: ConsumerGroupMetadata


AssignorCall: TypeAlias = DescribeAssignors | RunAssignor | CallOnAssignment
"""Effects that call the user's code."""


class AssignorFailed(msgspec.Struct, frozen=True):
    """Anywhere: client-side assignment failed, and the member goes on. For logs and tests."""

    error: Kip848Error


class AssignorsUnsupported(msgspec.Struct, frozen=True):
    """Anywhere, once: the coordinator has no client-side assignment, and the configuration allows going on without it.

    Args:
        missing: names of the APIs that it does not offer.
    """

    missing: tuple[str, ...]


class GroupRestless(msgspec.Struct, frozen=True):
    """Anywhere: the group needs assignment after assignment, although its members and topics stay the same.

    Args:
        text: how many, and why.
    """

    text: str


AssignorEffect: TypeAlias = AssignorCall | AssignorFailed | AssignorsUnsupported | GroupRestless
