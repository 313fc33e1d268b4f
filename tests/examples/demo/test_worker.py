"""A counting worker says what it counted before it commits it, and hands over what it counted when it must."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import msgspec
import pytest
from demo.ledger import CountedRun
from demo.reports import (
    Committed,
    Counted,
    Left,
    Moved,
    Report,
    Started,
    Status,
    Troubled,
    parse_line,
    to_line,
)
from demo.worker import COMMIT_INTERVAL_S, Worker, runs_of

from kip848_client.errors import CommitFailedError, ProtocolError
from kip848_client.member.core.states import MemberState


class Partition(NamedTuple):
    partition: int


class Record(NamedTuple):
    number: int
    at: int
    carrier: str = "UA"

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return f"{self.carrier},1545,EWR,IAH".encode()


class FakeConsumer(msgspec.Struct):
    """Plays a script: each step is a batch to deliver, or a callable to run inside consume()."""

    script: list[list[Record] | Callable[[FakeConsumer], None]]
    commits: int = 0
    commit_error: Exception | None = None
    state: MemberState = MemberState.STABLE
    member_epoch: int = 1
    listeners: dict[str, Any] = msgspec.field(default_factory=dict)

    def subscribe(self, topics: list[str], **listeners: Any) -> None:
        assert topics == ["flights"]
        self.listeners = listeners

    def consume(self, _num_messages: int, _timeout: float) -> list[Record]:
        step = self.script.pop(0)
        if callable(step):
            step(self)
            return []
        return step

    def commit(self, *, asynchronous: bool) -> None:
        assert not asynchronous
        if self.commit_error is not None:
            raise self.commit_error
        self.commits += 1

    def assignment(self) -> list[Partition]:
        return [Partition(1), Partition(0)]


def reports_of(consumer: FakeConsumer, *, seconds_per_batch: float = 0.0) -> list[Report]:
    reports: list[Report] = []
    now_s = 0.0

    def clock() -> float:
        nonlocal now_s
        now_s += seconds_per_batch
        return now_s

    Worker(cast("Any", consumer), report=reports.append, should_leave=lambda: not consumer.script, now_s=clock).run(
        "flights"
    )
    return reports


ONE_RECORD = Counted((CountedRun(0, 7, ["UA"]),))
SHARED = Status("STABLE", 1, (0, 1))


def test_a_batch_is_reported_before_it_is_committed() -> None:
    """Committed first, a crash in between would lose records; reported first, it repeats them (at-least-once)."""
    consumer = FakeConsumer([[Record(0, 7)]])
    assert reports_of(consumer) == [ONE_RECORD, SHARED, Committed()]
    assert consumer.commits == 1


def test_commits_come_in_intervals_and_only_if_something_was_counted() -> None:
    """A commit for each batch would leave nothing to repeat after a crash, and cost a round trip each."""
    consumer = FakeConsumer([[Record(0, 7)], [], [], []])
    assert reports_of(consumer, seconds_per_batch=COMMIT_INTERVAL_S) == [ONE_RECORD, SHARED, Committed()]


def test_what_was_counted_is_committed_before_partitions_are_given_up() -> None:
    """Otherwise every rebalance would count records twice, not only a crash."""

    def revoke(consumer: FakeConsumer) -> None:
        consumer.listeners["on_revoke"](consumer, [Partition(1), Partition(0)])

    assert reports_of(FakeConsumer([[Record(0, 7)], revoke])) == [
        ONE_RECORD,
        SHARED,
        Committed(),
        Moved("revoked", (0, 1)),
    ]


def test_nothing_is_committed_for_partitions_that_were_lost() -> None:
    """They belong to another member already: the commit would be refused, or undo the other's."""

    def lose(consumer: FakeConsumer) -> None:
        consumer.listeners["on_lost"](consumer, [Partition(0)])
        assert consumer.commits == 0

    assert Moved("lost", (0,)) in reports_of(FakeConsumer([[Record(0, 7)], lose]))


def test_a_refused_commit_is_told_and_the_worker_goes_on() -> None:
    """A rebalance may overtake a commit; that is no reason to stop counting."""
    consumer = FakeConsumer([[Record(0, 7)]], commit_error=CommitFailedError("moved"))
    assert reports_of(consumer)[-1] == Troubled("commit: moved")


def test_runs_break_where_offsets_do() -> None:
    """A run that bridged a gap would report offsets that were never counted."""
    batch = [Record(0, 5, "UA"), Record(1, 9), Record(0, 6, "B6"), Record(0, 8, "DL")]
    assert sorted(runs_of(batch)) == [
        CountedRun(0, 5, ["UA", "B6"]),
        CountedRun(0, 8, ["DL"]),
        CountedRun(1, 9, ["UA"]),
    ]


@pytest.mark.parametrize(
    "report",
    [Started(7), SHARED, Moved("lost", (1, 2)), ONE_RECORD, Committed(), Troubled("no\nway"), Left()],
    ids=lambda report: type(report).__name__,
)
def test_a_report_reads_back_as_it_was_written(report: Report) -> None:
    """The demo counts what it reads from the pipe: a report that changes on the way is a wrong count."""
    line = to_line(report)
    assert line.count(b"\n") == 1
    assert parse_line(line) == report


@pytest.mark.parametrize("line", [b"hello\n", b"[]\n", b'{"report":"dance"}\n', b'{"report":"started"}\n', b"\xff\n"])
def test_a_line_that_is_no_report_is_refused(line: bytes) -> None:
    """Something that a library prints to standard output must not crash the demo with a KeyError."""
    with pytest.raises(ProtocolError, match="not a report"):
        parse_line(line)
