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
        log.append(result.records)                      # if this fails, drop the result: nothing has changed
        for record in result.records:
            coordinator.replay(record)
        coordinator.apply(result)
        for reply in result.replies:
            send(reply.request_id, reply.response)
        for task in result.tasks:                       # later, or on another thread; then as an event of its own
            soon(lambda: finish(coordinator.handle(subscriptions.resolve(task, wall_ms=wall), now_ms=now)))
        for event in result.events:
            journal.write(to_journal(event, ts_ms=wall, topic_name=coordinator.topic_name))

`API_KEYS` names the requests that `handle` answers. Any request of these gets exactly one reply, now or from a later
event; any wrong input is an error code in the reply and never an exception. Authorisation and
version negotiation are the shell's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeVar, assert_never
from uuid import UUID

from kip848_client.assignors import SERVER_ASSIGNORS, ServerAssignor
from kip848_client.coordinator.classic import classic_heartbeat, join, leave, rebalance, sync
from kip848_client.coordinator.classic.classic_group import ClassicGroup, from_value
from kip848_client.coordinator.connect import connect_describe, connect_rounds, worker_departure, worker_heartbeat
from kip848_client.coordinator.connect.connect_group import ConnectGroup
from kip848_client.coordinator.consumer import consumer_describe, consumer_heartbeat, install_assignment, subscriptions
from kip848_client.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.coordinator.consumer.snapshot import GroupSnapshot, snapshot_of
from kip848_client.coordinator.core.batch import Batch
from kip848_client.coordinator.core.config import CoordinatorConfig
from kip848_client.coordinator.core.events import GroupEvent
from kip848_client.coordinator.core.group_configs import resolve_group_config
from kip848_client.coordinator.core.offset_store import CommittedOffset
from kip848_client.coordinator.core.refusal import Refused
from kip848_client.coordinator.core.requests import (
    ApiRequest,
    ConfigChanged,
    CoordinatorStops,
    GroupRequest,
    OffsetRetentionDue,
    RegexResolved,
    TopicsChanged,
    TransactionEnded,
)
from kip848_client.coordinator.core.result import (
    ArmTimer,
    CancelTimer,
    ClassicGroupChanged,
    CoordinatorRecord,
    CoordinatorResult,
    GroupConfigReplaced,
    Heard,
    MetadataCheckDue,
    MetadataChecked,
    Reply,
    ResolutionEnded,
    ResolutionStarted,
    RoundChanged,
    TargetComputed,
    TopicsReplaced,
)
from kip848_client.coordinator.core.state import CoordinatorState
from kip848_client.coordinator.core.timers import ArmedTimer, TimerKey, TimerKind
from kip848_client.coordinator.core.topics import TopicsImage
from kip848_client.coordinator.modern import client_assignment, departure
from kip848_client.coordinator.modern.assignment_round import AssignmentRound
from kip848_client.coordinator.modern.member_record import KeyT, MetadataT
from kip848_client.coordinator.modern.modern_group import Group
from kip848_client.coordinator.offsets import deletion, offset_commit, offset_fetch
from kip848_client.errors import ConfigError, ErrorCode, IllegalStateError
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.connect_group_describe import ConnectGroupDescribeRequest
from kip848_client.wire.messages.connect_group_heartbeat import (
    ConnectGroupHeartbeatRequest,
    ConnectGroupHeartbeatResponse,
)
from kip848_client.wire.messages.connect_group_install_assignment import ConnectGroupInstallAssignmentRequest
from kip848_client.wire.messages.connect_group_prepare_assignment import ConnectGroupPrepareAssignmentRequest
from kip848_client.wire.messages.connect_group_records import ConnectGroupRecordKey
from kip848_client.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.consumer_group_install_assignment import ConsumerGroupInstallAssignmentRequest
from kip848_client.wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentRequest
from kip848_client.wire.messages.delete_groups import DeleteGroupsRequest
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest
from kip848_client.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    PendingOffsetKey,
    PendingOffsetValue,
)
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest
from kip848_client.wire.messages.leave_group import LeaveGroupRequest
from kip848_client.wire.messages.list_groups import ListGroupsRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_delete import OffsetDeleteRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest
from kip848_client.wire.messages.sync_group import SyncGroupRequest
from kip848_client.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from kip848_client.wire.schema import Response

