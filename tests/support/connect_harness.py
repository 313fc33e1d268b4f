"""Workers of a connect group by hand: `ConnectHarness` adds their requests to `Harness`, with units written as text.

Units are text: ``"A"`` is (A, -1), ``"A/0"`` is (A, 0); a list of units may be one string with blanks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from kip848_client.common.model import Unit
from kip848_client.testing.coordinator.connect.connect_group import ConnectGroup
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.wire.messages.connect_group_describe import ConnectGroupDescribeRequest, DescribedGroup
from kip848_client.wire.messages.connect_group_heartbeat import (
    AssignedUnits,
    Assignment,
    Catalog,
    ClientAssignor,
    ConnectGroupHeartbeatRequest,
    ConnectGroupHeartbeatResponse,
    UnitsOfName,
)
from kip848_client.wire.messages.connect_group_install_assignment import ConnectGroupInstallAssignmentRequest, Member
from kip848_client.wire.messages.connect_group_prepare_assignment import (
    ConnectGroupPrepareAssignmentRequest,
    ConnectGroupPrepareAssignmentResponse,
)
from tests.support.coordinator_harness import Harness
from tests.support.coordinator_harness import offer as consumer_offer

CONNECT = CoordinatorConfig(
    protocols=("classic", "consumer", "connect"), connect_session_timeout_ms=45_000, connect_heartbeat_interval_ms=5_000
)
FIVE = "A A/0 A/1 B B/0"
"""AC0 AT1 AT2 BC0 BT1 of the draft's examples."""


def units(text: str) -> list[Unit]:
    """Read units from text."""
    found = []
    for word in text.split():
        name, _, index = word.partition("/")
        found.append(Unit(name, int(index) if index else -1))
    return sorted(found)


def on_wire(text: str | None) -> tuple[UnitsOfName, ...] | None:
    """Units for a request."""
    if text is None:
        return None
    by_name: dict[str, list[int]] = {}
    for unit in units(text):
        by_name.setdefault(unit.name, []).append(unit.index)
    return tuple(UnitsOfName(name=name, indexes=tuple(indexes)) for name, indexes in by_name.items())


def as_text(found: Iterable[UnitsOfName | AssignedUnits]) -> str:
    """Units of an answer as text."""
    return " ".join(str(Unit(item.name, index)) for item in found for index in item.indexes)


def told(response: ConnectGroupHeartbeatResponse) -> Assignment:
    """The assignment in an answer, which must have one."""
    assert response.assignment is not None, "the answer says nothing about the assignment"
    return response.assignment


def tokens(response: ConnectGroupHeartbeatResponse) -> dict[str, int]:
    """Unit -> token of the assignment in an answer, which must have one."""
    return {
        str(Unit(item.name, index)): epoch
        for item in told(response).assigned
        for index, epoch in zip(item.indexes, item.epochs, strict=True)
    }


def offer(name: str = "cooperative", **fields: Any) -> ClientAssignor:
    """A client-side assignor that a worker offers; *fields* as for the one of a consumer."""
    return msgspec.convert(consumer_offer(name, **fields), ClientAssignor, from_attributes=True)


@dataclass
class ConnectHarness(Harness):
    """See the module."""

    config: CoordinatorConfig = CONNECT

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        owned: str | None = None,
        catalogue: tuple[int, str] | None = None,
        assignor: str | None = None,
        offers: Iterable[ClientAssignor] | None = None,
        rebalance_timeout_ms: int = -1,
        instance: str | None = None,
        worker_id: str | None = None,
        worker_url: str | None = None,
        sequence: int = -1,
    ) -> ConnectGroupHeartbeatResponse:
        """Send a heartbeat with exactly these fields; what is not given is null."""
        return self.send(
            ConnectGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=member_id,
                member_epoch=epoch,
                instance_id=instance,
                worker_id=worker_id,
                worker_url=worker_url,
                rebalance_timeout_ms=rebalance_timeout_ms,
                server_assignor=assignor,
                client_assignors=None if offers is None else tuple(offers),
                catalog=None if catalogue is None else Catalog(offset=catalogue[0], units=on_wire(catalogue[1]) or ()),
                owned_units=on_wire(owned),
                sequence=sequence,
            ),
            version=0,
        )

    def enter(
        self, member_id: str, *, offers: Iterable[ClientAssignor] | None = None, **fields: Any
    ) -> ConnectGroupHeartbeatResponse:
        """Send the full heartbeat with epoch 0; *fields* as for `beat`."""
        assignor = "uniform" if offers is None else None
        return self.beat(
            member_id, 0, owned="", assignor=assignor, offers=offers, rebalance_timeout_ms=60_000, **fields
        )

    def prepare(self, member_id: str, epoch: int) -> ConnectGroupPrepareAssignmentResponse:
        """Ask for the state of the group."""
        message = ConnectGroupPrepareAssignmentRequest(self.group_id, member_id, epoch)
        return self.send(message, version=0)

    def install(
        self,
        member_id: str,
        epoch: int,
        group_epoch: int,
        parts: Mapping[str, str] | None = None,
        *,
        deferred: str = "",
        error: int = 0,
        **members: str,
    ) -> int:
        """Hand in an assignment, member id -> units, as mapping or by name; the error code of the answer."""
        message = ConnectGroupInstallAssignmentRequest(
            self.group_id,
            member_id,
            epoch,
            group_epoch,
            error,
            tuple(Member(one, on_wire(text) or ()) for one, text in {**(parts or {}), **members}.items()),
            on_wire(deferred) or (),
        )
        return self.send(message, version=0).error_code

    def described(self) -> DescribedGroup:
        """What ConnectGroupDescribe says of the group."""
        return self.send(ConnectGroupDescribeRequest(group_ids=(self.group_id,)), version=0).groups[0]

    @property
    def connect(self) -> ConnectGroup:
        """The group, which must exist."""
        group = self.coordinator.find(ConnectGroup, self.group_id)
        assert group is not None, f"there is no connect group {self.group_id!r}"
        return group

    def runs(self, member_id: str) -> str:
        """The units that a worker may run, as text."""
        held = self.connect.members[member_id].current.assigned
        return " ".join(str(Unit(name, index)) for name in sorted(held) for index in sorted(held[name]))
