"""Any order of events for a member with a client-side assignor: flags, answers to its rounds, user code that returns
whenever it likes.

What `MemberMachine` does goes on around it; at the end the world is healed, a round is asked for, and must be
installed.
"""

from __future__ import annotations

import random

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from kip848_client.error_codes import ErrorCode
from kip848_client.member.assignor_events import (
    AssignorDone,
    AssignorsDescribed,
    CallOnAssignment,
    DescribeAssignors,
    OnAssignmentDone,
    RunAssignor,
)
from kip848_client.member.settings import ResetPolicy
from kip848_client.member.states import FATAL, MemberState
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.properties.test_member_machine import MemberMachine, assignments, fall_in_line
from tests.support.member_harness import MEMBER_ID, MemberHarness, assignor

round_codes = st.sampled_from(
    [
        0,
        0,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.INVALID_ASSIGNMENT,
        ErrorCode.INVALID_REQUEST,
    ]
)


class AssigningMemberMachine(MemberMachine):
    """See the module."""

    @initialize(
        version=st.just(1),
        auto_commit=st.booleans(),
        static=st.booleans(),
        policy=st.none(),
        seed=st.integers(0, 2**16),
    )
    def configure(self, version: int, auto_commit: bool, static: bool, policy: ResetPolicy | None, seed: int) -> None:
        self.h = MemberHarness(
            settings={
                "client_assignors": (assignor(),),
                "auto_commit_interval_ms": 2000 if auto_commit else None,
                "instance_id": "host-1" if static else None,
            },
            coordinator_found=False,
            metadata_answered=False,
            heartbeat_version=version,
            rng=random.Random(seed),
            described_at_once=False,
            noticed_at_once=False,
        )
        self.h.subscribe("t")
        self.h.poll()

    # --------------------------------------------------------------------------------------------- the coordinator

    @precondition(lambda self: self.h.requests(ConsumerGroupHeartbeatRequest))
    @rule(
        bump=st.integers(0, 1),
        flag=st.booleans(),
        assignment=st.none() | assignments,
        pending=assignments,
        error=st.sampled_from([0, 0, 3, -1]),
    )
    def accept_with_flag(
        self,
        bump: int,
        flag: bool,
        assignment: dict[str, list[int]] | None,
        pending: dict[str, list[int]],
        error: int,
    ) -> None:
        epoch = max(1, self.h.member.snapshot().member_epoch + bump)
        self.h.answer_heartbeat(epoch=epoch, compute=flag, assignment=assignment, pending=pending, failure=error)
        self._look()

    @precondition(lambda self: self.h.prepares)
    @rule(code=round_codes, name=st.sampled_from(["mine", "mine", "mine", "theirs"]))
    def answer_prepare(self, code: int, name: str) -> None:
        self.h.answer_prepare(error=code, name=name)
        self._look()

    @precondition(lambda self: self.h.installs)
    @rule(code=round_codes)
    def answer_install(self, code: int) -> None:
        self.h.answer_install(error=code)
        self._look()

    # --------------------------------------------------------------------------------------------- the user's code

    @precondition(lambda self: self.h.user_calls)
    @rule(error=st.sampled_from([0, 0, 7, -1]), metadata=st.sampled_from([b"", b"hot"]))
    def return_from_user_code(self, error: int, metadata: bytes) -> None:
        self._return(error=error, metadata=metadata)
        self._look()

    @rule(reason=st.sampled_from([1, 2]))
    def ask_for_reassignment(self, reason: int) -> None:
        self.h.request_reassignment(reason)
        self._look()

    @rule()
    def return_twice(self) -> None:
        self.h.step(OnAssignmentDone(10_000))
        self.h.step(AssignorDone(10_000))
        self._look()

    def _return(self, *, error: int = 0, metadata: bytes = b"") -> None:
        call = self.h.user_calls.pop(0)
        match call:
            case DescribeAssignors(call_id):
                self.h.step(AssignorsDescribed((assignor(metadata),), call_id))
            case CallOnAssignment(call_id):
                self.h.step(OnAssignmentDone(call_id))
            case RunAssignor(call_id):
                self.h.step(AssignorDone(call_id, self.h.installed({MEMBER_ID: {"t": [0, 1]}}), error))

    def _look(self) -> None:
        """After each rule: user code is called once at a time, whatever else goes on."""
        assert len(self.h.user_calls) <= 1, f"two calls of user code: {self.h.user_calls}"

    # ---------------------------------------------------------------------------------------------------- the end

    def teardown(self) -> None:
        """Faults end, and user code returns: the member becomes stable, computes when asked, and is done with it."""
        member = self.h
        if member.phase() in FATAL:
            return
        member.described_at_once = member.noticed_at_once = True
        while member.user_calls:
            self._return()
        while member.prepares:
            member.answer_prepare(error=ErrorCode.UNKNOWN_MEMBER_ID)
        while member.installs:
            member.answer_install(error=ErrorCode.UNKNOWN_MEMBER_ID)
        fall_in_line(member, lambda: member.state() is MemberState.STABLE and member.owned == ["t-0", "u-1"])
        while member.prepares:
            member.answer_prepare(error=ErrorCode.UNKNOWN_MEMBER_ID)
        while not member.requests(ConsumerGroupHeartbeatRequest):
            member.advance(100)
        epoch = member.member.snapshot().member_epoch
        member.answer_heartbeat(epoch=epoch, compute=True, assignment={"t": [0], "u": [1]})
        assert len(member.prepares) == 1, "asked, and did not begin"
        member.answer_prepare()
        assert [type(call) for call in member.user_calls] == [RunAssignor]
        self._return()
        assert [install.error for install in member.installs] == [0]


TestAssigningMemberMachine = AssigningMemberMachine.TestCase
