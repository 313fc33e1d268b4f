"""Walks through the group of a run: that they get where they are to get, and that their model is what the page says."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest

from kip848_client.coordinator.group_member import ClientAssignor
from kip848_client.errors import ErrorCode
from kip848_client.simulation import scenario_of
from tests.simulation.probes import play
from tests.simulation.probes.foreign_walk import _Walk as Foreign
from tests.simulation.probes.offset_walk import _Walk as Offsets
from tests.simulation.probes.round_model import Asked, ask, runners
from tests.simulation.probes.round_walk import _Walk as Rounds

SEEDS: Final = range(8)


def offered(low: int, high: int, written: int | None = None, name: str = "a") -> ClientAssignor:
    """An assignor that reads these versions."""
    return ClientAssignor(name, low, high, 0, low if written is None else written)


def test_of_members_that_read_each_other_the_one_that_reads_most_is_asked() -> None:
    """docs/client-side-assignors.md: of A [1-5], B [3-4] and C [2-4] it is A."""
    found = runners({"C": (offered(2, 4, 3),), "B": (offered(3, 4),), "A": (offered(1, 5, 3),)})
    assert found is not None
    assert (found.spanning, found.able) == (["A"], ["B", "C"])
    assert ask(found, first="B", tried=(), never=()) == Asked("a", "A", frozenset())
    assert ask(found, first="C", tried={"A"}, never=()) == Asked("a", "C", frozenset({"A"}))
    assert ask(found, first=None, tried={"A", "B", "C"}, never={"A"}) == Asked("a", "B", frozenset())


def test_the_order_of_all_members_decides_about_the_assignor() -> None:
    """docs/client-side-assignors.md: the lowest sum of positions, and by name where sums are equal."""
    a, b = offered(0, 0), offered(0, 0, name="b")
    one_sided = runners({"x": (b, a), "y": (b, a), "z": (a, b)})
    even = runners({"x": (b, a), "y": (a, b)})
    none = runners({"x": (a,), "y": (b,)})
    assert one_sided is not None
    assert even is not None
    assert (one_sided.assignor_name, even.assignor_name, none) == ("b", "a", None)


def counted(monkeypatch: pytest.MonkeyPatch, walk: type[Any]) -> Counter[tuple[str, int]]:
    """The requests of a kind of walk, and the codes of their answers, of some runs."""
    counts: Counter[tuple[str, int]] = Counter()
    honest = walk._ask

    def ask_and_count(self: Any, message: Any, *arguments: Any, **options: Any) -> Any:
        answer = honest(self, message, *arguments, **options)
        response = answer[0] if isinstance(answer, tuple) else answer
        if response is not None:
            counts[type(message).__name__, int(getattr(response, "error_code", 0))] += 1
            for topic in getattr(response, "topics", ()):
                for item in getattr(topic, "partitions", ()):
                    counts[type(message).__name__, int(item.error_code)] += 1
            for group in getattr(response, "groups", ()):
                counts[type(message).__name__, int(group.error_code)] += 1
        return answer

    monkeypatch.setattr(walk, "_ask", ask_and_count)
    for seed in SEEDS:
        assert play(scenario_of("mixed", seed=seed, changes=["probes=1"]), seed=seed).violation is None
    return counts


@pytest.mark.parametrize(
    ("walk", "name", "codes"),
    [
        (Rounds, "ConsumerGroupHeartbeatRequest", (0, ErrorCode.UNSUPPORTED_ASSIGNOR, ErrorCode.FENCED_MEMBER_EPOCH)),
        (Rounds, "ConsumerGroupPrepareAssignmentRequest", (0, ErrorCode.UNKNOWN_MEMBER_ID)),
        (Rounds, "ConsumerGroupInstallAssignmentRequest", (0, ErrorCode.INVALID_ASSIGNMENT)),
        (Foreign, "ConsumerGroupHeartbeatRequest", (0, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)),
        (
            Offsets,
            "OffsetCommitRequest",
            (0, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ),
        (Offsets, "OffsetFetchRequest", (0, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_walk_meets_what_members_of_ours_hardly_meet(
    walk: type[Any], name: str, codes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk that is always refused, or never, proves nothing."""
    counts = counted(monkeypatch, walk)
    assert {code for code in codes if not counts[name, code]} == set()
