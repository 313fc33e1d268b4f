"""Limits of ``process()``: calls a second in all, by key and topic; concurrency and priority of topics."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from kip848_client import Limits
from kip848_client.common.model import NamedPartition
from kip848_client.errors import ArgumentTypeError, ConfigError
from kip848_client.member.processing.limits import Pacing
from kip848_client.member.processing.work import Work
from tests.processing.harness import P, Played, Q

NO = ValueError("no")
BULK = NamedPartition("bulk", 0)


class Timed(Played):
    """Calls end at once; notes when each began."""

    def __init__(self, limits: Limits, concurrency: int = 100, **bounds: Any) -> None:
        super().__init__(concurrency, limits=limits, **{"buffer": 1_000, **bounds})
        self.began: list[tuple[int, NamedPartition, int]] = []

    def perform(self) -> None:
        super().perform()
        while self.running:
            (_, offset), work = next(iter(self.running.items()))
            self.began.append((self.now, work.partition, offset))
            del self.running[work.partition.partition, offset]
            self.core.succeeded(work, self.now)
            super().perform()

    def run(self, until_ms: int) -> None:
        """Let time pass, from one thing that is due to the next."""
        while (due_ms := self.core.next_due_ms()) is not None and due_ms <= until_ms:
            assert due_ms > self.now, "it would never end"
            self.advance(due_ms - self.now)
        self.now = until_ms

    def times(self, partition: NamedPartition = P) -> list[int]:
        return [at for at, where, _ in self.began if where == partition]


def most_in(times: Sequence[int], window_ms: int) -> int:
    """The most events of any window that is open at its end."""
    return max(sum(begin <= at < begin + window_ms for at in times) for begin in times)


@pytest.mark.parametrize("rate", [1, 2, 7, 10, 25, 99, 400])
def test_no_second_has_more_calls_than_it_may(rate: int) -> None:
    """The API behind the handler refuses the first one too many. And nothing of the rate is lost."""
    played = Timed(Limits(calls_per_second=rate))
    played.take(*range(1_000))
    played.run(2_500)
    assert most_in(played.times(), 1_000) == rate
    assert len(played.times()) >= 2 * rate


def test_calls_are_spread_over_their_second() -> None:
    """All at once in the first millisecond of each second would be a load that nobody asked for."""
    played = Timed(Limits(calls_per_second=100))
    played.take(*range(1_000))
    played.run(1_500)
    assert most_in(played.times(), 100) == 10


def test_a_rate_below_one_is_a_call_in_some_seconds() -> None:
    """One in five seconds."""
    played = Timed(Limits(calls_per_second=0.2))
    played.take(0, 1, 2)
    played.run(20_000)
    assert played.times() == [0, 5_000, 10_000]


def test_attempts_count_as_calls() -> None:
    """A storm of retries is what a limit is for."""
    played = Played(10, limits=Limits(calls_per_second=1))
    played.take(0)
    played.end(0, error=NO)
    played.core.retry(played.failed.pop(), played.now, in_ms=10)
    played.advance(10)
    assert played.started == [0]
    assert played.core.next_due_ms() == 1_000, "it is not asked for in a loop"
    played.advance(990)
    assert played.started == [0, 0]


def test_a_limited_key_does_not_stop_others() -> None:
    """Nor do its records take slots while they wait."""
    played = Timed(Limits(calls_per_second_per_key=1), concurrency=2)
    _take_keyed(played, "aaabca")
    assert [offset for _, _, offset in played.began] == [0, 3, 4]
    played.run(2_999)
    assert [(at, offset) for at, _, offset in played.began[3:]] == [(1_000, 1), (2_000, 2)]
    assert played.core.status(played.now).running == 0


def test_a_limited_key_does_not_stop_others_beside_a_topic_that_waits() -> None:
    """The partition with both keys is looked at again before the one of the topic is for the second time."""
    played = Played(10, limits=Limits(calls_per_second_per_key=1, topics={"bulk": Limits(concurrency=1)}))
    _take_keyed(played, "a", first=10)
    played.end(10)
    played.take(0, 1, partition=BULK)
    _take_keyed(played, "ab", first=11)
    assert played.started == [10, 0, 12]


def test_a_limited_key_waits_in_any_order() -> None:
    """order="none": its records are not in one lane, and still of one key."""
    played = Timed(Limits(calls_per_second_per_key=2))
    _take_keyed(played, "aaaab", lanes=False)
    played.run(5_000)
    assert most_in([at for at, _, offset in played.began if offset < 4], 1_000) == 2
    assert len(played.began) == 5


def test_of_the_records_that_wait_for_a_key_few_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """With order="none" each waits for itself: all of them looked up each time cost a quarter of a core."""
    looks = 0
    due_ms_of_key = Pacing.due_ms_of_key

    def counted(pacing: Pacing, topic: str, key: object) -> int:
        nonlocal looks
        looks += 1
        return due_ms_of_key(pacing, topic, key)

    monkeypatch.setattr(Pacing, "due_ms_of_key", counted)
    played = Timed(Limits(calls_per_second_per_key=15))
    _take_keyed(played, "a" * 900, lanes=False)
    played.run(20_000)
    assert len(played.began) >= 300, "nothing of the rate is lost"
    assert looks <= 900 + 3 * len(played.began)


def test_records_without_a_key_have_no_limit_by_key() -> None:
    """They are not of one key."""
    played = Timed(Limits(calls_per_second_per_key=1))
    played.take(*range(50))
    assert len(played.began) == 50


def test_a_limited_topic_does_not_stop_others() -> None:
    """Bulk work may be slow; orders are not."""
    played = Timed(Limits(topics={"bulk": Limits(calls_per_second=1)}), concurrency=3)
    played.take(*range(10), partition=BULK)
    played.take(*range(10))
    assert len(played.times(P)) == 10
    played.run(2_000)
    assert played.times(BULK) == [0, 1_000, 2_000]


def test_a_topic_has_no_more_slots_than_its_concurrency() -> None:
    """Also where a retry is due; then it is its turn first."""
    played = Played(10, limits=Limits(topics={"bulk": Limits(concurrency=2)}))
    played.take(*range(4), partition=BULK)
    played.take(10, 11, 12)
    assert played.started == [0, 1, 10, 11, 12]
    played.end(0, partition=BULK, error=NO)
    assert played.started[5:] == [2]
    played.core.retry(played.failed.pop(), played.now, in_ms=5)
    played.advance(5)
    assert played.started[6:] == []
    assert played.core.next_due_ms() is None
    played.end(1, partition=BULK)
    assert played.started[6:] == [0]


def test_a_retry_of_a_full_topic_does_not_outlive_its_partition() -> None:
    """It is the next owner's."""
    played = Played(10, limits=Limits(topics={"bulk": Limits(concurrency=1)}))
    played.take(0, 1, partition=BULK)
    played.end(0, partition=BULK, error=NO)
    played.core.retry(played.failed.pop(), played.now, in_ms=0)
    played.advance(0)
    played.core.forget([BULK], played.now)
    played.core.ended(played.running.pop((0, 1)), played.now)
    played.perform()
    assert played.started == [0, 1]
    assert played.core.empty


