"""What our consumer does with each error code that a heartbeat can bring: one test per code, on the embedded broker.

`tests/spec/test_heartbeat_errors.py` proves the same of the core for every code there is. Here the whole consumer is
asked, over TCP, by fault rules.
"""

from __future__ import annotations

import time

import pytest

from kip848_client import EmbeddedBroker, MemberState
from kip848_client.errors import (
    BrokerError,
    ErrorCode,
    FatalGroupError,
    Kip848Error,
    TopicAuthorizationError,
)
from kip848_client.faults import ALWAYS, error
from kip848_client.member.error_tables import HeartbeatErrorClass, heartbeat_error_class
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import ConsumerUnderTest, Produce, drive, keys_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

HEARTBEAT = ConsumerGroupHeartbeatRequest
CODES: list[int] = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    9999,
]
"""One of each class, and one that Kafka does not know. `tests/spec` and `tests/member` have the others."""


def name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode.__members__.values() else str(code)


def of_class(*classes: HeartbeatErrorClass) -> pytest.MarkDecorator:
    """The test runs once for each code of these classes."""
    codes = [code for code in CODES if heartbeat_error_class(code) in classes]
    assert codes
    return pytest.mark.parametrize("code", codes, ids=name)


@pytest.fixture
def consumer(broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce) -> ConsumerUnderTest:
    """A member in the middle of its work: it has four partitions and has read ten records of each."""
    produce("orders", 10)
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) == 40)
    broker.wait_for_group("g", state="Stable", members=1)
    return consumer


def first_error(consumer: ConsumerUnderTest, timeout_s: float = 60.0) -> Kip848Error:
    """Poll until it raises."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        try:
            consumer.take()
        except Kip848Error as raised:
            return raised
    raise AssertionError("nothing was raised")


@of_class(HeartbeatErrorClass.RETRY, HeartbeatErrorClass.REDISCOVER)
def test_a_passing_error_is_not_noticed(
    broker: EmbeddedBroker, consumer: ConsumerUnderTest, produce: Produce, code: int
) -> None:
    """A coordinator that loads or moves is everyday life; the application must neither see it nor lose a partition."""
    mark = broker.requests.mark()
    rule = broker.faults.on(HEARTBEAT, error(code), times=3)
    rule.wait(hits=3)
    produce("orders", 5)
    drive(consumer, until=lambda: len(consumer.delivered) == 60)

    recovered = broker.requests.wait_for(
        HEARTBEAT, since=mark, answered=True, when=lambda logged: logged.error_code == 0
    )
    assert isinstance(recovered.request, HEARTBEAT)
    assert recovered.request.member_epoch > 0
    assert recovered.request.subscribed_topic_names == ("orders",), "after an error everything is said again"
    # librdkafka, which brings the records, looks for the coordinator too, in versions below 4.
    asked_again = len(broker.requests.of("FindCoordinator", since=mark, when=lambda logged: logged.version >= 4))
    assert asked_again == (3 if heartbeat_error_class(code) is HeartbeatErrorClass.REDISCOVER else 0)
    assert consumer.listener.names() == ["assigned"]
    assert set(consumer.delivered) == keys_of("orders", 15)
    assert consumer.raw.state is MemberState.STABLE


@of_class(HeartbeatErrorClass.FENCED)
def test_a_fenced_member_gives_everything_up_and_joins_again(
    broker: EmbeddedBroker, consumer: ConsumerUnderTest, produce: Produce, code: int
) -> None:
    """Its partitions may be another member's by now: *lost* comes first, then the join with epoch 0 and the same id."""
    mark, member_id = broker.requests.mark(), consumer.raw.member_id
    broker.faults.on(HEARTBEAT, error(code)).wait()
    drive(consumer, until=lambda: consumer.listener.count("assigned") == 2)
    produce("orders", 5)
    drive(consumer, until=lambda: keys_of("orders", 15) <= set(consumer.delivered))

    _, rejoin, *_ = broker.requests.of(HEARTBEAT, since=mark)
    assert isinstance(rejoin.request, HEARTBEAT)
    assert (rejoin.request.member_epoch, rejoin.request.topic_partitions) == (0, ())
    assert consumer.listener.names() == ["assigned", "lost", "assigned"]
    assert consumer.raw.member_id == member_id


@of_class(HeartbeatErrorClass.SURFACE)
def test_an_error_for_the_application_is_raised_once_and_everything_is_kept(
    broker: EmbeddedBroker, consumer: ConsumerUnderTest, produce: Produce, code: int
) -> None:
    """Until the permission is granted, the member keeps its partitions and does not flood the log."""
    rule = broker.faults.on(HEARTBEAT, error(code, "no READ on secrets"), times=2)
    raised = first_error(consumer)
    rule.wait(hits=2)
    assert type(raised) is TopicAuthorizationError
    assert "no READ on secrets" in str(raised)
    assert not raised.fatal
    produce("orders", 5)
    drive_through_errors(consumer, 60)
    assert consumer.listener.names() == ["assigned"]
    assert consumer.raw.state is MemberState.STABLE


def drive_through_errors(consumer: ConsumerUnderTest, count: int) -> None:
    """Poll until *count* records were delivered, whatever is raised meanwhile."""
    deadline_s = time.monotonic() + 60
    while len(consumer.delivered) < count:
        assert time.monotonic() < deadline_s
        try:
            consumer.take()
        except TopicAuthorizationError:
            continue


@of_class(HeartbeatErrorClass.FATAL)
def test_a_fatal_error_is_raised_from_poll_and_ends_the_member(
    broker: EmbeddedBroker, consumer: ConsumerUnderTest, code: int
) -> None:
    """What no retry cures must be heard, with the broker's words and ours; the partitions are lost."""
    rule = broker.faults.on(HEARTBEAT, error(code, "words of the broker"), times=ALWAYS)
    raised = first_error(consumer)
    mark = broker.requests.mark()

    assert isinstance(raised, BrokerError)
    assert raised.code == code
    assert raised.fatal
    assert isinstance(raised, FatalGroupError)
    assert "words of the broker" in str(raised)
    assert consumer.raw.state is MemberState.FATAL
    wait_until(lambda: consumer.partitions == [], what="the end of the assignment")
    assert consumer.listener.names() == ["assigned", "lost"]
    with pytest.raises(FatalGroupError):
        consumer.take()
    consumer.raw.close(timeout_s=5)
    assert rule.hits == 1, "a member that stopped asks for nothing, and does not leave"
    assert broker.requests.of(HEARTBEAT, since=mark) == ()


@of_class(HeartbeatErrorClass.FATAL)
def test_a_fatal_error_on_the_join_is_raised_and_nothing_was_assigned(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, code: int
) -> None:
    """The usual moment: a missing permission, a wrong assignor, a full group."""
    rule = broker.faults.on(HEARTBEAT, error(code), times=ALWAYS)
    consumer = make_consumer().subscribe("orders")
    raised = first_error(consumer)
    assert isinstance(raised, FatalGroupError)
    assert raised.code == code
    assert (rule.hits, consumer.listener.calls, broker.groups()) == (1, [], ())
