"""A member with client-side assignors: the scripted coordinator and application of `MemberHarness`, and user code.

Calls of the user's code wait in `user_calls` until the test ends them; ``metadata()`` returns at once, unless the test
says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from kip848_client.member.assignor_events import (
    AssignorCall,
    AssignorDone,
    AssignorFailed,
    AssignorsDescribed,
    CallOnAssignment,
    DescribeAssignors,
    OnAssignmentDone,
    ReassignmentRequested,
    RunAssignor,
)
from kip848_client.member.events import MemberEffect, ResponseReceived
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignment,
    Assignor,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.consumer_group_install_assignment import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
)
from kip848_client.wire.messages.consumer_group_install_assignment import Member as InstallMember
from kip848_client.wire.messages.consumer_group_install_assignment import TopicPartition as InstallPartitions
from kip848_client.wire.messages.consumer_group_prepare_assignment import Assignor as PreparedAssignor
from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
    Member,
    TopicMetadata,
)
from tests.support.member_harness import INTERVAL_MS, MEMBER_ID, MemberHarness, named_assignment

LIMIT_MS = 5_000
CallT = TypeVar("CallT", DescribeAssignors, RunAssignor, CallOnAssignment)


def assignor(metadata: bytes = b"", *, reason: int = 0, name: str = "mine") -> Assignor:
    """As a heartbeat carries it."""
    return Assignor(name, 0, 1, reason, 1, metadata)


@dataclass
class AssigningHarness(MemberHarness):
    """A member with the local assignor ``mine``.

    Args:
        offered: API keys of client-side assignment that the coordinator has.
        described_at_once: ``metadata()`` returns at once what it is to return (`metadata`).
        noticed_at_once: ``on_assignment()`` returns at once.
    """

    offered: frozenset[ApiKey] = frozenset(
        {ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT}
    )
    described_at_once: bool = True
    noticed_at_once: bool = True
    metadata: bytes = b""
    user_calls: list[AssignorCall] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = {"client_assignors": (assignor(),), "assignor_timeout_ms": LIMIT_MS} | self.settings
        super().__post_init__()

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """API versions of the coordinator."""
        return super().versions | dict.fromkeys(map(int, self.offered), (0, 0))

    def _perform(self, effect: MemberEffect) -> None:
        match effect:
            case DescribeAssignors(call_id) if self.described_at_once:
                self._automatic.append(AssignorsDescribed((assignor(self.metadata),), call_id))
            case CallOnAssignment(call_id) if self.noticed_at_once:
                self.history.append(f"on_assignment({effect.group_metadata.member_epoch})")
                self._automatic.append(OnAssignmentDone(call_id))
            case DescribeAssignors() | RunAssignor() | CallOnAssignment():
                self.user_calls.append(effect)
            case _:
                super()._perform(effect)

    # ------------------------------------------------------------------------------------------------- user's code

    def take_call(self, call_type: type[CallT]) -> CallT:
        """Take the oldest call of one type that has not returned."""
        for call in self.user_calls:
            if isinstance(call, call_type):
                self.user_calls.remove(call)
                return call
        raise AssertionError(f"no {call_type.__name__} is under way: {self.user_calls}")

    def finish_assign(
        self, target: Mapping[str, Mapping[str, Iterable[int]]] | None = None, *, error: int = 0
    ) -> list[MemberEffect]:
        """``assign()`` returns member id -> topic -> partitions."""
        call = self.take_call(RunAssignor)
        return self.step(AssignorDone(call.call_id, self.installed(target or {}), error))

    def finish_notice(self) -> list[MemberEffect]:
        """``on_assignment()`` returns."""
        return self.step(OnAssignmentDone(self.take_call(CallOnAssignment).call_id))

    def finish_metadata(self, metadata: bytes = b"") -> list[MemberEffect]:
        """``metadata()`` returns."""
        return self.step(AssignorsDescribed((assignor(metadata),), self.take_call(DescribeAssignors).call_id))

    def request_reassignment(self, reason: int) -> list[MemberEffect]:
        """The application asks for a new assignment."""
        return self.step(ReassignmentRequested(reason))

    def installed(self, target: Mapping[str, Mapping[str, Iterable[int]]]) -> tuple[InstallMember, ...]:
        """A target as Install carries it."""
        return tuple(
            InstallMember(
                member_id,
                tuple(InstallPartitions(self.topic_ids[topic], tuple(indexes)) for topic, indexes in topics.items()),
                0,
                b"",
            )
            for member_id, topics in target.items()
        )

    @property
    def failures(self) -> list[str]:
        """What was reported to the log."""
        return [str(effect.error) for effect in self.emitted(AssignorFailed)]

    # ------------------------------------------------------------------------------------------------- coordinator

    def answer_round(
        self,
        *,
        epoch: int = 1,
        flag: bool = False,
        assignment: Mapping[str, Iterable[int]] | None = None,
        pending: Mapping[str, Iterable[int]] | None = None,
        error: int = 0,
        version: int = 0,
        metadata: bytes = b"",
        name: str = "",
    ) -> list[MemberEffect]:
        """Answer the oldest heartbeat, with what client-side assignment adds to an answer."""
        heartbeat = self.take(ConsumerGroupHeartbeatRequest)
        given = None
        if assignment is not None:
            given = Assignment(
                named_assignment(self.topic_ids, assignment).topic_partitions,
                error,
                named_assignment(self.topic_ids, pending or {}).topic_partitions,
                version,
                metadata,
                name,
            )
        response = ConsumerGroupHeartbeatResponse(
            member_id=MEMBER_ID,
            member_epoch=epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=given,
            should_compute_assignment=flag,
        )
        return self.step(ResponseReceived(heartbeat.request_id, response))

    def answer_prepare(
        self, *, error: int = 0, group_epoch: int = 7, name: str = "mine", members: Iterable[str] = (MEMBER_ID,)
    ) -> list[MemberEffect]:
        """Answer the oldest Prepare: members without targets, all subscribed to t with two partitions."""
        response = ConsumerGroupPrepareAssignmentResponse(
            error_code=error,
            error_message="scripted" if error else None,
            group_epoch=0 if error else group_epoch,
            assignor_name="" if error else name,
            members=()
            if error
            else tuple(
                Member(member_id, 1, None, None, (self.topic_ids["t"],), PreparedAssignor(0, 1, b""), ())
                for member_id in members
            ),
            topics=() if error else (TopicMetadata(self.topic_ids["t"], "t", 2),),
        )
        return self.answer(ConsumerGroupPrepareAssignmentRequest, response)

    def answer_install(self, *, error: int = 0) -> list[MemberEffect]:
        """Answer the oldest Install."""
        message = "scripted" if error else None
        return self.answer(
            ConsumerGroupInstallAssignmentRequest,
            ConsumerGroupInstallAssignmentResponse(error_code=error, error_message=message),
        )

    @property
    def prepares(self) -> list[ConsumerGroupPrepareAssignmentRequest]:
        """Prepare requests without an answer."""
        return self.requests(ConsumerGroupPrepareAssignmentRequest)

    @property
    def installs(self) -> list[ConsumerGroupInstallAssignmentRequest]:
        """Install requests without an answer."""
        return self.requests(ConsumerGroupInstallAssignmentRequest)


def stable(**settings: object) -> AssigningHarness:
    """A member of epoch 1 that owns t-0; nothing is under way."""
    member = AssigningHarness(settings=settings)
    member.become_stable({"t": [0]})
    return member


def next_heartbeat(member: MemberHarness) -> ConsumerGroupHeartbeatRequest:
    """Let time pass until a heartbeat is sent."""
    if not member.requests(ConsumerGroupHeartbeatRequest):
        member.advance(INTERVAL_MS)
    return member.expect_heartbeat()


def chosen(**settings: object) -> AssigningHarness:
    """It was asked to compute: Prepare is under way."""
    member = stable(**settings)
    next_heartbeat(member)
    member.answer_round(flag=True)
    return member


def computing(**settings: object) -> AssigningHarness:
    """Its assignor is running."""
    member = chosen(**settings)
    member.answer_prepare()
    return member


def installing(**settings: object) -> AssigningHarness:
    """Its Install is under way."""
    member = computing(**settings)
    member.finish_assign({MEMBER_ID: {"t": [0, 1]}})
    return member