def test_topics_with_a_higher_priority_come_first() -> None:
    """As soon as a slot is free."""
    played = Played(1, buffer=100, limits=Limits(topics={"bulk": Limits(priority=-1), "t": Limits(priority=5)}))
    played.take(0, 1, 2, partition=BULK)
    played.take(10, 11, partition=NamedPartition("other", 1))
    played.take(20, 21)
    assert played.started == [0]
    for offset, partition in [(0, BULK), (20, P), (21, P), (10, Q), (11, Q), (1, BULK)]:
        played.end(offset, partition=partition)
    assert played.started == [0, 20, 21, 10, 11, 1, 2]


def test_topics_of_a_lower_priority_leave_half_of_the_buffer() -> None:
    """Records that come first would not be read behind a backlog that fills it."""
    played = Played(1, buffer=8, limits=Limits(topics={"t": Limits(priority=1)}))
    played.take(0, partition=P)
    played.take(*range(3), partition=BULK)
    assert played.core.pauses() == (set(), set())
    played.take(3, partition=BULK)
    assert played.core.pauses() == ({BULK}, set())
    assert played.core.may_read
    played.end(0)
    played.end(0, partition=BULK)
    assert played.core.pauses() == (set(), set())
    played.end(1, partition=BULK)
    played.end(2, partition=BULK)
    assert played.core.pauses() == (set(), {BULK})


def test_a_limit_of_all_pauses_no_partition() -> None:
    """Nothing more would start if other partitions were read, and librdkafka would fetch what it has once more."""
    played = Timed(Limits(calls_per_second=1), buffer=4)
    played.core.assigned(Q, 0)
    played.take(*range(5))
    assert played.core.pauses() == (set(), set())


