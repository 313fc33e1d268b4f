"""The coordinator's answer to one event: replies, records, soft changes, tasks and facts. Values only.

The shell works through a `CoordinatorResult` in this order, and drops it whole if the append fails::

    append(result.records)            # durable first
    for record in result.records:
        coordinator.replay(record)    # hard state
    coordinator.apply(result)         # soft state: timers, topics image, ...
    change(result.share_state)        # of share partitions, if the shell has any
    send(result.replies)              # nothing is seen before it is durable
    start(result.tasks)               # see `subscriptions.resolve`
    write(result.events)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias
from uuid import UUID

import msgspec

from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.group_events import GroupEvent
from kip848_client.testing.coordinator.core.group_overrides import GroupConfig
from kip848_client.testing.coordinator.core.timers import TimerKey
from kip848_client.testing.coordinator.core.topics_image import TopicsImage
from kip848_client.wire.messages.group_records import GroupRecord
from kip848_client.wire.schema import Response

CoordinatorRecord: TypeAlias = GroupRecord
"""Key and value of one record of ``__consumer_offsets``; a value of None is a tombstone."""


class Reply(msgspec.Struct, frozen=True):
    """The answer to the request with this id."""

    request_id: int
    response: Response


class SoftChange(Protocol):
    """A change of soft state, declared beside the state that it changes. `GroupCoordinator.apply` applies it."""

    def apply(self, state: CoordinatorState) -> None:
        """Make the change."""


class ArmTimer(msgspec.Struct, frozen=True):
    """Start a timer, or move it."""

    key: TimerKey
    deadline_ms: int
    member_epoch: int

    def apply(self, state: CoordinatorState) -> None:
        """Arm it."""
        state.timers.arm(self.key, deadline_ms=self.deadline_ms, member_epoch=self.member_epoch)


class CancelTimer(msgspec.Struct, frozen=True):
    """Stop a timer, if it runs."""

    key: TimerKey

    def apply(self, state: CoordinatorState) -> None:
        """Cancel it."""
        state.timers.cancel(self.key)


class TopicsReplaced(msgspec.Struct, frozen=True):
    """The cluster's topics are now these."""

    image: TopicsImage

    def apply(self, state: CoordinatorState) -> None:
        """Put the image into the place of the one before."""
        state.replace_image(self.image)


class GroupConfigReplaced(msgspec.Struct, frozen=True):
    """The settings of one group are now these; None means those of the broker."""

    group_id: str
    config: GroupConfig | None

    def apply(self, state: CoordinatorState) -> None:
        """Keep the offsets, or forget the kept ones."""
        if self.config is None:
            state.group_configs.pop(self.group_id, None)
        else:
            state.group_configs[self.group_id] = self.config


class ResolveRegexes(msgspec.Struct, frozen=True):
    """Match patterns against topics (`subscriptions.resolve`) and hand the outcome in as an event.

    A task that is lost, or that fails, must still be ended, by a `RegexResolved` without topics: until then the group's
    patterns are not matched again.
    """

    group_id: str
    regexes: tuple[str, ...]
    image: TopicsImage


class InitializeShareState(msgspec.Struct, frozen=True):
    """Make the state of share partitions, or begin it anew, and hand in `inputs.ShareStateInitialized`.

    Args:
        state_epoch: the group epoch; state of a higher one refuses.
        starts: (topic id, partition) -> its start offset; -1: where ``share.auto.offset.reset`` says.
    """

    group_id: str
    state_epoch: int
    starts: Mapping[tuple[UUID, int], int]


class DeleteShareState(msgspec.Struct, frozen=True):
    """Delete the state of share partitions, as far as there is any."""

    group_id: str
    partitions: tuple[tuple[UUID, int], ...]


class CoordinatorResult(msgspec.Struct, frozen=True):
    """The outcome of one event.

    Args:
        replies: answers by request id; may answer requests of earlier events, and may be empty.
        records: one atomic batch, in the order in which Kafka writes them.
        soft: changes of soft state, for `GroupCoordinator.apply`.
        tasks: work for the shell, to be started after the replies.
        share_state: what the share partitions have to do, before the replies.
        events: what happened, for the event log.
    """

    replies: tuple[Reply, ...] = ()
    records: tuple[CoordinatorRecord, ...] = ()
    soft: tuple[SoftChange, ...] = ()
    tasks: tuple[ResolveRegexes, ...] = ()
    share_state: tuple[InitializeShareState | DeleteShareState, ...] = ()
    events: tuple[GroupEvent, ...] = ()
