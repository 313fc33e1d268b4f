"""The part of Prepare and Install that all kinds of groups share: check the sender, drop what no longer exists."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, Protocol, TypeVar

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.refusal import Refused, invalid_request
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.modern.assignment_round import AssignmentRound, Prepared, Rounds
from kip848_client.testing.coordinator.modern.member_lookup import unknown_member
from kip848_client.testing.coordinator.modern.modern_group import ModernGroup


class PrepareRequest(Protocol):
    """A request of the chosen member, in every kind of group."""

    @property
    def group_id(self) -> str:
        """The group."""

    @property
    def member_id(self) -> str:
        """The sender."""

    @property
    def member_epoch(self) -> int:
        """The epoch that it is at."""


class InstallRequest(PrepareRequest, Protocol):
    """Such a request with a computed target."""

    @property
    def group_epoch(self) -> int:
        """The epoch that the target was prepared for."""


GroupT = TypeVar("GroupT", bound=ModernGroup[Any, Any])
PreparedT = TypeVar("PreparedT", bound=Prepared)
PartT = TypeVar("PartT")


def find_round(
    state: CoordinatorState, message: PrepareRequest, *, find_group: Callable[[str], GroupT]
) -> tuple[GroupT, AssignmentRound]:
    """The group, and the round that the sender was chosen for.

    Args:
        find_group: raises `Refused` if there is no group of this id.

    Raises:
        Refused: INVALID_REQUEST, GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH; UNKNOWN_MEMBER_ID even if another member, or
            none, was chosen.
    """
    for name, text in (("GroupId", message.group_id), ("MemberId", message.member_id)):
        if not text.strip():
            raise invalid_request(f"{name} can't be empty.")
    if message.member_epoch < 0:
        raise invalid_request(f"MemberEpoch is invalid: {message.member_epoch}.")
    group = find_group(message.group_id)
    member = group.members.get(message.member_id)
    if member is None:
        raise unknown_member(group, member_id=message.member_id)
    if message.member_epoch != member.current.member_epoch:
        raise Refused(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"Member {member.member_id} is at epoch {member.current.member_epoch}, not {message.member_epoch}; "
            "try again after the next heartbeat.",
        )
    flying = state.part(Rounds).in_flight.get(group.group_id)
    if flying is None or flying.member_id != member.member_id:
        raise not_chosen(group, member_id=member.member_id)
    return group, flying


def not_chosen(group: ModernGroup[Any, Any], *, member_id: str) -> Refused:
    """UNKNOWN_MEMBER_ID: another member, or none, computes the target."""
    return Refused(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"Member {member_id} was not chosen to compute the assignment of group {group.group_id}, or is not any more.",
    )


def prepared_for(flying: AssignmentRound, message: InstallRequest, *, kind: type[PreparedT]) -> PreparedT:
    """The snapshot of the group that the sender got.

    Raises:
        Refused: INVALID_ASSIGNMENT; it got none, or its assignment is for another epoch.
    """
    prepared = flying.prepared
    if not isinstance(prepared, kind):
        raise invalid(
            f"it was not prepared; send {type(message).__name__.replace('InstallAssignmentRequest', '')}"
            "PrepareAssignment first."
        )
    if message.group_epoch != prepared.group_epoch:
        raise invalid(f"it was prepared for group epoch {prepared.group_epoch}, not {message.group_epoch}.")
    return prepared


def parts_of_present(
    group: ModernGroup[Any, Any], prepared: Prepared, parts: Mapping[str, PartT], *, known: Container[str]
) -> dict[str, PartT | None]:
    """The parts of the members that there are now, None for a new one; those of members that left are dropped.

    A static member that came back under a new id meanwhile has the part of its old one.

    Args:
        known: the ids of the members when the target was prepared.
    """
    present = {}
    for member_id, part in parts.items():
        if member_id in group.members:
            present[member_id] = part
        elif (instance_id := prepared.instance_ids.get(member_id)) is not None:
            successor = group.static_members.get(instance_id, member_id)
            if successor not in known:
                present[successor] = part
    return {member_id: present.get(member_id) for member_id in group.sorted_member_ids}


def note_refusal(batch: Batch, group: ModernGroup[Any, Any] | None, *, member_id: str, refused: Refused) -> None:
    """Write an assignment that is not valid to the event log."""
    if refused.code is ErrorCode.INVALID_ASSIGNMENT and group is not None:
        batch.happened(
            "assignment_refused",
            member=group.members[member_id],
            group_epoch=group.group_epoch,
            fields={"error": refused.code.name, "reason": refused.message},
        )


def note_target(
    batch: Batch,
    group: ModernGroup[Any, Any],
    flying: AssignmentRound,
    *,
    epoch: int,
    error: int,
    members: Mapping[str, Any],
) -> None:
    """Write what became of a round, and of the group's state, to the event log.

    Args:
        epoch: of the target.
        error: the assignor's own number; 0 if it computed *members*.
    """
    member = group.members[flying.member_id]
    if error:
        fields: dict[str, Any] = {"assignor": flying.assignor_name, "error": error}
        batch.happened("assignor_failed", member=member, group_epoch=group.group_epoch, fields=fields)
    else:
        fields = {"assignor": flying.assignor_name, "members": members}
        batch.happened("target_assignment_computed", member=member, group_epoch=epoch, fields=fields)
    batch.state_changed(old=group.state, new=group.state_with_target(epoch), group_epoch=group.group_epoch)


def invalid(what: str) -> Refused:
    """INVALID_ASSIGNMENT: what the member has computed is not a target of the group."""
    return Refused(ErrorCode.INVALID_ASSIGNMENT, f"The assignment is not valid: {what}")
