"""What must hold when members compute the target: S10. Looks at the answers of the coordinator and at what they change.

And A4, what a member asks for in a round. Does not own: the calls of its assignor (`user_assignor`: one at a time, each
epoch told once).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kip848_client.simulation.consumer import SimulatedConsumer
from kip848_client.simulation.mirror import Change, IdPartition, Mirror
from kip848_client.simulation.observer import Observer, about
from kip848_client.simulation.violation import InvariantViolation, fail
from kip848_client.wire.messages.consumer_group_install_assignment import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
)
from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
)
from kip848_client.wire.schema import Request, Response


class _Prepared(NamedTuple):
    """The last snapshot that a member was shown, and by which life of the coordinator."""

    member_id: str
    group_epoch: int
    members: frozenset[str]
    loads: int


class InstalledTargets(Observer):
    """S10: a result is installed only by the member that prepared last, for the epoch of that snapshot, and as it is.

    An error keeps the target.
    """

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._prepared: _Prepared | None = None
        self._installed: ConsumerGroupInstallAssignmentRequest | None = None
        self._before: Mapping[str, frozenset[IdPartition]] = {}

    @about(ConsumerGroupPrepareAssignmentRequest, ConsumerGroupInstallAssignmentRequest)
    def served(self, client_id: str, request: Request[Any], response: Response) -> None:
        """Note what was prepared, and what was taken."""
        match request, response:
            case ConsumerGroupPrepareAssignmentRequest(), ConsumerGroupPrepareAssignmentResponse(error_code=0):
                assert isinstance(response, ConsumerGroupPrepareAssignmentResponse)
                members = frozenset(member.member_id for member in response.members)
                self._prepared = _Prepared(request.member_id, response.group_epoch, members, self._mirror.loads)
                if request.member_id not in members:
                    fail("S10", f"{request.member_id} is not in what it was shown")
            case ConsumerGroupInstallAssignmentRequest(), ConsumerGroupInstallAssignmentResponse(error_code=0):
                self._installed = request
                self._before = {member_id: seen.target for member_id, seen in self._mirror.members.items()}
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
        self._prepared = None

    def group_changed(self, changes: Sequence[Change]) -> None:
        """Compare the target with what was handed in."""
        installed, self._installed = self._installed, None
        if installed is None:
            return
        mirror, before = self._mirror, self._before
        if mirror.target_epoch != installed.group_epoch:
            fail("S10", f"installed for {installed.group_epoch}, and the target is of {mirror.target_epoch}")
        handed_in = {
            member.member_id: frozenset(
                (topic.topic_id, partition) for topic in member.partitions for partition in topic.partitions
            )
            for member in installed.members
        }
        for member_id, seen in mirror.members.items():
            target = seen.target
            wanted = before.get(member_id, frozenset()) if installed.error else handed_in.get(member_id)
            # A static member that came back under a new id has the part of its old one.
            told = None if mirror.group is None else mirror.group.target_metadata_of(member_id)
            if installed.error and told is not None and told.error != installed.error:
                fail("S10", f"an assignor reported {installed.error}, and {member_id} hears {told}")
            if wanted is not None and target != wanted:
                fail("S10", f"{member_id} was to get {len(wanted)} partitions, and its target has {len(target)}")


class RoundRequests(Observer):
    """A4: a round is of one life of the member: what it installs, it prepared in that life; its epoch is its own."""

    def __init__(self) -> None:
        self._prepared: dict[str, tuple[int, int]] = {}
        """Consumer -> incarnation and group epoch of the last snapshot that it was shown."""

    @about(ConsumerGroupPrepareAssignmentRequest, ConsumerGroupInstallAssignmentRequest)
    def sent(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """Compare with the life that the member lives."""
        assert isinstance(request, ConsumerGroupPrepareAssignmentRequest | ConsumerGroupInstallAssignmentRequest)
        now = consumer.member.snapshot()
        if request.member_epoch != now.member_epoch:
            fail("A4", f"{consumer.name} is at {now.member_epoch}, and sends {request}")
        if isinstance(request, ConsumerGroupInstallAssignmentRequest):
            prepared = self._prepared.get(consumer.name)
            if prepared != (now.incarnation, request.group_epoch):
                fail("A4", f"{consumer.name} prepared {prepared}, and installs {request} in life {now.incarnation}")

    @about(ConsumerGroupPrepareAssignmentRequest)
    def answered(self, consumer: SimulatedConsumer, request: Request[Any], response: Response) -> None:
        """Note what it was shown."""
        assert isinstance(response, ConsumerGroupPrepareAssignmentResponse)
        if not response.error_code:
            self._prepared[consumer.name] = (consumer.member.snapshot().incarnation, response.group_epoch)
