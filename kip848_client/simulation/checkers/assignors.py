"""Targets that members compute, and their installation: S10."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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


class _Prepared(NamedTuple):
    """The last snapshot that a member got, and the load of the coordinator that sent it."""

    member_id: str
    group_epoch: int
    members: frozenset[str]
    loads: int


class InstalledTargets(Observer):
    """S10: only the member that prepared last installs a target, for the epoch of its snapshot and without changes.

    After an error the old target stays, except for topics that were deleted or that a member dropped.
    """

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._prepared: _Prepared | None = None
        self._installed: ConsumerGroupInstallAssignmentRequest | None = None
        self._before: Mapping[str, frozenset[IdPartition]] = {}

    @about(ConsumerGroupPrepareAssignmentRequest, ConsumerGroupInstallAssignmentRequest)
    def served(self, client_id: str, request: Any, response: Any) -> None:
        match request, response:
            case ConsumerGroupPrepareAssignmentRequest(), ConsumerGroupPrepareAssignmentResponse(error_code=0):
                members = frozenset(member.member_id for member in response.members)
                self._prepared = _Prepared(request.member_id, response.group_epoch, members, self._mirror.loads)
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
        self._prepared = None

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
        for member_id, seen in mirror.members.items():
            target = seen.target
            wanted = before.get(member_id, frozenset()) if installed.error else handed_in.get(member_id)
            if wanted is not None and target != wanted:
                fail("S10", f"{member_id} was to get {len(wanted)} partitions, and its target has {len(target)}")
