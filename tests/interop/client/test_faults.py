"""Our consumer and a network or broker that misbehaves: every action of the fault vocabulary, seen from a client.

What each action does to a connection is proven in `tests/broker/test_faults.py`; here it is asked what becomes of the
group, the records and the offsets.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kip848_client import EmbeddedBroker, MemberState
from kip848_client.errors import ErrorCode
from kip848_client.testing.faults import (
    ALWAYS,
    GROUP_APIS,
    close,
    coordinator_not_here,
    cut_reply,
    delay,
    drop,
    duplicate,
    error,
    hold,
    lose_reply,
)
from kip848_client.testing.faults.actions import Action
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import Produce, delivered_once, keys_of
from tests.support.driving import DrivenConsumer, drive

pytestmark = pytest.mark.interop

MakeImpatient = Callable[..., DrivenConsumer]

HEARTBEAT = ConsumerGroupHeartbeatRequest


def is_join(request: ConsumerGroupHeartbeatRequest) -> bool:
    return request.member_epoch == 0


def is_acknowledgement(request: ConsumerGroupHeartbeatRequest) -> bool:
    return request.member_epoch > 0 and request.topic_partitions is not None


@pytest.fixture
def make_impatient(make_consumer: MakeConsumer) -> MakeImpatient:
    """Make consumers that give a request up after 400 ms, and that commit only when told to."""

    def make(client_id: str = "impatient") -> DrivenConsumer:
        return make_consumer(client_id=client_id, request_timeout_ms=400, enable_auto_commit=False)

    return make


LOSSES: list[Action] = [
    close(),
    close(reset=True),
    lose_reply(),
    lose_reply(reset=True),
    cut_reply(3),
    cut_reply(10),
    drop(),
    lose_reply(silent=True),
    delay(600),
    delay(600, applied=True),
    duplicate(),
    duplicate(after_ms=50),
]


@pytest.mark.parametrize("action", LOSSES, ids=str)
@pytest.mark.parametrize("moment", [is_join, is_acknowledgement], ids=["join", "acknowledgement"])
def test_a_heartbeat_that_goes_astray_costs_time_and_nothing_else(
    broker: EmbeddedBroker,
    make_impatient: MakeImpatient,
    produce: Produce,
    action: Action,
    moment: Callable[[ConsumerGroupHeartbeatRequest], bool],
) -> None:
    """Joined or not, acknowledged or not, the member finds out; every record comes once."""
    produce("orders", 10)
    rule = broker.faults.on(HEARTBEAT, action, when=moment)
    consumer = make_impatient().subscribe("orders")
    drive(consumer, until=lambda: rule.hits and len(consumer.delivered) >= 40)
    broker.wait_for_group("g", state="Stable", members=1)
    assert delivered_once([consumer]) == keys_of("orders", 10)
    assert consumer.kinds[-1] == "assigned"
    drive(consumer, until=lambda: consumer.raw.state is MemberState.STABLE)


@pytest.mark.parametrize("action", LOSSES, ids=str)
def test_a_synchronous_commit_that_goes_astray_is_done_once_it_returns(
    broker: EmbeddedBroker, make_impatient: MakeImpatient, produce: Produce, action: Action
) -> None:
    """commit() returned: the offset is there. It does not matter what the network did meanwhile."""
    produce("orders", 5)
    consumer = make_impatient().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) == 20)
    rule = broker.faults.on("OffsetCommit", action, group="g")
    consumer.raw.commit(asynchronous=False)
    rule.wait()
    assert broker.groups.committed("g") == {("orders", index): 5 for index in range(4)}


@pytest.mark.slow
def test_connections_that_fell_silent_do_not_cost_the_session(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """A firewall that restarts forgets all connections and closes none: a heartbeat and the look-up after it hang."""
    broker.groups.set_config("g", {"consumer.session.timeout.ms": "10000"})
    produce("orders", 1)
    consumer = make_consumer(client_id="behind-a-firewall").subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) == 4)
    joined = broker.groups.get("g")
    lookup = broker.faults.on("FindCoordinator", drop(), client_id="behind-a-firewall")
    heartbeat = broker.faults.on(HEARTBEAT, drop(), client_id="behind-a-firewall")
    heartbeat.wait()
    lookup.wait()
    mark = broker.requests.mark()
    broker.requests.wait_for(HEARTBEAT, since=mark, answered=True, when=lambda logged: not logged.error_code)
    left = broker.groups.get("g")
    assert joined is not None
    assert left is not None
    assert left.group_epoch == joined.group_epoch
    assert [one.member_id for one in left.members] == [one.member_id for one in joined.members]
    assert consumer.kinds == ["assigned"]


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR],
    ids=lambda code: code.name,
)
def test_reading_recovers_from_errors_of_one_partition(
    broker: EmbeddedBroker, make_impatient: MakeImpatient, produce: Produce, code: ErrorCode
) -> None:
    """librdkafka fetches; a partition that fails for a while must not stop the others, and must come back itself."""
    produce("orders", 5)
    rule = broker.faults.on("Fetch", error(code), topic="orders", partition=2, times=2)
    consumer = make_impatient().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) == 20)
    rule.wait(hits=2)
    assert delivered_once([consumer]) == keys_of("orders", 5)


def test_chaos_ends_and_all_records_are_read(
    broker: EmbeddedBroker, make_impatient: MakeImpatient, produce: Produce
) -> None:
    """One request of ten goes wrong, for both members; afterwards every record was delivered."""
    broker.faults.seed(848)
    chaos = broker.faults.on(
        GROUP_APIS,
        close(),
        lose_reply(),
        coordinator_not_here(),
        delay(30),
        duplicate(after_ms=5),
        error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        cut_reply(9),
        times=ALWAYS,
        probability=0.1,
    )
    one = make_impatient().subscribe("orders")
    two = make_impatient().subscribe("orders")
    for _ in range(5):
        produce("orders", 10)
        total = len(one.delivered) + len(two.delivered)
        drive(one, two, until=lambda total=total: len(one.delivered) + len(two.delivered) > total)  # type: ignore[misc]
    drive(one, two, until=lambda: chaos.hits >= 7)
    chaos.cancel()
    drive(one, two, until=lambda: set(one.delivered) | set(two.delivered) == keys_of("orders", 50))
    broker.wait_for_group("g", state="Stable", members=2)
    drive(one, two, until=lambda: sorted(one.numbers + two.numbers) == [0, 1, 2, 3])


def test_a_topic_that_vanishes_before_its_offsets_are_looked_up_is_no_error(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """A service subscribes to many topics, and one of them is deleted while it starts: poll() must not raise."""
    broker.topics.create("gone")
    produce("orders", 5)
    rule = broker.faults.on("OffsetFetch", hold(), group="g")
    consumer = make_consumer().subscribe("orders", "gone")
    drive(consumer, until=lambda: rule.hits)

    broker.topics.delete("gone")
    rule.release()

    drive(consumer, until=lambda: len(consumer.delivered) == 20)
    drive(consumer, until=lambda: len(consumer.partitions) == 4)
