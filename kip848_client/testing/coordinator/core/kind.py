"""The interface of a kind of group: what it registers, and the questions that the core asks it. The core knows no kind.

A new kind is one class of `GroupKind` in a room of its own, and one line in `coordinator.kinds`. It brings its requests
(`ROUTES`), its records, its timers, and the state that it keeps for itself (`coordinator_state.StatePart`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.coordinator_state import AnyGroup, CoordinatorState, StatePart
from kip848_client.testing.coordinator.core.group_events import EventMember
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import CoordinatorResult, SoftChange
from kip848_client.testing.coordinator.core.timers import ArmedTimer, TimerKey, TimerKind
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest
from kip848_client.wire.messages.leave_group import MemberIdentity
from kip848_client.wire.messages.sync_group import SyncGroupRequest
from kip848_client.wire.schema import RecordPart, Request

MessageT = TypeVar("MessageT", bound=Request[Any])
MessageT_contra = TypeVar("MessageT_contra", bound=Request[Any], contravariant=True)


class Handler(Protocol[MessageT_contra]):
    """Answers one kind of request, now or later. Changes nothing itself: the changes are in the result."""

    def __call__(
        self, state: CoordinatorState, request: ApiRequest, message: MessageT_contra, *, now_ms: int
    ) -> CoordinatorResult:
        """*message* is the one of *request*, with its type."""


Reader: TypeAlias = Callable[[CoordinatorState, ApiRequest, MessageT], CoordinatorResult]
"""Answers one kind of request, whatever the time."""


class Route(NamedTuple):
    """A request, and what answers it."""

    message: type[Request[Any]]
    handle: Handler[Any]


def route(message: type[MessageT], handle: Handler[MessageT]) -> Route:
    """The row of a request."""
    return Route(message, handle)


def timeless(message: type[MessageT], handle: Reader[MessageT]) -> Route:
    """The row of a request whose answer does not depend on the time."""

    def answer(state: CoordinatorState, request: ApiRequest, message: MessageT, *, now_ms: int) -> CoordinatorResult:
        del now_ms
        return handle(state, request, message)

    return Route(message, answer)


class CommitAttempt(msgspec.Struct, frozen=True):
    """The fields of a commit of offsets that decide whether its sender may commit.

    Args:
        epoch: the member's epoch, or the generation; negative if it names none.
        is_transactional: a producer commits it in a transaction.
        partitions: (topic id, partition) of those whose offsets would be stored.
    """

    member_id: str
    instance_id: str | None
    epoch: int
    api_version: int
    is_transactional: bool
    partitions: Sequence[tuple[UUID, int]]

    @property
    def knows_member_epochs(self) -> bool:
        """Whether its version has the errors of the consumer protocol: STALE_MEMBER_EPOCH, GROUP_ID_NOT_FOUND."""
        return self.api_version >= (6 if self.is_transactional else 9)


class ClassicSide(ABC):
    """Answers the classic protocol's requests to a group of another kind, which has or may get such members."""

    @abstractmethod
    def join(
        self, request: ApiRequest, message: JoinGroupRequest, *, rebalance_timeout_ms: int, now_ms: int
    ) -> CoordinatorResult:
        """Answer one JoinGroup to a group with members; its fields are within their bounds."""

    @abstractmethod
    def sync(self, request: ApiRequest, message: SyncGroupRequest, *, now_ms: int) -> CoordinatorResult:
        """Answer one SyncGroup.

        Raises:
            Refused: the code for the answer; nothing changed.
        """

    @abstractmethod
    def beat(self, message: HeartbeatRequest, *, now_ms: int) -> tuple[ErrorCode, Sequence[SoftChange]]:
        """The code for one Heartbeat, and the timers that it arms.

        Raises:
            Refused: the code for the answer; nothing changed.
        """


GroupT = TypeVar("GroupT", bound=AnyGroup)


