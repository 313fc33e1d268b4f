"""A connect group with workers on the classic protocol: their decoded metadata, and their assignments."""

from __future__ import annotations

from typing import ClassVar

from kip848_client.testing.coordinator.classic.classic_group import Parked
from kip848_client.testing.coordinator.classic.rebalance import ClassicOutcome
from kip848_client.testing.coordinator.connect.classic_workers import (
    allocation_of,
    assignment_bytes,
    classic_bytes,
    classic_metadata,
    protocol_of,
)
from kip848_client.testing.coordinator.connect.connect_conversion import downgrade
from kip848_client.testing.coordinator.connect.connect_group import ConnectGroup, GroupWorker, WorkerMetadata
from kip848_client.testing.coordinator.connect.worker_steps import WorkerSteps
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.migration.mixed_group import MixedGroup
from kip848_client.testing.coordinator.modern.member_lookup import Found
from kip848_client.testing.coordinator.modern.member_record import ClassicProtocols, SharedMetadata
from kip848_client.wire.messages.classic_connect_protocol import (
    CONNECT_PROTOCOL,
    ClassicWorker,
    decode_classic_worker,
)
from kip848_client.wire.messages.join_group import JoinGroupRequest


class MixedConnectGroup(MixedGroup[str, WorkerMetadata, ClassicWorker]):
    """See the module."""

    protocol_type: ClassVar[str] = CONNECT_PROTOCOL

    def __init__(self, state: CoordinatorState, group: ConnectGroup) -> None:
        super().__init__(state, group)
        self._group = group

    @property
    def size_max(self) -> int:
        """``group.connect.max.size``."""
        return self.state.config.connect_max_size

    def read(self, message: JoinGroupRequest) -> ClassicWorker:
        """The metadata of the protocol that the worker will use."""
        protocols = tuple([(protocol.name, bytes(protocol.metadata)) for protocol in message.protocols])
        classic = ClassicProtocols(message.session_timeout_ms, protocols)
        said = decode_classic_worker(classic_bytes(self._group, classic))
        allocation_of(said)  # that it can be read, too
        return said

    def metadata(self, said: ClassicWorker, common: SharedMetadata) -> WorkerMetadata:
        """The worker, with the current offset of the catalogue."""
        return classic_metadata(said, common, told_offset=self._group.catalogue.offset)

    def take_steps(
        self,
        request: ApiRequest,
        batch: Batch,
        found: Found[str, WorkerMetadata],
        metadata: WorkerMetadata,
        said: ClassicWorker,
        *,
        is_join: bool,
        now_ms: int,
    ) -> GroupWorker:
        """The steps, with what the worker runs."""
        del request
        owned = allocation_of(said)
        steps = WorkerSteps(self.state, self._group, batch, owned=owned, catalogue=None, now_ms=now_ms)
        return steps.run(found, metadata, is_join=is_join)

    def downgrade_for(
        self,
        batch: Batch,
        *,
        replaced: GroupWorker,
        joining: GroupWorker,
        now_ms: int,
        wall_ms: int,
        parked: Parked,
    ) -> ClassicOutcome:
        """All members join again: the new leader plans from what the workers run."""
        group = self._group
        members = [joining if one == replaced.member_id else member for one, member in group.members.items()]
        outcome = downgrade(self.state, group, batch, members=members, now_ms=now_ms, wall_ms=wall_ms)
        outcome.park_join(joining.member_id, parked)
        outcome.prepare()
        return outcome

    def protocol_of(self, classic: ClassicProtocols) -> str:
        """The first of the worker's that all classic workers offer."""
        return protocol_of(self._group, classic)

    def assignment_of(self, member: GroupWorker, classic: ClassicProtocols) -> bytes:
        """The worker's units, or only the changes to the units that it runs."""
        protocol = self.protocol_of(classic)
        return assignment_bytes(
            self._group,
            member.current.assigned,
            said=decode_classic_worker(classic_bytes(self._group, classic)),
            protocol=protocol,
            offset=member.metadata.told_offset,
        )

    def exists(self, key: str, number: int) -> bool:
        """Whether it is a unit of the catalogue."""
        return bool(self._group.catalogue.live(key, (number,)))

    def has_news(self, member: GroupWorker) -> bool:
        """Whether the catalogue has moved, or units have left it, since the worker joined."""
        catalogue = self._group.catalogue
        return catalogue.offset > member.metadata.told_offset or any(
            len(catalogue.live(name, held)) < len(held) for name, held in member.current.assigned.items()
        )
