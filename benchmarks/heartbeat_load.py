"""Heartbeats that change nothing, as fast as a broker answers them: the load generator of `coordinator.py`.

One task of one thread on plain sockets: it must cost less than the broker that it measures.
"""

from __future__ import annotations

import select
import socket
import struct
import time

from broker_process import cpu_clock
from msgspec.structs import replace

from kip848_client.wire.codec import decode_response, encode_request, frame
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

TOPIC = "t"
GROUPS = 10
SETTLING_ROUNDS = 4
VERSION = 1


class Member:
    """One member on a connection of its own, joined and steady."""

    def __init__(self, port: int, number: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._group_id, self._member_id = f"g{number % GROUPS}", f"5f2b1c1e-6f0f-4c5e-9d3f-{number:012d}"
        self.epoch = 0
        self._ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self._group_id,
                member_id=self._member_id,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=(TOPIC,),
                subscribed_topic_regex="",  # librdkafka's mock aborts on a null one
                topic_partitions=(),
            )
        )

    def settle(self) -> bytes:
        """One heartbeat in which the member gives up and takes what it shall; returns a steady one, to be sent."""
        self._ask(replace(self._steady, topic_partitions=()))
        return frame(encode_request(self._steady, api_version=VERSION, correlation_id=1, client_id="bench"))

    @property
    def _steady(self) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self._member_id, member_epoch=self.epoch
        )

    def _ask(self, request: ConsumerGroupHeartbeatRequest) -> None:
        self.socket.sendall(frame(encode_request(request, api_version=VERSION, correlation_id=1, client_id="bench")))
        (size,) = struct.unpack(">i", _exactly(self.socket, 4))
        _, response = decode_response(68, _exactly(self.socket, size), api_version=VERSION)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.error_code:
            raise RuntimeError(f"heartbeat refused: {response.error_message}")
        self.epoch = response.member_epoch


def heartbeats(port: int, *, pid: int, connections: int, pipelined: int, seconds: float) -> dict[str, float]:
    """Keep *pipelined* heartbeats outstanding on each of *connections*.

    Returns:
        How many were answered, in how many seconds, and the CPU seconds of the process *pid* meanwhile.
    """
    members = [Member(port, number) for number in range(connections)]
    requests = {}
    for _ in range(SETTLING_ROUNDS):
        requests = {member.socket.fileno(): member.settle() for member in members}
    sockets = {number: (member.socket, requests[number]) for member in members for number in [member.socket.fileno()]}
    size = _answer_size(*sockets[members[0].socket.fileno()])
    return drive(sockets, size=size, pid=pid, pipelined=pipelined, seconds=seconds)


def echoes(
    port: int, *, pid: int, connections: int, pipelined: int, seconds: float, request_bytes: int, answer_bytes: int
) -> dict[str, float]:
    """The same against a server that only answers."""
    opened = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    sockets = {connection.fileno(): (connection, bytes(request_bytes)) for connection in opened}
    return drive(sockets, size=answer_bytes, pid=pid, pipelined=pipelined, seconds=seconds)


def drive(
    sockets: dict[int, tuple[socket.socket, bytes]], *, size: int, pid: int, pipelined: int, seconds: float
) -> dict[str, float]:
    """Keep requests outstanding on connections, given by number with one request each; an answer has *size* bytes."""
    poller = select.epoll()
    by_number = {}
    for number, (connection, request) in sockets.items():
        poller.register(number, select.EPOLLIN)
        by_number[number] = (connection.recv, connection.sendall, request * pipelined)
    expected = size * pipelined
    missing = dict.fromkeys(by_number, expected)
    answered = 0
    clock = cpu_clock(pid)
    cpu_s, begun = time.clock_gettime(clock), time.perf_counter()
    until = begun + seconds
    for _, send, burst in by_number.values():
        send(burst)
    while time.perf_counter() < until:
        for number, _ in poller.poll(1.0):
            receive, send, burst = by_number[number]
            missing[number] -= len(receive(1 << 20))
            if missing[number] <= 0:
                answered += pipelined
                missing[number] = expected
                send(burst)
    took_s, cpu_s = time.perf_counter() - begun, time.clock_gettime(clock) - cpu_s
    for connection, _ in sockets.values():
        connection.close()
    return {"heartbeats": answered, "seconds": took_s, "cpu_s": cpu_s}


def _answer_size(connection: socket.socket, request: bytes) -> int:
    connection.sendall(request)
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    _exactly(connection, size)
    return int(size) + 4


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise RuntimeError("the broker closed the connection")
        data += part
    return data