class GroupKind(ABC, Generic[GroupT]):
    """One kind of group. It answers for groups of `GROUP` only."""

    GROUP: ClassVar[type[Any]]
    """The class of its groups, whose `kind` is its name."""
    ROUTES: ClassVar[tuple[Route, ...]] = ()
    """The requests that only this kind answers."""
    RECORD_KEYS: ClassVar[tuple[type[RecordPart], ...]] = ()
    """The keys of its records."""
    TIMERS: ClassVar[frozenset[TimerKind]] = frozenset()
    """The timers of its groups."""
    HAS_OFFSETS: ClassVar[bool] = False
    """Whether its groups commit offsets; if not, requests about offsets are refused (GROUP_ID_NOT_FOUND)."""

    def __init__(self, state: CoordinatorState) -> None:
        self.state: Final = state

    # --- events

    @abstractmethod
    def replay(self, key: Any, value: Any) -> None:
        """Bring the state to what one of the kind's records says; *value* is None for a tombstone.

        Raises:
            IllegalStateError: the log is damaged.
        """

    @abstractmethod
    def loaded(self, *, now_ms: int) -> Sequence[SoftChange]:
        """Start what the log does not hold, after all of it was replayed: timers, and checks that are due."""

    @abstractmethod
    def time_is_up(
        self, group: GroupT, key: TimerKey, timer: ArmedTimer, *, now_ms: int, wall_ms: int
    ) -> CoordinatorResult:
        """Handle one of `TIMERS` that fired. It must be armed again, or be cancelled."""

    def topics_changed(self, names: frozenset[str]) -> Sequence[SoftChange]:
        """Topics of these names are there, gone, or different."""
        del names
        return ()

    def topics_gone(self, topic_ids: frozenset[UUID]) -> CoordinatorResult:
        """Topics were deleted."""
        del topic_ids
        return CoordinatorResult()

    def stopped(self) -> CoordinatorResult:
        """Answer the requests that are parked, since another coordinator takes over."""
        return CoordinatorResult()

    # --- one group

    @abstractmethod
    def remove_members(
        self, group: GroupT, leaving: Sequence[MemberIdentity], *, now_ms: int, wall_ms: int
    ) -> tuple[Sequence[ErrorCode], CoordinatorResult]:
        """Remove members (LeaveGroup, also by an administrator); returns an error code for each, and the result."""

    def delete(self, group: GroupT) -> CoordinatorResult:
        """End a group without members; its offsets are seen to."""
        return CoordinatorResult(records=tuple(group.tombstones()))

    def classic_side(self, group: GroupT) -> ClassicSide | None:
        """The handler of the classic protocol for a group of this kind; None: classic members are refused."""
        del group
        return None

    def check_commit(self, group: GroupT, commit: CommitAttempt, *, now_ms: int) -> Sequence[SoftChange]:
        """Check that the sender may commit; returns the timers that a commit restarts. Only for kinds with offsets.

        Raises:
            Refused: the code for every partition of the commit.
        """
        del group, commit, now_ms
        return ()

    def check_fetch(self, group: GroupT, *, member_id: str, member_epoch: int) -> None:
        """Check that a sender with a member id may fetch offsets. Only for kinds with offsets.

        Raises:
            Refused: the code for the group's answer.
        """
        del group, member_id, member_epoch

    def committing(self, group: GroupT, member_id: str) -> tuple[EventMember | None, int]:
        """The member that commits, if it is known, and the group epoch, for the event log."""
        del group, member_id
        return None, 0


class Kinds(StatePart):
    """The registered kinds."""

    def __init__(self, state: CoordinatorState) -> None:
        super().__init__(state)
        self._by_name: dict[str, GroupKind[Any]] = {}
        self.of_record: Final[dict[type[Any], GroupKind[Any]]] = {}
        """Key of a record -> the kind that it belongs to."""

    def register(self, kinds: Sequence[type[GroupKind[Any]]]) -> None:
        """Add kinds; their order is the one in which they are loaded."""
        for kind in kinds:
            made = self._by_name[kind.GROUP.kind] = kind(self.state)
            self.of_record.update(dict.fromkeys(kind.RECORD_KEYS, made))

    def all(self) -> Sequence[GroupKind[Any]]:
        """Every kind, in the order of registration."""
        return tuple(self._by_name.values())

    def of(self, group: AnyGroup) -> GroupKind[Any]:
        """The kind of a group."""
        return self._by_name[group.kind]

    def classic_side(self, group_id: str) -> ClassicSide | None:
        """The handler of the classic protocol for a group of another kind; None for classic groups and unknown ids."""
        group = self.state.groups.get(group_id)
        return None if group is None else self.of(group).classic_side(group)


def kind_with_offsets(state: CoordinatorState, group: AnyGroup) -> GroupKind[Any]:
    """The kind of a group that is asked about offsets.

    Raises:
        Refused: GROUP_ID_NOT_FOUND; groups of this kind have none.
    """
    kind = state.part(Kinds).of(group)
    if not kind.HAS_OFFSETS:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is a {group.kind} group, without offsets.")
    return kind


def routes_by_message(routes: Sequence[Route]) -> Mapping[type[Request[Any]], Handler[Any]]:
    """Request -> its handler; each request must have one only."""
    found = {row.message: row.handle for row in routes}
    assert len(found) == len(routes), "a request has two handlers"
    return found
