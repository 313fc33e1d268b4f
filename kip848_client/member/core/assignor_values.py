"""Converts wire messages to the arguments of a `PartitionAssignor` and back, and makes the guarded calls. Pure.

Runs where the user's code runs: in the shell's assignor thread, or on a simulation's virtual clock. Converting and
checking a group of ten thousand members takes time, so none of this runs on the heartbeat thread.

Does not own: threads and limits, requests and their order (`assignor_round`).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from uuid import UUID

from kip848_client.assignors.client.check import checked
from kip848_client.assignors.client.interface import (
    ASSIGNMENT_INVALID,
    ASSIGNOR_RAISED,
    METADATA_BYTES_MAX,
    AssignmentSpec,
    AssignorMetadata,
    GroupAssignment,
    MemberAssignment,
    MemberSpec,
    PartitionAssignor,
    TopicSpec,
)
from kip848_client.common.model import TopicIdPartition
from kip848_client.errors import ClientAssignorError, InvalidAssignmentError
from kip848_client.member.core.assignor_events import AssignorDone, CallOnAssignment, RunAssignor
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor
from kip848_client.wire.messages.consumer_group_install_assignment import Member as InstallMember
from kip848_client.wire.messages.consumer_group_install_assignment import TopicPartition as InstallPartitions
from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentResponse,
    Member,
)


def advertised(assignor: PartitionAssignor) -> Assignor:
    """Call ``metadata()`` and convert its result for a heartbeat.

    Raises:
        ClientAssignorError: it raised, or returned what cannot be sent.
    """
    try:
        told: object = assignor.metadata()
    except BaseException as error:
        raise _raised(assignor, "metadata()", error) from error
    if not isinstance(told, AssignorMetadata):
        text = (
            f"metadata() of the client-side assignor {assignor.name!r} returned {type(told).__name__}; it must be an "
        )
        raise ClientAssignorError(f"{text}AssignorMetadata", assignor=assignor.name)
    if not assignor.minimum_version <= told.version <= assignor.maximum_version:
        raise ClientAssignorError(
            f"metadata() of the client-side assignor {assignor.name!r} returned version {told.version}; the assignor "
            f"understands {assignor.minimum_version} to {assignor.maximum_version}",
            assignor=assignor.name,
        )
    if len(told.metadata) > METADATA_BYTES_MAX:
        raise ClientAssignorError(
            f"metadata() of the client-side assignor {assignor.name!r} returned {len(told.metadata):,} bytes; at most "
            f"{METADATA_BYTES_MAX:,} are sent, because the coordinator keeps the metadata of all members: send what "
            "the assignor needs to know of this member, and keep the rest elsewhere",
            assignor=assignor.name,
        )
    return Assignor(
        name=assignor.name,
        minimum_version=assignor.minimum_version,
        maximum_version=assignor.maximum_version,
        reason=told.reason,
        metadata_version=told.version,
        metadata_bytes=told.metadata,
    )


def undescribed(assignor: PartitionAssignor) -> Assignor:
    """The description of an assignor before the first call of ``metadata()``."""
    version = assignor.maximum_version
    return Assignor(
        assignor.name, assignor.minimum_version, version, reason=0, metadata_version=version, metadata_bytes=b""
    )


def compute(
    assignors: Iterable[PartitionAssignor], call: RunAssignor
) -> tuple[AssignorDone, ClientAssignorError | None]:
    """Call ``assign()`` of the requested assignor, and check its result.

    Returns:
        The event for the member, and the error, if there was one.
    """
    name = call.snapshot.assignor_name
    assignor = next(assignor for assignor in assignors if assignor.name == name)
    spec = spec_of(call.snapshot, call.racks)
    try:
        result: object = assignor.assign(spec)
    except BaseException as error:  # noqa: BLE001  the group must hear of any error
        failure = _raised(assignor, "assign()", error)
        failure.__cause__ = error
        return AssignorDone(call.call_id, error=ASSIGNOR_RAISED), failure
    try:
        assignment = checked(spec, result, assignor=name)
    except InvalidAssignmentError as error:
        return AssignorDone(call.call_id, error=ASSIGNMENT_INVALID), error
    except BaseException as error:  # noqa: BLE001  a lazy collection of partitions that raises
        failure = _raised(assignor, "the result of assign()", error)
        failure.__cause__ = error
        return AssignorDone(call.call_id, error=ASSIGNOR_RAISED), failure
    if assignment.error:
        text = (
            f"assign() of the client-side assignor {name!r} returned error {assignment.error}; every member keeps what "
            "it has, and the assignor is called again later"
        )
        return AssignorDone(call.call_id, error=assignment.error), ClientAssignorError(text, assignor=name)
    return AssignorDone(call.call_id, install_members(assignment)), None


def announce(assignors: Iterable[PartitionAssignor], call: CallOnAssignment) -> list[ClientAssignorError]:
    """Call ``on_assignment()`` of the assignor that computed the target, or of all. Returns the errors."""
    failures = []
    assignment = MemberAssignment(call.partitions, call.metadata, call.version)
    for assignor in assignors:
        if call.assignor_name in ("", assignor.name):
            try:
                assignor.on_assignment(call.error, assignment, call.group_metadata)
            except BaseException as error:  # noqa: BLE001  it has no say in what happens next
                failure = _raised(assignor, "on_assignment()", error)
                failure.__cause__ = error
                failures.append(failure)
    return failures


def _raised(assignor: PartitionAssignor, what: str, error: BaseException) -> ClientAssignorError:
    text = f"{what} of the client-side assignor {assignor.name!r} raised {type(error).__name__}: {error}"
    return ClientAssignorError(text, assignor=assignor.name)


# --- values


def spec_of(
    snapshot: ConsumerGroupPrepareAssignmentResponse,
    racks: Mapping[UUID, tuple[frozenset[str], ...]] = MappingProxyType({}),
) -> AssignmentSpec:
    """The group of an answer to Prepare. Targets in topics that are gone are left out."""
    topics = {
        topic.topic_id: TopicSpec(topic.topic_id, topic.topic_name, topic.num_partitions, racks.get(topic.topic_id, ()))
        for topic in snapshot.topics
    }
    subscriptions: dict[tuple[UUID, ...], tuple[str, ...]] = {}
    members: dict[str, MemberSpec] = {}
    for member in sorted(snapshot.members, key=lambda each: each.member_id):
        subscribed = subscriptions.get(member.subscribed_topic_ids)
        if subscribed is None:
            ids = member.subscribed_topic_ids
            subscribed = tuple(sorted(topics[topic_id].name for topic_id in ids if topic_id in topics))
            subscriptions[ids] = subscribed
        members[member.member_id] = MemberSpec(
            member_id=member.member_id,
            subscribed_topics=subscribed,
            metadata=member.assignor.metadata_bytes,
            version=member.assignor.metadata_version,
            reason=member.assignor.reason,
            target=_target(member, topics),
            member_epoch=member.member_epoch,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
        )
    by_name = sorted(topics.values(), key=lambda topic: topic.name)
    return AssignmentSpec(snapshot.group_epoch, members, {topic.name: topic for topic in by_name})


def _target(member: Member, topics: Mapping[UUID, TopicSpec]) -> tuple[TopicIdPartition, ...]:
    return tuple(
        sorted(
            TopicIdPartition(topic.name, index, topic.topic_id)
            for held in member.topic_partitions
            if (topic := topics.get(held.topic_id)) is not None
            for index in held.partitions
        )
    )


def install_members(assignment: GroupAssignment) -> tuple[InstallMember, ...]:
    """The members of an Install request, from an assignment that `checked` returned; by member id."""
    return tuple(
        InstallMember(member_id, _install_partitions(member), member.version, member.metadata)
        for member_id, member in sorted(assignment.members.items())
    )


def _install_partitions(member: MemberAssignment) -> tuple[InstallPartitions, ...]:
    """Group a member's partitions by topic id. `checked` sorted them by topic, so each topic is one run."""
    topics: list[InstallPartitions] = []
    for _, run in itertools.groupby(member.partitions, key=operator.attrgetter("topic")):
        partitions = tuple(run)
        first = partitions[0]
        assert isinstance(first, TopicIdPartition)
        topics.append(InstallPartitions(first.topic_id, tuple(map(operator.attrgetter("partition"), partitions))))
    return tuple(sorted(topics, key=operator.attrgetter("topic_id.int")))
