"""Frames, limits and order of answers, over real sockets, with handlers that the test answers by hand."""

from __future__ import annotations

import asyncio
import errno
import gc
import queue
import select
import socket
import struct
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kip848_client.errors import ProtocolError
from kip848_client.testing.broker.config import BrokerConfig
from kip848_client.testing.broker.net import server as server_module
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.net.loop_thread import LoopThread
from kip848_client.testing.broker.net.server import ClientConnection, Server
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.codec import RequestHeader
from kip848_client.wire.schema import Response
from tests.support.waiting import TIMEOUT_S, wait_until


class Text(Response, frozen=True):
    """An answer for these tests: its bytes go out as they are."""

    data: bytes


class ServerUnderTest:
    """A server on its own loop whose requests wait for the test: frames b"echo..." answer themselves."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.parked: queue.SimpleQueue[tuple[bytes, RequestContext]] = queue.SimpleQueue()
        self.opened = 0
        self.frames: list[bytes] = []
        self.muted: ClientConnection | None = None
        self.refusals: list[str] = []
        self.thread = LoopThread("server-under-test")
        self.server = Server(
            config or BrokerConfig(),
            open_request=self._open,
            encode=self._encode,
            on_refused=self.refusals.append,
        )
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*listening.getsockname())
        self.thread.run(self.server.start(listening))

    def connect(self) -> RawConnection:
        return RawConnection(self.address)

    def next_parked(self) -> tuple[bytes, RequestContext]:
        return self.parked.get(timeout=TIMEOUT_S)

    def reply(self, context: RequestContext, data: bytes) -> None:
        self.thread.call(lambda: context.reply(Text(data)))

    def connection_count(self) -> int:
        return self.thread.call(lambda: self.server.connection_count)

    def close(self) -> None:
        self.thread.run(self.server.stop())
        self.thread.stop()

    def _open(self, frame: bytes, connection: ClientConnection) -> None:
        if frame.startswith(b"garbage"):
            raise ProtocolError("not a request")
        self.opened += 1
        self.frames.append(frame)
        header = RequestHeader(api_key=0, api_version=0, correlation_id=self.opened, client_id=None)
        context = connection.begin(header, now_ms=0, node_id=-1)
        if frame.startswith(b"mute"):
            connection.mute()
            self.muted = connection
        if frame.startswith((b"echo", b"mute")):
            context.reply(Text(frame))
        elif frame.startswith(b"big"):
            context.reply(Text(bytes(1_000_000)))
        elif frame.startswith(b"silent"):
            context.reply(None)
        else:
            context.at_work = frame.startswith(b"work")
            self.parked.put((frame, context))

    @staticmethod
    def _encode(context: RequestContext) -> bytes:
        response = context.response
        return framed(response.data) if isinstance(response, Text) else b""


MakeServer = Callable[..., ServerUnderTest]
"""Makes a server with limits; it is closed when the test ends."""


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def trickle_until_closed(connection: RawConnection) -> bool:
    """Send a byte every few milliseconds for as long as the server lets us."""
    try:
        while not select.select([connection.socket], [], [], 0.01)[0]:
            connection.socket.sendall(b".")
    except ConnectionError:
        return True
    return connection.is_closed_by_peer()


@pytest.fixture
def make_server() -> Iterator[MakeServer]:
    made = []

    def make(**limits: int) -> ServerUnderTest:
        made.append(ServerUnderTest(replace(BrokerConfig(), **limits)))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.mark.parametrize("length", [2049, 2**31 - 1, -1, -(2**31)])
def test_a_frame_of_an_impossible_length_is_refused_from_that_alone(make_server: MakeServer, length: int) -> None:
    """Otherwise four bytes from anybody would make the broker take two gigabytes of memory."""
    server = make_server(frame_bytes_max=2048)
    with server.connect() as connection:
        connection.socket.sendall(struct.pack(">i", length))
        assert connection.is_closed_by_peer()
    assert f"{length} bytes" in server.refusals[0]


def test_a_frame_of_exactly_the_limit_is_served(make_server: MakeServer) -> None:
    """Off by one here refuses the largest batch that Kafka's own property allows."""
    server = make_server(frame_bytes_max=2048)
    with server.connect() as connection:
        request = b"echo".ljust(2048, b".")
        connection.socket.sendall(framed(request))
        assert connection.read_frame() == request


