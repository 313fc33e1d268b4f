"""Groups of workers, of both protocols: who runs which unit, since when, with which token.

Workers of a classic group tell each other in JoinGroup and SyncGroup what an administrator wants to know, and
DescribeGroups repeats it. Only the newest tokens are asked for elsewhere: they are epochs of transactional ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from kip848_client.admin.cluster import TRANSACTION, AdminCall
from kip848_client.admin.results import (
    TransactionDescription,
    UnitDescription,
    WorkerDescription,
    WorkerGroupDescription,
)
from kip848_client.admin.transactions import describe_at
from kip848_client.common.model import Unit
from kip848_client.errors import Kip848Error
from kip848_client.wire.messages import connect_group_describe, describe_groups
from kip848_client.worker.classic.classic_messages import Claim, Given, from_pairs, token_of, transactional_id

ValueT = TypeVar("ValueT", Claim, Given)


def connect_workers(group: connect_group_describe.DescribedGroup) -> WorkerGroupDescription:
    """A connect group."""
    names = {member.member_id: member.worker_id or member.member_id for member in group.members}
    owners: dict[Unit, tuple[str, int]] = {}
    targets: dict[Unit, str] = {}
    for member in group.members:
        name = names[member.member_id]
        for held in member.assigned:
            for index, token in zip(held.indexes, held.epochs, strict=True):
                owners[Unit(held.name, index)] = name, token
        targets |= {Unit(wanted.name, index): name for wanted in member.target for index in wanted.indexes}
    deferred = {Unit(item.name, index) for item in group.deferred for index in item.indexes}
    return WorkerGroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.assignor_name,
        catalog_offset=group.catalog_offset,
        workers=tuple(
            WorkerDescription(
                worker_id=names[member.member_id],
                client_id=member.client_id,
                client_host=member.client_host,
                member_id=member.member_id,
                instance_id=member.instance_id,
                member_epoch=member.member_epoch,
                state=member.state,
            )
            for member in group.members
        ),
        units=tuple(
            UnitDescription(
                unit=str(unit),
                owner=owners[unit][0] if unit in owners else None,
                token=owners[unit][1] if unit in owners else None,
                target=targets.get(unit),
                deferred=unit in deferred,
            )
            for unit in sorted(owners.keys() | targets.keys() | deferred)
        ),
        type="connect",
    )


def classic_workers(group: describe_groups.DescribedGroup) -> WorkerGroupDescription:
    """A classic group of workers. While it rebalances, brokers name its members and nothing else."""
    claims = {member.member_id: _read(member.member_metadata, Claim) for member in group.members}
    owners: dict[Unit, UnitDescription] = {}
    targets: dict[Unit, str] = {}
    workers = []
    for member in sorted(group.members, key=lambda member: (claims[member.member_id].worker_id, member.member_id)):
        claim, given = claims[member.member_id], _read(member.member_assignment, Given)
        name = claim.worker_id or member.member_id
        since = dict(zip(from_pairs(claim.running), claim.since, strict=False))
        tokens = dict(zip(from_pairs(claim.running), claim.tokens, strict=False))
        for unit in {*from_pairs(given.assigned), *from_pairs(claim.running)}:
            began_ms = since.get(unit, given.planned_ms) or None
            owners[unit] = UnitDescription(str(unit), name, tokens.get(unit) or None, None, False, since_ms=began_ms)
        targets |= dict.fromkeys(from_pairs([*given.assigned, *given.pending]), name)
        workers.append(
            WorkerDescription(
                worker_id=name,
                client_id=member.client_id,
                client_host=member.client_host,
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                member_epoch=None,
                state="draining" if claim.draining or given.drain else "",
            )
        )
    newest = max(claims.values(), key=lambda claim: (claim.version, claim.generation), default=Claim())
    units = sorted({*from_pairs(newest.units), *owners})
    is_known = any(claim.worker_id for claim in claims.values())
    return WorkerGroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        group_epoch=None,
        assignment_epoch=None,
        assignor=group.protocol_data,
        catalog_offset=newest.version if is_known else -1,
        workers=tuple(workers),
        units=tuple(
            msgspec.structs.replace(
                owners.get(unit) or UnitDescription(str(unit), None, None, None, False),
                target=targets.get(unit),
                deferred=unit not in targets,
            )
            for unit in units
        ),
        type="classic",
    )


async def with_tokens(
    call: AdminCall, groups: Mapping[str, WorkerGroupDescription]
) -> Mapping[str, WorkerGroupDescription]:
    """The same groups with the tokens of units that have moved since their owner joined; left out if not known."""
    wanted = {
        transactional_id(group_id, unit.unit): (group_id, unit.unit)
        for group_id, group in groups.items()
        if group.type == "classic"
        for unit in group.units
        if unit.owner is not None and unit.token is None
    }
    if not wanted:
        return groups
    try:
        answers: Mapping[str, TransactionDescription | Kip848Error] = await call.at_coordinators(
            wanted, describe_at, of=TRANSACTION
        )
    except Kip848Error:
        return groups
    tokens = {
        wanted[name]: token_of(answer.producer_id, answer.producer_epoch)
        for name, answer in answers.items()
        if isinstance(answer, TransactionDescription)
    }
    return {
        group_id: msgspec.structs.replace(
            group,
            units=tuple(
                msgspec.structs.replace(unit, token=unit.token or tokens.get((group_id, unit.unit)))
                for unit in group.units
            ),
        )
        for group_id, group in groups.items()
    }


def _read(data: bytes, kind: type[ValueT]) -> ValueT:
    """What a worker wrote; an empty value while the group rebalances, or if another program wrote it."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.MsgspecError:
        return kind()
