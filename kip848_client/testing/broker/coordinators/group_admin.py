"""Changes that a test makes to a group, expressed as requests of the protocol."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from kip848_client.common.model import NamedPartition
from kip848_client.errors import BrokerError, ErrorCode, IllegalStateError, error_for_code
from kip848_client.testing.broker.coordinators.group_shards import GroupShards
from kip848_client.testing.broker.coordinators.snapshots import GroupSnapshot, MemberSnapshot
from kip848_client.testing.coordinator.core.timers import TimerKind
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from kip848_client.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

_JOIN_EPOCH: Final = 0
_LEAVE_EPOCH: Final = -1
_PASSER_BY: Final = "kip848-passer-by"
_NO_TOPIC: Final = "kip848-no-such-topic"
_LEAVE_VERSION: Final = 5
_DESCRIBE_VERSION: Final = 5
_JOIN_VERSION: Final = 3
"""The last one in which a new member joins at once, without an id being sent first."""
_TIMEOUT_MS: Final = 60_000


def member_of(groups: GroupShards, group_id: str, name: str) -> MemberSnapshot:
    """The member with that member id, group instance id or client id.

    Raises:
        BrokerError: there is no such group or member, or several members share the client id.
    """
    members = _group(groups, group_id).members
    for found in (
        [member for member in members if member.member_id == name],
        [member for member in members if member.instance_id == name],
        [member for member in members if member.client_id == name],
    ):
        if len(found) == 1:
            return found[0]
    known = "; ".join(f"{member.member_id} ({member.client_id})" for member in members) or "none"
    raise BrokerError(
        f"group {group_id!r} has no single member {name!r}; members are: {known}", code=ErrorCode.UNKNOWN_MEMBER_ID
    )


def remove_member(groups: GroupShards, group_id: str, name: str) -> None:
    """Let a member leave.

    Raises:
        BrokerError: there is no such group or member.
    """
    member = member_of(groups, group_id, name)
    kind = _group(groups, group_id).type
    if kind == "share":
        _heartbeat(groups, ShareGroupHeartbeatRequest(group_id, member.member_id, _LEAVE_EPOCH))
        return
    if kind == "classic":
        leaving = LeaveGroupRequest(group_id=group_id, members=(MemberIdentity(member_id=member.member_id),))
        groups.submit(leaving, api_version=_LEAVE_VERSION)
        return
    _heartbeat(groups, ConsumerGroupHeartbeatRequest(group_id, member.member_id, _LEAVE_EPOCH))


def expire_session(groups: GroupShards, group_id: str, name: str) -> None:
    """Let the session of a member run out.

    Raises:
        BrokerError: there is no such group or member.
    """
    member = member_of(groups, group_id, name)
    kind = TimerKind.CLASSIC_SESSION if _group(groups, group_id).type == "classic" else TimerKind.SESSION
    groups.let_time_run_out(kind, group_id=group_id, member_id=member.member_id)


def expire_assignment(groups: GroupShards, group_id: str) -> str:
    """Let the time of the member run out that is to compute the target; return its id.

    Raises:
        BrokerError: there is no such group.
        IllegalStateError: no member was asked to.
    """
    member_id = _group(groups, group_id).computing_member
    if member_id is None:
        raise IllegalStateError(f"no member of group {group_id!r} is to compute a target")
    groups.let_time_run_out(TimerKind.CLIENT_ASSIGNMENT, group_id=group_id, member_id=member_id)
    return member_id


def force_rebalance(groups: GroupShards, group_id: str) -> int:
    """Let a member without subscription join and leave; return the group's epoch afterwards.

    It offers the client-side assignors of a member, so that the group stays with its assignor. The epoch of a classic
    group is the generation that begins when its members have joined again.

    Raises:
        BrokerError: there is no such group, or it is full.
        IllegalStateError: it is a classic group without members.
    """
    group = _group(groups, group_id)
    if group.type == "classic":
        return _rebalance_classic(groups, group)
    if group.type == "share":
        joining = ShareGroupHeartbeatRequest(group_id, _PASSER_BY, _JOIN_EPOCH, subscribed_topic_names=(_NO_TOPIC,))
        _heartbeat(groups, joining)
        _heartbeat(groups, replace(joining, member_epoch=_LEAVE_EPOCH))
        return _group(groups, group_id).group_epoch
    _heartbeat(
        groups,
        ConsumerGroupHeartbeatRequest(
            group_id,
            _PASSER_BY,
            _JOIN_EPOCH,
            rebalance_timeout_ms=_TIMEOUT_MS,
            subscribed_topic_names=(_NO_TOPIC,),
            topic_partitions=(),
            client_assignors=groups.offered_assignors(group_id),
        ),
    )
    _heartbeat(groups, ConsumerGroupHeartbeatRequest(group_id, _PASSER_BY, _LEAVE_EPOCH))
    return _group(groups, group_id).group_epoch


class OffsetsByPartition(dict[NamedPartition, int]):
    """Offsets by partition. A key may be ``(topic, partition)``, or anything with these two attributes.

    So confluent-kafka's ``TopicPartition``, which equals no tuple, finds its offset as well.
    """

    def __getitem__(self, key: object) -> int:
        return super().__getitem__(_as_key(key))

    def __contains__(self, key: object) -> bool:
        return super().__contains__(_as_key(key))

    def get(self, key: object, default: Any = None) -> Any:
        """The offset of a partition, or *default*."""
        return super().get(_as_key(key), default)


def _as_key(key: Any) -> NamedPartition:
    return key if isinstance(key, tuple) else NamedPartition(key.topic, key.partition)  # type: ignore[return-value]


def _rebalance_classic(groups: GroupShards, group: GroupSnapshot) -> int:
    if not group.members:
        raise IllegalStateError(f"classic group {group.group_id!r} has no members that could join again")
    if group.state != "Stable":
        return group.group_epoch + 1  # they are about to
    described = groups.ask(DescribeGroupsRequest(groups=(group.group_id,)), api_version=_DESCRIBE_VERSION)
    assert isinstance(described, DescribeGroupsResponse)
    (known,) = described.groups
    joining = JoinGroupRequest(
        group_id=group.group_id,
        session_timeout_ms=_TIMEOUT_MS,
        rebalance_timeout_ms=1,  # the members' own is longer, and counts
        protocol_type=known.protocol_type,
        protocols=(JoinGroupRequestProtocol(name=known.protocol_data, metadata=known.members[0].member_metadata),),
    )
    refused = groups.begin(joining, api_version=_JOIN_VERSION)
    if isinstance(refused, JoinGroupResponse):
        raise error_for_code(refused.error_code, f"group {group.group_id!r}")
    before = {member.member_id for member in group.members}
    for member in _group(groups, group.group_id).members:
        if member.member_id not in before:
            remove_member(groups, group.group_id, member.member_id)
    return group.group_epoch + 1


def committed_offsets(groups: GroupShards, group_id: str) -> dict[NamedPartition, int]:
    """The committed offsets of a group."""
    response = groups.ask(
        OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group_id, topics=None),)), api_version=9
    )
    assert isinstance(response, OffsetFetchResponse)
    return {
        NamedPartition(topic.name, partition.partition_index): partition.committed_offset
        for group in response.groups
        for topic in group.topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    }


def _group(groups: GroupShards, group_id: str) -> GroupSnapshot:
    group = groups.snapshot(group_id)
    if group is None:
        known = ", ".join(groups.group_ids()) or "none"
        raise BrokerError(
            f"there is no consumer group {group_id!r}; groups are: {known}", code=ErrorCode.GROUP_ID_NOT_FOUND
        )
    return group


def _heartbeat(groups: GroupShards, request: ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest) -> None:
    response = groups.submit(request, api_version=1)
    assert isinstance(response, ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse)
    if response.error_code:
        raise error_for_code(response.error_code, response.error_message or "")
