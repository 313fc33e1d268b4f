"""An unexpected exception at each step of poll(): poll() raises it, and the next call repeats the interrupted step.

The alternative is a member that goes on sending heartbeats for partitions that no member reads, which no monitoring
sees.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Message

from kip848_client.common.model import NamedPartition, OffsetAndMetadata, Subscription, TopicIdPartition
from kip848_client.consumer.records.fetcher import Fetcher
from kip848_client.errors import Kip848Error, ListenerError
from kip848_client.member.core.states import MemberState
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.client.fakes import FakePlane, needs_own_messages
from tests.support.driving import key
from tests.support.waiting import wait_until
from tests.support.work import traced
from tests.threads.bench import ORDERS, P0, P1, Bench, ScriptedCoordinator, closing, poll_until

MODULES = {
    "kip848_client.consumer.group.app_thread",
    "kip848_client.consumer.records.fetcher",
    "kip848_client.consumer.group.listener_invoker",
    "kip848_client.network.queues",
}


class SurpriseError(Exception):
    """An unforeseen error."""


class SurpriseExit(BaseException):
    """What Ctrl-C is to a program."""


@contextmanager
def surprise(step: int, kind: type[BaseException]) -> Iterator[Callable[[], bool]]:
    """Raise before the given line that this thread runs in one of `MODULES`. Yields whether it came so far."""
    left = step

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            sys.settrace(None)
            raise kind

    with traced(count, *MODULES):
        yield lambda: left <= 0


class LogPlane(FakePlane):
    """librdkafka before a log that has a record at every offset below `END`."""

    END = 40

    def __init__(self) -> None:
        super().__init__()
        self.next: dict[tuple[str, int], int] = {}

    def incremental_assign(self, partitions: list[Any]) -> None:
        super().incremental_assign(partitions)
        self.next.update({(one.topic, one.partition): one.offset for one in partitions})

    def incremental_unassign(self, partitions: list[Any]) -> None:
        super().incremental_unassign(partitions)
        for one in partitions:
            del self.next[one.topic, one.partition]

    def unassign(self) -> None:
        super().unassign()
        self.next.clear()

    def seek(self, partition: Any) -> None:
        super().seek(partition)
        self.next[partition.topic, partition.partition] = partition.offset

    def consume(self, count: int, timeout: float) -> list[Message]:
        for (topic, partition), at in sorted(self.next.items()):
            if at < self.END and (topic, partition) not in self.paused:
                self.next[topic, partition] = at + 1
                self.deliver(topic, partition, at)
        return super().consume(count, timeout)


class Application:
    """Reads with a `Fetcher` as `Consumer` does; knows what it got."""

    def __init__(self) -> None:
        self.plane = LogPlane()
        self.fetcher = Fetcher(self.plane.as_consumer())
        self.got: dict[NamedPartition, list[int]] = {}

    def read(self) -> None:
        batch = self.fetcher.read(10, timeout_s=0)
        self.take([*self.fetcher.ready, *batch])
        self.fetcher.ready.clear()
        self.fetcher.on_the_way = False

    def take(self, messages: Sequence[Message]) -> None:
        for message in messages:
            topic, partition, offset = key(message)
            self.got.setdefault(NamedPartition(topic, partition), []).append(offset)


def tips(*partitions: NamedPartition) -> dict[TopicIdPartition, OffsetAndMetadata]:
    return {TopicIdPartition(p.topic, p.partition, ORDERS): OffsetAndMetadata(10) for p in partitions}


def buffered(application: Application) -> None:
    """Some records wait to be handed out."""
    application.fetcher.ready.extend(application.fetcher.read(10, timeout_s=0))
    application.fetcher.on_the_way = False


def in_turn(*calls: Callable[[Fetcher], object]) -> Callable[[Application], object]:
    return lambda application: [call(application.fetcher) for call in calls]


def start(*partitions: NamedPartition) -> Callable[[Fetcher], object]:
    return lambda fetcher: fetcher.start(tips(*partitions))


def read_thrice(application: Application) -> None:
    for _ in range(3):
        application.read()


STEPS: dict[str, Callable[[Application], object]] = {
    "start": in_turn(start(P0, P1)),
    "positions": in_turn(lambda fetcher: fetcher.positions()),
    "seek": in_turn(lambda fetcher: fetcher.seek(P0, OffsetAndMetadata(10))),
    "hold and start": in_turn(lambda fetcher: fetcher.hold([P0]), start(P0)),
    "pause and resume": in_turn(lambda fetcher: fetcher.pause([P0]), lambda fetcher: fetcher.resume([P0])),
    "detach": in_turn(lambda fetcher: fetcher.detach([P0]), start(P0)),
    "stop": in_turn(lambda fetcher: fetcher.stop([P1]), start(P1)),
    "keep readable": in_turn(lambda fetcher: fetcher.keep_readable(frozenset({P1})), start(P0)),
    "read": read_thrice,
}


@needs_own_messages
@pytest.mark.parametrize("kind", [SurpriseError, SurpriseExit])
@pytest.mark.parametrize("name", STEPS)
def test_a_step_of_the_fetcher_that_is_cut_off_and_done_again_skips_no_record(
    name: str, kind: type[BaseException]
) -> None:
    """Wherever it is cut off, the same call again leaves every partition read from where it was.

    Records that were taken from librdkafka and not handed out are fetched again.
    """
    step = 0
    came = True
    while came:
        step += 1
        application = Application()
        application.fetcher.start(tips(P0, P1))
        if name != "read":
            application.read()
            buffered(application)
        with surprise(step, kind) as reached:
            try:
                STEPS[name](application)
            except kind:
                sys.settrace(None)
                STEPS[name](application)
            came = reached()
        for _ in range(LogPlane.END * 2):
            application.read()
        for partition in (P0, P1):
            assert set(application.got[partition]) == set(range(10, LogPlane.END)), (name, step, partition)
    assert step > (20 if name == "read" else 3)


@pytest.mark.parametrize("kind", [SurpriseError, SurpriseExit])
def test_a_step_of_poll_that_is_cut_off_is_done_again(kind: type[BaseException]) -> None:
    """At each line of joining and of giving a partition up: the member ends up with what the group gave it, reading."""
    step = 0
    came = True
    while came:
        step += 4  # all of its thousand lines would take half a minute; every line was tried when this was written
        coordinator = ScriptedCoordinator(interval_ms=10)
        with closing(Bench(coordinator)) as bench:
            bench.member.subscribe(Subscription(frozenset({"orders"})), bench.callbacks)
            with surprise(step, kind) as reached:
                poll_until(bench, lambda: "start" in bench.records.names(), survives=(kind, ListenerError))
                coordinator.partitions = (1,)
                poll_until(
                    bench,
                    lambda: [tip.partition for tip in bench.member.view.assigned] == [1],
                    survives=(kind, ListenerError),
                )
                came = reached()
            poll_until(bench, lambda: bench.member.view.state is MemberState.STABLE, survives=(kind, ListenerError))

            assert ("start", [(0, 10), (1, 10)]) in bench.records.calls, step
            assert ("stop", [0]) in bench.records.calls, step
            assert bench.callbacks.calls[0] == ("assigned", [0, 1])
            assert ("revoked", [0]) in bench.callbacks.calls


def test_an_effect_that_fails_again_and_again_makes_the_consumer_fatal_and_the_member_leave(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raised at each poll(), and then for good: the partitions go to members that can read them."""
    coordinator = ScriptedCoordinator(interval_ms=10)
    with closing(Bench(coordinator)) as bench:
        monkeypatch.setattr(bench.records, "start", refuse)
        bench.member.subscribe(Subscription(frozenset({"orders"})), bench.callbacks)
        raised = poll_until(bench, lambda: bench.thread.fatal is not None, survives=(SurpriseError,))
        with pytest.raises(Kip848Error, match=r"StartFetching failed 5 times.*make a new one"):
            bench.member.poll(0.01)

        wait_until(lambda: any(beat.member_epoch == -1 for beat in coordinator.heartbeats()))
        assert len(raised) == 5
        assert caplog.text.count("member.effect_failed") == 5
        assert isinstance(coordinator.heartbeats()[-1], ConsumerGroupHeartbeatRequest)


def refuse(_positions: object) -> None:
    raise SurpriseError("unforeseen")
