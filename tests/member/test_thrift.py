"""What a member does when nothing happens."""

from __future__ import annotations

import sys
from types import FrameType

from kip848_client.member.core.events import ResponseReceived, SendRequest, Tick
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from tests.support.member_harness import INTERVAL_MS, MEMBER_ID, MemberHarness

CALLS_MAX = 90
"""84 on Python 3.11; a part that is asked in every step without need adds two or more."""


def test_a_steady_heartbeat_takes_few_calls() -> None:
    """It is all that an idle consumer does, all day, and there may be hundreds of them on one machine."""
    harness = MemberHarness()
    harness.become_stable({"t": [0, 1, 2, 3]})
    member = harness.member
    due_ms = member.deadline_ms()
    assert due_ms is not None
    epoch = member.view().member_epoch
    answer = ConsumerGroupHeartbeatResponse(member_id=MEMBER_ID, member_epoch=epoch, heartbeat_interval_ms=INTERVAL_MS)
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and "/kip848_client/member/" in frame.f_code.co_filename

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        (sent,) = member.step(Tick(due_ms), now_ms=due_ms)
        assert isinstance(sent, SendRequest)
        member.step(ResponseReceived(sent.request_id, answer), now_ms=due_ms)
    finally:
        sys.setprofile(before)
    assert 20 < calls <= CALLS_MAX