def test_waiting_for_a_limit_is_not_counted_against_the_time_out() -> None:
    """Nor is it a call that hangs."""
    played = Played(10, timeout_ms=100, limits=Limits(calls_per_second=1))
    played.take(0, 1)
    played.end(0)
    played.advance(900)
    assert played.started == [0]
    played.advance(100)
    played.advance(99)
    assert played.started == [0, 1]
    assert played.cancelled == []
    played.advance(1)
    assert played.cancelled == [1]


def test_bounds_change_while_it_runs() -> None:
    """More slots begin at once; with fewer, what runs goes on."""
    played = Played(1, buffer=100)
    played.take(*range(10))
    _change(played, concurrency=3)
    assert played.started == [0, 1, 2]
    _change(played, concurrency=1)
    played.end(0, 1)
    assert played.started == [0, 1, 2]
    played.end(2)
    assert played.started == [0, 1, 2, 3]
    _change(played, concurrency=10, limits=Limits(calls_per_second=2))
    assert played.started[4:] == [], "the one that runs has just begun"
    played.advance(100)
    assert played.started[4:] == [4]
    played.advance(800)
    assert played.started[5:] == []
    _change(played, concurrency=10, limits=Limits())
    assert played.started[5:] == [5, 6, 7, 8, 9]


def test_limits_of_a_key_and_priorities_change_while_it_runs() -> None:
    """A key that waits begins at once if it may; partitions that wait for a slot change their turns."""
    played = Played(1, buffer=100, limits=Limits(calls_per_second_per_key=0.1))
    _take_keyed(played, "aab", lanes=False)
    played.take(20, 21, partition=BULK)
    played.end(0)
    assert played.started == [0, 20], "the second record of the key is set aside"
    _change(played, concurrency=1, limits=Limits(topics={"bulk": Limits(priority=1)}))
    played.end(20, partition=BULK)
    played.end(21, partition=BULK)
    assert played.started == [0, 20, 21, 1]


def test_a_limit_is_not_asked_for_in_a_loop_while_a_transaction_is_written() -> None:
    """Nothing may begin before that has ended, whatever the limit says."""
    played = Played(5, slice_records=1, limits=Limits(calls_per_second=2))
    played.core.assigned(P, 0)
    played.take(0, 1, 2)
    played.advance(100)
    played.end(0)
    slice_ = played.core.take_slice(played.now)
    assert slice_ is not None
    assert played.core.next_due_ms() == 1_000
    played.end(1)
    assert played.core.next_due_ms() is None
    played.advance(2_000)
    assert played.started == [0, 1]
    played.core.slice_ended(slice_, played.now)
    assert played.core.take_slice(played.now) is not None
    played.perform()
    assert played.started == [0, 1, 2]


def test_few_of_the_calls_that_have_begun_are_kept() -> None:
    """As many as the rate has, and as many again."""
    pacing = Pacing(Limits(calls_per_second=10))
    for now_ms in range(0, 100_000, 100):
        pacing.begins("t", None, now_ms)
        assert pacing.due_ms() <= now_ms + 100
    assert len(pacing._all._begun) <= 20


def test_keys_that_are_long_ago_are_forgotten() -> None:
    """A service sees a million customers."""
    pacing = Pacing(Limits(calls_per_second_per_key=10))
    for number in range(20_000):
        pacing.begins("t", number, number)
    assert len(pacing._all._begun_of) < 5_000


@pytest.mark.parametrize(
    ("limits", "error", "text"),
    [
        (Limits(calls_per_second=0), ConfigError, "calls_per_second=0"),
        (Limits(calls_per_second_per_key=float("nan")), ConfigError, "calls_per_second_per_key=nan"),
        (Limits(calls_per_second="5"), ArgumentTypeError, "is not a number"),  # type: ignore[arg-type]
        (Limits(concurrency=5), ConfigError, "are for one topic"),
        (Limits(topics={"t": 5}), ArgumentTypeError, r"'t': 5; give"),  # type: ignore[dict-item]
        (Limits(topics={"t": Limits(topics={"u": Limits()})}), ConfigError, "topics= of its own"),
        (Limits(topics={"t": Limits(concurrency=0)}), ConfigError, "topic 't': concurrency=0"),
        (Limits(topics=["t"]), ArgumentTypeError, "give {'orders'"),  # type: ignore[arg-type]
    ],
)
def test_wrong_limits_are_refused(limits: Limits, error: type[Exception], text: str) -> None:
    """The text names what is wrong, and the way out."""
    with pytest.raises(error, match=text):
        limits.check()


