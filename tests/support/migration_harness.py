"""A coordinator with groups that migrate: classic members with real assignments, beside members on the new protocol."""

from __future__ import annotations

from collections.abc import Iterable

from kip848_client.coordinator import CoordinatorConfig
from kip848_client.coordinator.config import MigrationPolicy
from kip848_client.errors import ErrorCode
from kip848_client.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from kip848_client.wire.messages.join_group import JoinGroupResponse
from kip848_client.wire.messages.sync_group import SyncGroupResponse
from tests.support.classic_harness import Call, ClassicHarness
from tests.support.coordinator_harness import Harness

ALL = [0, 1, 2, 3, 4, 5]


def subscription(
    *topics: str, owned: Iterable[int] = (), version: int = 0, rack: str | None = None
) -> dict[str, bytes]:
    """What a member offers for ``range``: these topics, and what it owns of foo."""
    wanted = ConsumerProtocolSubscription(
        topics=topics or ("foo",),
        owned_partitions=(TopicPartition("foo", tuple(owned)),) if owned else (),
        rack_id=rack,
    )
    return {"range": encode_subscription(wanted, version=version)}


def assignment(*partitions: int, user_data: bytes | None = None) -> bytes:
    """Partitions of foo, as a leader writes them."""
    topics = (TopicPartition("foo", partitions),) if partitions else ()
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=topics, user_data=user_data), version=0)


class MigrationHarness(ClassicHarness):
    """See the module. Kafka's session timeout for members on the new protocol."""

    def __init__(
        self, *, policy: MigrationPolicy = "bidirectional", size_max: int = 2**31 - 1, classic_size_max: int = 2**31 - 1
    ) -> None:
        Harness.__init__(
            self,
            CoordinatorConfig(
                migration_policy=policy,
                consumer_max_size=size_max,
                classic_max_size=classic_size_max,
                consumer_session_timeout_ms=45_000,
                consumer_heartbeat_interval_ms=5_000,
            ),
        )
        self.create_topic("foo", partitions=6)

    def classic_group(self, *shares: Iterable[int], version: int = 0) -> list[str]:
        """A stable classic group of dynamic members with these partitions of foo."""
        members = [self.joining(protocols=subscription(version=version)) for _ in shares]
        ids = [member_id for member_id, _ in members]
        if len(ids) > 1:
            self.join_group(ids[0], protocols=subscription(version=version))
        generation = self.classic.generation
        given = {member_id: assignment(*share) for member_id, share in zip(ids, shares, strict=True)}
        for member_id in reversed(ids):
            self.sync_group(member_id, generation, given)
        return ids

    def rejoin(self, member_id: str, *, owned: Iterable[int] = (), version: int = 1, **options: object) -> int:
        """A JoinGroup to a consumer group, which must be answered at once; returns the generation."""
        call: Call[JoinGroupResponse] = self.join_group(
            member_id,
            protocols=subscription(owned=owned, version=version),
            **options,  # type: ignore[arg-type]
        )
        assert call.code == ErrorCode.NONE, call.code
        answer = call.answer
        assert (answer.member_id, answer.protocol_type, answer.protocol_name) == (member_id, "consumer", "range")
        assert (answer.leader, answer.members, answer.skip_assignment) == ("", (), False)
        return answer.generation_id

    def synced(self, member_id: str, generation: int, **options: object) -> list[int]:
        """A SyncGroup to a consumer group: partitions of foo."""
        return self.read_sync(self.sync_group(member_id, generation, **options))  # type: ignore[arg-type]

    @staticmethod
    def read_sync(call: Call[SyncGroupResponse]) -> list[int]:
        """The partitions of foo in an answer to SyncGroup."""
        assert call.code == ErrorCode.NONE, call.code
        topics = decode_assignment(call.answer.assignment).assigned_partitions
        return [partition for topic in topics for partition in topic.partitions]

    def mixed(self) -> tuple[str, int]:
        """A group of a classic member with 0-2 and the new member ``n`` with 3-5, both in step; (classic id, epoch)."""
        (a,) = self.classic_group(ALL)
        self.join("n", ["foo"])
        generation = self.rejoin(a)
        kept = self.synced(a, generation)
        given = self.received(self.heartbeat("n", generation))
        assert given is not None
        assert sorted(kept + given["foo"]) == ALL
        return a, generation
