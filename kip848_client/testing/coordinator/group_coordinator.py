"""GroupCoordinator: the group coordinator without network, clock and disk. Dispatches; the rules are in other modules.

How a shell drives it (single-threaded; each result is finished before the next event is handed in)::

    coordinator = GroupCoordinator(CoordinatorConfig(), rng=random.Random(seed))

    # start: what the log holds, then the topics, then the timers
    for record in log:                                  # GroupRecord; UnknownRecord is skipped with a warning
        coordinator.replay(record)
    finish(coordinator.handle(TopicsChanged(image), now_ms=now))
    coordinator.loaded(now_ms=now)

    # a request arrives
    result = coordinator.handle(
        ApiRequest(request_id=7, api_version=1, message=ConsumerGroupHeartbeatRequest(...), wall_ms=wall,
                   client_id="c", client_host="/127.0.0.1"),
        now_ms=now,
    )
    finish(result)

    # a timer is due: one call handles one timer, so repeat until none is due
    while (deadline := coordinator.deadline_ms()) is not None and deadline <= now:
        finish(coordinator.expire(now_ms=now, wall_ms=wall))

    def finish(result):                                 # see `result.CoordinatorResult`
        log.append(result.records)                      # if this fails, only coordinator.keep_sessions(result)
        for record in result.records:
            coordinator.replay(record)
        coordinator.apply(result)
        for reply in result.replies:
            send(reply.request_id, reply.response)
        for task in result.tasks:                       # later, or on another thread; then as an event of its own
            soon(lambda: finish(coordinator.handle(subscriptions.resolve(task, wall_ms=wall), now_ms=now)))
        for event in result.events:
            journal.write(to_journal(event, ts_ms=wall, topic_name=coordinator.topic_name))

The `ROUTES` of its parts and of its kinds name the requests that `handle` answers. Any of these gets exactly one reply,
now or from a later event; any wrong input is an error code in the reply and never an exception. Authorisation and
version negotiation are the shell's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, assert_never
from uuid import UUID

from kip848_client.assignors.server.server_assignors import SERVER_ASSIGNORS
from kip848_client.assignors.server.spec import ServerAssignor
from kip848_client.errors import ConfigError
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup
from kip848_client.testing.coordinator.consumer import subscriptions
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.testing.coordinator.core import list_and_delete
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.coordinator.core.coordinator_state import AnyGroup, CoordinatorState, GroupT
from kip848_client.testing.coordinator.core.group_overrides import resolve_group_config
from kip848_client.testing.coordinator.core.inputs import (
    ApiRequest,
    ConfigChanged,
    CoordinatorStops,
    GroupRequest,
    OffsetRetentionDue,
    RegexResolved,
    ShareStateInitialized,
    TopicsChanged,
    TransactionEnded,
)
from kip848_client.testing.coordinator.core.kind import GroupKind, Kinds, routes_by_message
from kip848_client.testing.coordinator.core.offset_store import StoredOffset
from kip848_client.testing.coordinator.core.result import (
    ArmTimer,
    CancelTimer,
    CoordinatorRecord,
    CoordinatorResult,
    GroupConfigReplaced,
    TopicsReplaced,
)
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.core.timers import ArmedTimer, TimerKey, TimerKind
from kip848_client.testing.coordinator.core.topics_image import TopicsImage
from kip848_client.testing.coordinator.group_image import GroupImage, image_of
from kip848_client.testing.coordinator.kinds import KINDS
from kip848_client.testing.coordinator.modern.assignment_round import AssignmentRound, Rounds
from kip848_client.testing.coordinator.modern.modern_group import ModernGroup
from kip848_client.testing.coordinator.offsets import offset_commit, offset_deletion, offset_fetch
from kip848_client.testing.coordinator.share import begun_partitions
from kip848_client.testing.coordinator.share.share_group import ShareGroup
from kip848_client.wire.messages.group_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    PendingOffsetKey,
    PendingOffsetValue,
)

_NOTHING: Final = CoordinatorResult()
_ROUTES: Final = (*list_and_delete.ROUTES, *offset_commit.ROUTES, *offset_fetch.ROUTES, *offset_deletion.ROUTES)
"""The requests that concern every kind of group."""
_SESSIONS: Final = frozenset({TimerKind.SESSION, TimerKind.CLASSIC_SESSION})


class GroupCoordinator:
    """All groups of one coordinator.

    Args:
        config: the broker's settings.
        rng: makes member ids for clients that bring none; nothing else is random.
        assignors: server-side assignors by name; those that *config* names must be among them.
        kinds: the kinds of groups that it has.

    Raises:
        ConfigError: ``group.consumer.assignors`` names one that is not among *assignors*.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        *,
        rng: random.Random,
        assignors: Mapping[str, ServerAssignor] = SERVER_ASSIGNORS,
        kinds: Sequence[type[GroupKind[Any]]] = KINDS,
        others: Callable[[], Iterable[GroupCoordinator]] = tuple,
    ) -> None:
        missing = [name for name in config.consumer_assignors if name not in assignors]
        if missing:
            raise ConfigError(
                f"group.consumer.assignors names {', '.join(missing)}; known are {', '.join(sorted(assignors))}"
            )
        self._state = CoordinatorState(
            config,
            rng=rng,
            assignors={name: assignors[name] for name in config.consumer_assignors},
            offsets_only=ClassicGroup,
            others=lambda: (each._state for each in others() if each is not self),  # noqa: SLF001  of its own class
        )
        self._kinds = self._state.part(Kinds)
        self._kinds.register(kinds)
        self._handlers = routes_by_message((*_ROUTES, *(row for kind in kinds for row in kind.ROUTES)))

    def set_config(self, config: CoordinatorConfig) -> None:
        """Use other settings from now on. Groups with overrides need a `ConfigChanged` each."""
        self._state.set_config(config)

    # --- events

    def handle(self, request: GroupRequest, *, now_ms: int) -> CoordinatorResult:
        """Compute the result of *request*. Changes nothing.

        Args:
            now_ms: monotonic time.

        Raises:
            ConfigError: of `ConfigChanged` only; the overrides are not allowed.
        """
        match request:
            case ApiRequest():
                message = request.message
                return self._handlers[type(message)](self._state, request, message, now_ms=now_ms)
            case TopicsChanged(image):
                return self._topics_changed(image)
            case ConfigChanged(group_id, overrides):
                config = resolve_group_config(overrides, config=self._state.config) if overrides else None
                return CoordinatorResult(soft=(GroupConfigReplaced(group_id, config),))
            case RegexResolved():
                return subscriptions.regex_resolved(self._state, request)
            case ShareStateInitialized():
                return begun_partitions.initialized(self._state, request)
            case TransactionEnded():
                return offset_commit.end_transaction(self._state, request)
            case OffsetRetentionDue(wall_ms):
                return offset_deletion.expire_offsets(self._state, wall_ms=wall_ms)
            case CoordinatorStops():
                return self._stopped()
            case _:
                assert_never(request)

    def expire(self, *, now_ms: int, wall_ms: int) -> CoordinatorResult:
        """Compute the result of the timer that is due first; an empty result if none is due.

        The timer stays due until the result is applied, so a failed append is tried again.
        """
        due = self._state.timers.first()
        if due is None or due[1].deadline_ms > now_ms:
            return _NOTHING
        key, timer = due
        group = self._state.groups.get(key.group_id)
        kind = None if group is None else self._kinds.of(group)
        if kind is None or key.kind not in kind.TIMERS:
            return CoordinatorResult(soft=(CancelTimer(key),))  # the group is gone, or of another kind now
        return kind.time_is_up(group, key, timer, now_ms=now_ms, wall_ms=wall_ms)

    def deadline_ms(self) -> int | None:
        """When `expire` has something to do next, on the clock of ``now_ms``; None if never."""
        due = self._state.timers.first()
        return None if due is None else due[1].deadline_ms

    def let_time_run_out(self, key: TimerKey, *, now_ms: int) -> bool:
        """Make a timer due at once, for tests and operators; False if it does not run."""
        timer = self._state.timers.get(key)
        if timer is not None:
            self._state.timers.arm(key, deadline_ms=now_ms, member_epoch=timer.member_epoch)
        return timer is not None

    # --- changes

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply *record* to the hard state. Hard state changes in no other way.

        Records may be replayed twice, and a compacted log leads to the same state as the whole one.

        Raises:
            IllegalStateError: records in an order that no coordinator writes: the log is damaged.
        """
        key, value = record.key, record.value
        state = self._state
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            state.offsets.replay(key, value)
            return
        if isinstance(key, PendingOffsetKey):
            assert value is None or isinstance(value, PendingOffsetValue)
            state.offsets.replay_pending(key, value)
            return
        self._kinds.of_record[type(key)].replay(key, value)

    def keep_sessions(self, result: CoordinatorResult) -> None:
        """Restart the session timers of a result whose records could not be stored: as in Kafka, its members stay."""
        timers = self._state.timers
        for change in result.soft:
            if isinstance(change, ArmTimer) and change.key.kind in _SESSIONS and timers.get(change.key) is not None:
                change.apply(self._state)

    def apply(self, result: CoordinatorResult) -> None:
        """Install the soft changes of *result*, after its records were appended and replayed."""
        state = self._state
        for change in result.soft:
            change.apply(state)

    def loaded(self, *, now_ms: int) -> None:
        """Start the timers, which the log does not hold, after all of it was replayed.

        Every member's session starts again, as does the time to revoke partitions; each group compares the topics at
        its next heartbeat.
        """
        for kind in self._kinds.all():
            for change in kind.loaded(now_ms=now_ms):
                change.apply(self._state)

    # --- state

    def groups(self) -> tuple[str, ...]:
        """Ids of the consumer groups, ascending."""
        return self.ids_of(ConsumerGroup)

    def snapshot(self, group_id: str) -> GroupImage | None:
        """A picture of one group; None if there is no consumer group of this id."""
        group = self._state.find(ConsumerGroup, group_id)
        return None if group is None else image_of(group)

    def classic_groups(self) -> tuple[str, ...]:
        """Ids of the classic groups that have or had members, or handed out ids for members, ascending."""
        return self.ids_of(ClassicGroup)

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        """One classic group as it is now: a value; None if there is no classic group of this id."""
        return self._state.find(ClassicGroup, group_id)

    def round_in_flight(self, group_id: str) -> AssignmentRound | None:
        """Which member is to compute the target of a group; None if none is."""
        return self._state.part(Rounds).in_flight.get(group_id)

    def timer(self, key: TimerKey) -> ArmedTimer | None:
        """A timer that runs, on the clock of ``now_ms``; None if it does not."""
        return self._state.timers.get(key)

    def group(self, group_id: str) -> ConsumerGroup | None:
        """The group itself, not a copy: read it only. Checkers compare it after every event."""
        return self._state.find(ConsumerGroup, group_id)

    def share_group(self, group_id: str) -> ShareGroup | None:
        """The share group itself, not a copy: read it only. None if there is none of this id."""
        return self._state.find(ShareGroup, group_id)

    def find(self, kind: type[GroupT], group_id: str) -> GroupT | None:
        """The group of a kind itself, not a copy: read it only. None if there is none of this id."""
        return self._state.find(kind, group_id)

    def committed(self, group_id: str) -> Mapping[str, Mapping[int, StoredOffset]]:
        """Committed offsets of a group: topic name -> partition -> offset."""
        return {topic: dict(partitions) for topic, partitions in self._state.offsets.of_group(group_id).items()}

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of a topic that exists."""
        topic = self._state.image.by_id.get(topic_id)
        return None if topic is None else topic.name

    def check_invariants(self) -> None:
        """Assert what must hold between two events; for tests and simulation. See `ConsumerGroup.check_invariants`."""
        state = self._state
        for group_id, group in state.groups.items():
            assert group.group_id == group_id
            group.check_invariants()
        assert state.member_count == sum(group.size for group in state.groups.values()), "members are miscounted"
        for group_id, flying in state.part(Rounds).in_flight.items():
            modern = state.groups[group_id]
            assert isinstance(modern, ModernGroup), f"a round is in flight of {group_id!r}, which has none"
            assert flying.member_id in modern.members, (
                f"{flying.member_id!r} should compute a target and is not a member"
            )
            assert modern.group_epoch > modern.target_epoch, f"a round is in flight and {group_id!r} has its target"

    # --- internals

    def ids_of(self, kind: type[AnyGroup]) -> tuple[str, ...]:
        """Ids of the groups of a kind, ascending."""
        return tuple(sorted(group.group_id for group in self._state.all_of(kind)))

    def _stopped(self) -> CoordinatorResult:
        """Answer the requests that are parked in any group."""
        results = [kind.stopped() for kind in self._kinds.all()]
        return CoordinatorResult(
            replies=tuple(reply for result in results for reply in result.replies),
            soft=tuple(change for result in results for change in result.soft),
        )

    def _topics_changed(self, image: TopicsImage) -> CoordinatorResult:
        """Let the kinds mark what the change concerns, and delete what was kept of deleted topics."""
        state = self._state
        changed = image.changed_since(state.image)
        gone = [topic for topic in state.image.topics if topic.topic_id not in image.by_id]
        gone_ids = frozenset(topic.topic_id for topic in gone)
        batch = Batch("")
        due = [change for kind in self._kinds.all() for change in kind.topics_changed(changed)]
        batch.records += offset_deletion.offsets_of_topics(state, [topic.name for topic in gone])
        batch.soft += (TopicsReplaced(image), *due)
        for kind in self._kinds.all() if gone else ():
            batch.add(kind.topics_gone(gone_ids))
        return batch.result()
