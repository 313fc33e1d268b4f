"""One consumer of the demo, a process of its own so that it can be killed: counts flights by carrier until told to go.

It counts a batch, says so on its standard output, and commits every half second: what an application does whose work
must not be lost and may be repeated. It leaves when the line ``leave`` or the end of its standard input comes, so that
no worker outlives the demo.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from demo.flights import carrier_of
from demo.ledger import CountedRun
from demo.reports import Committed, Counted, Left, Moved, Report, Started, Status, Troubled, to_line
from kip848_client.errors import Kip848Error

if TYPE_CHECKING:
    from kip848_client import Consumer

COMMIT_INTERVAL_S: Final = 0.5
BATCH_RECORDS: Final = 500
POLL_S: Final = 0.1


class Worker:
    """Counts what a consumer delivers.

    Args:
        report: called with everything that the demo is to know, in order.
        should_leave: asked between two batches.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        consumer: Consumer,
        *,
        report: Callable[[Report], None],
        should_leave: Callable[[], bool],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer = consumer
        self._report = report
        self._should_leave = should_leave
        self._now_s = now_s
        self._uncommitted = False
        self._status: Status | None = None

    def run(self, topic: str) -> None:
        """Count until told to leave. The consumer is left open and everything counted is committed."""
        self._consumer.subscribe(
            [topic],
            on_assign=lambda _consumer, partitions: self._moved("assigned", partitions),
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        commit_due_s = self._now_s() + COMMIT_INTERVAL_S
        while not self._should_leave():
            self._count(self._consumer.consume(BATCH_RECORDS, POLL_S))
            self._report_status()
            if self._now_s() >= commit_due_s:
                self._commit()
                commit_due_s = self._now_s() + COMMIT_INTERVAL_S
        self._commit()

    def _count(self, messages: Sequence[Any]) -> None:
        if messages:
            self._uncommitted = True
            self._report(Counted(tuple(runs_of(messages))))

    def _commit(self) -> None:
        if not self._uncommitted:
            return
        try:
            self._consumer.commit(asynchronous=False)
        except Kip848Error as error:  # the partitions moved; their next owner counts again from the last commit
            self._report(Troubled(f"commit: {error}"))
        else:
            self._uncommitted = False
            self._report(Committed())

    def _on_revoke(self, _consumer: object, partitions: Sequence[Any]) -> None:
        self._commit()  # still ours: the next owner begins where we stopped
        self._moved("revoked", partitions)

    def _on_lost(self, _consumer: object, partitions: Sequence[Any]) -> None:
        self._moved("lost", partitions)  # another worker may own them already: too late to commit

    def _moved(self, what: str, partitions: Sequence[Any]) -> None:
        self._report(Moved(what, tuple(sorted(partition.partition for partition in partitions))))

    def _report_status(self) -> None:
        owned = tuple(sorted(partition.partition for partition in self._consumer.assignment()))
        status = Status(self._consumer.state.value, self._consumer.member_epoch, owned)
        if status != self._status:
            self._status = status
            self._report(status)


def runs_of(messages: Sequence[Any]) -> Iterator[CountedRun]:
    """Group the records of a batch by partition into runs of consecutive offsets."""
    open_runs: dict[int, CountedRun] = {}
    for message in messages:
        partition, offset, carrier = message.partition(), message.offset(), carrier_of(message.value())
        run = open_runs.get(partition)
        if run is not None and offset == run.first_offset + len(run.carriers):
            run.carriers.append(carrier)
            continue
        if run is not None:
            yield run
        open_runs[partition] = CountedRun(partition, offset, [carrier])
    yield from open_runs.values()


def main(arguments: Sequence[str]) -> int:
    """Run one worker: ``BOOTSTRAP TOPIC GROUP NAME``."""
    from kip848_client import Consumer  # here, so that what the tests import does not load librdkafka

    bootstrap_servers, topic, group_id, name = arguments
    leave = threading.Event()
    threading.Thread(target=_await_leave, args=(leave,), name="demo-stdin", daemon=True).start()
    _write(Started(os.getpid()))
    conf = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group_id,
        "client.id": name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    with Consumer(conf) as consumer:
        Worker(consumer, report=_write, should_leave=leave.is_set).run(topic)
    _write(Left())
    return 0


def _write(report: Report) -> None:
    line = to_line(report)
    while line:
        line = line[os.write(sys.stdout.fileno(), line) :]


def _await_leave(leave: threading.Event) -> None:
    # os.read and not sys.stdin: a daemon thread must not hold the lock of a buffered stream when Python ends.
    os.read(sys.stdin.fileno(), 64)
    leave.set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
