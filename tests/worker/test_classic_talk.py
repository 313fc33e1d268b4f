"""What the shell of a classic worker tells the core while a conversation lasts."""

from __future__ import annotations

from typing import Any

import pytest

from kip848_client.common.clock import ManualClock
from kip848_client.errors import ErrorCode
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kip848_client.worker.classic.classic_round import ToGroup
from kip848_client.worker.classic.classic_talk import ClassicTalk

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS])
async def test_an_accepted_sync_group_begins_the_session_anew(code: ErrorCode) -> None:
    """The JoinGroup before it may have waited for most of a session."""
    clock, told = ManualClock(now_ms=7_000), []

    class Round:
        def converse(self, _beat: Any, **_named: Any) -> Any:
            yield ToGroup(SyncGroupRequest())
            return SyncGroupResponse()

        def wait_ms(self, _request: Any) -> int:
            return 1_000

    class Connection:
        def __init__(self) -> None:
            self.api_versions: dict[int, tuple[int, int]] = {}

        async def send(self, _request: Any, **_named: Any) -> SyncGroupResponse:
            clock.advance(2_000)
            return SyncGroupResponse(error_code=code)

    parts: Any = Round(), None, Connection()
    talk = ClassicTalk(
        parts[0],
        parts[1],
        group_id="g",
        clock=clock,
        interval_ms=1_000,
        confirmed=lambda sent_ms, settled: told.append((sent_ms, settled)),
        compute=parts[1],
    )
    await talk._converse(parts[1], parts[2], 1_000)
    assert told == ([(7_000, True)] if code is ErrorCode.NONE else [])
