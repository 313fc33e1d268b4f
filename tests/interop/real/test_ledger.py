"""The judge of these tests, judged: what must never happen is found, and what may happen is not."""

from __future__ import annotations

import pytest

from kip848_client.common.model import NamedPartition
from tests.interop.real.ledger import Entry, Kind, Ledger, judge

pytestmark = pytest.mark.interop

P0 = NamedPartition("t", 0)


def ledger(*told: tuple[str, Kind, int, int]) -> Ledger:
    """Entries about one partition, one nanosecond apart: (member, kind, first, end)."""
    return Ledger(
        Entry(at, member, kind, *P0, first, end) for at, (member, kind, first, end) in enumerate(told, start=1)
    )


HANDED_OVER: tuple[tuple[str, Kind, int, int], ...] = (
    ("a", "assigned", 0, 0),
    ("a", "read", 0, 5),
    ("a", "committed", 0, 5),
    ("a", "revoked", 0, 0),
    ("b", "assigned", 0, 0),
    ("b", "read", 5, 8),
)


def test_a_clean_handover_is_in_order() -> None:
    """If the judge found faults in a clean handover, every test that uses it would fail."""
    findings = judge(ledger(*HANDED_OVER), written={P0: 8})

    assert (findings.wrong, findings.repeated, findings.handovers) == ([], 0, 1)


def test_records_of_a_lost_owner_may_come_again_if_they_were_not_committed() -> None:
    """At least once: that is the promise, and no more."""
    for end in ("lost", "killed"):
        told = list(HANDED_OVER)
        told[2:4] = [("a", "committed", 0, 3), ("a", "lost" if end == "lost" else "killed", 0, 0)]
        told[-1] = ("b", "read", 3, 8)

        findings = judge(ledger(*told), written={P0: 8})

        assert (findings.wrong, findings.repeated) == ([], 2)


@pytest.mark.parametrize(
    ("changed", "to", "found"),
    [
        (3, ("a", "committed", 0, 5), "b got it while a had it"),
        (5, ("b", "read", 6, 8), "1 of 8 records were never read, 5 first"),
        (5, ("b", "read", 4, 8), "everything before 5 was committed"),
        (5, ("a", "read", 5, 8), "a read 5..7 while b had the partition"),
        (2, ("a", "read", 6, 7), "a read 6..6, but 5 was next"),
        (2, ("a", "read", 3, 5), "a read 3..4, but 5 was next"),
    ],
)
def test_what_must_never_happen_is_found(changed: int, to: tuple[str, Kind, int, int], found: str) -> None:
    """A judge that overlooks a fault would let every test pass that uses it."""
    told = list(HANDED_OVER)
    told[changed] = to

    assert any(found in sentence for sentence in judge(ledger(*told), written={P0: 8}).wrong)


def test_a_repetition_after_a_revocation_in_good_order_is_found() -> None:
    """A member commits before it revokes a partition, so that the next owner repeats nothing."""
    told = [*HANDED_OVER[:2], *HANDED_OVER[3:5], ("b", "read", 4, 8)]

    [sentence] = judge(ledger(*told), written={P0: 8}).wrong

    assert "gave the partition back in good order" in sentence
