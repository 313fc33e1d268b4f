"""The small parts of the shell: queues, futures of commits, presence, the gate, translation, group metadata."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Public

from kip848_client import ConsumerRebalanceListener, SubscriptionPattern
from kip848_client.common.clock import ManualClock
from kip848_client.common.model import NamedPartition, OffsetAndMetadata, Subscription
from kip848_client.consumer.group.commit_manager import CommitManager, Offsets
from kip848_client.consumer.group.translation import (
    assign_positions,
    commit_offsets,
    public_callback,
    read_subscription,
    seek_position,
)
from kip848_client.consumer.listeners import CallableListener, read_listener
from kip848_client.consumer.records.data_plane import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_STORED,
    create_record_consumer,
    public,
    public_commit,
    translate,
)
from kip848_client.errors import (
    AuthenticationError,
    BrokerError,
    ConfigError,
    ConnectionLostError,
    IllegalStateError,
    Kip848Error,
    RequestTimeoutError,
)
from kip848_client.member.core.events import CommitDone, LeaveDone, OffsetsFetched
from kip848_client.network.ownership import OneThread
from kip848_client.network.presence import AppPresence
from kip848_client.network.queues import AppQueue, Inbox
from tests.client.fakes import needs_own_messages
from tests.support.work import traced

P0 = NamedPartition("orders", 0)
AT_5: Offsets = {P0: OffsetAndMetadata(5)}


# --- queues


def test_many_posts_wake_the_background_thread_once() -> None:
    """A wake-up costs 20 microseconds and a context switch; a burst of commits must not pay for each."""
    wakes: list[None] = []
    inbox: Inbox[str] = Inbox(lambda: wakes.append(None))

    posted = [inbox.post(item) for item in ("a", "b", "c")]
    first = list(inbox.drain())
    last = inbox.post("d")

    assert first == posted
    assert [one.item for one in first] == ["a", "b", "c"]
    assert list(inbox.drain()) == [last]
    assert len(wakes) == 2


def test_the_next_post_wakes_if_one_was_cut_off() -> None:
    """Ctrl-C in a commit: close() would wait half a minute for a thread that sleeps."""
    wakes: list[None] = []

    def wake() -> None:
        wakes.append(None)
        if len(wakes) == 1:
            raise KeyboardInterrupt

    inbox: Inbox[str] = Inbox(wake)

    with pytest.raises(KeyboardInterrupt):
        inbox.post("a")
    inbox.post("b")

    assert len(wakes) == 2
    assert [one.item for one in inbox.drain()] == ["a", "b"]


def test_an_interrupted_effect_stays_in_the_queue() -> None:
    """Ctrl-C between taking and performing an effect would otherwise leave the member waiting for ever."""
    queue: AppQueue[str] = AppQueue()
    queue.put("revoke")

    assert queue.first() == "revoke"
    assert queue.first() == "revoke"
    queue.done("revoke")

    assert queue.first() is None
    assert not queue


def test_a_wake_before_the_wait_is_not_lost() -> None:
    """Otherwise poll() sleeps a whole slice although its answer is there."""
    queue: AppQueue[str] = AppQueue()
    queue.wake()

    waited = threading.Thread(target=queue.wait, args=(30.0,))
    waited.start()
    waited.join(60.0)

    assert not waited.is_alive()


# --- commits


def test_callbacks_of_commits_run_in_order_on_the_calling_thread() -> None:
    """Applications rely on it: their callbacks share state with their loop."""
    commits = CommitManager()
    heard: list[object] = []
    first = commits.open(callback=lambda error, offsets: heard.append(("first", error, offsets)), asynchronous=True)
    second = commits.open(callback=lambda error, offsets: heard.append(("second", error, offsets)), asynchronous=True)
    failure = Kip848Error("no")

    assert commits.complete(CommitDone(first.call_id, AT_5, None))
    assert commits.complete(CommitDone(second.call_id, AT_5, failure))
    assert heard == []
    assert commits.run_callbacks() is None

    assert heard == [("first", None, AT_5), ("second", failure, AT_5)]


def test_a_failed_commit_without_a_callback_is_handed_to_the_caller() -> None:
    """An error that is never read is lost."""
    commits = CommitManager()
    failure = Kip848Error("no")

    commits.complete(CommitDone(commits.open(asynchronous=True).call_id, AT_5, failure))

    assert commits.callbacks_due
    assert commits.run_callbacks() is failure
    assert not commits.callbacks_due


def test_automatic_commits_are_told_to_on_commit_only() -> None:
    """With on_commit, the application hears of every commit."""
    heard: list[Offsets] = []
    silent, told = CommitManager(), CommitManager(lambda _, offsets: heard.append(offsets))

    assert not silent.complete(CommitDone(99, AT_5, None))
    assert told.complete(CommitDone(99, AT_5, None))
    told.run_callbacks()

    assert heard == [AT_5]


def test_an_abandoned_call_is_not_completed_later() -> None:
    """A late answer must not reach a call of another kind that happens to wait."""
    commits = CommitManager()
    call = commits.open()

    commits.abandon(call)

    assert not commits.complete(OffsetsFetched(call.call_id, AT_5, None))
    assert not commits.complete(LeaveDone(call.call_id))
    assert not call.finished


def test_close_waits_for_no_commit_that_ctrl_c_kept_from_the_member() -> None:
    """Broken: after a Ctrl-C inside commit(), close() waits a minute for an answer to what was never asked."""
    commits = CommitManager()
    call = commits.open(asynchronous=True)
    pending = [commits.asynchronous_pending]  # Ctrl-C came here
    call.posted = True
    pending.append(commits.asynchronous_pending)
    commits.complete(CommitDone(call.call_id, AT_5, None))
    pending.append(commits.asynchronous_pending)
    assert pending == [[], [call], []]


def test_a_commit_that_is_over_has_its_callback_at_hand() -> None:
    """Broken: a commit() that waits for earlier ones returns before their callbacks have run, once in a while."""
    commits = CommitManager()
    seen = []

    class Span:
        def end(self, _: object) -> None:
            seen.append(bool(commits.asynchronous_pending) or commits.callbacks_due)

    call = commits.open(asynchronous=True, callback=lambda *_: None)
    call.posted = True
    call.span = Span()  # type: ignore[assignment]
    commits.complete(CommitDone(call.call_id, AT_5, None))
    assert seen == [True]
    assert (commits.asynchronous_pending, commits.callbacks_due) == ([], True)


def test_when_the_thread_dies_every_call_ends_with_the_reason() -> None:
    """Without the background thread a waiting ``commit()`` would never return."""
    commits = CommitManager()
    waiting, background = commits.open(), commits.open(asynchronous=True)
    background.posted = True
    reason = Kip848Error("dead")

    commits.fail_all(reason)

    assert (waiting.finished, waiting.error) == (True, reason)
    assert background.finished
    assert commits.run_callbacks() is reason
    assert not commits.asynchronous_pending


# --- presence and gate


def test_presence_is_now_while_inside_and_the_moment_of_leaving_afterwards() -> None:
    """max.poll.interval.ms runs from the end of a poll, not from its beginning."""
    clock = ManualClock(now_ms=1_000)
    presence = AppPresence()
    never = presence.last_polled_ms(clock.now_ms())

    presence.enter(now_ms=clock.now_ms())
    clock.advance(500)
    inside = presence.last_polled_ms(clock.now_ms())
    with presence.outside(clock):
        clock.advance(100)
        in_listener = presence.last_polled_ms(clock.now_ms())
    presence.leave(now_ms=clock.now_ms())
    clock.advance(900)

    assert never is None
    assert inside == 1_500
    assert in_listener == 1_500
    assert presence.last_polled_ms(clock.now_ms()) == 1_600


def test_a_shrinking_buffer_and_a_counted_call_are_polls() -> None:
    """The fast paths of poll() leave no other trace; without it a busy member would be removed as too slow."""
    buffer = [1, 2, 3]
    presence = AppPresence(buffer)
    presence.last_polled_ms(0)

    buffer.pop()
    by_buffer = presence.last_polled_ms(10)
    presence.calls += 1
    by_call = presence.last_polled_ms(20)

    assert (by_buffer, by_call, presence.last_polled_ms(30)) == (10, 20, None)


def test_a_probe_takes_no_poll_of_long_ago_for_one_of_now() -> None:
    """A process that hangs must not be live for another probe period because it read its buffer before that."""
    buffer = [1, 2, 3]
    presence = AppPresence(buffer)
    presence.enter(now_ms=0)
    presence.leave(now_ms=0)

    buffer.pop()
    presence.last_polled_ms(5_000)  # the background thread looks at every heartbeat
    first = presence.silent_for_ms(65_000)
    buffer.pop()
    second = presence.silent_for_ms(66_000)
    presence.last_polled_ms(67_000)

    assert (first, second, presence.silent_for_ms(70_000)) == (60_000, 0, 3_000)


def test_one_thread_may_enter_twice_and_another_may_not() -> None:
    """Listeners call back; a second thread is a mistake of the program."""
    gate = OneThread()
    refused: list[str] = []

    def other() -> None:
        try:
            with gate:
                pass
        except IllegalStateError as error:
            refused.append(str(error))

    with gate, gate:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()

    assert len(refused) == 1
    assert "two threads" in refused[0]


def test_ctrl_c_between_any_two_steps_of_entering_and_leaving_locks_no_thread_out() -> None:
    """A KeyboardInterrupt comes wherever the thread is; close() must still be possible, from any thread."""
    gate, interrupted = OneThread(), 0

    def call() -> None:
        with gate:
            with gate:
                pass

    for step in itertools.count(1):
        if not interrupts_at(step, call):
            break
        interrupted += 1
        entered: list[int] = []

        def close(entered: list[int] = entered) -> None:
            with gate, gate:
                entered.append(threading.get_ident())

        close()
        thread = threading.Thread(target=close)
        thread.start()
        thread.join()
        assert len(set(entered)) == 2
        assert gate.owner is None
    assert interrupted > 50


def interrupts_at(step: int, call: Callable[[], object]) -> bool:
    """Raise KeyboardInterrupt before the given instruction that *call* runs in `ownership`; whether it came so far."""
    left = step

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt

    try:
        with traced(count, "kip848_client.network.ownership", event="opcode"):
            call()
    except KeyboardInterrupt:
        return True
    return False


# --- translation


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (["b", "a", "b"], Subscription(topics=frozenset({"a", "b"}))),
        ([], Subscription()),
        (["^ord.*"], Subscription(pattern="^ord.*")),
        (SubscriptionPattern("ord.*"), Subscription(pattern="ord.*")),
        ([SubscriptionPattern("a.*"), "^b", "c"], Subscription(frozenset({"c"}), "(?:a.*)|(?:^b)")),
    ],
)
def test_names_and_patterns_become_one_subscription(topics: list[str], expected: Subscription) -> None:
    """librdkafka's habits hold: a name that starts with ^ is a pattern, and several patterns are alternatives."""
    assert read_subscription(topics) == expected


