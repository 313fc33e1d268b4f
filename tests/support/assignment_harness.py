"""A coordinator harness whose members have client-side assignors: offer one, prepare, install, look at the round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kip848_client.wire.messages.consumer_group_heartbeat import Assignor, ConsumerGroupHeartbeatResponse
from kip848_client.wire.messages.consumer_group_install_assignment import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
    Member,
    TopicPartition,
)
from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
)
from tests.support.coordinator_harness import Harness

Parts = Mapping[str, Mapping[str, Iterable[int]]]
"""Member id -> topic name -> partitions."""


def offer(
    name: str = "a", *, versions: tuple[int, int] = (0, 0), version: int = 0, reason: int = 0, data: bytes = b""
) -> Assignor:
    """A client-side assignor as a member offers it."""
    return Assignor(
        name=name,
        minimum_version=versions[0],
        maximum_version=versions[1],
        reason=reason,
        metadata_version=version,
        metadata_bytes=data,
    )


class AssignmentHarness(Harness):
    """See the module. Topic "foo" has six partitions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.create_topic("foo", partitions=6)

    # Doing

    def enter(
        self,
        member_id: str,
        *offers: Assignor,
        topics: Iterable[str] = ("foo",),
        instance: str | None = None,
        rebalance_timeout_ms: int = 5_000,
    ) -> ConsumerGroupHeartbeatResponse:
        """Join with client-side assignors; with "a" if none is named."""
        return self.join(
            member_id, topics, offers=offers or (offer(),), instance=instance, rebalance_timeout_ms=rebalance_timeout_ms
        )

    def settled(self, *member_ids: str) -> None:
        """Let members join, and the chosen ones compute, until each owns an equal part of "foo"."""
        for member_id in member_ids:
            self.enter(member_id)
        self.settle()

    def settle(self) -> None:
        """Heartbeat, compute and acknowledge until nothing changes any more."""
        for _ in range(20):
            before = self.group, self.flying()
            if self.flying() is not None:
                self.compute()
            for member_id in sorted(self.group.members):
                self.beat(member_id)
            if before == (self.group, self.flying()):
                assert self.group.state == "Stable", self.group
                return
        raise AssertionError(f"the group does not settle: {self.group}")

    def beat(self, member_id: str) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat of a member that did what it was told: it owns what it may use."""
        member = self.member(member_id)
        return self.heartbeat(
            member_id, member.member_epoch, owned=self.assigned(member_id), instance=member.metadata.instance_id
        )

    def compute(self, parts: Parts | None = None, *, error: int = 0) -> ConsumerGroupInstallAssignmentResponse:
        """Let the chosen member prepare and install; a balanced target if *parts* is not given."""
        member_id = self.chosen
        prepared = self.prepare(member_id)
        assert not prepared.error_code, prepared
        if parts is None:
            parts = spread(prepared)
        return self.install(member_id, prepared.group_epoch, parts, error=error)

    def prepare(self, member_id: str, *, epoch: int | None = None) -> ConsumerGroupPrepareAssignmentResponse:
        """Send ConsumerGroupPrepareAssignment, at the member's own epoch if none is given."""
        return self.send(
            ConsumerGroupPrepareAssignmentRequest(
                group_id=self.group_id, member_id=member_id, member_epoch=self._epoch_of(member_id, epoch)
            ),
            version=0,
        )

    def install(
        self,
        member_id: str,
        group_epoch: int,
        parts: Parts,
        *,
        epoch: int | None = None,
        error: int = 0,
        metadata: Mapping[str, tuple[int, bytes]] | None = None,
    ) -> ConsumerGroupInstallAssignmentResponse:
        """Send ConsumerGroupInstallAssignment.

        Args:
            metadata: member id -> version and bytes.
        """
        told = metadata or {}
        members = tuple(
            self.part(part_id, held, version=told.get(part_id, (0, b""))[0], data=told.get(part_id, (0, b""))[1])
            for part_id, held in parts.items()
        )
        return self.install_members(member_id, group_epoch, members, epoch=epoch, error=error)

    def install_members(
        self,
        member_id: str,
        group_epoch: int,
        members: Iterable[Member],
        *,
        epoch: int | None = None,
        error: int = 0,
    ) -> ConsumerGroupInstallAssignmentResponse:
        """Send ConsumerGroupInstallAssignment with these very members."""
        return self.send(
            ConsumerGroupInstallAssignmentRequest(
                group_id=self.group_id,
                member_id=member_id,
                member_epoch=self._epoch_of(member_id, epoch),
                group_epoch=group_epoch,
                error=error,
                members=tuple(members),
            ),
            version=0,
        )

    def part(self, member_id: str, held: Mapping[str, Iterable[int]], *, version: int = 0, data: bytes = b"") -> Member:
        """One member of an Install."""
        return Member(
            member_id=member_id,
            partitions=tuple(
                TopicPartition(topic_id=self.topic_id(name), partitions=tuple(partitions))
                for name, partitions in held.items()
            ),
            metadata_version=version,
            metadata_bytes=data,
        )

    # Looking

    def awaited(self, response: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]]:
        """What the answer says the member must wait for."""
        assert response.assignment is not None
        return self.names({topic.topic_id: topic.partitions for topic in response.assignment.pending_topic_partitions})

    def _epoch_of(self, member_id: str, epoch: int | None) -> int:
        return self.member(member_id).member_epoch if epoch is None else epoch


def spread(prepared: ConsumerGroupPrepareAssignmentResponse) -> dict[str, dict[str, list[int]]]:
    """Every partition in turn to the subscribers of its topic."""
    parts: dict[str, dict[str, list[int]]] = {member.member_id: {} for member in prepared.members}
    for topic in prepared.topics:
        subscribers = [m.member_id for m in prepared.members if topic.topic_id in m.subscribed_topic_ids]
        for partition in range(topic.num_partitions):
            parts[subscribers[partition % len(subscribers)]].setdefault(topic.topic_name, []).append(partition)
    return parts
