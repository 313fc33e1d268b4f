"""Checks of a ConnectGroupHeartbeat that need no state."""

from __future__ import annotations

import msgspec

from kip848_client.assignors.units.unit_plans import UNIT_PLANS
from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.connect.catalogue import Catalogue, read_units
from kip848_client.testing.coordinator.core.refusal import Refused, invalid_request
from kip848_client.testing.coordinator.modern.client_assignors import read_offers
from kip848_client.testing.coordinator.modern.current_assignment import Owned
from kip848_client.testing.coordinator.modern.member_record import JOIN_EPOCH, STATIC_LEAVE_EPOCH, ClientAssignor
from kip848_client.wire.messages.connect_group_heartbeat import ConnectGroupHeartbeatRequest


class ReadHeartbeat(msgspec.Struct, frozen=True):
    """The parts of a heartbeat that need checking, as values; None where the worker says nothing."""

    owned: Owned[str] | None
    catalogue: Catalogue | None
    offers: tuple[ClientAssignor, ...] | None


def read_heartbeat(message: ConnectGroupHeartbeatRequest, *, bytes_max: int) -> ReadHeartbeat:
    """Refuse what the protocol does not allow.

    Args:
        bytes_max: of the names and metadata of client-side assignors.

    Raises:
        Refused: INVALID_REQUEST, or UNSUPPORTED_ASSIGNOR for an assignor that the coordinator does not have.
    """
    epoch = message.member_epoch
    if not message.group_id.strip():
        raise invalid_request("GroupId can't be empty.")
    if not message.member_id.strip():
        raise invalid_request("MemberId can't be empty.")
    for name, text in (("InstanceId", message.instance_id), ("WorkerId", message.worker_id)):
        if text is not None and not text.strip():
            raise invalid_request(f"{name} can't be empty.")
    if epoch < STATIC_LEAVE_EPOCH:
        raise invalid_request(f"MemberEpoch is invalid: {epoch}.")
    if epoch == STATIC_LEAVE_EPOCH and message.instance_id is None:
        raise invalid_request("InstanceId can't be null when a static worker leaves for a while (epoch -2).")
    if epoch == JOIN_EPOCH:
        if message.owned_units is None or message.owned_units:
            raise invalid_request("OwnedUnits must be empty when (re-)joining.")
        if message.server_assignor is None and message.client_assignors is None:
            raise invalid_request("Either ServerAssignor or ClientAssignors must be given when (re-)joining.")
    if not (message.rebalance_timeout_ms > 0 or (message.rebalance_timeout_ms == -1 and epoch != JOIN_EPOCH)):
        raise invalid_request(f"RebalanceTimeoutMs must be above 0: {message.rebalance_timeout_ms}.")
    if message.server_assignor and message.client_assignors:
        raise invalid_request("ServerAssignor and ClientAssignors can't be used together.")
    if message.server_assignor and message.server_assignor not in UNIT_PLANS:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {message.server_assignor} is not supported. Supported assignors: {', '.join(UNIT_PLANS)}.",
        )
    return ReadHeartbeat(
        owned=None
        if message.owned_units is None
        else {
            name: frozenset(indexes) for name, indexes in read_units(message.owned_units, field="OwnedUnits").items()
        },
        catalogue=_catalogue(message),
        offers=_offers(message, bytes_max=bytes_max),
    )


def _catalogue(message: ConnectGroupHeartbeatRequest) -> Catalogue | None:
    catalogue = message.catalog
    if catalogue is None:
        return None
    if catalogue.offset < 0:
        raise invalid_request(f"Catalog: the offset must be 0 or more, got {catalogue.offset}.")
    return Catalogue(catalogue.offset, read_units(catalogue.units, field="Catalog"))


def _offers(message: ConnectGroupHeartbeatRequest, *, bytes_max: int) -> tuple[ClientAssignor, ...] | None:
    if message.client_assignors is not None:
        return read_offers(message.client_assignors, bytes_max=bytes_max)
    return () if message.member_epoch == JOIN_EPOCH else None