@pytest.mark.parametrize("topics", ["orders", None, [""], ["  "], ["orders-*"], ["orders, payments"], [7], 7])
def test_what_is_no_list_of_topics_is_refused_before_anything_happens(topics: object) -> None:
    """subscribe("orders") would otherwise subscribe to six topics of one letter."""
    with pytest.raises(ConfigError, match=r"subscribe\(\)"):
        read_subscription(topics)


class Listener(ConsumerRebalanceListener):
    """Somebody's listener."""


class Misspelt(ConsumerRebalanceListener):
    """Its method is never called, so that nothing is saved before partitions go."""

    def on_partition_revoked(self, consumer: object, partitions: object) -> None:
        """Saves."""


class TakesLess(ConsumerRebalanceListener):
    """Its method fails in the first rebalance."""

    def on_partitions_revoked(self, partitions: object) -> None:  # type: ignore[override]
        """Saves."""


def note(consumer: object, partitions: object) -> None:
    """Somebody's function."""


@pytest.mark.parametrize(
    ("listener", "on_assign", "on_revoke", "message"),
    [
        (Listener(), note, None, "not both"),
        (Listener(), None, note, "not both"),
        (note, note, None, "on_assign twice"),
        (Listener, None, None, r"the class Listener; give an instance of it: Listener\(\)"),
        (Misspelt(), None, None, "on_partition_revoked is never called; did you mean on_partitions_revoked"),
        (None, None, lambda partitions: None, r"on_revoke is called with \(consumer, partitions\)"),
        (TakesLess(), None, None, r"TakesLess.on_partitions_revoked is called with \(consumer, partitions\)"),
        (7, None, None, "must be a ConsumerRebalanceListener, or a function, got int"),
        (None, None, 7, "must be callables"),
    ],
)
def test_wrong_listeners_are_refused(listener: object, on_assign: Any, on_revoke: Any, message: str) -> None:
    """One of two would be ignored silently, and what cannot be called would fail in the first rebalance."""
    with pytest.raises(ConfigError, match=message):
        read_listener(listener, on_assign, on_revoke, None, kinds=(ConsumerRebalanceListener,))


