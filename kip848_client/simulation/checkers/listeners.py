"""What the application sees: calls of its listener (C2, C3) and the state of its member (C5)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from kip848_client.errors import ErrorCode, FatalGroupError, Kip848Error
from kip848_client.model import TopicIdPartition
from kip848_client.simulation.mirror import listed
from kip848_client.simulation.observer import Checker, Scene, about
from kip848_client.simulation.process import OUTSIDE_GROUP, Process
from kip848_client.simulation.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.consumer_protocol import decode_subscription
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest
from kip848_client.wire.messages.sync_group import SyncGroupRequest

_CALLS_MAX: Final = 4
"""Listener calls that wait for poll() at most."""


class ListenerPairs(Checker):
    """C3: per partition, assigned and (revoked or lost) alternate; calls never overlap; there is none after close().

    A call that raised is repeated, so only calls that returned count. C2: the coordinator learns of a revocation only
    after the listener call returned, and only records of assigned partitions are handed out.
    """

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._has: defaultdict[str, set[TopicIdPartition]] = defaultdict(set)
        self._offered: defaultdict[str, set[TopicIdPartition]] = defaultdict(set)
        """Partitions of "assigned" calls, also of those that raised, which were not revoked or lost yet."""
        self._running: set[str] = set()

    def listener_begins(self, consumer: Process, name: str, partitions: Iterable[TopicIdPartition]) -> None:
        partitions = frozenset(partitions)
        if consumer.name in self._running:
            fail("C3", f"two listener calls of {consumer.name} overlap")
        if consumer.closed:
            fail("C3", f"{consumer.name} is closed and its listener is called")
        if consumer.application.calls_waiting > _CALLS_MAX:
            fail("C8", f"{consumer.application.calls_waiting} listener calls of {consumer.name} wait for poll()")
        self._running.add(consumer.name)
        if name == "assigned":
            if again := partitions & self._has[consumer.name]:
                fail("C3", f"{consumer.name}: {sorted(map(str, again))} assigned twice")
            self._offered[consumer.name] |= partitions
        elif not partitions:
            fail("C3", f"{consumer.name}: {name} without partitions")
        elif name == "revoked" and not all(consumer.application.holds(tip.topic_partition) for tip in partitions):
            fail("C2", f"{consumer.name} revokes {sorted(map(str, partitions))}, and not all of them are paused")
        elif strange := partitions - self._offered[consumer.name]:
            fail("C3", f"{consumer.name}: {sorted(map(str, strange))} {name}, which were not assigned")

    def listener_ended(
        self, consumer: Process, name: str, partitions: Iterable[TopicIdPartition], error: object
    ) -> None:
        """Count a call that returned. A lost partition is gone even if the listener raised."""
        self._running.discard(consumer.name)
        if name == "assigned" and error is None:
            self._has[consumer.name] |= set(partitions)
        elif name == "lost" or error is None:
            self._has[consumer.name] -= set(partitions)
            self._offered[consumer.name] -= set(partitions)

    @about(ConsumerGroupHeartbeatRequest, JoinGroupRequest)
    def sent(self, consumer: Process, request: Any) -> None:
        """C2: a heartbeat or a join lists every partition that the listener was given."""
        if isinstance(request, JoinGroupRequest):
            topics = decode_subscription(bytes(request.protocols[0].metadata)).owned_partitions
            owned = {(topic.topic, index) for topic in topics for index in topic.partitions}
            if kept := [tip for tip in self._has[consumer.name] if (tip.topic, tip.partition) not in owned]:
                fail("C2", f"{consumer.name} gave up {sorted(map(str, kept))} before on_partitions_revoked")
            return
        if request.member_epoch <= 0 or request.topic_partitions is None:
            return
        named = listed(request.topic_partitions)
        kept = [tip for tip in self._has[consumer.name] if (tip.topic_id, tip.partition) not in named]
        if kept:
            fail("C2", f"{consumer.name} gave up {sorted(map(str, kept))} before on_partitions_revoked")

    def handed_out(self, consumer: Process, partition: TopicIdPartition, offsets: range) -> None:
        """C2: no record before on_partitions_assigned returned, none after revoked or lost began."""
        if partition not in self._has[consumer.name]:
            fail("C2", f"{consumer.name} was handed {partition} {offsets} without having it")
        if consumer.name in self._running:
            fail("C2", f"{consumer.name} was handed records inside a listener call")

    def closed(self, consumer: Process) -> None:
        """C3: nothing is left after close()."""
        if consumer.view.assigned:
            fail("C3", f"{consumer.name} closed and owns partitions")


_INCURABLE: Final = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    }
)
"""Codes of a heartbeat's answer after which a member may be FATAL. A simulated one waits for its instance id."""


class ShownStates(Checker):
    """C5: a member is FATAL only after an error that no retry cures, and outside the group it shows no epoch."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._last_code: dict[str, int] = {}

    @about(ConsumerGroupHeartbeatRequest, JoinGroupRequest, SyncGroupRequest, HeartbeatRequest)
    def answered(self, consumer: Process, request: Any, response: Any) -> None:
        if response.error_code:
            self._last_code[consumer.name] = response.error_code

    def stopped(self, consumer: Process, error: Kip848Error) -> None:
        code = self._last_code.get(consumer.name)
        if code not in _INCURABLE or not isinstance(error, FatalGroupError) or error.code != code:
            fail("C5", f"{consumer.name} stops after error {code}, and says {error!r}")

    def view_changed(self, consumer: Process) -> None:
        view = consumer.view
        if view.state in OUTSIDE_GROUP and view.member_epoch > 0:
            fail("C5", f"{consumer.name} is {view.state.name}, and shows epoch {view.member_epoch}")
