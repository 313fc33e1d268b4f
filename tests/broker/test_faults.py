"""Each fault on a real connection: what the client sees, what the broker's state says, and that it fired.

Most tests run twice: the rules are the embedded broker's own, or those of the fault proxy before it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from kip848_client import EmbeddedBroker
from kip848_client.common.clock import ManualClock
from kip848_client.common.model import NamedPartition
from kip848_client.errors import ConfigError, ErrorCode, IllegalStateError, RequestTimeoutError
from kip848_client.journal import MemoryJournal
from kip848_client.testing.broker.proxy.fault_proxy import FaultProxy
from kip848_client.testing.faults import (
    ALWAYS,
    close,
    coordinator_not_here,
    cut_reply,
    delay,
    drop,
    duplicate,
    error,
    hold,
    lose_reply,
    rewrite,
)
from kip848_client.testing.faults.actions import Action
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kip848_client.wire.messages.metadata import MetadataRequest
from tests.support.group_requests import commit, heartbeat, join
from tests.support.waiting import wait_until

HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT

Front = EmbeddedBroker | FaultProxy
"""What clients talk to, and what has the rules."""


@pytest.fixture(params=["embedded", "proxy"])
def front(request: pytest.FixtureRequest, broker: EmbeddedBroker) -> Iterator[Front]:
    """The embedded broker, or the proxy before it, which cannot tell it from a real cluster."""
    if request.param == "embedded":
        yield broker
        return
    with FaultProxy(broker.bootstrap_servers) as proxy:
        yield proxy


@pytest.fixture
def through(front: Front) -> Iterator[RawConnection]:
    """A connection that the rules of `front` apply to."""
    with RawConnection(front.bootstrap_servers) as opened:
        yield opened


# --- errors


def test_a_topic_is_found_by_its_id(broker: EmbeddedBroker, connection: RawConnection) -> None:
    """Newer versions of Fetch and OffsetCommit carry only ids; a rule says the name."""
    topic_id = connection.ask(MetadataRequest(topics=None), version=12).topics[0].topic_id
    rule = broker.faults.on("Fetch", error(ErrorCode.NOT_LEADER_OR_FOLLOWER), topic="orders", partition=1)
    request = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        topics=(FetchTopic(topic_id=topic_id, partitions=(FetchPartition(partition=0), FetchPartition(partition=1))),),
    )
    response = connection.ask(request, version=16)
    assert rule.hits == 1
    assert {item.partition_index: item.error_code for item in response.responses[0].partitions} == {
        0: ErrorCode.NONE,
        1: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
    broker.topics.delete("orders")
    gone = broker.faults.on("Fetch", error(ErrorCode.UNKNOWN_TOPIC_ID), topic="orders")
    connection.ask(request, version=16)
    assert gone.hits == 1, "the name of a deleted topic is still known"


# --- answers that do not arrive


def is_silent(connection: RawConnection) -> bool:
    """Whether nothing comes, not even the end."""
    connection.socket.settimeout(0.05)
    with pytest.raises(TimeoutError):
        connection.socket.recv(1)
    return True


def test_a_dropped_request_changes_nothing_and_silences_its_connection(
    broker: EmbeddedBroker, front: Front, through: RawConnection
) -> None:
    """Answers leave in order: nothing arrives behind a lost one, and other connections do not notice."""
    rule = front.faults.on(HEARTBEAT, drop())
    through.send(join(), version=1)
    through.send(MetadataRequest(topics=()), version=12)
    rule.wait()
    with RawConnection(front.bootstrap_servers) as other:
        assert other.ask(MetadataRequest(topics=()), version=12).topics == ()
    assert is_silent(through)
    assert broker.groups.ids() == ()


def test_a_closed_connection_got_the_answers_before(
    broker: EmbeddedBroker, front: Front, through: RawConnection
) -> None:
    """A broker that hangs up has sent what it had answered."""
    rule = front.faults.on(HEARTBEAT, close())
    through.send(MetadataRequest(topics=()), version=12)
    through.send(join(), version=1)
    through.send(MetadataRequest(topics=()), version=12)
    through.read(MetadataRequest())
    assert through.is_closed_by_peer()
    assert rule.hits == 1
    assert broker.groups.ids() == ()


def test_a_reset_looks_like_one(front: Front, through: RawConnection) -> None:
    """Clients treat ECONNRESET and a closed connection in different places."""
    front.faults.on(HEARTBEAT, close(reset=True))
    through.send(join(), version=1)
    with pytest.raises(ConnectionResetError):
        through.socket.recv(1)


@pytest.mark.parametrize(
    ("action", "closes"),
    [(lose_reply(), True), (lose_reply(reset=True), True), (lose_reply(silent=True), False)],
    ids=str,
)
def test_a_lost_reply_has_changed_the_state(
    broker: EmbeddedBroker, front: Front, through: RawConnection, action: Action, closes: bool
) -> None:
    """The case that finds client bugs: it was done, and the client cannot know."""
    front.faults.on(ApiKey.OFFSET_COMMIT, action)
    through.send(commit({0: 5}), version=9)
    wait_until(lambda: broker.groups.committed("g") == {NamedPartition("orders", 0): 5})
    assert through.is_closed_by_peer() if closes else is_silent(through)


def test_a_reply_breaks_off_in_the_middle(broker: EmbeddedBroker, front: Front, through: RawConnection) -> None:
    """A client must not take half an answer for one, nor wait for the rest."""
    front.faults.on(HEARTBEAT, cut_reply(6))
    through.send(join(), version=1)
    with pytest.raises(EOFError, match="closed after 2 of"):
        through.read_frame()
    assert broker.groups.get("g") is not None


# --- time and order


def test_a_held_request_is_done_when_it_is_released(
    broker: EmbeddedBroker, front: Front, through: RawConnection
) -> None:
    """A test decides when a broker that hangs goes on."""
    rule = front.faults.on(HEARTBEAT, hold())
    through.send(join(), version=1)
    rule.wait()
    wait_until(lambda: rule.held == 1)
    assert broker.groups.ids() == ()
    assert rule.release() == 1
    assert through.read(join()).error_code == 0
    assert (rule.held, rule.release()) == (0, 0)


def test_a_request_that_waited_is_done_even_if_its_client_has_gone(broker: EmbeddedBroker, front: Front) -> None:
    """That is how an old heartbeat comes after a newer one: the classic zombie."""
    with front.faults.on(HEARTBEAT, hold()) as rule:
        with RawConnection(front.bootstrap_servers) as connection:
            connection.send(join(), version=1)
            rule.wait()
            wait_until(lambda: rule.held)
        front.requests.wait_for(HEARTBEAT, when=lambda logged: logged.outcome == "closed")
        assert broker.groups.ids() == ()
        rule.release()
        broker.wait_for_group("g", members=1)


def test_a_rule_that_is_cancelled_in_the_same_moment_holds_nothing() -> None:
    """Broken: a test that ends its fault just when a request comes waits for that request for ever."""
    journal = MemoryJournal(lambda event: broker.faults.clear() if event.event == "fault_injected" else None)
    with (
        EmbeddedBroker({"orders": 1}, journal=journal) as broker,
        RawConnection(broker.bootstrap_servers) as connection,
    ):
        rule = broker.faults.on(HEARTBEAT, hold())
        assert connection.ask(join(), version=1).error_code == 0
        assert (rule.hits, rule.held) == (1, 0)


def test_what_is_held_goes_on_when_the_rules_are_cleared(front: Front, through: RawConnection) -> None:
    """After clear() the broker is as if there had been no faults; nothing hangs for ever."""
    front.faults.on(HEARTBEAT, hold(), times=ALWAYS)
    through.send(join(), version=1)
    front.requests.wait_for(HEARTBEAT)
    front.faults.clear()
    assert through.read(join()).error_code == 0
    assert len(front.faults) == 0


def test_delays_follow_the_manual_clock() -> None:
    """A test with virtual time waits for nothing real."""
    with EmbeddedBroker({"orders": 1}, clock=ManualClock()) as broker:
        rule = broker.faults.on(HEARTBEAT, delay(5_000), delay(2_000, applied=True))
        with RawConnection(broker.bootstrap_servers) as one, RawConnection(broker.bootstrap_servers) as two:
            one.send(join("a"), version=1)
            rule.wait(hits=1)
            two.send(join("b"), version=1)
            broker.wait_for_group("g", members=1)
            broker.clock.advance(4_999)
            assert two.read(join()).member_id == "b"
            broker.clock.advance(1)
            assert one.read(join()).member_id == "a"


def test_a_duplicate_may_come_later() -> None:
    """A join that is delivered again after the member has left makes a ghost; its session has to end it."""
    with EmbeddedBroker({"orders": 1}, clock=ManualClock()) as broker:
        broker.faults.on(HEARTBEAT, duplicate(after_ms=100))
        with RawConnection(broker.bootstrap_servers) as connection:
            epoch = connection.ask(join(), version=1).member_epoch
            assert connection.ask(heartbeat(-1), version=1).error_code == 0
            assert epoch == 1
            broker.clock.advance(100)
            group = broker.wait_for_group("g")
            assert [member.member_id for member in group.members] == ["m"]
            broker.clock.advance(10_000)
            broker.wait_for_group("g", members=0)


# --- rewriting


def test_an_answer_that_cannot_be_sent_is_the_brokers_failure_and_not_its_end(
    broker: EmbeddedBroker, connection: RawConnection
) -> None:
    """A rewrite that makes nonsense costs one request."""
    broker.faults.on(HEARTBEAT, rewrite(lambda response: replace(response, member_epoch="x")))
    assert connection.ask(join(), version=1).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert connection.ask(heartbeat(1), version=1).error_code == 0


# --- rules and threads


def test_a_rule_in_a_with_statement_ends_with_it(front: Front, through: RawConnection) -> None:
    """An outage has a beginning and an end."""
    with front.faults.on(HEARTBEAT, coordinator_not_here(), times=ALWAYS) as outage:
        assert through.ask(join(), version=1).error_code == ErrorCode.NOT_COORDINATOR
    assert through.ask(join(), version=1).error_code == 0
    assert outage.hits == 1


def test_many_threads_make_and_end_rules_while_clients_ask(broker: EmbeddedBroker) -> None:
    """Rules come from test threads, requests from the broker's; neither may see the other half-way."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def make_rules() -> None:
        try:
            while not stop.is_set():
                with broker.faults.on("Metadata", delay(0), times=ALWAYS) as rule:
                    rule.release()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=make_rules) for _ in range(3)]
    for thread in threads:
        thread.start()
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(RawConnection(broker.bootstrap_servers)) for _ in range(4)]
        for _ in range(100):
            for connection in connections:
                assert connection.ask(MetadataRequest(topics=()), version=12).topics == ()
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(broker.faults) == 0