@pytest.mark.parametrize("start", [b"\x00\x00", struct.pack(">i", 1_000_000)], ids=["half a length", "no content"])
def test_a_frame_that_never_ends_is_given_up_although_bytes_keep_coming(make_server: MakeServer, start: bytes) -> None:
    """A peer that sends a byte now and then must not hold a connection and its memory for ever (slow loris)."""
    server = make_server(incomplete_frame_ms_max=100)
    with server.connect() as connection:
        connection.socket.sendall(start)
        assert trickle_until_closed(connection)
    assert server.refusals == ["a frame was not complete after 100 ms"]


def test_a_muted_connection_may_be_in_the_middle_of_a_frame(make_server: MakeServer) -> None:
    """A producer that is throttled for a minute has half a batch in its socket, which the broker does not read."""
    server = make_server(incomplete_frame_ms_max=40)
    with server.connect() as throttled, server.connect() as broken:
        whole = framed(b"echo later")
        throttled.socket.sendall(framed(b"mute") + whole[:6])
        assert throttled.read_frame() == b"mute"
        broken.socket.sendall(b"\x00")
        assert broken.is_closed_by_peer()  # the deadline has passed for both
        throttled.socket.sendall(whole[6:])
        assert server.frames == [b"mute"]
        assert server.muted is not None
        server.thread.call(server.muted.unmute)
        assert throttled.read_frame() == b"echo later"


def test_a_silent_connection_without_an_open_frame_stays(make_server: MakeServer) -> None:
    """Clients keep idle connections: only an incomplete frame has the short deadline."""
    server = make_server(incomplete_frame_ms_max=40)
    with server.connect() as quiet, server.connect() as broken:
        quiet.socket.sendall(framed(b"echo 1"))
        assert quiet.read_frame() == b"echo 1"
        broken.socket.sendall(b"\x00")
        assert broken.is_closed_by_peer()  # the deadline has passed for both
        quiet.socket.sendall(framed(b"echo 2"))
        assert quiet.read_frame() == b"echo 2"


def test_an_idle_connection_is_closed_after_its_time(make_server: MakeServer) -> None:
    """connections.max.idle.ms, as Kafka has it; otherwise vanished clients pile up."""
    server = make_server(connection_idle_ms_max=60)
    with server.connect() as connection:
        assert connection.is_closed_by_peer()
    assert server.refusals == ["idle for 60 ms"]


def test_a_paused_server_closes_no_idle_connection(make_server: MakeServer) -> None:
    """A node that hangs does nothing: its clients must find out by themselves that it is silent."""
    server = make_server()

    def sweep_as_if_idle(paused: bool) -> int:
        server.server.paused = paused
        for connection in server.server._connections:
            connection._last_active_s -= 86_400
        server.server._sweep()
        return server.server.connection_count

    with server.connect() as connection:
        connection.socket.sendall(framed(b"echo 1"))
        assert connection.read_frame() == b"echo 1"
        assert server.thread.call(lambda: sweep_as_if_idle(True)) == 1
        assert not server.refusals
        server.thread.call(lambda: sweep_as_if_idle(False))
        assert server.refusals


def test_answers_leave_in_the_order_of_requests_though_the_first_is_parked(make_server: MakeServer) -> None:
    """Clients match answers to requests by order: an answer that overtakes breaks the connection."""
    server = make_server()
    with server.connect() as connection:
        connection.socket.sendall(framed(b"park") + framed(b"echo 2") + framed(b"echo 3"))
        _, context = server.next_parked()
        assert not select.select([connection.socket], [], [], 0.05)[0]
        server.reply(context, b"first")
        assert [connection.read_frame() for _ in range(3)] == [b"first", b"echo 2", b"echo 3"]


def test_a_request_that_is_handled_in_slices_holds_up_its_own_connection_only(make_server: MakeServer) -> None:
    """Others are served meanwhile; a second batch of the same producer must not overtake the first."""
    server = make_server()
    with server.connect() as large, server.connect() as other:
        large.socket.sendall(framed(b"poll") + framed(b"work") + framed(b"echo 3"))
        polling = server.next_parked()[1]
        working = server.next_parked()[1]
        other.socket.sendall(framed(b"echo other"))
        assert other.read_frame() == b"echo other"
        assert server.frames == [b"poll", b"work", b"echo other"]
        server.reply(working, b"done")
        wait_until(lambda: server.frames[-1] == b"echo 3", what="the next request, before the poll has its answer")
        server.reply(polling, b"polled")
        assert [large.read_frame() for _ in range(3)] == [b"polled", b"done", b"echo 3"]


def test_a_request_without_an_answer_does_not_hold_up_the_next(make_server: MakeServer) -> None:
    """Produce with acks=0 has no answer; the request behind it must still get its own."""
    server = make_server()
    with server.connect() as connection:
        connection.socket.sendall(framed(b"silent") + framed(b"echo"))
        assert connection.read_frame() == b"echo"


