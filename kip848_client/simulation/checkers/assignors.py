"""Targets that members compute: their installation (S10), notices to assignors (A2), rounds and offers (A4, C4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from kip848_client.coordinator.group_member import (
    NO_METADATA,
    AssignmentMetadata,
)
from kip848_client.member.assignor_events import AssignorCall, CallOnAssignment
from kip848_client.member.states import IN_GROUP
from kip848_client.simulation.mirror import Change, IdPartition, Mirror
from kip848_client.simulation.observer import Observer, about
from kip848_client.simulation.process import Process
from kip848_client.simulation.topics import Topics
from kip848_client.simulation.violation import InvariantViolation, fail
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.consumer_group_install_assignment import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
    Member,
)
from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
)
from kip848_client.wire.schema import Request


class _Prepared(NamedTuple):
    """The last snapshot that a member got, and the load of the coordinator that sent it."""

    member_id: str
    group_epoch: int
    members: frozenset[str]
    loads: int
    assignor_name: str


class InstalledTargets(Observer):
    """S10: only the member that prepared last installs a target, for the epoch of its snapshot and without changes.

    After an error the old target stays, except for topics that were deleted or that a member dropped.
    """

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._prepared: _Prepared | None = None
        self._installed: ConsumerGroupInstallAssignmentRequest | None = None
        self._assignor_name = ""
        """Of what was installed last."""
        self._before: Mapping[str, frozenset[IdPartition]] = {}

    @about(ConsumerGroupPrepareAssignmentRequest, ConsumerGroupInstallAssignmentRequest)
    def served(self, client_id: str, request: Any, response: Any) -> None:
        match request, response:
            case ConsumerGroupPrepareAssignmentRequest(), ConsumerGroupPrepareAssignmentResponse(error_code=0):
                members = frozenset(member.member_id for member in response.members)
                self._prepared = _Prepared(
                    request.member_id, response.group_epoch, members, self._mirror.loads, response.assignor_name
                )
                if request.member_id not in members:
                    fail("S10", f"{request.member_id} is not in what it was shown")
            case ConsumerGroupInstallAssignmentRequest(), ConsumerGroupInstallAssignmentResponse(error_code=0):
                self._installed = request
                self._before = {
                    member_id: self._mirror.without_what_is_gone(seen)
                    for member_id, seen in self._mirror.members.items()
                }
                self._check_taken(request)
            case _:
                pass

    def _check_taken(self, request: ConsumerGroupInstallAssignmentRequest) -> None:
        prepared = self._prepared
        if prepared is None or prepared.loads != self._mirror.loads:
            raise InvariantViolation("S10", f"{request.member_id} installed what this coordinator had not prepared")
        if (request.member_id, request.group_epoch) != prepared[:2]:
            fail("S10", f"{request.member_id} installed epoch {request.group_epoch}; prepared was {prepared[:2]}")
        strangers = {member.member_id for member in request.members} - prepared.members
        if strangers and not request.error:
            fail("S10", f"the target of {sorted(strangers)} was installed, who were not in the snapshot")
        self._prepared, self._assignor_name = None, prepared.assignor_name

    def group_changed(self, changes: Sequence[Change]) -> None:
        installed, self._installed = self._installed, None
        mirror, before = self._mirror, self._before
        if installed is None:
            return
        if mirror.target_epoch != installed.group_epoch:
            fail("S10", f"installed for {installed.group_epoch}, and the target is of {mirror.target_epoch}")
        handed_in = {
            member.member_id: frozenset(
                (topic.topic_id, partition) for topic in member.partitions for partition in topic.partitions
            )
            for member in installed.members
        }
        to_tell = {member.member_id: self._to_tell(member) for member in installed.members}
        for member_id, seen in mirror.members.items():
            target = seen.target
            wanted = before.get(member_id, frozenset()) if installed.error else handed_in.get(member_id)
            # A static member that came back under a new id has the part of its old one.
            told = None if mirror.group is None else mirror.group.target_metadata_of(member_id)
            if installed.error and told is not None and told.error != installed.error:
                fail("S10", f"an assignor reported {installed.error}, and {member_id} hears {told}")
            if not installed.error and member_id in to_tell and told != to_tell[member_id]:
                fail("S10", f"{member_id} is to hear {to_tell[member_id]} of the assignor, and hears {told}")
            if wanted is not None and target != wanted:
                fail("S10", f"{member_id} was to get {len(wanted)} partitions, and its target has {len(target)}")

    def _to_tell(self, member: Member) -> AssignmentMetadata:
        """The metadata for a member's assignor, with the assignor's name if there is any."""
        told = AssignmentMetadata(version=member.metadata_version, data=member.metadata_bytes)
        return told if told == NO_METADATA else replace(told, assignor=self._assignor_name)


class _Told(NamedTuple):
    """The notice for the assignors of one member: the target that came with a new epoch."""

    incarnation: int
    epoch: int
    target: Assignment | None
    heard_ms: int
    """In virtual time."""
    until_ms: int
    """How long the rebalance listener waits for it, on the member's own clock."""


