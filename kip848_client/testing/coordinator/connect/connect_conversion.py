"""Online migration of workers: a classic group of Kafka Connect becomes a connect group, and back.

Upgrade: a worker joins a classic group of protocol type ``connect`` with ConnectGroupHeartbeat. The present workers
keep the units that they run. Downgrade: the last worker on the new protocol goes, and only classic ones are left; then
they rebalance at once, and their leader plans from what each of them runs.

Source: KIP-848 "Supporting Online Consumer Group Upgrade", applied to the bytes of KIP-415.
"""

from __future__ import annotations

from collections.abc import Iterable

from kip848_client.errors import ProtocolError
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup, ClassicMember
from kip848_client.testing.coordinator.classic.rebalance import ClassicOutcome
from kip848_client.testing.coordinator.connect import connect_records
from kip848_client.testing.coordinator.connect.catalogue import Units
from kip848_client.testing.coordinator.connect.classic_workers import (
    Running,
    allocation_of,
    assignment_bytes,
    classic_metadata,
    units_of,
    version_of,
    without,
)
from kip848_client.testing.coordinator.connect.connect_group import ConnectGroup, GroupWorker
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.migration.conversion import (
    cannot_upgrade,
    check_upgrade,
    downgraded_member,
    end_classic_group,
    protocols_of,
    shared_metadata,
    start_classic_group,
)
from kip848_client.testing.coordinator.modern.member_record import Current, Held, MemberRecord
from kip848_client.wire.messages.classic_connect_protocol import (
    CONNECT_PROTOCOL,
    ClassicAssignment,
    ClassicWorker,
    decode_classic_assignment,
    decode_classic_worker,
)
from kip848_client.wire.messages.group_records import GroupRecord


def upgrade(
    state: CoordinatorState,
    classic: ClassicGroup,
    batch: Batch,
    *,
    now_ms: int,
    wall_ms: int,
) -> ConnectGroup:
    """Turn a classic group of workers into a connect group.

    Its epoch is the generation. Every worker is at that epoch and keeps the units that it runs. Requests that are
    parked are answered REBALANCE_IN_PROGRESS.

    Args:
        batch: takes the records, timers and answers.

    Returns:
        The group as the records make it, for the join that follows, which brings the catalogue.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, the group cannot be converted; COORDINATOR_LOAD_IN_PROGRESS, it has no generation
            yet, and the worker tries again. Nothing changed.
    """
    size_max = state.config.connect_max_size
    check_upgrade(state, classic, kind="connect", protocol_type=CONNECT_PROTOCOL, size_max=size_max)
    group_id, epoch = classic.group_id, classic.generation
    members = _upgraded_members(classic)
    written: list[GroupRecord] = [
        connect_records.worker_record(group_id, member_id=member.member_id, metadata=member.metadata)
        for member in members
    ]
    written.append(connect_records.group_record(group_id, epoch=epoch))
    written += [
        connect_records.target_record(group_id, member_id=member.member_id, target=_target(member.current))
        for member in members
    ]
    written.append(connect_records.target_epoch_record(group_id, epoch=epoch))
    written += [
        connect_records.current_record(group_id, member_id=member.member_id, current=member.current)
        for member in members
    ]
    group = ConnectGroup(group_id)
    for record in written:
        group.replay(record.key, record.value)
    end_classic_group(state, classic, group, batch, written=written, now_ms=now_ms, wall_ms=wall_ms)
    return group


def downgrade(
    state: CoordinatorState,
    group: ConnectGroup,
    batch: Batch,
    *,
    members: Iterable[GroupWorker],
    now_ms: int,
    wall_ms: int,
) -> ClassicOutcome:
    """Turn a connect group into a classic one of *members*; the caller lets them join again.

    Workers keep the units that they have; deferred units and the state of the assignor are lost.
    """
    return start_classic_group(
        state,
        group,
        batch,
        members=[_downgraded_member(group, member) for member in members],
        protocol_type=CONNECT_PROTOCOL,
        now_ms=now_ms,
        wall_ms=wall_ms,
    )


def _upgraded_members(classic: ClassicGroup) -> list[GroupWorker]:
    taken: Running = {}
    members = {}
    for member_id in sorted(classic.members):
        member = classic.members[member_id]
        # A worker that joined after the vote need not offer the chosen protocol.
        name, data = next((one for one in member.protocols if one[0] == classic.protocol), member.protocols[0])
        try:
            said = decode_classic_worker(data)
            given = decode_classic_assignment(member.assignment) if member.assignment else ClassicAssignment()
            running = units_of(given.assigned)
            if version_of(name):
                kept = without(allocation_of(said), units_of(given.revoked))
                running = {one: running.get(one, frozenset()) | kept.get(one, frozenset()) for one in running | kept}
        except ProtocolError as error:
            why = f"the bytes of member {member_id} cannot be read: {error}"
            raise cannot_upgrade(classic, why, kind="connect") from None
        free = without(running, taken)
        taken = {one: taken.get(one, frozenset()) | free.get(one, frozenset()) for one in taken | free}
        members[member_id] = _upgraded_member(classic, member, said, given, free)
    return [members[member_id] for member_id in classic.members]


def _upgraded_member(
    classic: ClassicGroup, member: ClassicMember, said: ClassicWorker, given: ClassicAssignment, running: Running
) -> GroupWorker:
    assigned: Held[str] = {name: dict.fromkeys(sorted(found), classic.generation) for name, found in running.items()}
    metadata = classic_metadata(said, shared_metadata(member), told_offset=given.config_offset)
    return MemberRecord(member.member_id, metadata, Current(classic.generation, classic.generation, assigned=assigned))


def _downgraded_member(group: ConnectGroup, member: GroupWorker) -> ClassicMember:
    """The worker, with its whole target for the protocol `default`; for the others with an increment of nothing."""
    protocol, data = protocols_of(member).protocols[0]
    said = decode_classic_worker(data)
    held = allocation_of(said) if version_of(protocol) else group.target_of(member.member_id)
    assignment = assignment_bytes(group, held, said=said, protocol=protocol, offset=group.catalogue.offset)
    return downgraded_member(member, assignment=assignment)


def _target(current: Current[str]) -> Units:
    return {name: tuple(sorted(held)) for name, held in current.assigned.items()}
