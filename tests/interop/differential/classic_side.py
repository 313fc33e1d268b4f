"""One of two brokers whose classic and migrating groups are compared: its requests, some of which wait, and what its
clients were told: classic ones, `a` and `b`, and ones on KIP-848, `x` and `y`.
"""

from __future__ import annotations

import json
import re
import select
import uuid
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kip848_client.wire.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    decode_assignment,
    encode_subscription,
)
from kip848_client.wire.messages.join_group import JoinGroupResponse
from kip848_client.wire.messages.list_groups import ListGroupsResponse
from kip848_client.wire.messages.sync_group import SyncGroupResponse
from kip848_client.wire.schema import Request
from tests.support.group_requests import heartbeat, join
from tests.support.waiting import wait_until

SETTLE_S: Final = 10.0
"""How long one broker may take for an answer that the other has given."""
LONG_MS: Final = 120_000
PARTITIONS: Final = 6
CLASSIC: Final = ("a", "b")
CONSUMER: Final = ("x", "y")
EPOCHS: Final = ("generation_id", "member_epoch", "group_epoch", "assignment_epoch")
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
    """One broker, and what its clients were told.

    Attributes:
        generation: of each client, or its member epoch.
        followers: client -> ids of all members, as their leader was told.
        ahead: how far epochs are ahead of the other side's: Kafka gives a new group one more.
        names_itself: whether classic clients choose their member ids.
    """

    def __init__(self, address: str, group: str) -> None:
        self.address = address
        self.group = group
        self.topic = f"{group}-foo"
        self.topic_id = uuid.UUID(int=0)
        self.ids = dict.fromkeys(CLASSIC, "") | {client: client for client in CONSUMER}
        self.generation = dict.fromkeys(self.ids, 0)
        self.owned: dict[str, list[int]] = {client: [] for client in self.ids}
        self.followers: dict[str, list[str]] = {}
        self.ahead = 0
        self.names_itself = False
        self.waiting: dict[int, Waiting] = {}
        self._labels: dict[str, str] = {}

    def prepare(self) -> None:
        """Make the topic, and wait until the coordinator answers and knows it."""
        topic = {"name": self.topic, "num_partitions": PARTITIONS, "replication_factor": 1}
        with RawConnection(self.address) as connection:
            call = connection.call
            call(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=20_000)
            wanted = [{"name": self.topic}]
            wait_until(lambda: not call(ApiKey.METADATA, 9, topics=wanted).topics[0].error_code, what="the topic")
            group = [self.group]
            wait_until(
                lambda: not call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=group).coordinators[0].error_code,
                what="a coordinator",
            )
            wait_until(
                lambda: call(ApiKey.DESCRIBE_GROUPS, 5, groups=group).groups[0].error_code == 0,
                what="a loaded coordinator",
            )
            # A group that has had a member: one that never had any is left behind by refused requests on Kafka alone.
            offer = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": FOO}]}
            first = call(ApiKey.JOIN_GROUP, 3, group_id=self.group, session_timeout_ms=LONG_MS, **offer)
            gone = [{"member_id": first.member_id}]
            call(ApiKey.LEAVE_GROUP, 5, group_id=self.group, members=gone)
            probe = join("probe", group=f"{self.group}-probe", topics=(self.topic,), rebalance_timeout_ms=LONG_MS)

            def is_known() -> bool:
                answer = connection.ask(probe, version=1)
                for topic in answer.assignment.topic_partitions if answer.assignment is not None else ():
                    self.topic_id = topic.topic_id
                return self.topic_id.int != 0

            wait_until(is_known, what="the coordinator to know the topic")
            connection.ask(heartbeat(-1, "probe", group=probe.group_id), version=1)
            call(ApiKey.DELETE_GROUPS, 2, groups_names=[probe.group_id])

    def clear(self) -> None:
        """End what waits, and remove the group if it can be."""
        for waiting in self.waiting.values():
            waiting.close()
        with RawConnection(self.address) as connection:
            gone = [{"member_id": member_id} for member_id in self._labels]
            connection.call(ApiKey.LEAVE_GROUP, 5, group_id=self.group, members=gone)
            connection.call(ApiKey.DELETE_GROUPS, 2, groups_names=[self.group])

    def is_held_up(self) -> bool:
        """Whether an unused member id holds up a join phase without members; on ours the group is empty then."""
        with RawConnection(self.address) as connection:
            (group,) = connection.call(ApiKey.DESCRIBE_GROUPS, 6, groups=[self.group]).groups
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
        answer, client = waiting.read(), waiting.client
        if getattr(answer, "error_code", 0) == ErrorCode.UNKNOWN_MEMBER_ID:
            self.ids[client] = ""  # as a client does: it joins anew
            return answer
        if isinstance(answer, JoinGroupResponse) and answer.member_id:
            self._labels.setdefault(answer.member_id, f"{client}#{len(self._labels)}")
            self.ids[client] = answer.member_id
            if answer.generation_id > 0:
                self.generation[client] = answer.generation_id
        if not getattr(answer, "error_code", 0):
            self._note(client, answer)
        return answer

    def _note(self, client: str, answer: Any) -> None:
        match answer:
            case JoinGroupResponse():
                self.followers[client] = [member.member_id for member in answer.members]
            case SyncGroupResponse() if answer.assignment.startswith(b"\0"):
                assigned = decode_assignment(answer.assignment).assigned_partitions
                self.owned[client] = sorted(number for topic in assigned for number in topic.partitions)
            case ConsumerGroupHeartbeatResponse():
                self.generation[client] = max(answer.member_epoch, 0)
                if answer.assignment is not None:
                    topics = answer.assignment.topic_partitions
                    self.owned[client] = sorted(number for topic in topics for number in topic.partitions)
                if answer.member_epoch < 0:
                    self.owned[client] = []
            case _:
                pass

    def shared(self, answer: Any) -> Any:
        """An answer with names in place of ids, epochs as the other side counts them, and members in order."""
        if isinstance(answer, ListGroupsResponse):
            answer = replace(answer, groups=tuple(group for group in answer.groups if group.group_id == self.group))
        text = json.dumps(msgspec.to_builtins(answer)).replace(str(self.topic_id), "the topic")
        for found, label in self._labels.items():
            text = text.replace(found, label)
        return self._counted(in_order(json.loads(UNHEARD.sub("unheard", text))))

    def _counted(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: item - self.ahead if name in EPOCHS and item > 0 else self._counted(item)
                for name, item in value.items()
            }
        return [self._counted(item) for item in value] if isinstance(value, list) else value


def is_chance(ours: Any, kafka: Any, *, led: str) -> bool:
    """Whether two JoinGroup answers differ in who leads alone, and *led* leads neither: chance, on Kafka."""
    leaders = ours.get("leader", ""), kafka.get("leader", "")
    return (
        leaders[0] != leaders[1]
        and led not in leaders
        and all(ours[name] == kafka[name] for name in ours if name not in ("leader", "members"))
    )


def in_order(value: Any) -> Any:
    """An answer without texts and hosts, and with its lists in order."""
    if isinstance(value, dict):
        if value.get("group_instance_id") or value.get("instance_id"):
            value = value | {"client_id": ""}  # Kafka shows that of the first process
        return {
            name: bool(item) if name == "client_host" else in_order(item)
            for name, item in value.items()
            if name not in ("throttle_time_ms", "error_message")
        }
    if isinstance(value, list):
        return sorted(map(in_order, value), key=json.dumps)
    return value
