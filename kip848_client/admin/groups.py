"""Questions about groups of every kind: list, describe, lag; and deleting them or removing members."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec

from kip848_client.admin.cluster import TIMEOUT_S_DEFAULT, AdminCall, AskedBroker, Cluster, check, refusal
from kip848_client.admin.offsets import committed_of
from kip848_client.admin.results import (
    GroupDescription,
    GroupLag,
    GroupListing,
    Listing,
    MemberDescription,
    OtherGroupDescription,
    Progress,
    Results,
    WorkerGroupDescription,
    split,
)
from kip848_client.admin.share_groups import share_group, starts_of
from kip848_client.admin.topics import LATEST, offsets_of
from kip848_client.admin.worker_groups import classic_workers, connect_workers, with_tokens
from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import NamedPartition
from kip848_client.errors import BrokerError, ConfigError, Kip848Error, ProtocolError
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages import consumer_group_describe as described
from kip848_client.wire.messages import describe_groups
from kip848_client.wire.messages.connect_group_describe import ConnectGroupDescribeRequest
from kip848_client.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kip848_client.wire.messages.consumer_protocol import decode_assignment, decode_subscription
from kip848_client.wire.messages.delete_groups import DeleteGroupsRequest
from kip848_client.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kip848_client.wire.messages.list_groups import ListGroupsRequest
from kip848_client.wire.messages.share_group_describe import ShareGroupDescribeRequest
from kip848_client.worker.classic.classic_messages import PROTOCOL_TYPE

Description: TypeAlias = GroupDescription | WorkerGroupDescription | OtherGroupDescription

GROUP_RESOURCE: Final = 32
"""In DescribeConfigs, the type of a group."""
DEAD: Final = "Dead"
"""The state that old versions of DescribeGroups give a group that is not there."""
CLASSIC_MEMBER: Final = 0
"""In ConsumerGroupDescribe, the type of a member that speaks the classic protocol."""

_KAFKA_TOOLS: Final[Mapping[str, str]] = {
    "share": "kafka-share-groups.sh describes it",
    "streams": "kafka-streams-groups.sh describes it; once it has committed, kip848 groups lag shows how far it is",
}
"""Type of a group, as ListGroups names it -> what shows it."""


async def list_groups(
    cluster: Cluster,
    *,
    types: Iterable[str] = (),
    states: Iterable[str] = (),
    timeout_s: float = TIMEOUT_S_DEFAULT,
) -> Listing[GroupListing]:
    """List the groups of all nodes.

    Args:
        types: ``consumer``, ``classic``, ``share``, ``streams``, ``connect``; all if there are none. Needs Kafka 3.8.
        states: ``Stable``, ``Empty`` and so on; all if there are none. Needs Kafka 2.6.
        timeout_s: seconds for the whole call.

    Raises:
        Kip848Error: no node answers.
    """
    request = ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types))

    async def ask(node: AskedBroker) -> list[GroupListing]:
        answer = await node.send(request)
        check(answer.error_code, "groups of a node")
        return [
            GroupListing(item.group_id, item.group_type, item.group_state, item.protocol_type) for item in answer.groups
        ]

    of_nodes = split(await cluster.call(timeout_s).everywhere(ask))
    groups = {item.group_id: item for listed in of_nodes.values.values() for item in listed}
    return Listing(tuple(groups[group_id] for group_id in sorted(groups)), of_nodes.errors)


async def describe(
    cluster: Cluster,
    group_ids: Iterable[str],
    *,
    with_progress: bool = False,
    timeout_s: float = TIMEOUT_S_DEFAULT,
) -> Results[str, Description]:
    """Describe groups of any kind.

    Args:
        with_progress: with committed offsets and ends, for groups of consumers.
        timeout_s: seconds for the whole call.

    Returns:
        Of a group that does not exist, or may not be described, the error.

    Raises:
        Kip848Error: no broker answers.
    """
    call = cluster.call(timeout_s)
    found = await _describe(call, group_ids)
    await _name_others(call, found)
    found |= await with_tokens(
        call, {key: one for key, one in found.items() if isinstance(one, WorkerGroupDescription)}
    )
    if with_progress:
        consumers = {key: one for key, one in found.items() if isinstance(one, GroupDescription)}
        for group_id, progress in (await _progress(call, consumers)).items():
            if isinstance(progress, Kip848Error):
                found[group_id] = progress
            else:
                found[group_id] = msgspec.structs.replace(consumers[group_id], progress=progress)
    return split(found)


async def lag(
    cluster: Cluster, group_ids: Iterable[str], *, timeout_s: float = TIMEOUT_S_DEFAULT
) -> Results[str, GroupLag]:
    """How far groups of any protocol have come, in records.

    Args:
        timeout_s: seconds for the whole call.

    Returns:
        For a group that does not exist and has no offsets, or that may not be read, the error.

    Raises:
        Kip848Error: no broker answers.
    """
    call = cluster.call(timeout_s)
    found = await _describe(call, group_ids)
    lags: dict[str, GroupLag | Kip848Error] = {}
    unknown: dict[str, Kip848Error | OtherGroupDescription] = {}
    for group_id, progress in (await _progress(call, found)).items():
        one = found[group_id]
        if isinstance(progress, Kip848Error):
            lags[group_id] = progress
        elif isinstance(one, Kip848Error) and (not progress or not _is_missing(one)):
            # Nothing was ever committed: one of another kind, or a wrong name.
            unknown[group_id] = one
        else:
            lags[group_id] = GroupLag(group_id, progress)
    await _name_others(call, unknown)
    for group_id, one in unknown.items():
        lags[group_id] = shown_elsewhere(one) if isinstance(one, OtherGroupDescription) else one
    return split(lags)


async def delete_groups(
    cluster: Cluster, group_ids: Iterable[str], *, timeout_s: float = TIMEOUT_S_DEFAULT
) -> Results[str, None]:
    """Delete groups without members, with their offsets.

    Args:
        timeout_s: seconds for the whole call.

    Returns:
        Of a group that has members, does not exist, or may not be deleted, the error. After a lost connection it is
        not known whether its groups are deleted.

    Raises:
        Kip848Error: no broker answers.
    """

    async def ask(node: AskedBroker, ids: Sequence[str]) -> Mapping[str, Kip848Error | None]:
        answer = await node.send(DeleteGroupsRequest(groups_names=tuple(ids)))
        return {
            one.group_id: refusal(one.error_code, f"group {one.group_id!r} was not deleted") if one.error_code else None
            for one in answer.results
        }

    return split(await cluster.call(timeout_s).at_coordinators(group_ids, ask, once=True))


async def remove_members(
    cluster: Cluster,
    group_id: str,
    *,
    instance_ids: Iterable[str] = (),
    member_ids: Iterable[str] = (),
    reason: str = "removed by an administrator",
    timeout_s: float = TIMEOUT_S_DEFAULT,
) -> Results[str, None]:
    """Remove members from a group: static ones by their group.instance.id, others by their member id.

    A static member that does not run any more frees its partitions at once, instead of at the end of its session. A
    member that still runs joins again.

    Args:
        reason: for the coordinator's log.
        timeout_s: seconds for the whole call.

    Returns:
        For each id that was given whether it is removed, or the error.

    Raises:
        ConfigError: no member is named.
        Kip848Error: there is no such group, or no broker answers.
    """
    leaving = {
        **{name: MemberIdentity("", name, reason) for name in instance_ids},
        **{name: MemberIdentity(name, None, reason) for name in member_ids},
    }
    if not leaving:
        raise ConfigError("name the members to remove: instance_ids=[...] or member_ids=[...]")

    async def ask(node: AskedBroker, _: Sequence[str]) -> Mapping[str, dict[str, Kip848Error | None] | Kip848Error]:
        answer = await node.send(LeaveGroupRequest(group_id=group_id, members=tuple(leaving.values())))
        if answer.error_code:
            return {group_id: refusal(answer.error_code, f"members of group {group_id!r} were not removed")}
        removed: dict[str, Kip848Error | None] = {}
        for name, one in zip(leaving, answer.members, strict=True):
            what = f"member {name!r} of group {group_id!r} was not removed"
            removed[name] = refusal(one.error_code, what) if one.error_code else None
        return {group_id: removed}

    return split(split(await cluster.call(timeout_s).at_coordinators([group_id], ask, once=True))[group_id])


async def group_config(cluster: Cluster, group_id: str, *, timeout_s: float = TIMEOUT_S_DEFAULT) -> Mapping[str, str]:
    """The settings of a group, such as ``consumer.session.timeout.ms``.

    Args:
        timeout_s: seconds for the whole call.

    Raises:
        UnsupportedByBrokerError, BrokerError: the cluster has no settings of groups, or they may not be read.
        Kip848Error: no broker answers.
    """
    asked = DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group_id, configuration_keys=None)

    async def ask(node: AskedBroker, _: Sequence[str]) -> Mapping[str, dict[str, str]]:
        answer = await node.send(DescribeConfigsRequest(resources=(asked,)))
        (result,) = answer.results
        check(result.error_code, f"settings of group {group_id!r}")
        return {group_id: {config.name: config.value for config in result.configs if config.value is not None}}

    return split(await cluster.call(timeout_s).at_coordinators([group_id], ask))[group_id]


async def _describe(call: AdminCall, group_ids: Iterable[str]) -> dict[str, Description | Kip848Error]:
    found = await call.at_coordinators(group_ids, _describe_at)
    return cast("dict[str, Description | Kip848Error]", found)  # mypy joins the three kinds to Struct


async def _describe_at(node: AskedBroker, group_ids: Sequence[str]) -> Mapping[str, Description | Kip848Error]:
    """Ask about them as consumer groups, about the remaining ones as classic groups, share groups, and workers."""
    found: dict[str, Description | Kip848Error] = {
        group_id: refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r}: there is none") for group_id in group_ids
    }
    left = tuple(group_ids)
    if node.highest(ApiKey.CONSUMER_GROUP_DESCRIBE) >= 0:
        for group in (await node.send(ConsumerGroupDescribeRequest(group_ids=left))).groups:
            if group.error_code == ErrorCode.UNSUPPORTED_VERSION:  # the feature group.version is off
                continue
            found[group.group_id] = _consumer_group(group)
            if group.error_code:
                why = group.error_message or "cannot be described"
                found[group.group_id] = refusal(group.error_code, f"group {group.group_id!r}: {why}")
        left = _missing(found)
    if left:
        for classic in (await node.send(DescribeGroupsRequest(groups=left))).groups:
            if classic.error_code not in {0, ErrorCode.GROUP_ID_NOT_FOUND}:
                found[classic.group_id] = refusal(classic.error_code, f"group {classic.group_id!r}")
            elif not classic.error_code and classic.group_state != DEAD:
                of_workers = classic.protocol_type == PROTOCOL_TYPE
                found[classic.group_id] = classic_workers(classic) if of_workers else _classic_group(classic)
        left = _missing(found)
    if left and node.highest(ApiKey.SHARE_GROUP_DESCRIBE) >= 1:
        for shared in (await node.send(ShareGroupDescribeRequest(group_ids=left))).groups:
            # UNSUPPORTED_VERSION: the feature share.version is off, as it is by default up to Kafka 4.1.
            if shared.error_code not in {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}:
                found[shared.group_id] = share_group(shared)
        left = _missing(found)
    if left and node.highest(ApiKey.CONNECT_GROUP_DESCRIBE) >= 0:
        for workers in (await node.send(ConnectGroupDescribeRequest(group_ids=left))).groups:
            if not workers.error_code:
                found[workers.group_id] = connect_workers(workers)
    return found


async def size_and_type(call: AdminCall, group_id: str) -> tuple[int, str]:
    """How many members a group has, and its type; 0 and blank if there is no such group.

    Raises:
        Kip848Error: it may not be described.
    """
    one = (await _describe(call, [group_id]))[group_id]
    match one:
        case GroupDescription(members=members) | WorkerGroupDescription(workers=members):
            return len(members), one.type
        case Kip848Error() if not _is_missing(one):
            raise one
    return 0, ""


def _is_missing(one: object) -> bool:
    return isinstance(one, BrokerError) and one.code == ErrorCode.GROUP_ID_NOT_FOUND


def _missing(found: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(group_id for group_id, one in found.items() if _is_missing(one))


def shown_elsewhere(group: OtherGroupDescription) -> BrokerError:
    """The error for a group of which only the list of groups tells: it names the tool that shows more."""
    return refusal(
        ErrorCode.GROUP_ID_NOT_FOUND, f"{group.group_id!r} is a {group.type} group", advice=_KAFKA_TOOLS[group.type]
    )


async def _name_others(call: AdminCall, found: dict[str, Any]) -> None:
    """Describe share and streams groups among the missing ones by what the nodes list of them."""
    missing = set(_missing(found))
    if not missing:
        return

    async def ask(node: AskedBroker) -> list[OtherGroupDescription]:
        listed = (await node.send(ListGroupsRequest())).groups
        return [OtherGroupDescription(one.group_id, one.group_state, one.group_type) for one in listed]

    with contextlib.suppress(Kip848Error):  # the errors of the descriptions say enough
        for listed in split(await call.everywhere(ask)).values.values():
            found |= {one.group_id: one for one in listed if one.group_id in missing and one.type in _KAFKA_TOOLS}


async def _progress(
    call: AdminCall, groups: Mapping[str, Description | Kip848Error]
) -> dict[str, tuple[Progress, ...] | Kip848Error]:
    """The progress of each group: three questions for all of them, split by coordinators and leaders."""
    shared = [key for key, one in groups.items() if isinstance(one, GroupDescription) and one.type == "share"]
    committed = await committed_of(call, [key for key in groups if key not in shared])
    starts = await starts_of(call, shared)
    owners: dict[str, dict[NamedPartition, str]] = {}
    for group_id, group in groups.items():
        members = group.members if isinstance(group, GroupDescription) else ()
        owners[group_id] = _owners(members)
    named: dict[str, list[NamedPartition]] = {}
    for group_id, offsets in committed.items():
        if not isinstance(offsets, Kip848Error):
            named[group_id] = sorted(offsets.keys() | owners[group_id].keys())
    for group_id, begun in starts.items():
        if not isinstance(begun, Kip848Error):
            named[group_id] = sorted(begun.keys() | owners[group_id].keys())
    every = {partition for partitions in named.values() for partition in partitions}
    ends = split(await offsets_of(call, dict.fromkeys(every, LATEST), brief=True)).values
    found: dict[str, tuple[Progress, ...] | Kip848Error] = {}
    for group_id, offsets in committed.items():
        if isinstance(offsets, Kip848Error):
            found[group_id] = offsets
            continue
        at = {partition: position.offset for partition, position in offsets.items()}
        found[group_id] = tuple(
            Progress(one, at.get(one), ends.get(one), owners[group_id].get(one)) for one in named[group_id]
        )
    for group_id, begun in starts.items():
        if isinstance(begun, Kip848Error):
            found[group_id] = begun
            continue
        found[group_id] = tuple(
            Progress(one, start, ends.get(one), owners[group_id].get(one), left, is_shared=True)
            for one in named[group_id]
            for start, left in [begun.get(one, (None, None))]
        )
    return found


def _owners(members: Iterable[MemberDescription]) -> dict[NamedPartition, str]:
    """Client id of the member that owns each partition; of a share group, of all members that have it."""
    owners: dict[NamedPartition, set[str]] = {}
    for member in members:
        for partition in member.assigned:
            owners.setdefault(partition, set()).add(member.client_id)
    return {partition: ",".join(sorted(clients)) for partition, clients in owners.items()}


def _consumer_group(group: described.DescribedGroup) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.assignor_name,
        members=_sorted(map(_member, group.members)),
    )


def _classic_group(group: describe_groups.DescribedGroup) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        group_epoch=None,
        assignment_epoch=None,
        assignor=group.protocol_data,
        members=_sorted(map(_classic_member, group.members)),
        type="classic",
    )


def _sorted(members: Iterable[MemberDescription]) -> tuple[MemberDescription, ...]:
    return tuple(sorted(members, key=lambda member: (member.client_id, member.member_id)))


def _classic_member(member: describe_groups.DescribedGroupMember) -> MemberDescription:
    topics: tuple[str, ...] = ()
    assigned: tuple[NamedPartition, ...] = ()
    with contextlib.suppress(ProtocolError):  # its group rebalances, or is not one of consumers
        topics = decode_subscription(member.member_metadata).topics
    with contextlib.suppress(ProtocolError):
        assigned = tuple(
            sorted(
                NamedPartition(item.topic, partition)
                for item in decode_assignment(member.member_assignment).assigned_partitions
                for partition in item.partitions
            )
        )
    return MemberDescription(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.group_instance_id,
        member_epoch=None,
        subscription=",".join(topics),
        assigned=assigned,
        target=assigned,
        protocol="classic",
    )


def _member(member: described.Member) -> MemberDescription:
    names = list(member.subscribed_topic_names)
    if member.subscribed_topic_regex:
        names.append(f"^{member.subscribed_topic_regex}")
    return MemberDescription(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.instance_id,
        member_epoch=member.member_epoch,
        subscription=",".join(names),
        assigned=_partitions(member.assignment),
        target=_partitions(member.target_assignment),
        protocol="classic" if member.member_type == CLASSIC_MEMBER else "consumer",
    )


def _partitions(assignment: described.Assignment) -> tuple[NamedPartition, ...]:
    topics = assignment.topic_partitions
    return tuple(sorted(NamedPartition(topic.topic_name, number) for topic in topics for number in topic.partitions))
