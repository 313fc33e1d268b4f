"""Workers of Kafka Connect on the classic protocol, as values: their decoded metadata, and their assignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from kip848_client.testing.coordinator.connect.connect_group import ConnectGroup, GroupWorker, WorkerMetadata
from kip848_client.testing.coordinator.modern.member_record import (
    ClassicProtocols,
    ClientAssignor,
    Held,
    SharedMetadata,
)
from kip848_client.wire.messages.classic_connect_protocol import (
    PROTOCOL_VERSIONS,
    ClassicAssignment,
    ClassicWorker,
    ConnectorTasks,
    decode_classic_assignment,
    encode_classic,
)

Running = dict[str, frozenset[int]]
"""Name -> indexes of units that run."""

_ASSIGNOR_OF: Final[Mapping[str, str]] = {
    "default": "eager",
    "compatible": "cooperative",
    "sessioned": "cooperative",
}
"""Protocol -> the client-side assignor that does the same."""


def classic_metadata(said: ClassicWorker, common: SharedMetadata, *, told_offset: int) -> WorkerMetadata:
    """The metadata of a worker on the classic protocol; its host and port are its name."""
    assert common.classic is not None
    names = dict.fromkeys(_ASSIGNOR_OF[name] for name, _ in common.classic.protocols if name in _ASSIGNOR_OF)
    return WorkerMetadata(
        instance_id=common.instance_id,
        client_id=common.client_id,
        client_host=common.client_host,
        rebalance_timeout_ms=common.rebalance_timeout_ms,
        client_assignors=tuple(
            ClientAssignor(name, minimum_version=-1, maximum_version=-1, metadata_version=-1) for name in names
        ),
        classic=common.classic,
        worker_id=urlsplit(said.url).netloc or None,
        worker_url=said.url or None,
        told_offset=told_offset,
    )


def protocol_of(group: ConnectGroup, classic: ClassicProtocols) -> str:
    """The first protocol of a worker that all workers on the classic protocol offer."""
    return next(
        (name for name, _ in classic.protocols if group.classic_protocols.get(name) == group.classic_count),
        classic.protocols[0][0],
    )


def classic_bytes(group: ConnectGroup, classic: ClassicProtocols) -> bytes:
    """A worker's metadata, in the protocol that the group uses."""
    protocol = protocol_of(group, classic)
    return next(data for name, data in classic.protocols if name == protocol)


def version_of(protocol: str) -> int:
    """The version of the bytes of a protocol; an unknown one is read as the oldest."""
    return PROTOCOL_VERSIONS.get(protocol, 0)


def allocation_of(said: ClassicWorker) -> Running:
    """Units that a worker ran when it joined. A worker with the protocol `default` has stopped everything by then.

    Raises:
        ProtocolError: its allocation cannot be read.
    """
    if not said.allocation:
        return {}
    allocation = decode_classic_assignment(said.allocation)
    return without(units_of(allocation.assigned), units_of(allocation.revoked))


def assignment_bytes(
    group: ConnectGroup,
    assigned: Held[str] | Mapping[str, Iterable[int]],
    *,
    said: ClassicWorker,
    protocol: str,
    offset: int,
) -> bytes:
    """A worker's assignment, encoded: with `compatible` and `sessioned` only the changes to the units that it runs.

    Args:
        said: its metadata, with what it runs.
        offset: of the catalogue. A worker whose configuration is of another offset joins again until they are equal.
    """
    version = version_of(protocol)
    wanted = {name: frozenset(indexes) for name, indexes in assigned.items()}
    owned = allocation_of(said) if version else {}
    leader = _leader(group)
    return encode_classic(
        ClassicAssignment(
            leader=leader.member_id,
            leader_url=leader.metadata.worker_url or "",
            config_offset=offset,
            assigned=_on_wire(without(wanted, owned)),
            revoked=_on_wire(without(owned, wanted)),
        ),
        version=version,
    )


def units_of(connectors: Iterable[ConnectorTasks] | None) -> Running:
    """Units by name."""
    found: dict[str, set[int]] = {}
    for item in connectors or ():
        found.setdefault(item.connector, set()).update(item.tasks)
    return {name: frozenset(indexes) for name, indexes in found.items()}


def without(units: Mapping[str, frozenset[int]], others: Mapping[str, frozenset[int]]) -> Running:
    """Units that are not in *others*."""
    left = {name: indexes - others.get(name, frozenset()) for name, indexes in units.items()}
    return {name: indexes for name, indexes in left.items() if indexes}


def _leader(group: ConnectGroup) -> GroupWorker:
    """The worker to which classic ones forward what only a leader may do: one on the new protocol, if there is one."""
    ids = group.sorted_member_ids
    native = [member_id for member_id in ids if group.members[member_id].metadata.classic is None]
    return group.members[group.last_installer if group.last_installer in native else (native or ids)[0]]


def _on_wire(units: Mapping[str, frozenset[int]]) -> tuple[ConnectorTasks, ...]:
    return tuple(ConnectorTasks(name, tuple(sorted(units[name]))) for name in sorted(units))