def test_a_function_in_the_place_of_the_listener_is_on_assign() -> None:
    """subscribe(topics, on_assign, on_revoke, on_lost) is confluent_kafka's order; instrumentation calls it so."""
    assert read_listener(note, None, print, None, kinds=(ConsumerRebalanceListener,)) == (None, note)


def test_offset_fields_mean_places() -> None:
    """A program ported from confluent-kafka assigns with OFFSET_BEGINNING and OFFSET_END."""
    given = [Public("t", 0, 7), Public("t", 1, OFFSET_BEGINNING), Public("t", 2, OFFSET_END), Public("t", 3),
             Public("t", 4, OFFSET_STORED)]  # fmt: skip

    positions = assign_positions(given)

    assert [None if at is None else at.offset for at in positions.values()] == [7, -2, -1, None, None]
    with pytest.raises(IllegalStateError, match="not an offset"):
        assign_positions([Public("t", 0, -7)])
    with pytest.raises(IllegalStateError, match="needs an offset"):
        seek_position(Public("t", 0))


@needs_own_messages
def test_a_commit_of_a_message_is_the_offset_after_it() -> None:
    """Off by one here means one record twice or one record lost at each restart."""
    message = Message(topic="orders", partition=0, offset=4, leader_epoch=3)

    assert commit_offsets(message, None) == {P0: OffsetAndMetadata(5, 3)}
    assert commit_offsets(None, None) is None
    assert commit_offsets(None, [Public("orders", 0, 9, "note")]) == {P0: OffsetAndMetadata(9, -1, "note")}
    with pytest.raises(IllegalStateError, match="offset >= 0"):
        commit_offsets(None, [Public("orders", 0)])
    with pytest.raises(IllegalStateError, match="not both"):
        commit_offsets(message, [])