def test_garbage_closes_its_own_connection_only(make_server: MakeServer) -> None:
    """One broken client must not disturb the others."""
    server = make_server()
    with server.connect() as good, server.connect() as bad:
        bad.socket.sendall(framed(b"garbage") + framed(b"echo"))
        assert bad.is_closed_by_peer()
        good.socket.sendall(framed(b"echo"))
        assert good.read_frame() == b"echo"


def test_one_connection_too_many_is_closed_and_a_free_place_is_given_again(make_server: MakeServer) -> None:
    """A flood of connections must neither exhaust the process nor lock the broker for later clients."""
    server = make_server(connections_max=3)
    first = [server.connect() for _ in range(3)]
    for connection in first:
        connection.socket.sendall(framed(b"echo"))
        assert connection.read_frame() == b"echo"
    with server.connect() as extra:
        assert extra.is_closed_by_peer()
    first.pop().close()
    wait_until(lambda: server.connection_count() == 2, what="the place of the closed connection")
    with server.connect() as later:
        later.socket.sendall(framed(b"echo"))
        assert later.read_frame() == b"echo"
    for connection in first:
        connection.close()


def test_no_more_than_the_limit_of_requests_is_open_and_all_are_answered_in_the_end(make_server: MakeServer) -> None:
    """A client that never waits for answers must not make the broker hold its requests without bound."""
    server = make_server(unanswered_requests_max=4)
    with server.connect() as connection:
        connection.socket.sendall(b"".join(framed(b"park %d" % number) for number in range(20)))
        for number in range(20):
            frame, context = server.next_parked()
            assert frame == b"park %d" % number
            assert server.thread.call(lambda: server.opened) <= number + 4
            server.reply(context, frame)
        assert [connection.read_frame() for _ in range(20)] == [b"park %d" % number for number in range(20)]


def test_a_peer_that_does_not_read_is_not_served_further_until_it_reads(make_server: MakeServer) -> None:
    """Answers to a client that does not read them would otherwise fill the broker's memory."""
    server = make_server()
    with server.connect() as connection:
        connection.socket.sendall(framed(b"big") * 90)
        wait_until(lambda: server.opened > 0, what="the first request")
        with server.connect() as other:
            other.socket.sendall(framed(b"echo"))
            assert other.read_frame() == b"echo"
        assert server.thread.call(lambda: server.opened) < 30
        for _ in range(90):
            assert len(connection.read_frame()) == 1_000_000


def test_what_is_parked_is_forgotten_when_its_connection_goes(make_server: MakeServer) -> None:
    """A parked fetch of a vanished client must not stay registered on its partitions."""
    server = make_server()
    forgotten: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    with server.connect() as connection:
        connection.socket.sendall(framed(b"park"))
        frame, context = server.next_parked()
        server.thread.call(lambda: context.on_cancel(lambda: forgotten.put(frame)))
    assert forgotten.get(timeout=TIMEOUT_S) == b"park"
    server.reply(context, b"too late")  # does nothing, and does not fail
    assert context.cancelled


def test_on_cancel_of_a_connection_that_is_gone_calls_back_at_once(make_server: MakeServer) -> None:
    """A handler that parks late must not wait for a peer that left before."""
    server = make_server()
    with server.connect() as connection:
        connection.socket.sendall(framed(b"park"))
        _, context = server.next_parked()
    wait_until(lambda: context.cancelled, what="the cancellation")
    called: list[bool] = []
    server.thread.call(lambda: context.on_cancel(lambda: called.append(True)))
    assert called == [True]


