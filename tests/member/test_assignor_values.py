"""The calls of a user's assignor, and what becomes of what they return or raise."""

from __future__ import annotations

from typing import Any

import pytest

from kip848_client.assignors.client.interface import (
    ASSIGNOR_RAISED,
    AssignmentSpec,
    AssignorMetadata,
    ConsumerGroupMetadata,
    GroupAssignment,
    MemberAssignment,
    PartitionAssignor,
    PartitionRef,
)
from kip848_client.errors import ClientAssignorError
from kip848_client.member.core.assignor_events import AssignorDone, CallOnAssignment, RunAssignor
from kip848_client.member.core.assignor_values import advertised, announce, compute, undescribed
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor
from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentResponse,
    Member,
)


def too_late() -> PartitionRef:
    raise OSError("too late")


class Misbehaves(PartitionAssignor):
    """Returns what a test says from ``metadata()``, and an assignment that fails when it is read."""

    name = "mine"
    maximum_version = 2
    told: Any = AssignorMetadata(b"m", 1, 3)

    def metadata(self) -> AssignorMetadata:
        if isinstance(self.told, Exception):
            raise self.told
        return self.told  # type: ignore[no-any-return]

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        return GroupAssignment({member_id: MemberAssignment(too_late() for _ in "x") for member_id in spec.members})

    def on_assignment(self, error: int, assignment: object, group_metadata: object) -> None:
        raise ValueError("not today")


class Theirs(Misbehaves):
    """Another one, which assigns nothing."""

    name = "theirs"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        return GroupAssignment()


def test_an_assignor_is_described_by_what_it_says_or_before_that_by_its_versions() -> None:
    """The coordinator chooses by versions, which must be there before the first call of ``metadata()``."""
    assert advertised(Misbehaves()) == Assignor("mine", 0, 2, 3, 1, b"m")
    assert undescribed(Misbehaves()) == Assignor("mine", 0, 2, 0, 2, b"")


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (OSError("no database"), "metadata() of the client-side assignor 'mine' raised OSError: no database"),
        (b"m", "returned bytes; it must be an AssignorMetadata"),
        (AssignorMetadata(version=3), "returned version 3; the assignor understands 0 to 2"),
        (AssignorMetadata(bytes(65_537), version=1), "returned 65,537 bytes; at most 65,536 are sent"),
    ],
)
def test_metadata_that_cannot_be_sent_is_refused_by_name(told: object, says: str) -> None:
    """The member would be refused by the coordinator, which does not know whose mistake it is."""
    assignor = Misbehaves()
    assignor.told = told
    with pytest.raises(ClientAssignorError, match="'mine'") as raised:
        advertised(assignor)
    assert says in str(raised.value)


def test_an_assignment_that_raises_when_it_is_read_counts_as_raised() -> None:
    """The other members must hear that there is no new target, and the author why; another one's result is fine."""
    group = ConsumerGroupPrepareAssignmentResponse(members=(Member("m", 1),), assignor_name="mine")
    done, failure = compute([Theirs(), Misbehaves()], RunAssignor(7, group))
    assert done == AssignorDone(7, error=ASSIGNOR_RAISED)
    assert "the result of assign() of the client-side assignor 'mine' raised OSError: too late" in str(failure)


def test_every_assignor_whose_on_assignment_raises_is_named() -> None:
    """One of them must not keep the others from hearing of it, nor hide their errors."""
    call = CallOnAssignment(1, "", 0, (), b"", 0, ConsumerGroupMetadata("g", "m", 1))
    failures = announce([Misbehaves(), Theirs()], call)
    assert [failure.assignor for failure in failures] == ["mine", "theirs"]
    assert "on_assignment() of the client-side assignor 'mine' raised ValueError: not today" in str(failures[0])
