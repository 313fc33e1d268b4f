"""A group that asks for much at once waits for itself, and not the others for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.errors import ErrorCode
from kip848_client.testing.broker.net import group_turns
from kip848_client.testing.broker.net.group_turns import GroupTurns
from kip848_client.testing.judge.broker.connection import RawConnection
from tests.support.group_requests import commit, heartbeat, join


class Loop:
    """A loop whose time moves only while requests are served."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.soon: deque[Callable[[], None]] = deque()

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)


def test_a_group_beyond_its_share_has_its_turns_between_those_of_others() -> None:
    """5,000 members that join at once would keep every other group waiting for seconds."""
    loop, served = Loop(), list[str]()
    turns = GroupTurns(cast("asyncio.AbstractEventLoop", loop))

    def asks(group_id: str, number: int) -> None:
        def request() -> None:
            loop.now_s += 0.004
            served.append(f"{group_id}{number}")

        if not turns.run(group_id, request):
            turns.wait(group_id, request)

    for number in range(7):
        asks("big", number)
    asks("small", 0)
    assert served == ["big0", "big1", "big2", "small0"]

    for number in range(4):
        asks("other", number)
    while loop.soon:
        loop.soon.popleft()()

    assert served[4:] == ["other0", "other1", "other2", "big3", "big4", "other3", "big5", "big6"]


def test_requests_that_wait_for_their_turn_keep_their_order(
    kip848_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit would be refused that was sent before the leave, and a leave lost whose client is gone."""
    monkeypatch.setattr(group_turns, "_SHARE_S", 0.0)
    kip848_broker.topics.create("orders", 1)
    with RawConnection(kip848_broker.bootstrap_servers) as client:
        requests: list[tuple[Any, int]] = [(join(), 1), (commit({0: 7}, epoch=1, member_id="m"), 9), (heartbeat(-1), 1)]
        for request, version in requests:
            client.send(request, version=version)
        joined, committed, left = [client.read(request) for request, _ in requests]
    assert (joined.member_epoch, left.member_epoch) == (1, -1)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert kip848_broker.groups.committed("g") == {("orders", 0): 7}
