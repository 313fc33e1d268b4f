"""Any request that can be written is answered, or refused by closing its connection; none breaks a handler."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kip848_client import EmbeddedBroker
from kip848_client.errors import ErrorCode
from kip848_client.journal import MemoryJournal
from kip848_client.testing.broker.apis import ApiTable
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.codec import encode_request, frame
from kip848_client.wire.messages import message_pair
from kip848_client.wire.messages.fetch import FetchRequest
from kip848_client.wire.messages.list_groups import ListGroupsRequest
from tests.wire.strategies import Case, messages

_TABLE = ApiTable(extensions={"client_assignors"})
CASES = [
    Case(message_pair(api.api_key).request, version)
    for api in _TABLE
    for version in range(api.version_min, api.version_max + 1)
]


@pytest.fixture(scope="module")
def journal() -> MemoryJournal:
    return MemoryJournal()


@pytest.fixture(scope="module")
def broker(journal: MemoryJournal) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"orders": 3, "t": 2}, journal=journal) as running:
        yield running


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data(), case=st.sampled_from(CASES))
def test_a_request_of_random_content_breaks_nothing(
    broker: EmbeddedBroker, journal: MemoryJournal, data: st.DataObject, case: Case
) -> None:
    """A handler that raises is our mistake; its client hears UNKNOWN_SERVER_ERROR and not what is wrong."""
    request = data.draw(messages(case))
    if isinstance(request, FetchRequest):
        request = replace(request, max_wait_ms=min(request.max_wait_ms, 10))
    payload = encode_request(request, api_version=case.version, correlation_id=1, client_id="random")
    with RawConnection(broker.bootstrap_servers) as opened:
        opened.socket.settimeout(5)
        opened.socket.sendall(frame(payload))
        opened.socket.shutdown(socket.SHUT_WR)  # what waits for others is given up
        with contextlib.suppress(EOFError, ConnectionResetError):
            opened.read_frame()
    with RawConnection(broker.bootstrap_servers) as other:
        assert other.ask(ListGroupsRequest(), version=5).error_code == ErrorCode.NONE
    assert [event.fields for event in journal.named("request_failed")] == []
