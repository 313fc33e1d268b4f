"""A twin of a member: another one that was told the same, to which things can be done that the original is spared.

A member is decided by its settings, by what it is told, and by the jitter that it draws. Whoever writes these down can
make it a second time at any moment, in the very state that the run brought it to, and ask what it would do: should this
answer bring an error that is hardly ever seen, should the broker be an old one, should the application leave now.

Does not own: what is asked, and what the right answer is (`twin_questions` and its neighbours).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NoReturn, Self, TypeVar
from uuid import UUID

from kip848_client.errors import AssignorTimeoutError
from kip848_client.member.assignor_events import (
    AssignorDone,
    AssignorFailed,
    AssignorsDescribed,
    CallOnAssignment,
    DescribeAssignors,
    OnAssignmentDone,
    ReassignmentRequested,
    RunAssignor,
)
from kip848_client.member.events import (
    AssignPartitions,
    CallAbandoned,
    CommitDone,
    CommitKind,
    CommitRequested,
    ConnectCoordinator,
    CoordinatorConnected,
    Fail,
    FailureKind,
    FetchOffsetsRequested,
    LeaveDone,
    LeaveRequested,
    ListenerDone,
    ListOffsets,
    LosePartitions,
    MemberEffect,
    MemberEvent,
    MetadataUpdated,
    OffsetsFetched,
    RequestFailed,
    RequestMetadata,
    ResponseReceived,
    RevokePartitions,
    SendRequest,
    StartFetching,
    SubscriptionChanged,
    SurfaceError,
    Tick,
)
from kip848_client.member.member import Member
from kip848_client.member.settings import MemberConfig
from kip848_client.member.states import Phase
from kip848_client.model import BrokerNode, Subscription, TopicIdPartition, TopicPartition
from kip848_client.simulation.violation import InvariantViolation
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest
from kip848_client.wire.schema import Request, Response

_PATIENCE_MS: Final = 5_000
_FIRST_NUMBER: Final = 1_000_000
"""Of calls that only a twin hears of."""

EffectT = TypeVar("EffectT")


class Jitter(random.Random):
    """Draws from another generator, and writes down what it drew; or first gives out what was written down.

    Args:
        source: whom to draw from.
        drawn: what to give out before.
    """

    def __new__(cls, source: random.Random, drawn: Sequence[float] = ()) -> Self:
        """As any generator, whose seed does not matter."""
        del source, drawn
        return super().__new__(cls)

    def __init__(self, source: random.Random, drawn: Sequence[float] = ()) -> None:
        super().__init__(0)
        self._source = source
        self._left = list(reversed(drawn))
        self.drawn: Final[list[float]] = []

    def uniform(self, a: float, b: float) -> float:
        """As `random.Random.uniform`; the only thing that a member draws."""
        number = self._left.pop() if self._left else self._source.uniform(a, b)
        self.drawn.append(number)
        return number


class Diary:
    """All that one member was told, and when.

    Args:
        source: where its jitter comes from.
    """

    def __init__(self, name: str, config: MemberConfig, source: random.Random) -> None:
        self.name: Final = name
        self.config: Final = config
        self.jitter: Final = Jitter(source)
        self.told: Final[list[tuple[MemberEvent, int]]] = []

    def twin(self, rng: random.Random, *, now_ms: int) -> Twin:
        """The member once more, as it is now; *rng* is where its further jitter comes from."""
        found = Twin(self.name, self.config, Jitter(rng, self.jitter.drawn))
        for event, at_ms in self.told:
            found.tell(event, at_ms=at_ms)
        found.now_ms = now_ms
        return found


class Twin:
    """A member without a world: whoever asks it is its network, its application and its clock."""

    def __init__(self, name: str, config: MemberConfig, rng: random.Random) -> None:
        self.name: Final = name
        self.config: Final = config
        self.member: Final = Member(config, rng=rng)
        self.now_ms = 0
        self.effects: list[MemberEffect] = []
        """Of the last event."""
        self.under_way: Final[dict[int, tuple[MemberEffect, int | None]]] = {}
        """What it asked for and was not told the end of -> that, and the connection to the coordinator of that time."""
        self.link: int | None = None
        """The connection to the coordinator that it was told of last."""
        self.calls: Final[dict[int, object]] = {}
        """Calls of its application that wait."""
        self.assigning: MemberEffect | None = None
        """The call of its assignor that has not returned."""
        self.offered = config.client_assignors
        """What its assignors offered last, in time."""
        self.commit_failed = False
        """A commit was refused, or not answered."""
        self.hangs = False
        """A call of its assignor takes too long, and has not returned."""
        self.wishes = False
        """Its application asked for another target."""
        self.listener: RevokePartitions | AssignPartitions | LosePartitions | None = None
        """The call of its listener that has not returned; the last one, if there are two."""
        self.subscription = Subscription()
        """What its application asked for last."""
        self.named: Final[set[UUID]] = set()
        """Topics whose names it was told, whether it asked for them or not."""
        self.codes: Final[set[int]] = set()
        """Error codes of answers that it heard."""
        self.kinds: Final[set[FailureKind]] = set()
        """The ways in which requests failed."""
        self.closing = False
        """close() was called."""
        self.complained = False
        """Its application was told of an error: the same one is not told again soon."""
        self.asking: Final[dict[TopicPartition, int]] = {}
        """Partitions -> the request that asked last for what was committed, unless they started since."""
        self.life_began = 0
        """Number of the last join: what was sent before it is of an earlier life."""
        self.calm = False
        """No heartbeat is due for long, unless something happens."""
        self.confirmed = False
        """Some coordinator said its member id."""
        self._number = _FIRST_NUMBER

    def next_number(self) -> int:
        """Of another call of the application."""
        self._number += 1
        return self._number

    # --------------------------------------------------------------------------------------------------------- telling

    def tell(self, event: MemberEvent, *, at_ms: int | None = None) -> list[MemberEffect]:
        """Tell it something, now or later; what it does."""
        if at_ms is not None:
            self.now_ms = at_ms
        self._note_event(event)
        self.effects = self.member.step(event, now_ms=self.now_ms)
        for effect in self.effects:
            self._note_effect(effect)
        if self.did_any(Fail) and self.asked(ConsumerGroupHeartbeatRequest):
            self.wrong("stops, and must send no heartbeat any more")
        return self.effects

    def wait(self, for_ms: int) -> list[MemberEffect]:
        """Let time pass, in which its application goes on polling, and wake it; what it does.

        It must have asked to be woken by then if there is something to do, and not at once again (C9).
        """
        self.now_ms += for_ms
        before, due_ms = self.member.view(), self.member.deadline_ms()
        effects = self.tell(Tick(self.now_ms))
        if (due_ms is None or due_ms > self.now_ms) and (effects or self.member.view() is not before):
            self.wrong(f"wants to be woken at {due_ms}, and has something to do at {self.now_ms}", invariant="C9")
        due_ms = self.member.deadline_ms()
        if due_ms is not None and due_ms <= self.now_ms:
            self.wrong(f"was woken at {self.now_ms}, and wants to be woken at {due_ms}", invariant="C9")
        return effects

    def _note_event(self, event: MemberEvent) -> None:
        asked, _ = self.under_way.pop(getattr(event, "request_id", None) or 0, (None, None))
        if isinstance(asked, SendRequest) and isinstance(asked.request, OffsetCommitRequest):
            self.commit_failed = self.commit_failed or not _is_success(event)
        match event:
            case ResponseReceived(response=response):
                self.codes.add(getattr(response, "error_code", 0))
                self.confirmed = self.confirmed or bool(getattr(response, "member_id", None))
            case RequestFailed(kind=kind):
                self.kinds.add(kind)
            case MetadataUpdated(topic_names=names):
                self.named.update(names)
            case SubscriptionChanged(subscription=subscription):
                self.subscription = subscription
            case CoordinatorConnected(request_id=number):
                self.link = number
            case CommitRequested(commit_id=number) | FetchOffsetsRequested(fetch_id=number):
                self.calls[number] = event
            case LeaveRequested(leave_id=number, closing=closing):
                self.calls[number] = event
                self.closing = self.closing or closing
            case CallAbandoned(call_id=number):
                self.calls.pop(number, None)
            case AssignorsDescribed(call_id=number, assignors=offered) if number is None or self._calls(number):
                if not self.hangs:
                    self.offered = offered
                if number is not None:
                    self.assigning, self.hangs = None, False
            case AssignorDone(call_id=number) | OnAssignmentDone(call_id=number) if self._calls(number):
                self.assigning = None
                self.hangs = False
            case ReassignmentRequested():
                self.wishes = True
            case ListenerDone(token=token):
                if self.listener is not None and self.listener.token == token:
                    self.listener = None
            case _:
                pass

    def _note_effect(self, effect: MemberEffect) -> None:
        match effect:
            case SendRequest() | ConnectCoordinator() | RequestMetadata() | ListOffsets():
                self._check_patience(effect)
                self._note_request(effect)
                self.under_way[effect.request_id] = (effect, self.link)
            case CommitDone(commit_id=number) | OffsetsFetched(fetch_id=number) | LeaveDone(leave_id=number):
                self.calls.pop(number, None)
            case DescribeAssignors() | RunAssignor() | CallOnAssignment():
                self.assigning = effect
            case AssignorFailed(error=AssignorTimeoutError()):
                self.hangs = True
            case StartFetching(positions=positions):
                for tip in positions:
                    self.asking.pop(tip.topic_partition, None)
            case SurfaceError():
                self.complained = True
            case RevokePartitions() | AssignPartitions() | LosePartitions():
                self.listener = effect
            case _:
                pass

    def _note_request(self, effect: SendRequest | ConnectCoordinator | RequestMetadata | ListOffsets) -> None:
        match effect:
            case SendRequest(request=ConsumerGroupHeartbeatRequest(member_epoch=0)):
                self.life_began = effect.request_id
            case SendRequest(request=OffsetFetchRequest(groups=groups)):
                for topic in groups[0].topics or ():
                    for index in topic.partition_indexes:
                        self.asking[TopicPartition(topic.name, index)] = effect.request_id
            case ListOffsets(timestamps=timestamps):
                for partition in timestamps:
                    self.asking.pop(partition, None)
            case _:
                pass

    def _check_patience(self, effect: SendRequest | ConnectCoordinator | RequestMetadata | ListOffsets) -> None:
        """R35: how long it waits for an answer; to a heartbeat no longer than an interval, or a second."""
        limit_ms = self.config.request_timeout_ms
        if isinstance(effect, SendRequest) and isinstance(effect.request, ConsumerGroupHeartbeatRequest):
            limit_ms = min(limit_ms, max(_PATIENCE_MS, self.member.snapshot().heartbeat_interval_ms))
        if effect.timeout_ms != limit_ms:
            self.wrong(f"waits for {effect.timeout_ms} ms, and not for {limit_ms}")

    # --------------------------------------------------------------------------------------------------------- looking

    def did(self, kind: type[EffectT]) -> list[EffectT]:
        """What it did of a kind, upon the last event."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def did_any(self, *kinds: type[object]) -> bool:
        """Whether it did something of one of these kinds, upon the last event."""
        return any(isinstance(effect, kinds) for effect in self.effects)

    def is_calling(self, *kinds: type[object]) -> bool:
        """Whether a call of its assignor, of one of these kinds if any are named, has not returned."""
        return self.assigning is not None and (not kinds or isinstance(self.assigning, kinds))

    def _calls(self, call_id: int) -> bool:
        return self.assigning is not None and getattr(self.assigning, "call_id", None) == call_id

    def knows(self) -> BrokerNode | None:
        """The coordinator, while it is connected to it."""
        return self.member.coordinator

    @property
    def membership(self) -> tuple[str, int, frozenset[TopicIdPartition]]:
        """Its id, its epoch, and what it has: what only the answer to a heartbeat may take away."""
        view = self.member.view()
        return view.member_id, view.member_epoch, view.assigned

    def is_in(self, *phases: Phase) -> bool:
        """Whether it is in one of these phases now."""
        return self.member.phase in phases

    def asked(self, kind: type[Request[Response]]) -> list[SendRequest]:
        """The requests of a kind that it sent upon the last event."""
        return [effect for effect in self.did(SendRequest) if isinstance(effect.request, kind)]

    def waits_for(self, kind: type[EffectT]) -> list[EffectT]:
        """What it asked for, of a kind, and has not heard the end of."""
        return [effect for effect, _ in self.under_way.values() if isinstance(effect, kind)]

    def waits_for_answer(self, kind: type[Request[Response]]) -> list[SendRequest]:
        """The requests of a kind that are under way."""
        return [effect for effect in self.waits_for(SendRequest) if isinstance(effect.request, kind)]

    def sent_on(self, request_id: int) -> int | None:
        """The connection to the coordinator that there was when a request was sent that is under way."""
        return self.under_way[request_id][1]

    @property
    def least_backoff_ms(self) -> int:
        """The shortest wait after any failure."""
        return int(0.8 * self.config.retry_backoff_ms)

    @property
    def longest_backoff_ms(self) -> int:
        """The longest wait after any failure."""
        return self.config.retry_backoff_max_ms

    @property
    def asynchronous(self) -> bool:
        """Whether a commit is under way that others are reported after."""
        return any(isinstance(call, CommitRequested) and call.kind is CommitKind.ASYNC for call in self.calls.values())

    def wrong(self, what: str, *, invariant: str = "C10") -> NoReturn:
        """Say that it does what it must not."""
        doing = f"{self.member.phase.name}, epoch {self.member.view().member_epoch}"
        raise InvariantViolation(invariant, f"a twin of {self.name} ({doing}) {what}; it does {self.effects}")


def _is_success(event: MemberEvent) -> bool:
    """Whether it says that everything was committed."""
    response = event.response if isinstance(event, ResponseReceived) else None
    return isinstance(response, OffsetCommitResponse) and not any(
        item.error_code for topic in response.topics for item in topic.partitions
    )
