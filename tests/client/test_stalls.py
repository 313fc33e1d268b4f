"""Which positions count as stalled, and when; what librdkafka and the leaders say is given."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.consumer.records.checks.stall_reasons import LeaderAnswer, Reason, StallKind, deliverable
from kip848_client.consumer.records.checks.stalls import StallWatch
from kip848_client.wire.record_batch import Record, build_batch, parse_batch_header

P0, P1 = NamedPartition("orders", 0), NamedPartition("orders", 1)
THERE = Reason(StallKind.RECORDS, "there are records")
AWAY = Reason(StallKind.FAILURE, "the leader is away")
OPEN = Reason(StallKind.OPEN, "a transaction is open")


class Watched:
    """A `StallWatch` of two partitions; each look is a second after the one before."""

    def __init__(self) -> None:
        self.at = {P0: 5, P1: 7}
        self.high = {P0: 5, P1: 7}
        self.paused: set[NamedPartition] = set()
        self.empties = True
        self.emptied = 0
        self.returned = 0
        self.leader_says: dict[NamedPartition, LeaderAnswer] = {}
        self.asked: list[NamedPartition] = []
        self.told: list[tuple[list[NamedPartition], str | None]] = []
        self.now_ms = 0
        self.plane = SimpleNamespace(
            get_watermark_offsets=lambda p, cached: (0, self.high[NamedPartition(p.topic, p.partition)])
        )
        self.watch = StallWatch(
            cast("Any", self), cast("Any", None), [], read_committed=True, queued_min=1_000, tell=self._tell
        )
        self.watch._check = self._check  # type: ignore[method-assign]

    @property
    def unread(self) -> Collection[NamedPartition]:
        return self.paused

    def positions(self) -> dict[NamedPartition, OffsetAndMetadata]:
        return {p: OffsetAndMetadata(at) for p, at in self.at.items() if at >= 0}

    def _tell(self, partitions: Collection[NamedPartition], seconds: float, reason: str | None, *, log: bool) -> None:
        if log:
            self.told.append((list(partitions), reason))

    def _check(self, positions: Mapping[NamedPartition, int]) -> None:
        self.asked += positions
        self.watch._answers = {
            p: self.leader_says.get(p, LeaderAnswer(at, self.high[p])) for p, at in positions.items()
        }
        self.watch._busy = False

    def look(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now_ms += 1_000
            self.emptied += self.empties
            self.watch.look(frozenset({P0, P1}), self.now_ms)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """With checks that end at once."""
    monkeypatch.setattr(
        "kip848_client.consumer.records.checks.stalls.daemon_thread",
        lambda target, _name, positions: SimpleNamespace(start=lambda: target(positions)),
    )
    return Watched()


def test_records_that_are_not_delivered_are_told_of_after_ten_seconds(watched: Watched) -> None:
    """An operator sees the partition, and why; the others go on. A second line would be noise."""
    watched.high[P0] = 9
    watched.leader_says[P0] = LeaderAnswer(5, 9, THERE)
    watched.look(8)
    assert not watched.told
    watched.look(4)
    assert watched.told == [([P0], THERE.text)]
    assert watched.watch.stalled.keys() == {P0}
    watched.look(20)
    assert len(watched.told) == 1

    watched.at[P0] = 9
    watched.look(1)
    assert watched.told[1:] == [([P0], None)]
    assert not watched.watch.stalled


def test_an_end_without_records_is_asked_about_once(watched: Watched) -> None:
    """Of a topic with transactions the last offset is a marker: each consumer of it would connect every minute."""
    watched.high[P0] = 6
    watched.look(60)
    assert watched.asked == [P0]
    watched.high[P0] = 8
    watched.leader_says[P0] = LeaderAnswer(5, 8, THERE)
    watched.look(15)
    assert watched.told == [([P0], THERE.text)]


def test_a_leader_is_asked_also_if_librdkafka_knows_of_no_record(watched: Watched) -> None:
    """If its fetches do not come through, the end that it knows is an old one."""
    watched.leader_says[P0] = LeaderAnswer(5, 9, THERE)
    watched.look(70)
    assert watched.told == [([P0], THERE.text)]


def test_silent_partitions_are_asked_about_less_and_less_often(watched: Watched) -> None:
    """A consumer that idles for a day must not connect to every broker each minute."""
    watched.look(3_600)
    assert watched.asked.count(P0) == pytest.approx(9, abs=1)


@pytest.mark.parametrize(("reason", "seconds"), [(AWAY, 24), (OPEN, 900)])
def test_what_may_pass_is_told_of_later(watched: Watched, reason: Reason, seconds: int) -> None:
    """An election takes seconds, a transaction minutes: an alarm for each would be turned off."""
    watched.high[P0] = 9
    watched.leader_says[P0] = LeaderAnswer(5, 9, reason)
    watched.look(seconds - 4)
    assert not watched.told
    watched.look(30)
    assert watched.told == [([P0], reason.text)]


def test_a_position_that_is_never_known_is_told_of(watched: Watched) -> None:
    """The coordinator may refuse the committed offset again and again: the partition is assigned, and not read."""
    watched.at[P0] = -1
    watched.leader_says[P0] = LeaderAnswer(-1, reason=AWAY)
    watched.look(40)
    assert watched.told == [([P0], AWAY.text)]


def test_what_is_not_to_be_read_is_not_stalled(watched: Watched) -> None:
    """The application paused it, or process() has its hands full."""
    watched.high[P0] = 9
    watched.leader_says[P0] = LeaderAnswer(5, 9, THERE)
    watched.paused.add(P0)
    watched.look(100)
    assert P0 not in watched.asked


def test_a_slow_application_is_not_a_stalled_partition(watched: Watched) -> None:
    """librdkafka fetches no more while its queue is full of another partition's records."""
    watched.high[P0] = 9
    watched.leader_says[P0] = LeaderAnswer(5, 9, THERE)
    watched.high[P1] = 1_007
    watched.empties = False
    for _ in range(90):
        watched.at[P1] += 10
        watched.returned += 10
        watched.look(1)
    assert not watched.told
    for _ in range(30):  # what was in its queue has been read, and nothing of this partition was behind it
        watched.at[P1] += 10
        watched.returned += 10
        watched.look(1)
    assert watched.told[0] == ([P0], THERE.text)


def test_a_busy_application_hears_of_it_as_well(watched: Watched) -> None:
    """It reads without a pause, and empties the queue each time."""
    watched.high[P0] = 9
    watched.leader_says[P0] = LeaderAnswer(5, 9, THERE)
    for _ in range(12):
        watched.at[P1] += 10
        watched.high[P1] += 10
        watched.returned += 10
        watched.look(1)
    assert watched.told == [([P0], THERE.text)]


@pytest.mark.parametrize(
    ("attributes", "offset", "aborted", "found"),
    [
        (0, 0, {}, True),
        (0, 9, {}, True),
        (0, 10, {}, False),
        (0x20, 0, {}, False),
        (0x10, 0, {-1: 0}, False),
        (0x10, 0, {-1: 20}, True),
    ],
    ids=["first", "last", "behind", "marker", "aborted", "committed"],
)
def test_which_batches_have_something_to_deliver(
    attributes: int, offset: int, aborted: Mapping[int, int], found: bool
) -> None:
    """A false alarm is worse than a late one."""
    batch = build_batch([Record(b"%d" % number) for number in range(10)], attributes=attributes)
    assert deliverable(parse_batch_header(batch), offset, aborted) is found