def test_commit_callbacks_get_confluent_kafkas_partitions() -> None:
    """The callback of an application was written for them."""
    heard: list[tuple[KafkaError | None, list[Public]]] = []

    public_callback(lambda error, offsets: heard.append((error, offsets)))(None, AT_5)

    [(error, [partition])] = heard
    assert error is None
    assert (partition.topic, partition.partition, partition.offset) == ("orders", 0, 5)
    assert public(P0, OffsetAndMetadata(5, 2)).leader_epoch == 2


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._TIMED_OUT, RequestTimeoutError),
        (KafkaError._TRANSPORT, ConnectionLostError),
        (KafkaError._AUTHENTICATION, AuthenticationError),
        (KafkaError._STATE, IllegalStateError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, BrokerError),
        (KafkaError._FATAL, Kip848Error),
    ],
)
def test_librdkafkas_errors_become_ours(code: int, expected: type[Kip848Error]) -> None:
    """One family of exceptions for the application, whichever library noticed."""
    error = translate(KafkaException(KafkaError(code, "reason")), what="asking")

    assert type(error) is expected or (expected is BrokerError and isinstance(error, BrokerError))
    assert "asking: reason" in str(error)


def test_values_that_librdkafka_refuses_are_configuration_errors() -> None:
    """The cause is the caller's, whichever library looks at it."""
    with pytest.raises(ConfigError, match=r"fetch\.min\.bytes"):
        create_record_consumer({"group.id": "g", "fetch.min.bytes": "many"})
    with pytest.raises(ConfigError, match="error_cb"):
        create_record_consumer({"group.id": "g", "error_cb": 3})


def test_callables_make_a_listener_whose_lost_is_revoked_by_default() -> None:
    """As in confluent-kafka: on_revoke hears of lost partitions unless on_lost is given."""
    heard: list[str] = []
    listener = CallableListener(on_revoke=lambda *_: heard.append("revoke"))
    both = CallableListener(on_revoke=lambda *_: heard.append("revoke"), on_lost=lambda *_: heard.append("lost"))

    for one in (listener, both):
        one.on_partitions_assigned(None, [])  # type: ignore[arg-type]
        one.on_partitions_lost(None, [])  # type: ignore[arg-type]

    assert heard == ["revoke", "lost"]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [("", None), ("\0", None), ("note", "note"), ("note\0", "note"), ("two\0parts", "two")],
)
@pytest.mark.parametrize("leader_epoch", [-1, 3])
def test_metadata_of_a_commit_is_shown_as_text_or_none(stored: str, shown: str | None, leader_epoch: int) -> None:
    """confluent_kafka commits texts with their NUL, and cannot be given one: poll() raised, and nothing was read."""
    told = public_commit(P0, OffsetAndMetadata(5, leader_epoch, stored))

    assert (told.offset, told.metadata) == (5, shown)
    assert told.leader_epoch == (None if leader_epoch < 0 else leader_epoch)


def test_positions_for_librdkafka_have_no_metadata() -> None:
    """They go into send_offsets_to_transaction() as well, which would commit what another member noted."""
    assert public(P0, OffsetAndMetadata(5, 3, "note\0")).metadata is None