class _Sink(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


@settings(max_examples=60)
@given(payloads=st.lists(st.binary(max_size=40), max_size=8), data=st.data())
def test_any_cutting_of_the_stream_gives_the_same_frames(payloads: list[bytes], data: st.DataObject) -> None:
    """TCP cuts the stream anywhere; a frame must not depend on it."""
    stream = b"".join(framed(payload) for payload in payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    seen: list[bytes] = []

    async def receive() -> None:
        server = Server(
            BrokerConfig(),
            open_request=lambda frame, _connection: seen.append(frame),
            encode=lambda _context: b"",
            on_refused=lambda reason: seen.append(reason.encode()),
        )
        connection = ClientConnection(server)
        connection.connection_made(_Sink())
        for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            connection.get_buffer(-1)[: stop - start] = stream[start:stop]
            connection.buffer_updated(stop - start)
        for _ in payloads:
            await asyncio.sleep(0)  # when the processor was away, the rest waits for the next turn of the loop
        connection.connection_lost(None)
        await server.stop()

    asyncio.run(receive())
    assert seen == payloads


def test_an_answer_does_not_wait_for_the_acknowledgement_of_the_one_before() -> None:
    """With Nagle's algorithm the second of two answers took 40 ms: the offsets of new partitions, after a heartbeat."""

    async def nodelay() -> int:
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def note(_frame: bytes, connection: ClientConnection) -> None:
            assert connection._socket is not None
            asked.set_result(connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        server = Server(BrokerConfig(), open_request=note, encode=lambda _: b"", on_refused=print)
        listening = socket.create_server(("127.0.0.1", 0))
        await server.start(listening)
        with socket.create_connection(listening.getsockname(), timeout=TIMEOUT_S) as client:
            client.sendall(framed(b"any"))
            found = await asked
        await server.stop()
        return found

    assert asyncio.run(nodelay()) == 1


def test_a_client_that_connects_while_the_server_stops_leaves_no_socket_open() -> None:
    """asyncio accepts in one turn of its loop and makes the transport in the next; a stop in between lost it."""

    async def stop_in_between(turns: int) -> None:
        server = Server(
            BrokerConfig(), open_request=lambda _frame, _connection: None, encode=lambda _: b"", on_refused=print
        )
        listening = socket.create_server(("127.0.0.1", 0))
        await server.start(listening)
        with socket.create_connection(listening.getsockname(), timeout=TIMEOUT_S):
            for _ in range(turns):
                await asyncio.sleep(0)  # a turn of the loop
            await server.stop()

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", ResourceWarning)
        for turns in range(6):
            asyncio.run(stop_in_between(turns))
        gc.collect()
    assert [str(warning.message) for warning in seen] == []


def test_a_peer_that_sends_no_more_gets_the_answer_to_its_long_poll(make_server: MakeServer) -> None:
    """Programs that close their sending half and wait, as shell pipes do, would never see the records."""
    server = make_server()
    with server.connect() as connection:
        connection.socket.sendall(framed(b"park"))
        _, context = server.next_parked()
        context.outlives_eof = True
        connection.socket.shutdown(socket.SHUT_WR)
        with server.connect() as other:  # once it has its answer, the server has seen the end of the first
            other.socket.sendall(framed(b"echo"))
            assert other.read_frame() == b"echo"
        server.reply(context, b"records")
        assert connection.read_frame() == b"records"
        assert connection.is_closed_by_peer()


def test_many_refusals_are_told_in_a_few_lines(make_server: MakeServer) -> None:
    """A client in a loop of wrong requests must not fill the disk with the broker's log."""
    server = make_server()
    for _ in range(30):
        with server.connect() as connection:
            connection.socket.sendall(b"\xff\xff\xff\xff")
            assert connection.is_closed_by_peer()
    server.thread.run(server.server.stop())
    assert len(server.refusals) == 11
    assert server.refusals[-1].startswith("20 more connections")


def test_a_peer_with_many_requests_leaves_others_their_turn(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred large requests at once, each of which is allowed, would hold up every heartbeat for seconds."""
    monkeypatch.setattr(server_module, "_TURN_S", 0.0)
    server = make_server()
    held, released = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        released.wait(TIMEOUT_S)

    with server.connect() as many, server.connect() as one:
        for connection in (many, one):
            connection.socket.sendall(framed(b"echo first"))
            assert connection.read_frame() == b"echo first"
        server.thread.loop.call_soon_threadsafe(hold)
        assert held.wait(TIMEOUT_S)
        many.socket.sendall(framed(b"echo many") * 20)
        one.socket.sendall(framed(b"echo one"))
        released.set()
        assert one.read_frame() == b"echo one"
        assert [many.read_frame() for _ in range(20)] == [b"echo many"] * 20
    assert server.frames[2:].index(b"echo one") < 3


def test_a_client_that_there_is_no_file_for_waits_and_burns_no_processor(
    monkeypatch: pytest.MonkeyPatch, make_server: MakeServer
) -> None:
    """asyncio tries as often as connections may wait, and logs each failure: 512 times a second."""
    server = make_server()
    tries: list[None] = []

    def accept(_: socket.socket) -> NoReturn:
        tries.append(None)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket.socket, "accept", accept)
    with server.connect() as client:
        wait_until(lambda: tries, what="the server has tried to accept")
        server.thread.call(lambda: None)  # the turn in which it tried is over
        assert len(tries) < 100
        monkeypatch.undo()
        client.socket.sendall(framed(b"echo"))
        assert client.socket.recv(100) == framed(b"echo")
