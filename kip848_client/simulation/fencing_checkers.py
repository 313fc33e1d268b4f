"""What the coordinator must accept, and what it must refuse, from whom; written down a second time, beside its code."""

from __future__ import annotations

from typing import Any

from kip848_client.coordinator.snapshot import MemberSnapshot
from kip848_client.errors import ErrorCode
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.observer import Observer
from kip848_client.simulation.pictures import GroupPicture
from kip848_client.simulation.violation import require
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kip848_client.wire.schema import Request, Response


class HeartbeatFencing(Observer):
    """S7: a heartbeat counts with the member's epoch, with 0, or with the epoch before if it owns no more than it may.

    Any other is refused and changes nothing. S8: an instance id has one holder, and who holds it is not pushed out.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._before: dict[str, GroupPicture] = {}
        self._version = -1

    def coordinator_changed(self) -> None:
        """Remember the state that the next request meets."""
        self._before = {picture.group.group_id: picture for picture in self._cluster.pictures()}
        self._version = self._cluster.version
        for picture in self._before.values():
            group = picture.group
            instances = {
                member.metadata.instance_id: member_id
                for member_id, member in group.members.items()
                if member.metadata.instance_id is not None
            }
            static = sum(member.metadata.instance_id is not None for member in group.members.values())
            require(len(instances) == static, "S8", f"{group.group_id}: an instance id has two holders")
            require(instances == group.static_members, "S8", f"{group.group_id}: {instances} {group.static_members}")

    def served(self, client_id: str, request: Request[Any], response: Response) -> None:
        """Compare the answer with what the state before demands."""
        if not isinstance(request, ConsumerGroupHeartbeatRequest):
            return
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.error_code:
            require(self._cluster.version == self._version, "S7", f"{client_id} was refused, and yet something changed")
        picture = self._before.get(request.group_id)
        wanted = _verdict(request, picture)
        if wanted is not None:
            require(
                response.error_code == wanted,
                "S8" if request.instance_id is not None else "S7",
                f"{client_id} sent epoch {request.member_epoch} and was told {ErrorCode(response.error_code).name}, "
                f"not {wanted.name}",
            )


def _verdict(request: ConsumerGroupHeartbeatRequest, picture: GroupPicture | None) -> ErrorCode | None:
    """The code that the answer must carry; None where other rules decide too."""
    if picture is None:
        return ErrorCode.NONE if request.member_epoch == 0 else ErrorCode.GROUP_ID_NOT_FOUND
    members = picture.group.members
    member = members.get(request.member_id)
    if request.instance_id is not None:
        holder = picture.group.static_members.get(request.instance_id)
        if request.member_epoch == 0:
            if holder is None or holder == request.member_id or members[holder].member_epoch == -2:
                return ErrorCode.NONE
            return ErrorCode.UNRELEASED_INSTANCE_ID
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder != request.member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    if request.member_epoch == 0:
        return ErrorCode.NONE
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if request.member_epoch < 0 or _is_current(request, member):
        return ErrorCode.NONE
    return ErrorCode.FENCED_MEMBER_EPOCH


def _is_current(request: ConsumerGroupHeartbeatRequest, member: MemberSnapshot) -> bool:
    if request.member_epoch == member.member_epoch:
        return True
    if request.member_epoch != member.previous_member_epoch or request.topic_partitions is None:
        return False
    owned = {(topic.topic_id, index) for topic in request.topic_partitions for index in topic.partitions}
    return request.member_epoch < member.member_epoch and owned <= member.assigned_partitions


class CommitFencing(Observer):
    """S11: a commit is accepted only from a member, at its epoch, or at one that the partition was assigned at."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def served(self, client_id: str, request: Request[Any], response: Response) -> None:
        """Look at every accepted partition."""
        if not isinstance(request, OffsetCommitRequest):
            return
        assert isinstance(response, OffsetCommitResponse)
        picture = self._cluster.picture(request.group_id)
        epoch = request.generation_id_or_member_epoch
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    continue
                member = picture.group.members.get(request.member_id) if picture is not None else None
                require(member is not None, "S11", f"{client_id} is no member, and its commit was accepted")
                assert member is not None
                require(epoch <= member.member_epoch, "S11", f"{client_id} committed with an epoch from the future")
                if epoch < member.member_epoch:
                    since = {**member.pending_revocation.get(topic.topic_id, {})}
                    since.update(member.assigned.get(topic.topic_id, {}))
                    assigned_at = since.get(partition.partition_index)
                    require(
                        assigned_at is not None and assigned_at <= epoch,
                        "S11",
                        f"{client_id} committed {partition.partition_index} at {epoch}, has it since {assigned_at}",
                    )