def test_waiting_for_a_rule_that_does_not_act_says_what_it_saw(front: Front, through: RawConnection) -> None:
    """Wrong member? wrong count? The message has the counters."""
    rule = front.faults.on(HEARTBEAT, drop(), nth=5)
    through.ask(join(), version=1)
    with pytest.raises(RequestTimeoutError, match=r"1 hits .* ConsumerGroupHeartbeat: drop \(once; 1 matched, 0 hit\)"):
        rule.wait(0.01)


def test_a_rule_that_failed_raises_in_the_waiting_call(front: Front, through: RawConnection) -> None:
    """A typing mistake in a lambda must fail the test that made it, and nothing else."""
    rule = front.faults.on(HEARTBEAT, drop(), when=lambda request: request.member_epcoh == 0)
    assert through.ask(join(), version=1).error_code == 0
    with pytest.raises(IllegalStateError, match="member_epcoh"):
        rule.wait()
    with pytest.raises(IllegalStateError, match="member_epcoh"):
        front.faults.check()


def test_a_rule_for_an_api_that_is_not_served_is_refused(broker: EmbeddedBroker) -> None:
    """It would never act, and the test would prove nothing."""
    with pytest.raises(ConfigError, match="AlterPartition is not served"):
        broker.faults.on("AlterPartition", drop())


def test_rules_outlive_a_restart_and_what_they_hold_does_not(broker: EmbeddedBroker) -> None:
    """A crash forgets the requests in flight; the test's intentions stay."""
    rule = broker.faults.on(HEARTBEAT, hold(), error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    with RawConnection(broker.bootstrap_servers) as connection:
        connection.send(join(), version=1)
        rule.wait()
        broker.crash()
        assert connection.is_closed_by_peer()
    assert rule.release() == 0
    broker.start()
    with RawConnection(broker.bootstrap_servers) as connection:
        assert connection.ask(join(), version=1).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert broker.groups.ids() == ()


def test_a_fault_is_written_into_the_event_log(
    broker: EmbeddedBroker, connection: RawConnection, journal: MemoryJournal
) -> None:
    """A user who reads the log of a test must see which errors were put there."""
    broker.faults.on(HEARTBEAT, coordinator_not_here())
    connection.ask(join(), version=1)
    (event,) = journal.named("fault_injected")
    assert event.client_id == "raw"
    assert event.fields == {
        "api": "ConsumerGroupHeartbeat",
        "action": "error NOT_COORDINATOR(16)",
        "groups": ["g"],
        "members": ["m"],
    }
