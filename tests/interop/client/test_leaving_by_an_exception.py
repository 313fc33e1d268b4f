"""What is committed when a program leaves its ``with`` block by an exception: nothing that it had not finished."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kip848_client import Consumer, EmbeddedBroker, TopicPartition
from tests.support.driving import QUIET, settings
from tests.support.waiting import TIMEOUT_S

pytestmark = pytest.mark.interop

Body = Callable[[Consumer], object]


class _FailedError(Exception):
    """The handler's."""


def handle(offset: int | None, *, fails_at: int) -> None:
    if offset == fails_at:
        raise _FailedError


def committed(broker: EmbeddedBroker) -> int | None:
    offset: int | None = broker.groups.committed("g").get(("single", 0))
    return offset


@pytest.fixture
def committed_after(broker: EmbeddedBroker) -> Callable[..., int | None]:
    """Run a body in a ``with`` block on a topic with ten records; returns the committed offset."""
    broker.topics.create("single")
    broker.produce_many("single", list("0123456789"))

    def run(body: Body, **conf: object) -> int | None:
        def serve() -> None:
            with Consumer({**QUIET, **settings(broker.bootstrap_servers, **conf)}) as consumer:
                consumer.subscribe(["single"])
                body(consumer)

        with pytest.raises(_FailedError):
            serve()
        return committed(broker)

    return run


def iterate(consumer: Consumer) -> None:
    for message in consumer:
        handle(message.offset(), fails_at=3)


def iterate_and_commit(consumer: Consumer) -> None:
    for message in consumer:
        handle(message.offset(), fails_at=3)
        consumer.commit(message)


def poll(consumer: Consumer) -> None:
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        handle(message.offset(), fails_at=3)


def consume(consumer: Consumer) -> None:
    batch = consumer.consume(3, TIMEOUT_S)
    while batch:
        handle(batch.pop(0).offset(), fails_at=4)  # the list is the application's
        batch = batch or consumer.consume(3, TIMEOUT_S)


def iterate_over_batches(consumer: Consumer) -> None:
    for batch in consumer.batches(3):
        for message in batch:
            handle(message.offset(), fails_at=4)


@pytest.mark.parametrize("body", [iterate, iterate_and_commit, poll, consume, iterate_over_batches])
@pytest.mark.parametrize("conf", [{}, {"value_deserializer": lambda data, _context: data}], ids=["bytes", "opened"])
def test_a_record_whose_handler_raises_is_read_again(
    committed_after: Callable[..., int | None], body: Body, conf: dict[str, object]
) -> None:
    """The database was away for a moment: the order that was in hand is lost without a word."""
    assert committed_after(body, **conf) == 3


def test_the_interval_of_the_automatic_commit_leaves_out_what_is_in_hand(
    broker: EmbeddedBroker, committed_after: Callable[..., int | None]
) -> None:
    """A slow handler outlives the interval: a commit behind its back would lose the record if it fails."""
    seen: list[int] = []

    def body(consumer: Consumer) -> None:
        for message in consumer:
            if message.offset() == 3:
                mark = broker.requests.mark()
                broker.requests.wait_for("ConsumerGroupHeartbeat", since=mark, count=2)
                seen.append(committed(broker) or 0)
                raise _FailedError

    assert committed_after(body, auto_commit_interval_ms=1) == 3
    assert seen[0] <= 3


def test_what_the_program_committed_itself_stays_committed(committed_after: Callable[..., int | None]) -> None:
    """A program that fails in the middle of a batch need not read its first half again."""

    def body(consumer: Consumer) -> None:
        for message in consumer.consume(3, TIMEOUT_S):
            handle(message.offset(), fails_at=2)
            consumer.commit(message)

    assert committed_after(body) == 2


def test_a_listener_that_commits_on_the_way_out_leaves_out_what_is_in_hand(
    committed_after: Callable[..., int | None],
) -> None:
    """The usual on_partitions_revoked commits everything: it would commit the record that failed."""

    def body(consumer: Consumer) -> None:
        consumer.subscribe(["single"], on_revoke=lambda consumer, _: consumer.commit(asynchronous=False))
        iterate(consumer)

    assert committed_after(body, enable_auto_commit=False) == 3


def test_a_change_of_the_assignment_commits_nothing_that_is_in_hand(
    committed_after: Callable[..., int | None],
) -> None:
    """A handler that adds a partition has not finished its record by that."""

    def body(consumer: Consumer) -> None:
        consumer.unsubscribe()
        consumer.assign([TopicPartition("single", 0)])
        for message in consumer:
            if message.offset() == 3:
                consumer.incremental_assign([TopicPartition("orders", 0)])
                raise _FailedError

    assert committed_after(body) == 3


def test_a_loop_that_ends_in_order_has_finished_its_last_record(
    broker: EmbeddedBroker, committed_after: Callable[..., int | None]
) -> None:
    """A program that stops after its last record must not read it again."""

    def body(consumer: Consumer) -> None:
        for message in consumer:
            if message.offset() == 3:
                break
        consumer.close()
        raise _FailedError

    assert committed_after(body) == 4


def test_a_second_exception_on_the_way_out_commits_nothing_and_still_closes(
    broker: EmbeddedBroker, committed_after: Callable[..., int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C is pressed twice: the group must not wait for the session of a member that is gone."""

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    def body(consumer: Consumer) -> None:
        monkeypatch.setattr(consumer._core.fetcher, "unprocessed", fail)
        iterate(consumer)

    with pytest.raises(KeyboardInterrupt):
        committed_after(body)
    assert committed(broker) is None
    broker.wait_for_group("g", state="Empty")
