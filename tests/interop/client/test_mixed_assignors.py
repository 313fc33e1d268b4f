"""Our members with a client-side assignor and members of librdkafka in one group, with real records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kip848_client import EmbeddedBroker, MemberState
from kip848_client.broker import LoggedRequest
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import ConsumerUnderTest, drive, keys_of, producer_for
from tests.interop.client.local_assignors import Weighing
from tests.interop.embedded.clients import MemberThread

PARTITIONS = 12


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker with the topic ``orders`` of twelve partitions."""
    with EmbeddedBroker({"orders": PARTITIONS}, config={"group.consumer.session.timeout.ms": "60000"}) as running:
        yield running


def shares(broker: EmbeddedBroker) -> tuple[str, str, list[int]]:
    """State and assignor of the group, and how many partitions its members own."""
    group = broker.group("g")
    if group is None:
        return "", "", []
    return group.state, group.assignor, sorted(len(member.assigned) for member in group.members)


def test_a_librdkafka_member_turns_the_group_to_the_server_and_its_leave_turns_it_back(
    broker: EmbeddedBroker, make_consumer: MakeConsumer
) -> None:
    """Processes of another language come and go: every record is read, and the own assignor is back afterwards."""
    assignors = [Weighing(3), Weighing(1)]
    ours: list[ConsumerUnderTest] = [make_consumer(group_local_assignors=one).subscribe("orders") for one in assignors]
    everywhere = range(PARTITIONS)
    with producer_for(broker.bootstrap_servers) as produce:
        drive(*ours, until=lambda: shares(broker) == ("Stable", "weighing", [3, 9]))
        produce("orders", 20, partitions=everywhere)
        with MemberThread(broker.bootstrap_servers, ["orders"], client_id="librdkafka") as theirs:
            drive(*ours, until=lambda: shares(broker) == ("Stable", "uniform", [4, 4, 4]))
            produce("orders", 20, partitions=everywhere)
            drive(*ours, until=lambda: len({key for one in ours for key in one.delivered} | theirs.keys()) == 480)
            assert theirs.keys(), "it had four partitions"
            assert not theirs.errors
        drive(*ours, until=lambda: shares(broker) == ("Stable", "weighing", [3, 9]))
        produce("orders", 20, partitions=everywhere)
        wanted = keys_of("orders", 60, partitions=everywhere)
        drive(*ours, until=lambda: {key for one in ours for key in one.delivered} | theirs.keys() == wanted)
    mine = [key for one in ours for key in one.delivered]
    assert len(mine) == len(set(mine)), "a record was delivered twice"
    assert all(consumer.raw.state is MemberState.STABLE for consumer in ours)
    drive(
        *ours,
        until=lambda: (
            [assignor.heard[-1] for assignor in assignors]
            == [(consumer.raw.member_epoch, 0, len(consumer.partitions)) for consumer in ours]
        ),
        what="on_assignment of the last epoch",
    )
    answers = [
        logged.response
        for logged in broker.requests.of(ApiKey.CONSUMER_GROUP_HEARTBEAT, when=_of_librdkafka)
        if isinstance(logged.response, ConsumerGroupHeartbeatResponse)
    ]
    assert answers
    for answer in answers:
        assert not answer.should_compute_assignment
        assert answer.assignment is None or not answer.assignment.pending_topic_partitions


def _of_librdkafka(logged: LoggedRequest) -> bool:
    return logged.client_id == "librdkafka"
