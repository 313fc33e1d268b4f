"""One of two brokers whose classic groups are compared: its requests, some of which wait, and what clients heard."""

from __future__ import annotations

import json
import re
import select
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kip848_client.errors import ErrorCode
from kip848_client.wire.messages.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from kip848_client.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kip848_client.wire.messages.delete_groups import DeleteGroupsRequest
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kip848_client.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kip848_client.wire.schema import Request
from tests.support.raw_connection import RawConnection
from tests.support.waiting import wait_until

SETTLE_S: Final = 10.0
"""How long one broker may take for an answer that the other has given."""
LONG_MS: Final = 120_000
FOO: Final = encode_subscription(ConsumerProtocolSubscription(topics=("foo",)), version=0)

UNHEARD: Final = re.compile(r"\b[abi]-[0-9A-Za-z_-]{22,36}(?=\")")
"""The id of a member that has not been told it yet."""


class Waiting:
    """A request that was sent, on a connection of its own."""

    def __init__(self, address: str, client: str, request: Request[Any], version: int) -> None:
        self.client = client
        self.request = request
        self._connection = RawConnection(address, client_id=client)
        self._connection.send(request, version=version)

    def is_answered(self, within_s: float) -> bool:
        return bool(select.select([self._connection.socket], [], [], within_s)[0])

    def read(self) -> Any:
        answer = self._connection.read(self.request)
        self._connection.close()
        return answer

    def close(self) -> None:
        self._connection.close()


class Side:
    """One broker, and what its clients were told."""

    def __init__(self, address: str, group: str) -> None:
        self.address = address
        self.group = group
        self.topic = f"{group}-foo"
        self.ids = {"a": "", "b": ""}
        self.generation = {"a": 0, "b": 0}
        self.waiting: dict[int, Waiting] = {}
        self._labels: dict[str, str] = {}

    def prepare(self, *, partitions: int = 1) -> None:
        """Make the topic, and wait until the coordinator answers."""
        topic = CreatableTopic(name=self.topic, num_partitions=partitions, replication_factor=1)
        with RawConnection(self.address) as connection:
            connection.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=20_000), version=7)
            wanted = MetadataRequest(topics=(MetadataRequestTopic(name=self.topic),))
            wait_until(lambda: not connection.ask(wanted, version=9).topics[0].error_code, what="the topic")
            find = FindCoordinatorRequest(coordinator_keys=(self.group,))
            wait_until(lambda: not connection.ask(find, version=4).coordinators[0].error_code, what="a coordinator")
            describe = DescribeGroupsRequest(groups=(self.group,))
            wait_until(
                lambda: connection.ask(describe, version=5).groups[0].error_code == 0, what="a loaded coordinator"
            )
            # A group that has had a member: one that never had any is left behind by refused requests on Kafka alone.
            protocols = (JoinGroupRequestProtocol(name="range", metadata=FOO),)
            join = JoinGroupRequest(
                group_id=self.group, session_timeout_ms=LONG_MS, protocol_type="consumer", protocols=protocols
            )
            first = MemberIdentity(member_id=connection.ask(join, version=3).member_id)
            connection.ask(LeaveGroupRequest(group_id=self.group, members=(first,)), version=5)

    def clear(self) -> None:
        """End what waits, and remove the group if it can be."""
        for waiting in self.waiting.values():
            waiting.close()
        with RawConnection(self.address) as connection:
            gone = tuple(MemberIdentity(member_id=member_id) for member_id in self._labels)
            connection.ask(LeaveGroupRequest(group_id=self.group, members=gone), version=5)
            connection.ask(DeleteGroupsRequest(groups_names=(self.group,)), version=2)

    def is_held_up(self) -> bool:
        """Whether an unused member id holds up a join phase without members; on ours the group is empty then."""
        with RawConnection(self.address) as connection:
            (group,) = connection.ask(DescribeGroupsRequest(groups=(self.group,)), version=6).groups
        return group.group_state == "PreparingRebalance" and not group.members

    def send(self, number: int, client: str, make: Callable[[Side], tuple[Request[Any], int]]) -> None:
        request, version = make(self)
        self.waiting[number] = Waiting(self.address, client, request, version)

    def answered(self, within_s: float) -> set[int]:
        """Numbers of the requests whose answers have come."""
        return {number for number, waiting in self.waiting.items() if waiting.is_answered(within_s)}

    def await_answer(self, number: int, story: str) -> Any:
        assert self.waiting[number].is_answered(SETTLE_S), f"{self.address} lets {number} wait:\n{story}"
        return self.hear(number)

    def hear(self, number: int) -> Any:
        """Read an answer that has come, and let the client take note of it."""
        waiting = self.waiting.pop(number)
        answer = waiting.read()
        member_id, generation = getattr(answer, "member_id", ""), getattr(answer, "generation_id", -1)
        if getattr(answer, "error_code", 0) == ErrorCode.UNKNOWN_MEMBER_ID:
            self.ids[waiting.client] = ""  # as a client does: it joins anew
            return answer
        if member_id and type(answer).__name__ == "JoinGroupResponse":
            if member_id not in self._labels:
                self._labels[member_id] = f"{waiting.client}#{len(self._labels)}"
            self.ids[waiting.client] = member_id
            if generation > 0:
                self.generation[waiting.client] = generation
        return answer

    def shared(self, answer: Any) -> Any:
        """An answer with names in place of ids, and members in order."""
        text = json.dumps(msgspec.to_builtins(answer))
        for found, label in self._labels.items():
            text = text.replace(found, label)
        return in_order(json.loads(UNHEARD.sub("unheard", text)))


def is_chance(ours: Any, kafka: Any, *, led: str) -> bool:
    """Whether two JoinGroup answers differ in who leads alone, and *led* leads neither: chance, on Kafka."""
    leaders = ours.get("leader", ""), kafka.get("leader", "")
    return (
        leaders[0] != leaders[1]
        and led not in leaders
        and all(ours[name] == kafka[name] for name in ours if name not in ("leader", "members"))
    )


def in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: bool(item) if name == "client_host" else in_order(item)
            for name, item in value.items()
            if name not in ("throttle_time_ms", "error_message")
        }
    if isinstance(value, list):
        return sorted(map(in_order, value), key=json.dumps)
    return value
