"""The table of moves: every exit works, everything else raises, and the public moves are derived from it."""

from __future__ import annotations

import random
from typing import get_args

import pytest

from kip848_client.errors import IllegalStateError
from kip848_client.member.core.context import Context
from kip848_client.member.core.events import StateChanged
from kip848_client.member.core.settings import MemberConfig
from kip848_client.member.core.states import (
    FATAL,
    HEARTBEATING,
    MEMBER,
    PHASE_ROWS,
    TRANSITIONS,
    MemberState,
    Phase,
    PhaseRow,
    Trigger,
)

PHASE_TABLE = {(row.trigger, row.source): row.dest for row in PHASE_ROWS}


def context_in(phase: Phase) -> Context:
    context = Context(MemberConfig(group_id="g", member_id="m"), random.Random(0))
    context.phase = phase
    return context


@pytest.mark.parametrize("row", PHASE_ROWS, ids=lambda row: f"{row.source.name}-{row.trigger}-{row.dest.name}")
def test_a_declared_move_leads_where_its_row_says(row: PhaseRow) -> None:
    """If a row and the machine disagree, logs and metrics show a state that the member is not in."""
    context = context_in(row.source)
    context.move(row.trigger)
    assert context.phase is row.dest
    changed = [effect for effect in context.effects if isinstance(effect, StateChanged)]
    if row.source.state is row.dest.state:
        assert not changed
    else:
        assert [(effect.old, effect.new) for effect in changed] == [(row.source.state, row.dest.state)]


def test_a_trigger_has_one_destination_per_phase_and_per_public_state() -> None:
    """Two destinations would make the outcome depend on the order of rows."""
    assert len(PHASE_TABLE) == len(PHASE_ROWS)
    assert len({(row.trigger, row.source) for row in TRANSITIONS}) == len(TRANSITIONS)


def test_every_phase_can_be_reached() -> None:
    """A phase without a way in is dead code, or a missing row."""
    reached = {Phase.IDLE}
    while grown := {row.dest for row in PHASE_ROWS if row.source in reached} - reached:
        reached |= grown
    assert reached == set(Phase)


def test_every_phase_but_the_fatal_end_can_be_left() -> None:
    """A phase without a way out is a consumer that hangs for ever."""
    left = {row.source for row in PHASE_ROWS}
    assert set(Phase) - left == {Phase.FATAL_DONE}


def test_the_public_moves_are_those_of_the_protocol() -> None:
    """The diagram that users read is drawn from these rows."""
    state = MemberState
    assert {(row.source, row.dest) for row in TRANSITIONS} == {
        (state.UNJOINED, state.STABLE),
        (state.UNJOINED, state.RECONCILING),
        (state.UNJOINED, state.RELEASING_ASSIGNMENT),
        (state.UNJOINED, state.FATAL),
        (state.STABLE, state.RECONCILING),
        (state.STABLE, state.RELEASING_ASSIGNMENT),
        (state.STABLE, state.FATAL),
        (state.RECONCILING, state.STABLE),
        (state.RECONCILING, state.UNJOINED),
        (state.RECONCILING, state.RELEASING_ASSIGNMENT),
        (state.RECONCILING, state.FATAL),
        (state.RELEASING_ASSIGNMENT, state.UNJOINED),
    }


def test_a_member_in_the_group_can_be_fenced_can_leave_can_fail_and_can_be_late() -> None:
    """A phase of the group that forgets one of these keeps partitions that others already have."""
    for phase in MEMBER:
        assert PHASE_TABLE["fenced", phase] is Phase.FENCED_RELEASE
        assert PHASE_TABLE["poll_expired", phase] is Phase.STALE_RELEASE
        assert PHASE_TABLE["leave_requested", phase] is Phase.LEAVE_REVOKING
        assert PHASE_TABLE["failed", phase] is Phase.FATAL_RELEASE


def test_only_members_heartbeat() -> None:
    """A heartbeat of a member that gave up would bring it back."""
    assert HEARTBEATING.isdisjoint(FATAL | {Phase.IDLE, Phase.AWAITING_POLL})
    assert HEARTBEATING.isdisjoint({Phase.FENCED_RELEASE, Phase.STALE_RELEASE})


def test_members_do_not_share_their_phase() -> None:
    """Two consumers in one process must not move each other."""
    one, other = context_in(Phase.IN_SYNC), context_in(Phase.IN_SYNC)
    one.move("assignment_received")
    assert (one.phase, other.phase) == (Phase.PENDING, Phase.IN_SYNC)


def test_a_move_that_no_row_names_is_refused() -> None:
    """A misspelt trigger must be as loud as an illegal one; mypy fails here if it were no longer a type error."""
    with pytest.raises(IllegalStateError, match="'jioned'"):
        context_in(Phase.JOINING).move("jioned")  # type: ignore[arg-type]


def test_every_trigger_moves_some_phase() -> None:
    """A trigger that no phase takes passes the type check and raises in every consumer."""
    assert {row.trigger for row in PHASE_ROWS} == set(get_args(Trigger))
