"""The target of a group: chooses the assignor, builds its input, checks the result, and finds what changed."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kip848_client.assignors.server.server_assignors import SERVER_ASSIGNORS
from kip848_client.assignors.server.spec import GroupSpec, ServerAssignor, TargetAssignment
from kip848_client.errors import ErrorCode, join_names
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.testing.coordinator.consumer.consumer_member import ConsumerMember, ConsumerMetadata
from kip848_client.testing.coordinator.consumer.subscriptions import Subscriptions
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.modern.assignor_votes import choose_name


class ComputedTarget(msgspec.Struct, frozen=True):
    """A target that was computed and is not yet installed.

    Args:
        assignment: of every member.
        changed: ids of members whose target differs, or that had none or one of a client-side assignor, ascending.
    """

    assignor_name: str
    assignment: TargetAssignment
    changed: tuple[str, ...]


def choose_assignor(
    group: ConsumerGroup,
    *,
    assignors: Mapping[str, ServerAssignor],
    old: ConsumerMetadata | None = None,
    new: ConsumerMetadata | None = None,
) -> ServerAssignor:
    """The server-side assignor of a consumer group; arguments and choice as of `choose_name`."""
    return assignors[choose_name(group, names=tuple(assignors), old=old, new=new)]


def compute_target(
    state: CoordinatorState, group: ConsumerGroup, *, member: ConsumerMember, replaced: ConsumerMember | None
) -> ComputedTarget:
    """Compute the target with *member* as it will be.

    Args:
        replaced: a static member whose place *member* takes; its target is what *member* starts from.

    Raises:
        Refused: UNKNOWN_SERVER_ERROR; the assignor failed.
    """
    member_ids = list(group.sorted_member_ids)
    target = group.target
    if replaced is not None:
        member_ids.remove(replaced.member_id)
        target = dict(target)
        target[member.member_id] = target.pop(replaced.member_id, {})
    if member.member_id not in group.members:
        member_ids.append(member.member_id)
        member_ids.sort()
    updated_id = member.member_id
    known_topics = state.part(Subscriptions)
    known = {**known_topics.of_group(group), updated_id: known_topics.of_member(group, member.metadata)}
    spec = GroupSpec(
        subscriptions={member_id: known[member_id] for member_id in member_ids},
        topics=state.image.partition_counts,
        target=target,
        instance_ids=_instance_ids(group, member=member, replaced=replaced),
        rack_ids=_rack_ids(group, member=member, replaced=replaced),
        partition_racks=state.image.partition_racks,
    )
    counted = replaced or group.members.get(updated_id)
    before = None if counted is None else counted.metadata
    assignor = choose_assignor(group, assignors=state.assignors, old=before, new=member.metadata)
    assignment = _run(assignor, spec)
    changed = [
        member_id
        for member_id in member_ids
        if (new := assignment[member_id]) is not (old := target.get(member_id)) and new != old
    ]
    if group.target_metadata:
        # A client-side assignor computed the target before; its metadata for the members ends with it.
        renamed = {} if replaced is None else {replaced.member_id: updated_id}
        told = {renamed.get(member_id, member_id) for member_id in group.target_metadata}
        changed = sorted({*changed, *told})
    return ComputedTarget(assignor_name=assignor.name, assignment=assignment, changed=tuple(changed))


def _instance_ids(
    group: ConsumerGroup, *, member: ConsumerMember, replaced: ConsumerMember | None
) -> Mapping[str, str]:
    instance_ids = {member_id: instance_id for instance_id, member_id in group.static_members.items()}
    if replaced is not None:
        instance_ids.pop(replaced.member_id, None)
    if member.metadata.instance_id is not None:
        instance_ids[member.member_id] = member.metadata.instance_id
    return instance_ids


def _rack_ids(group: ConsumerGroup, *, member: ConsumerMember, replaced: ConsumerMember | None) -> Mapping[str, str]:
    rack_ids = dict(group.rack_ids)
    if replaced is not None:
        rack_ids.pop(replaced.member_id, None)
    if member.metadata.rack_id is not None:
        rack_ids[member.member_id] = member.metadata.rack_id
    return rack_ids


def _run(assignor: ServerAssignor, spec: GroupSpec) -> TargetAssignment:
    try:
        assignment = assignor.assign(spec)
        if SERVER_ASSIGNORS.get(assignor.name) is not assignor:
            check_assignment(spec, assignment)
    except Exception as error:  # an assignor may be user code
        raise Refused(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Failed to compute a new target assignment: {error!r}",
        ) from error
    return assignment


def check_assignment(spec: GroupSpec, assignment: TargetAssignment) -> None:
    """Refuse an assignment that is not a legal target of *spec*. A partition may be left unassigned.

    Raises:
        ValueError: members differ, a topic is not subscribed, a partition does not exist, is out of order, or is given
            twice.
    """
    if assignment.keys() != spec.subscriptions.keys():
        known, assigned = spec.subscriptions.keys(), assignment.keys()
        without, strange = join_names(sorted(known - assigned)), join_names(sorted(assigned - known))
        raise ValueError(
            f"members without an assignment: {without or 'none'}; assigned to strangers: {strange or 'none'}"
        )
    taken: set[tuple[object, int]] = set()
    for member_id, partitions in assignment.items():
        for topic_id, numbers in partitions.items():
            if topic_id not in spec.subscriptions[member_id]:
                raise ValueError(f"member {member_id!r} was given topic {topic_id}, which it does not subscribe to")
            if not numbers or list(numbers) != sorted(set(numbers)):
                raise ValueError(f"partitions of {topic_id} for {member_id!r} must be ascending, got {numbers}")
            if numbers[0] < 0 or numbers[-1] >= spec.topics[topic_id]:
                raise ValueError(f"topic {topic_id} has {spec.topics[topic_id]} partitions, got {numbers}")
            for number in numbers:
                if (topic_id, number) in taken:
                    raise ValueError(f"partition {number} of {topic_id} was given twice")
                taken.add((topic_id, number))
