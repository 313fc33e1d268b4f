"""Where partitions start, seen from the coordinator: committed offsets that come, come late, or are refused."""

from __future__ import annotations

from typing import Any

import pytest

from kip848_client import TopicPartition
from kip848_client.error_codes import ErrorCode
from kip848_client.errors import Kip848Error
from kip848_client.model import TopicPartition as Name
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from tests.interop.client.conftest import Watch
from tests.interop.client.drive import Produce
from tests.interop.client.scripted import FETCH, ScriptedCoordinator
from tests.interop.client.watched import Watched

pytestmark = pytest.mark.interop

STALE = int(ErrorCode.STALE_MEMBER_EPOCH)
UNKNOWN_MEMBER = int(ErrorCode.UNKNOWN_MEMBER_ID)


def starts(scripted: ScriptedCoordinator, watch: Watch, produce: Produce, *script: Any) -> Watched:
    """A member whose partition has a committed offset of 3, of 5 records, and a script for its offset fetches."""
    produce("orders", 5, partitions=[0])
    scripted.committed[Name("orders", 0)] = 3
    scripted.start_with({"orders": [0]})
    scripted.script(FETCH, *script)
    return watch().subscribe()


def nothing(request: OffsetFetchRequest) -> OffsetFetchResponse:
    return OffsetFetchResponse(groups=(OffsetFetchResponseGroup(request.groups[0].group_id, ()),))


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER, 30, 9999])
def test_a_committed_offset_that_is_refused_is_no_reason_to_start_elsewhere(
    scripted: ScriptedCoordinator, watch: Watch, produce: Produce, code: int
) -> None:
    member = starts(scripted, watch, produce, code)
    scripted.always(FETCH, code)
    member.drive(lambda: len(scripted.of(FETCH)) >= 3)
    assert member.records == []
    scripted.always(FETCH, None)
    member.drive(lambda: len(member.records) == 2)
    assert [offset for _, _, offset in member.records] == [3, 4]


def test_committed_of_a_consumer_that_left(scripted: ScriptedCoordinator, watch: Watch) -> None:
    """STALE_MEMBER_EPOCH has nothing to wait for any more."""
    scripted.start_with({"orders": [0]})
    member = watch().subscribe().drive_to("report 1 orders-0", "heartbeat 1")
    member.consumer.unsubscribe()
    scripted.always(FETCH, STALE)
    with pytest.raises(Kip848Error, match="STALE_MEMBER_EPOCH"):
        member.consumer.committed([TopicPartition("orders", 0)], timeout=3.0)
