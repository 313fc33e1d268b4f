"""Classic groups on the embedded broker: how long a group takes to form, and to rebalance, by its number of members.

::

    python benchmarks/classic.py              # a minute
    python benchmarks/classic.py --quick
    python benchmarks/classic.py --beside localhost:9092      # and another broker: kfake, Kafka

Members are spoken for by this process, over loopback, the leader on a connection of its own and fifty others on each
further one; the broker is in a process of its own. Other brokers answer one request of a connection at a time, so that
beside them every member has a connection of its own, on ours as well.

* ``form``: every member takes both rounds of JoinGroup, the leader joins again when it hears of the others, and all
  send SyncGroup; from the first request to the last assignment.
* ``rebalance``: the leader joins again, all hear it with a Heartbeat, join and sync.

What is compared is the time for each member: if it grows with the members, the cost of a request does. A group of the
smallest size is the yardstick, measured turn by turn with the others.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
import uuid
from collections.abc import Iterable
from typing import Any, Final

from broker_process import broker_process
from report_file import keep, machine, median, options, table, versions

from kip848_client.wire.codec import decode_response, encode_request, frame
from kip848_client.wire.messages.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kip848_client.wire.schema import Request

SIZES: Final = (100, 300, 1000)
ROUNDS: Final = 5
MEMBERS_ON_A_CONNECTION: Final = 50
TIMEOUT_MS: Final = 120_000
SUBSCRIPTION: Final = encode_subscription(ConsumerProtocolSubscription(topics=("orders",)))
_LENGTH: Final = struct.Struct(">i")

Member = int
"""Its number; its connection follows from it."""
LEADER: Final[Member] = 0


class Members:
    """Members of one group, on a few connections."""

    def __init__(self, bootstrap_servers: str, count: int, *, on_a_connection: int = MEMBERS_ON_A_CONNECTION) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._on_a_connection = on_a_connection
        self.group = f"classic-{uuid.uuid4().hex}"
        self.ids = [""] * count
        self.generation = 0
        self._sockets = [
            socket.create_connection((host, int(port)), timeout=60) for _ in range(self._connection_of(count - 1) + 1)
        ]
        for each in self._sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._files = [each.makefile("rb", buffering=1 << 16) for each in self._sockets]

    def close(self) -> None:
        for file in self._files:
            file.close()
        for each in self._sockets:
            each.close()

    def form(self) -> None:
        """From nothing to an assignment for every member."""
        everybody = range(len(self.ids))
        for member, answer in self._ask(everybody, [self._join(member) for member in everybody], version=9):
            self.ids[member] = answer.member_id
        ((_, first),) = self._ask([LEADER], [self._join(LEADER)], version=9)
        self.generation = first.generation_id
        followers = everybody[1:]
        self._send(followers, [self._join(member) for member in followers], version=9)
        self._wait_for_joins()
        self._send([LEADER], [self._join(LEADER)], version=9)
        self._sync([(member, self._read(member, JoinGroupRequest, 9)) for member in everybody])

    def _wait_for_joins(self) -> None:
        """Until all JoinGroups but the leader's have come; kfake does not wait for ids that it handed out."""
        describe = DescribeGroupsRequest(groups=(self.group,))
        while True:
            ((_, answer),) = self._ask([LEADER], [describe], version=5)
            if len(answer.groups[0].members) == len(self.ids):
                return

    def rebalance(self) -> None:
        """From the leader's join to an assignment for every member."""
        everybody = range(len(self.ids))
        followers = everybody[1:]
        self._send([LEADER], [self._join(LEADER)], version=9)
        self._beat(followers)
        joined = self._ask(followers, [self._join(member) for member in followers], version=9)
        self._sync([(LEADER, self._read(LEADER, JoinGroupRequest, 9)), *joined])

    def _beat(self, members: Iterable[Member]) -> set[int]:
        members = list(members)
        beats = [
            HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.ids[member])
            for member in members
        ]
        return {answer.error_code for _, answer in self._ask(members, beats, version=4)}

    def _sync(self, joined: Iterable[tuple[Member, Any]]) -> None:
        ((self.generation, error_code),) = {(answer.generation_id, answer.error_code) for _, answer in joined}
        assert not error_code, error_code
        everybody = range(len(self.ids))
        given = tuple(SyncGroupRequestAssignment(member_id=member_id, assignment=b"a" * 50) for member_id in self.ids)
        requests = [
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.ids[member],
                protocol_type="consumer",
                protocol_name="range",
                assignments=() if member else given,
            )
            for member in everybody
        ]
        for _, answer in self._ask(everybody, requests, version=5):
            assert len(answer.assignment) == 50, answer

    def _join(self, member: Member) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=TIMEOUT_MS,
            rebalance_timeout_ms=TIMEOUT_MS,
            member_id=self.ids[member],
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION),),
        )

    def _ask(self, members: Iterable[Member], requests: list[Any], *, version: int) -> Iterable[tuple[Member, Any]]:
        members = list(members)
        self._send(members, requests, version=version)
        return [
            (member, self._read(member, type(request), version))
            for member, request in zip(members, requests, strict=True)
        ]

    def _send(self, members: Iterable[Member], requests: list[Any], *, version: int) -> None:
        pieces: list[list[bytes]] = [[] for _ in self._sockets]
        for member, request in zip(members, requests, strict=True):
            encoded = encode_request(request, api_version=version, correlation_id=member, client_id="classic")
            pieces[self._connection_of(member)].append(frame(encoded))
        for each, of_it in zip(self._sockets, pieces, strict=True):
            each.sendall(b"".join(of_it))

    def _read(self, member: Member, of: type[Request[Any]], version: int) -> Any:
        file = self._files[self._connection_of(member)]
        (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
        correlation_id, answer = decode_response(of.WIRE.api_key, file.read(length), api_version=version)
        assert correlation_id == member, "answers out of order"
        return answer

    def _connection_of(self, member: Member) -> int:
        return 0 if member == LEADER else 1 + (member - 1) // self._on_a_connection


def measure(
    bootstrap_servers: str, size: int, *, on_a_connection: int = MEMBERS_ON_A_CONNECTION
) -> tuple[float, float]:
    """Seconds to form a group of *size*, and to rebalance it."""
    members = Members(bootstrap_servers, size, on_a_connection=on_a_connection)
    try:
        begun = time.perf_counter()
        members.form()
        formed = time.perf_counter()
        members.rebalance()
        return formed - begun, time.perf_counter() - formed
    finally:
        members.close()


def compare(ours: str, other: str, *, rounds: int) -> list[dict[str, float]]:
    """Medians of both brokers, turn by turn."""
    rows = []
    for size in SIZES:
        found = [[measure(address, size, on_a_connection=1) for address in (ours, other)] for _ in range(rounds)]
        row: dict[str, float] = {"members": size}
        for index, what in enumerate(("form", "rebalance")):
            for side, name in enumerate(("", "_beside")):
                row[f"{what}_s{name}"] = median([pair[side][index] for pair in found], 2)
        rows.append(row)
    return rows


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--beside", metavar="HOST:PORT")
    arguments = parser.parse_args()
    rounds = 2 if arguments.quick else ROUNDS
    found: dict[int, list[tuple[float, float]]] = {size: [] for size in SIZES}
    beside: list[dict[str, float]] = []
    config = {"kip848.unanswered.requests.max": "1000"}
    with broker_process(topics={"orders": 1}, config=config) as broker:
        for _ in range(rounds):
            for size in SIZES:
                found[size].append(measure(broker.bootstrap_servers, size))
        if arguments.beside:
            beside = compare(broker.bootstrap_servers, arguments.beside, rounds=rounds)
            table([list(beside[0]), *[list(row.values()) for row in beside]])
    rows: list[dict[str, float]] = []
    for size in SIZES:
        form_s, rebalance_s = (median([pair[index] for pair in found[size]]) for index in (0, 1))
        rows.append({"members": size, "form_s": form_s, "rebalance_s": rebalance_s})
    for row in rows:
        for what in ("form", "rebalance"):
            each = row[f"{what}_s"] / row["members"]
            row[f"{what}_for_each_ratio"] = round(each / (rows[0][f"{what}_s"] / rows[0]["members"]), 2)
    table([list(rows[0]), *[list(row.values()) for row in rows]])
    keep({"machine": machine(), "versions": versions(), "rounds": rounds, "groups": rows, "beside": beside}, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
