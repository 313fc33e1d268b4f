"""The walk of members of other clients gets where it is to get."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest

from kip848_client.errors import ErrorCode
from kip848_client.testing.simulation import scenario_of
from tests.simulation.probes import play
from tests.simulation.probes.foreign_walk import _Walk

SEEDS: Final = range(8)


def test_members_of_other_clients_meet_what_ours_hardly_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk that is always refused, or never, proves nothing."""
    counts: Counter[int] = Counter()
    honest = _Walk._ask

    def ask_and_count(self: _Walk, *arguments: Any, **options: Any) -> Any:
        response = honest(self, *arguments, **options)
        counts[getattr(response, "error_code", -1)] += 1
        return response

    monkeypatch.setattr(_Walk, "_ask", ask_and_count)
    for seed in SEEDS:
        assert play(scenario_of("mixed", seed=seed, changes=["probes=1"]), seed=seed).violation is None
    assert {0, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID} <= counts.keys()
