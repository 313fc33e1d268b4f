"""How a connection ends: closed by either side, never made, or at a peer that does not speak Kafka."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import warnings
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc
import pytest

from kip848_client.errors import ConnectionLostError, ProtocolError, RequestTimeoutError
from kip848_client.wire.codec import encode_response, frame
from kip848_client.wire.connection import Connection, connect, open_connection
from kip848_client.wire.dialling import dial
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kip848_client.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.wire.fake_server import HEARTBEAT, LONG_MS, Peer, agree, echo_epochs, heartbeat, serving

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


# --- the end


async def test_a_connection_that_the_broker_closes_fails_what_waits_and_what_comes() -> None:
    """The caller looks for the coordinator again on ConnectionLostError, and only on it."""

    async def script(peer: Peer) -> None:
        await agree(peer)
        await peer.request()

    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        for _ in range(2):
            with pytest.raises(ConnectionLostError, match=f"127.0.0.1:{port} closed the connection"):
                await connection.send(HEARTBEAT, timeout_ms=LONG_MS)
        assert connection.closed


async def test_a_broker_that_goes_away_is_noticed_without_a_request() -> None:
    """The next heartbeat then starts on a new connection instead of failing first."""
    async with serving(agree) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        with anyio.fail_after(60):
            await connection.wait_closed()
        assert connection.closed


async def test_a_connection_that_is_given_up_leaves_no_socket_open() -> None:
    """A time-out while it connects would be a warning in a program whose warnings are errors."""
    with socket.create_server(("127.0.0.1", 0)) as listening, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        port = listening.getsockname()[1]
        for turns in range(20):  # of the loop; it is connected after some of them
            connecting = asyncio.create_task(
                dial("127.0.0.1", port, peer="p", context=None, protocol=asyncio.Protocol())
            )
            for _ in range(turns):
                await asyncio.sleep(0)  # a turn of the loop
            connecting.cancel()
            await asyncio.wait([connecting])
        del connecting
        await asyncio.sleep(0)  # the last transport closes in the next turn
        gc.collect()
    assert not [warning for warning in told if issubclass(warning.category, ResourceWarning)]


async def test_requests_after_a_reset_are_not_written(caplog: pytest.LogCaptureFixture) -> None:
    """A loop that commits each record starts hundreds before it hears of the reset; asyncio warns of each write."""

    async def script(peer: Peer) -> None:
        await agree(peer)
        await peer.until_closed()

    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        ends: list[object] = []
        assert connection._transport is not None
        connection._transport.abort()
        for _ in range(10):
            assert connection.start(HEARTBEAT, timeout_ms=LONG_MS, on_end=ends.append)
        with anyio.fail_after(60):
            await connection.wait_closed()
    assert [type(end) for end in ends] == [ConnectionLostError] * 10
    assert not caplog.text


async def test_closing_here_wakes_those_who_wait() -> None:
    """close() of a consumer must not wait for a broker that is silent."""

    async def script(peer: Peer) -> None:
        await agree(peer)
        await peer.until_closed()

    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:

        async def ask() -> None:
            with pytest.raises(ConnectionLostError, match="was closed here"):
                await connection.send(HEARTBEAT, timeout_ms=LONG_MS)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                await connection.aclose()
                await connection.aclose()


async def test_a_port_without_a_listener_is_a_lost_connection_with_the_reason() -> None:
    """'Connection refused" is the most common fault of all; it must be readable."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(ConnectionLostError, match=f"no connection to 127.0.0.1:{port}.*refused"):
        async with open_connection("127.0.0.1", port, client_id="c"):
            pass


async def test_a_peer_that_never_answers_the_handshake_times_out() -> None:
    """A firewall that swallows packets must not hang the start."""
    async with serving(Peer.until_closed) as port:
        with pytest.raises(RequestTimeoutError, match="50 ms"):
            async with open_connection("127.0.0.1", port, client_id="c", connect_timeout_ms=50):
                pass