class ToldTargets(Observer):
    """A2: a member tells its assignors the complete target once per epoch, until it leaves.

    The rebalance listener is called after that notice or after its time limit.
    """

    def __init__(self, topics: Topics, *, lag_ms: int) -> None:
        self._topics = topics
        self._lag_ms = lag_ms
        self._sent: dict[str, tuple[Request[Any], int]] = {}
        """Consumer -> its last heartbeat, and the life that it was of."""
        self._target: dict[str, tuple[int, Assignment | None]] = {}
        """Consumer -> life, and the last assignment that it was told in it."""
        self._due: dict[str, _Told] = {}
        self._called: dict[str, tuple[int, int]] = {}
        """Consumer -> life and epoch of the last target that its assignors were told."""
        self._returned: dict[str, tuple[int, int]] = {}

    @about(ConsumerGroupHeartbeatRequest)
    def sent(self, consumer: Process, request: Any) -> None:
        """Only the answer to the last heartbeat counts."""
        if consumer.assignor.listens:
            self._sent[consumer.name] = (request, consumer.member.snapshot().incarnation)

    @about(ConsumerGroupHeartbeatRequest)
    def answered(self, consumer: Process, request: Any, response: ConsumerGroupHeartbeatResponse) -> None:
        name = consumer.name
        sent, life = self._sent.get(name, (None, -1))
        if sent is not request or response.error_code or response.member_epoch <= 0:
            return
        if life != consumer.member.snapshot().incarnation:
            return
        if response.assignment is not None or self._target.get(name, (-1, None))[0] != life:
            self._target[name] = (life, response.assignment)
        due, epoch = self._due.get(name), response.member_epoch
        if due is None or due[:2] != (life, epoch):
            until_ms = consumer.now_ms + consumer.config.assignor_timeout_ms
            self._due[name] = _Told(life, epoch, self._target[name][1], consumer.world.now_ms, until_ms)

    def run_begins(self, consumer: Process) -> None:
        """The assignors were told before, or exceeded the limit."""
        due = self._due.get(consumer.name)
        if due is None or due.incarnation != consumer.member.snapshot().incarnation:
            return
        if self._returned.get(consumer.name) != due[:2] and consumer.now_ms < due.until_ms:
            fail("A2", f"{consumer.name} reconciles, and its assignor was not told of epoch {due.epoch}")

    def assignor_called(self, consumer: Process, call: AssignorCall) -> None:
        if not isinstance(call, CallOnAssignment):
            return
        name, now = consumer.name, consumer.member.snapshot()
        told = (now.incarnation, call.group_metadata.member_epoch)
        if told == self._called.get(name):
            fail("A2", f"{name}: told of epoch {told[1]} twice")
        self._called[name] = told
        if now.member_epoch != told[1] or now.phase not in IN_GROUP:
            fail("A2", f"{name}: told of epoch {told[1]}, and is {now.phase.name} at {now.member_epoch}")
        due = self._due.get(name)
        if due is None or due[:2] != told:
            raise InvariantViolation("A2", f"{name} was not told of {told}, and tells its assignor")
        target = due.target or Assignment()
        if (call.error, call.version, call.metadata, call.assignor_name) != (
            target.error,
            target.metadata_version,
            target.metadata_bytes,
            target.assignor_name,
        ):
            fail("A2", f"{name} was told {target}, and tells {call}")
        given = {(item.topic_id, item.partition) for item in call.partitions}
        wanted = {
            (topic.topic_id, index)
            for topics in (target.topic_partitions, target.pending_topic_partitions)
            for topic in topics
            for index in topic.partitions
        }
        # Who knew of a topic then, and knows it now, knew it whenever it was asked.
        since_ms = consumer.world.now_ms - due.heard_ms + self._lag_ms
        known = self._topics.described(frozenset(topic_id for topic_id, _ in wanted), lag_ms=since_ms)
        if not given <= wanted or any(item not in given for item in wanted if item[0] in known):
            fail("A2", f"{name} was told of {len(wanted)} partitions, and tells of {sorted(map(str, call.partitions))}")

    def assignor_returned(self, consumer: Process, call: AssignorCall) -> None:
        if isinstance(call, CallOnAssignment) and consumer.name in self._called:
            self._returned[consumer.name] = self._called[consumer.name]


class RoundRequests(Observer):
    """A4: a member installs only what it prepared since its last join, and with its own epoch."""

    def __init__(self) -> None:
        self._prepared: dict[str, tuple[int, int]] = {}
        """Consumer -> incarnation and group epoch of the last snapshot that it was shown."""

    @about(ConsumerGroupPrepareAssignmentRequest, ConsumerGroupInstallAssignmentRequest)
    def sent(
        self, consumer: Process, request: ConsumerGroupPrepareAssignmentRequest | ConsumerGroupInstallAssignmentRequest
    ) -> None:
        now = consumer.member.snapshot()
        if request.member_epoch != now.member_epoch:
            fail("A4", f"{consumer.name} is at {now.member_epoch}, and sends {request}")
        if isinstance(request, ConsumerGroupInstallAssignmentRequest):
            prepared = self._prepared.get(consumer.name)
            if prepared != (now.incarnation, request.group_epoch):
                fail("A4", f"{consumer.name} prepared {prepared}, and installs {request} in life {now.incarnation}")

    @about(ConsumerGroupPrepareAssignmentRequest)
    def answered(self, consumer: Process, request: Any, response: ConsumerGroupPrepareAssignmentResponse) -> None:
        if not response.error_code:
            self._prepared[consumer.name] = (consumer.member.snapshot().incarnation, response.group_epoch)