_NOTHING: Final = CoordinatorResult()

GroupT = TypeVar("GroupT", bound=Group[Any, Any])


class GroupCoordinator:
    """All groups of one coordinator.

    Args:
        config: the broker's settings.
        rng: makes member ids for clients that bring none; nothing else is random.
        assignors: server-side assignors by name; those that *config* names must be among them.

    Raises:
        ConfigError: ``group.consumer.assignors`` names one that is not among *assignors*.
    """

    API_KEYS: ClassVar[frozenset[ApiKey]] = frozenset(
        {
            ApiKey.JOIN_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT,
            ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            ApiKey.CONNECT_GROUP_HEARTBEAT,
            ApiKey.CONNECT_GROUP_PREPARE_ASSIGNMENT,
            ApiKey.CONNECT_GROUP_INSTALL_ASSIGNMENT,
            ApiKey.CONNECT_GROUP_DESCRIBE,
            ApiKey.OFFSET_COMMIT,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.OFFSET_FETCH,
            ApiKey.OFFSET_DELETE,
            ApiKey.LIST_GROUPS,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.DELETE_GROUPS,
        }
    )

    def __init__(
        self,
        config: CoordinatorConfig,
        *,
        rng: random.Random,
        assignors: Mapping[str, ServerAssignor] = SERVER_ASSIGNORS,
    ) -> None:
        missing = [name for name in config.consumer_assignors if name not in assignors]
        if missing:
            raise ConfigError(
                f"group.consumer.assignors names {', '.join(missing)}; known are {', '.join(sorted(assignors))}"
            )
        self._state = CoordinatorState(
            config, rng=rng, assignors={name: assignors[name] for name in config.consumer_assignors}
        )

    # Events

    def handle(self, request: GroupRequest, *, now_ms: int) -> CoordinatorResult:
        """Compute the result of *request*. Changes nothing.

        Args:
            now_ms: monotonic time.

        Raises:
            ConfigError: of `ConfigChanged` only; the overrides are not allowed.
        """
        match request:
            case ApiRequest():
                return self._handle_api(request, now_ms=now_ms)
            case TopicsChanged(image):
                return self._topics_changed(image)
            case ConfigChanged(group_id, overrides):
                config = resolve_group_config(overrides, config=self._state.config) if overrides else None
                return CoordinatorResult(soft=(GroupConfigReplaced(group_id, config),))
            case RegexResolved():
                return subscriptions.regex_resolved(self._state, request)
            case TransactionEnded():
                return offset_commit.end_transaction(self._state, request)
            case OffsetRetentionDue(wall_ms):
                return deletion.expire_offsets(self._state, wall_ms=wall_ms)
            case CoordinatorStops():
                return rebalance.refuse_all(self._state, code=ErrorCode.NOT_COORDINATOR)
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
        if key.kind in rebalance.CLASSIC_TIMERS:
            return rebalance.time_is_up(self._state, key, now_ms=now_ms, wall_ms=wall_ms)
        connect_group = self._state.connect.get(key.group_id)
        if connect_group is not None:
            return worker_departure.time_is_up(self._state, connect_group, key, timer, now_ms=now_ms, wall_ms=wall_ms)
        return departure.time_is_up(self._state, key, timer, now_ms=now_ms, wall_ms=wall_ms)

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

    # Changes

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
        if isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            if value is not None and (key.group in state.groups or key.group in state.connect):
                raise IllegalStateError(f"a record of the classic group {key.group!r}, which is of another kind")
            state.put_classic_group(key.group, None if value is None else from_value(key.group, value))
            return
        group: ConsumerGroup | ConnectGroup | None
        if isinstance(key, ConnectGroupRecordKey):
            group = self._group_of_record(key.group_id, value, groups=state.connect, make=ConnectGroup)
        else:
            group = self._group_of_record(key.group_id, value, groups=state.groups, make=ConsumerGroup)
        if group is None:
            return
        members_before = len(group.members)
        if not group.replay(key, value):
            state.forget_group(key.group_id)
        state.member_count += len(group.members) - members_before

    def _group_of_record(
        self, group_id: str, value: object, *, groups: dict[str, GroupT], make: Callable[[str], GroupT]
    ) -> GroupT | None:
        """The group that a record is about; a value makes it, a tombstone of a group that is gone needs none."""
        group = groups.get(group_id)
        if group is None and value is not None:
            state = self._state
            if any(group_id in others for others in (state.groups, state.classic, state.connect)):
                raise IllegalStateError(f"the log has records of {group_id!r} as a group of two kinds")
            group = groups[group_id] = make(group_id)
        return group

    def apply(self, result: CoordinatorResult) -> None:
        """Install the soft changes of *result*, after its records were appended and replayed."""
        state = self._state
        for change in result.soft:
            if isinstance(change, ArmTimer):  # nearly all of them: every heartbeat arms one
                state.timers.arm(change.key, deadline_ms=change.deadline_ms, member_epoch=change.member_epoch)
                continue
            match change:
                case CancelTimer(key):
                    state.timers.cancel(key)
                case MetadataChecked(group_id):
                    state.metadata_check_due.discard(group_id)
                case MetadataCheckDue(group_ids):
                    state.metadata_check_due.update(group_ids)
                case TargetComputed(group_id, now_ms):
                    state.target_computed_ms[group_id] = now_ms
                case ClassicGroupChanged(group_id, group):
                    state.put_classic_group(group_id, group)
                case RoundChanged(group_id, None):
                    state.rounds.pop(group_id, None)
                case RoundChanged(group_id, flying):
                    assert flying is not None
                    state.rounds[group_id] = flying
                case Heard(group_id, member_id, None):
                    state.heard.get(group_id, {}).pop(member_id, None)
                case Heard(group_id, member_id, sequence):
                    assert sequence is not None
                    state.heard.setdefault(group_id, {})[member_id] = sequence
                case ResolutionStarted(group_id):
                    state.regex_check_due.discard(group_id)
                    state.resolutions_running.add(group_id)
                case ResolutionEnded(group_id):
                    state.resolutions_running.discard(group_id)
                case TopicsReplaced(image):
                    state.image = image
                case GroupConfigReplaced(group_id, None):
                    state.group_configs.pop(group_id, None)
                case GroupConfigReplaced(group_id, config):
                    assert config is not None
                    state.group_configs[group_id] = config
                case _:
                    assert_never(change)

    def loaded(self, *, now_ms: int) -> None:
        """Start the timers, which the log does not hold, after all of it was replayed.

        Every member's session starts again, as does the time to revoke partitions; each group compares the topics at
        its next heartbeat.
        """
        state = self._state
        for classic in tuple(state.classic.values()):
            self.apply(rebalance.loaded(state, classic, now_ms=now_ms))
        state.metadata_check_due.update(state.groups)
        state.regex_check_due.update(state.groups)
        for group_id, group in state.all_groups().items():
            for member in group.members.values():
                epoch = member.current.member_epoch
                state.timers.arm(
                    TimerKey(TimerKind.SESSION, group_id, member.member_id),
                    deadline_ms=now_ms + state.session_timeout_ms(group_id, member),
                    member_epoch=epoch,
                )
                if member.current.pending_revocation:  # a static member that is away has none in any state
                    state.timers.arm(
                        TimerKey(TimerKind.REBALANCE, group_id, member.member_id),
                        deadline_ms=now_ms + member.metadata.rebalance_timeout_ms,
                        member_epoch=epoch,
                    )

    # Looking

    def groups(self) -> tuple[str, ...]:
        """Ids of the consumer groups, ascending."""
        return tuple(sorted(self._state.groups))

    def snapshot(self, group_id: str) -> GroupSnapshot | None:
        """A picture of one group; None if there is no consumer group of this id."""
        group = self._state.groups.get(group_id)
        return None if group is None else snapshot_of(group)

    def classic_groups(self) -> tuple[str, ...]:
        """Ids of the classic groups that have or had members, or handed out ids for members, ascending."""
        return tuple(sorted(self._state.classic))

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        """One classic group as it is now: a value; None if there is no classic group of this id."""
        return self._state.classic.get(group_id)

    def round_in_flight(self, group_id: str) -> AssignmentRound | None:
        """Which member is to compute the target of a group; None if none is."""
        return self._state.rounds.get(group_id)

    def timer(self, key: TimerKey) -> ArmedTimer | None:
        """A timer that runs, on the clock of ``now_ms``; None if it does not."""
        return self._state.timers.get(key)

    def group(self, group_id: str) -> ConsumerGroup | None:
        """The group itself, not a copy: read it only. Checkers compare it after every event."""
        return self._state.groups.get(group_id)

    def connect_groups(self) -> tuple[str, ...]:
        """Ids of the connect groups, ascending."""
        return tuple(sorted(self._state.connect))

    def connect_group(self, group_id: str) -> ConnectGroup | None:
        """The connect group itself, not a copy: read it only. None if there is none of this id."""
        return self._state.connect.get(group_id)

    def committed(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """Committed offsets of a group: topic name -> partition -> offset."""
        return {topic: dict(partitions) for topic, partitions in self._state.offsets.of_group(group_id).items()}

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of a topic that exists."""
        topic = self._state.image.by_id.get(topic_id)
        return None if topic is None else topic.name

    def check_invariants(self) -> None:
        """Assert what must hold between two events; for tests and simulation. See `ConsumerGroup.check_invariants`."""
        state = self._state
        for group in state.all_groups().values():
            group.check_invariants()
        assert not state.groups.keys() & state.connect.keys(), "a group is of two kinds"
        for group_id, classic in state.classic.items():
            assert classic.group_id == group_id
            assert classic.exists, f"nothing is left of the classic group {group_id!r}"
            assert group_id not in state.groups, f"{group_id!r} is a classic and a consumer group"
            classic.check_invariants()
        assert state.member_count == sum(len(group.members) for group in state.all_groups().values()) + sum(
            classic.size for classic in state.classic.values()
        ), "members are miscounted"
        for group_id, flying in state.rounds.items():
            group = state.all_groups()[group_id]
            assert flying.member_id in group.members, (
                f"{flying.member_id!r} should compute a target and is not a member"
            )
            assert group.group_epoch > group.target_epoch, f"a round is in flight and {group_id!r} has its target"

    # Inside

    def _handle_api(self, request: ApiRequest, *, now_ms: int) -> CoordinatorResult:
        message, state = request.message, self._state
        match message:
            case ConsumerGroupHeartbeatRequest():
                try:
                    return consumer_heartbeat.handle_heartbeat(state, request, message, now_ms=now_ms)
                except Refused as refused:
                    return _refuse_heartbeat(state, request, message, refused)
            case ConnectGroupHeartbeatRequest():
                try:
                    return worker_heartbeat.handle_heartbeat(state, request, message, now_ms=now_ms)
                except Refused as refused:
                    return _refuse_connect_heartbeat(state, request, message, refused)
            case ConnectGroupPrepareAssignmentRequest():
                return connect_rounds.handle_prepare(state, request, message, now_ms=now_ms)
            case ConnectGroupInstallAssignmentRequest():
                return connect_rounds.handle_install(state, request, message, now_ms=now_ms)
            case ConnectGroupDescribeRequest():
                return connect_describe.handle_describe(state, request, message)
            case HeartbeatRequest():
                return classic_heartbeat.handle_heartbeat(state, request, message, now_ms=now_ms)
            case ConsumerGroupPrepareAssignmentRequest():
                return install_assignment.handle_prepare(state, request, message, now_ms=now_ms)
            case ConsumerGroupInstallAssignmentRequest():
                return install_assignment.handle_install(state, request, message, now_ms=now_ms)
            case OffsetCommitRequest():
                return offset_commit.handle_offset_commit(state, request, message, now_ms=now_ms)
            case TxnOffsetCommitRequest():
                return offset_commit.handle_txn_offset_commit(state, request, message, now_ms=now_ms)
            case OffsetFetchRequest():
                return offset_fetch.handle_offset_fetch(state, request, message)
            case JoinGroupRequest():
                return join.handle_join(state, request, message, now_ms=now_ms)
            case SyncGroupRequest():
                return sync.handle_sync(state, request, message, now_ms=now_ms)
            case LeaveGroupRequest() if (classic := state.classic.get(message.group_id)) is not None:
                return leave.handle_leave(state, request, message, classic, now_ms=now_ms)
            case LeaveGroupRequest() if (connect := state.connect.get(message.group_id)) is not None:
                return worker_departure.handle_leave_group(state, request, message, connect, now_ms=now_ms)
            case LeaveGroupRequest():
                return departure.handle_leave_group(state, request, message, now_ms=now_ms)
            case ConsumerGroupDescribeRequest():
                return consumer_describe.handle_consumer_group_describe(state, request, message)
            case ListGroupsRequest():
                return consumer_describe.handle_list_groups(state, request, message)
            case DescribeGroupsRequest():
                return consumer_describe.handle_describe_groups(state, request, message)
            case DeleteGroupsRequest():
                return deletion.handle_delete_groups(state, request, message)
            case OffsetDeleteRequest():
                return deletion.handle_offset_delete(state, request, message)
            case _:
                assert_never(message)

    def _topics_changed(self, image: TopicsImage) -> CoordinatorResult:
        """Mark the groups that subscribe to changed topics, and delete the offsets of deleted topics."""
        state = self._state
        changed = image.changed_since(state.image)
        gone = [topic.name for topic in state.image.topics if topic.topic_id not in image.by_id]
        due = tuple(
            group_id
            for group_id, group in sorted(state.groups.items())
            if not changed.isdisjoint(group.subscribed_topics)
        )
        return CoordinatorResult(
            records=tuple(deletion.offsets_of_topics(state, gone)),
            soft=(TopicsReplaced(image), MetadataCheckDue(due)),
        )


def _refuse_heartbeat(
    state: CoordinatorState, request: ApiRequest, message: ConsumerGroupHeartbeatRequest, refused: Refused
) -> CoordinatorResult:
    response = ConsumerGroupHeartbeatResponse(error_code=refused.code, error_message=refused.message)
    return _refusal(state, request, message, refused, response, group=state.groups.get(message.group_id))


def _refuse_connect_heartbeat(
    state: CoordinatorState, request: ApiRequest, message: ConnectGroupHeartbeatRequest, refused: Refused
) -> CoordinatorResult:
    response = ConnectGroupHeartbeatResponse(error_code=refused.code, error_message=refused.message)
    return _refusal(state, request, message, refused, response, group=state.connect.get(message.group_id))


def _refusal(
    state: CoordinatorState,
    request: ApiRequest,
    message: ConsumerGroupHeartbeatRequest | ConnectGroupHeartbeatRequest,
    refused: Refused,
    response: Response,
    *,
    group: Group[KeyT, MetadataT] | None,
) -> CoordinatorResult:
    event = GroupEvent(
        event="member_fenced",
        group_id=message.group_id,
        member_id=message.member_id,
        client_id=request.client_id,
        fields={"error": refused.code.name, "sent_epoch": message.member_epoch},
    )
    batch = Batch(message.group_id)
    batch.events.append(event)
    if group is not None and refused.code is ErrorCode.FENCED_MEMBER_EPOCH:
        client_assignment.member_failed(state, group, batch, member_id=message.member_id, reason="member_fenced")
    return batch.result(Reply(request.request_id, response))
