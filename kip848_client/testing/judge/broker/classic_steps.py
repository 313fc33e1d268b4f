"""Requests of members on the classic protocol, as steps. The broker makes their ids: they are called `new...`."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from kip848_client.errors import ErrorCode
from kip848_client.testing.judge.broker.messages import Json
from kip848_client.testing.judge.broker.side import Side, as_int
from kip848_client.testing.judge.broker.steps import AskingStep, Request
from kip848_client.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)

SESSION_MS: Final = 30_000
REBALANCE_MS: Final = 60_000


class ClassicJoin(AskingStep, frozen=True):
    """A JoinGroup. The answer to the first one may only bring a member id (MEMBER_ID_REQUIRED).

    Args:
        owned: partitions that a cooperative member says it owns.
    """

    member: str
    names: tuple[str, ...] = ("t0",)
    owned: Mapping[str, tuple[int, ...]] = {}
    protocols: tuple[str, ...] = ("range",)
    protocol_type: str = "consumer"
    group: str = "g"

    def request(self, side: Side) -> Request:
        subscription = ConsumerProtocolSubscription(
            topics=tuple(side.topic_name(name) for name in self.names),
            owned_partitions=tuple(
                TopicPartition(topic=side.topic_name(name), partitions=numbers) for name, numbers in self.owned.items()
            ),
        )
        metadata = encode_subscription(subscription, version=1)
        return (
            "join_group",
            7,
            {
                "group_id": side.group_id(self.group),
                "session_timeout_ms": SESSION_MS,
                "rebalance_timeout_ms": REBALANCE_MS,
                "member_id": side.view(self.group, self.member).member_id,
                "protocol_type": self.protocol_type,
                "protocols": [{"name": name, "metadata": metadata} for name in self.protocols],
            },
        )

    def hear(self, side: Side, sent: Mapping[str, Any], answer: Mapping[str, Json]) -> None:
        view = side.view(self.group, self.member)
        if answer["error_code"] in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            view.member_id = str(answer["member_id"])
            side.call(view.member_id, self.member)
        if not answer["error_code"]:
            view.epoch = as_int(answer["generation_id"])

    def shape(self, side: Side, answer: dict[str, Json]) -> dict[str, Json]:
        """Without the bytes of the subscriptions, which contain names of topics."""
        return {name: value for name, value in answer.items() if name != "members"}


class ClassicSync(AskingStep, frozen=True):
    """A SyncGroup.

    Args:
        gives: what a leader gives to each member: partitions of t0.
    """

    member: str
    gives: Mapping[str, tuple[int, ...]] = {}
    group: str = "g"

    def request(self, side: Side) -> Request:
        view = side.view(self.group, self.member)
        assignments = [
            {
                "member_id": side.view(self.group, member).member_id,
                "assignment": encode_assignment(
                    ConsumerProtocolAssignment(
                        assigned_partitions=(TopicPartition(topic=side.topic_name("t0"), partitions=numbers),)
                    ),
                    version=1,
                ),
            }
            for member, numbers in self.gives.items()
        ]
        return (
            "sync_group",
            3,
            {
                "group_id": side.group_id(self.group),
                "generation_id": view.epoch,
                "member_id": view.member_id,
                "assignments": assignments,
            },
        )

    def shape(self, side: Side, answer: dict[str, Json]) -> dict[str, Json]:
        """With the partitions in place of the bytes."""
        data = base64.b64decode(str(answer["assignment"]))
        topics = decode_assignment(data).assigned_partitions if data else ()
        assigned: dict[str, Json] = {side.label(topic.topic): list(topic.partitions) for topic in topics}
        return {**answer, "assignment": assigned}


class ClassicHeartbeat(AskingStep, frozen=True):
    """A Heartbeat.

    Args:
        off: added to the generation of the member.
    """

    member: str
    off: int = 0
    group: str = "g"

    def request(self, side: Side) -> Request:
        view = side.view(self.group, self.member)
        fields = {"group_id": side.group_id(self.group), "member_id": view.member_id}
        return "heartbeat", 3, fields | {"generation_id": view.epoch + self.off}


class ClassicLeave(AskingStep, frozen=True):
    """A LeaveGroup of the member itself."""

    member: str
    group: str = "g"

    def request(self, side: Side) -> Request:
        gone = [{"member_id": side.view(self.group, self.member).member_id}]
        return "leave_group", 4, {"group_id": side.group_id(self.group), "members": gone}
