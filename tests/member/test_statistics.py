"""Why a rebalance began: what an operator asks first."""

from __future__ import annotations

import pytest

from kip848_client.member.core.states import Phase
from kip848_client.member.core.statistics import RebalanceCause, Statistics


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        (Phase.IDLE, "join"),
        (Phase.FENCED_RELEASE, "rejoin_removed"),
        (Phase.AWAITING_POLL, "rejoin_poll_missed"),
    ],
)
def test_a_rebalance_has_the_cause_of_its_join(before: Phase, cause: RebalanceCause) -> None:
    """A handler that polls too seldom looks like a network that fails, if they are counted together."""
    statistics = Statistics()
    statistics.moved(before, Phase.JOINING, now_ms=0)
    statistics.moved(Phase.JOINING, Phase.PENDING, now_ms=1)
    assert statistics.rebalance_cause == cause
    statistics.moved(Phase.PENDING, Phase.ACK_DUE, now_ms=2)
    statistics.moved(Phase.IN_SYNC, Phase.PENDING, now_ms=3)
    assert statistics.rebalance_cause == "assignment"