@pytest.mark.parametrize("seed", range(60))
def test_random_runs_keep_all_limits(seed: int) -> None:
    """No second has too many, no topic too many at once, each record is done, and lanes keep their order."""
    rng = random.Random(seed)
    rate = rng.choice([None, 5, 12, 60])
    by_key = rng.choice([None, 1, 3])
    topic = Limits(
        calls_per_second=rng.choice([None, 2, 20]),
        calls_per_second_per_key=rng.choice([None, 2]),
        concurrency=rng.choice([None, 1, 2]),
        priority=rng.choice([0, 1, -1]),
    )
    limits = Limits(calls_per_second=rate, calls_per_second_per_key=by_key, topics={"bulk": topic})
    batch, lanes = rng.choice([1, 1, 3]), rng.random() < 0.7
    played = Played(
        rng.randint(1, 8),
        buffer=rng.randint(4, 100),
        batch=batch if lanes else 1,
        batch_ms=rng.choice([0, 20]),
        limits=limits,
    )
    log = {partition: [rng.choice("aabc-") for _ in range(rng.randint(0, 15))] for partition in (P, BULK)}
    left = {partition: list(range(len(keys))) for partition, keys in log.items()}
    began: list[tuple[int, NamedPartition, str]] = []
    done: dict[NamedPartition, list[int]] = {P: [], BULK: []}
    noted = 0
    for _ in range(3_000):
        running = [work for work in _running(played) if work.partition == BULK]
        assert topic.concurrency is None or len(running) <= topic.concurrency
        if sum(map(len, done.values())) == sum(map(len, log.values())):
            break
        partition = rng.choice((P, BULK))
        kind = rng.random()
        played.core.pauses()
        if kind < 0.3 and played.core.may_read and partition not in played.core.paused and left[partition]:
            offset = left[partition].pop(0)
            _take_keyed(played, log[partition][offset], partition=partition, first=offset, lanes=lanes)
        elif kind < 0.7 and (running := _running(played)):
            work = rng.choice(running)
            _end(played, work, None if rng.random() < 0.8 else NO)
            if not played.failed:
                done[work.partition] += [item.offset for item in work.items]
        elif (due_ms := played.core.next_due_ms()) is not None:
            assert due_ms > played.now or kind < 0.7, "it would be asked for in a loop"
            played.advance(max(1, due_ms - played.now) if rng.random() < 0.5 else rng.randint(1, 50))
        else:
            played.advance(rng.randint(1, 50))
        for work in played.failed:
            played.core.retry(work, played.now, in_ms=rng.choice([0, 30]))
            played.core.tick(played.now)
        played.failed.clear()
        played.perform()
        began += [
            (played.now, each.partition, log[each.partition][each.items[0].offset]) for each in played.calls[noted:]
        ]
        noted = len(played.calls)
    else:
        raise AssertionError("something is never done")
    _check_rate([at for at, _, _ in began], rate)
    _check_rate([at for at, where, _ in began if where == BULK], topic.calls_per_second)
    for key in "abc":
        _check_rate([at for at, _, of in began if of == key], by_key)
        _check_rate([at for at, where, of in began if (where, of) == (BULK, key)], topic.calls_per_second_per_key)
        for partition in (P, BULK):
            own = [offset for offset in done[partition] if log[partition][offset] == key]
            assert own == sorted(own) or not lanes


def _check_rate(times: Sequence[int], rate: float | None) -> None:
    assert rate is None or not times or most_in(times, 1_000) <= rate


def _running(played: Played) -> list[Work]:
    return list({id(work): work for work in played.calls if work.state == "running"}.values())


def _end(played: Played, work: Work, error: Exception | None) -> None:
    if error is None:
        played.core.succeeded(work, played.now)
    else:
        played.core.failed(work, error, played.now)
    played.perform()


def _take_keyed(
    played: Played, keys: str, *, partition: NamedPartition = P, first: int = 0, lanes: bool = True
) -> None:
    """Deliver a record for each letter, with that key; '-' has none."""
    played.take(*range(first, first + len(keys)), lanes=keys if lanes else None, keys=keys, partition=partition)


def _change(played: Played, *, concurrency: int, limits: Limits | None = None) -> None:
    played.change(concurrency=concurrency, limits=limits)
