"""What the coordinator answers to one event: replies, records, soft changes, tasks and facts. Values only.

The shell works through a `CoordinatorResult` in this order, and drops it whole if the append fails::

    append(result.records)            # durable first
    for record in result.records:
        coordinator.replay(record)    # hard state
    coordinator.apply(result)         # soft state: timers, topics image, ...
    send(result.replies)              # nothing is seen before it is durable
    start(result.tasks)               # see `subscriptions.resolve`
    write(result.events)
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kip848_client.coordinator.classic.classic_group import ClassicGroup
from kip848_client.coordinator.core.events import GroupEvent
from kip848_client.coordinator.core.group_configs import GroupConfig
from kip848_client.coordinator.core.timers import TimerKey
from kip848_client.coordinator.core.topics import TopicsImage
from kip848_client.coordinator.modern.assignment_round import AssignmentRound
from kip848_client.wire.messages.group_records import GroupRecord
from kip848_client.wire.schema import Response

CoordinatorRecord: TypeAlias = GroupRecord
"""Key and value of one record of ``__consumer_offsets``; a value of None is a tombstone."""


class Reply(msgspec.Struct, frozen=True):
    """The answer to the request with this id."""

    request_id: int
    response: Response


class ArmTimer(msgspec.Struct, frozen=True):
    """Start a timer, or move it."""

    key: TimerKey
    deadline_ms: int
    member_epoch: int


class CancelTimer(msgspec.Struct, frozen=True):
    """Stop a timer, if it runs."""

    key: TimerKey


class MetadataChecked(msgspec.Struct, frozen=True):
    """The group epoch accounts for the topics as they are now."""

    group_id: str


class MetadataCheckDue(msgspec.Struct, frozen=True):
    """Topics of these groups changed: the next heartbeat of any member looks."""

    group_ids: tuple[str, ...]


class TargetComputed(msgspec.Struct, frozen=True):
    """A target was computed now; the next one has to wait for the assignment interval."""

    group_id: str
    now_ms: int


class TopicsReplaced(msgspec.Struct, frozen=True):
    """The cluster's topics are now these."""

    image: TopicsImage


class GroupConfigReplaced(msgspec.Struct, frozen=True):
    """The settings of one group are now these; None means those of the broker."""

    group_id: str
    config: GroupConfig | None


class ResolutionStarted(msgspec.Struct, frozen=True):
    """The patterns of a group are being matched."""

    group_id: str


class ResolutionEnded(msgspec.Struct, frozen=True):
    """They were matched, or could not be."""

    group_id: str


class RoundChanged(msgspec.Struct, frozen=True):
    """The round of a group that is in flight is now this one; None: none is."""

    group_id: str
    round: AssignmentRound | None


class Heard(msgspec.Struct, frozen=True):
    """The worker's heartbeats up to this one came; None: it is not a worker any more."""

    group_id: str
    member_id: str
    sequence: int | None


class ClassicGroupChanged(msgspec.Struct, frozen=True):
    """A classic group is now this; None: there is none. Overrides what replay has made of the group's record."""

    group_id: str
    group: ClassicGroup | None


SoftChange: TypeAlias = (
    ArmTimer
    | CancelTimer
    | MetadataChecked
    | MetadataCheckDue
    | TargetComputed
    | RoundChanged
    | Heard
    | ClassicGroupChanged
    | ResolutionStarted
    | ResolutionEnded
    | TopicsReplaced
    | GroupConfigReplaced
)


class ResolveRegexes(msgspec.Struct, frozen=True):
    """Match patterns against topics (`subscriptions.resolve`) and hand the outcome in as an event.

    A task that is lost, or that fails, must still be ended, by a `RegexResolved` without topics: until then the group's
    patterns are not matched again.
    """

    group_id: str
    regexes: tuple[str, ...]
    image: TopicsImage


class CoordinatorResult(msgspec.Struct, frozen=True):
    """What one event leads to.

    Args:
        replies: answers by request id; may answer requests of earlier events, and may be empty.
        records: one atomic batch, in the order in which Kafka writes them.
        soft: changes of soft state, for `GroupCoordinator.apply`.
        tasks: work for the shell, to be started after the replies.
        events: what happened, for the event log.
    """

    replies: tuple[Reply, ...] = ()
    records: tuple[CoordinatorRecord, ...] = ()
    soft: tuple[SoftChange, ...] = ()
    tasks: tuple[ResolveRegexes, ...] = ()
    events: tuple[GroupEvent, ...] = ()