def sending(data: bytes) -> Callable[[Peer], Awaitable[None]]:
    """A peer that answers the first request with *data*."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(data)
        await peer.until_closed()

    return script


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x16", "it expects TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "web server"),
        (b"\x7f\xff\xff\xff", "claims an answer of 2147483647 bytes"),
        (b"\xff\xff\xff\xff", "claims an answer of -1 bytes"),
        (b"\x00\x00\x00\x03abc", "claims an answer of 3 bytes"),
        (frame(b"\x00\x00\x00\x63rest"), "answered request 99, which was never sent"),
        (frame(b"\x00\x00\x00\x00\x00\x00\x7f"), "damaged answer"),
    ],
    ids=["tls", "http", "huge", "negative", "too small", "unknown id", "damaged"],
)
async def test_a_peer_that_does_not_speak_kafka_is_told_apart(data: bytes, told: str) -> None:
    """The first 20 minutes of every new user: wrong port, or TLS forgotten."""
    async with serving(sending(data)) as port:
        with pytest.raises(ProtocolError, match=told):
            async with open_connection("127.0.0.1", port, client_id="c"):
                pass


async def test_a_peer_that_hangs_up_on_the_first_request_is_explained() -> None:
    """A TLS port hangs up on plaintext; the error says that TLS may be expected."""

    async def script(peer: Peer) -> None:
        await peer.request()

    async with serving(script) as port:
        with pytest.raises(ConnectionLostError, match="before it said anything; it may expect TLS"):
            async with open_connection("127.0.0.1", port, client_id="c"):
                pass


async def test_a_peer_that_hangs_up_on_a_large_request_is_not_said_to_demand_a_login() -> None:
    """An operator would look at security.protocol, while the broker's limit on requests is what must change."""

    async def script(peer: Peer) -> None:
        await agree(peer)
        await peer.request()

    request = MetadataRequest(topics=tuple(MetadataRequestTopic(name=f"topic-{n}") for n in range(10_000)))
    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        with pytest.raises(ConnectionLostError, match=r"MetadataRequest \(version 12\) of 278,907 bytes, which may be"):
            await connection.send(request, timeout_ms=LONG_MS)


async def test_a_byte_behind_the_last_field_does_not_end_the_connection() -> None:
    """librdkafka's mock cluster sends one with Metadata; no other client looks there, so ours must not fail on it."""

    async def script(peer: Peer) -> None:
        await agree(peer)
        asked = await peer.request()
        data = encode_response(MetadataResponse(cluster_id="c"), api_version=12, correlation_id=asked.correlation_id)
        await peer.send(frame(data + b"\0"))
        await peer.until_closed()

    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        assert (await connection.send(MetadataRequest(topics=None), timeout_ms=LONG_MS)).cluster_id == "c"


async def test_the_limit_on_answers_can_be_set() -> None:
    """A user who fetches batches of 100 MB can raise the limit."""

    async def script(peer: Peer) -> None:
        await agree(peer)
        await peer.answer(await peer.request(), ConsumerGroupHeartbeatResponse(error_message="e" * 2000))
        await peer.until_closed()

    async with serving(script) as port:
        async with open_connection("127.0.0.1", port, client_id="c", response_size_max=1000) as connection:
            with pytest.raises(ProtocolError, match="4 to 1000 are allowed"):
                await connection.send(HEARTBEAT, timeout_ms=LONG_MS)


async def test_a_connection_can_live_in_a_task_group_of_the_caller() -> None:
    """The background thread opens and drops connections as brokers come and go."""
    async with serving(echo_epochs) as port, anyio.create_task_group() as tasks:
        connection: Connection = await connect("127.0.0.1", port, client_id=None, task_group=tasks)
        assert (await connection.send(heartbeat(7), timeout_ms=LONG_MS)).member_epoch == 7
        await connection.aclose()
        await connection.wait_closed()


async def test_the_end_of_a_connection_does_not_fail_the_task_group_it_lives_in() -> None:
    """One broker that dies must not take the member's whole background thread down."""

    async def script(peer: Peer) -> None:
        await agree(peer)
        await peer.send(struct.pack(">i", -5))

    async with serving(script) as port, anyio.create_task_group() as tasks:
        connection = await connect("127.0.0.1", port, client_id=None, task_group=tasks)
        await connection.wait_closed()
        with pytest.raises(ProtocolError):
            await connection.send(HEARTBEAT, timeout_ms=LONG_MS)


async def test_an_error_in_the_block_comes_out_as_itself() -> None:
    """A task group inside must not wrap the caller's exceptions in groups."""
    async with serving(echo_epochs) as port:
        with pytest.raises(KeyError):
            async with open_connection("127.0.0.1", port, client_id="c"):
                raise KeyError("mine")
