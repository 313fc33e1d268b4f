"""Client-side assignors, end to end: consumers, the embedded broker, real records."""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable

import pytest

from kip848_client import Consumer, EmbeddedBroker, IllegalStateError, MemberState
from kip848_client.assignors import AssignmentSpec, AssignorMetadata, GroupAssignment, PartitionAssignor, keep_held
from kip848_client.assignors.client.interface import ASSIGNMENT_INVALID, ASSIGNOR_RAISED
from kip848_client.errors import AssignorTimeoutError, ClientAssignorError
from kip848_client.journal import MemoryJournal
from kip848_client.testing import LoggedRequest
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import delivered_once, keys_of, producer_for
from tests.interop.client.local_assignors import Weighing
from tests.interop.embedded.clients import MemberThread
from tests.support.driving import QUIET, DrivenConsumer, drive
from tests.support.waiting import wait_until

PARTITIONS = 12
CONFIG = {"group.consumer.session.timeout.ms": "60000", "kip848.client.assignment.timeout.ms": "1000"}
"""A member that computes has a second for it."""

pytestmark = pytest.mark.kip848_broker(topics={"orders": PARTITIONS}, config=CONFIG)


def sizes(consumers: list[DrivenConsumer]) -> list[int]:
    return [len(consumer.partitions) for consumer in consumers]


def group_of(make_consumer: MakeConsumer, *assignors: PartitionAssignor) -> list[DrivenConsumer]:
    consumers = [make_consumer(group_local_assignors=assignor) for assignor in assignors]
    return [consumer.subscribe("orders") for consumer in consumers]


def stable(broker: EmbeddedBroker, consumers: list[DrivenConsumer]) -> bool:
    """Every partition is assigned, and every member has acknowledged its assignment."""
    group = broker.groups.get("g")
    return (
        group is not None
        and group.state == "Stable"
        and len(group.members) == len(consumers)
        and sum(sizes(consumers)) == PARTITIONS
        and all(consumer.raw.state is MemberState.STABLE for consumer in consumers)
    )


def test_five_members_share_by_weight_and_follow_it_while_running(
    broker: EmbeddedBroker, make_consumer: MakeConsumer
) -> None:
    """A stronger member gets more partitions, also when its weight changes, and no move loses a record."""
    assignors = [Weighing(weight) for weight in (1, 1, 1, 1, 2)]
    consumers = group_of(make_consumer, *assignors)
    with producer_for(broker.bootstrap_servers) as produce:
        everywhere = range(PARTITIONS)
        produce("orders", 50, partitions=everywhere)
        drive(*consumers, until=lambda: stable(broker, consumers) and sizes(consumers) == [2, 2, 2, 2, 4])
        assignors[0].weight = 4
        assignors[4].weight = 1
        produce("orders", 50, partitions=everywhere)
        drive(*consumers, until=lambda: sizes(consumers)[0] == 7 and sorted(sizes(consumers)) == [1, 1, 1, 2, 7])
        produce("orders", 50, partitions=everywhere)
        wanted = keys_of("orders", 150, partitions=everywhere)
        drive(*consumers, until=lambda: len({key for one in consumers for key in one.delivered}) == len(wanted))
    assert delivered_once(consumers) == wanted
    drive(*consumers, until=lambda: stable(broker, consumers))
    group = broker.wait_for_group("g")
    assert group.assignor == "weighing"
    for assignor, consumer in zip(assignors, consumers, strict=True):
        assert assignor.heard[-1] == (group.group_epoch, 0, len(consumer.partitions))
        assert len(assignor.heard) == len({epoch for epoch, _, _ in assignor.heard}), "told once for each epoch"
        assert assignor.threads <= {"kip848-assignor-kip848-client"}


def _all_past(assignors: list[Weighing], epoch: int) -> bool:
    return all(assignor.heard[-1][0] > epoch for assignor in assignors)


def test_a_requested_reassignment_reaches_the_assignor_with_its_reason_each_time(
    broker: EmbeddedBroker, make_consumer: MakeConsumer
) -> None:
    """An application that knows something says so; asking twice for the same reason asks twice."""
    assignors = [Weighing(), Weighing()]
    consumers = group_of(make_consumer, *assignors)
    drive(*consumers, until=lambda: stable(broker, consumers))
    for _ in range(2):
        before = max(epoch for assignor in assignors for epoch, _, _ in assignor.heard)
        mark = broker.requests.mark()
        consumers[1].raw.request_reassignment(7)
        drive(*consumers, until=functools.partial(_all_past, assignors, before))
        assert {0, 7} in [
            {member.reason for member in one.specs[-1].members.values()} for one in assignors if one.specs
        ]
        # The reason falls back with a later heartbeat, and that is no third reassignment.
        epoch = max(epoch for assignor in assignors for epoch, _, _ in assignor.heard)
        broker.requests.wait_for(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            member=consumers[1].raw.member_id,
            when=lambda logged: getattr(logged.request, "client_assignors", None) is not None,
            since=mark,
            count=2,
            answered=True,
        )
        group = broker.wait_for_group("g")
        assert group.group_epoch == epoch


def test_what_cannot_be_requested_is_refused(make_consumer: MakeConsumer) -> None:
    """A request that cannot be fulfilled must not look like one that is under way."""
    plain = make_consumer()
    with pytest.raises(IllegalStateError, match=r"needs a client-side assignor \(group.local.assignors\)"):
        plain.raw.request_reassignment(1)
    local = make_consumer(group_local_assignors=Weighing)
    for reason in (0, 128, -129):
        with pytest.raises(ValueError, match=f"reason is {reason}"):
            local.raw.request_reassignment(reason)


# --- misbehaviour


def _raise(spec: AssignmentSpec) -> GroupAssignment | None:
    raise RuntimeError("the weights do not add up")


def _forget_one(spec: AssignmentSpec) -> GroupAssignment | None:
    first, *rest = spec.members
    given = GroupAssignment.of({first: spec.partitions[1:]})
    assert rest is not None
    return given


@pytest.mark.parametrize(
    ("misbehave", "error", "said"),
    [
        (_raise, ASSIGNOR_RAISED, "raised RuntimeError: the weights do not add up"),
        (_forget_one, ASSIGNMENT_INVALID, "not assigned: orders-0"),
        (lambda spec: GroupAssignment(error=42), 42, "returned error 42"),
        (lambda spec: ["junk"], ASSIGNMENT_INVALID, "and not a GroupAssignment"),
    ],
    ids=["raises", "forgets", "reports", "junk"],
)
def test_an_assignor_that_fails_is_an_error_that_all_members_hear_of_and_no_crash(
    broker: EmbeddedBroker,
    make_consumer: MakeConsumer,
    misbehave: Callable[[AssignmentSpec], GroupAssignment | None],
    error: int,
    said: str,
) -> None:
    """The group keeps what it has, the author finds the reason in the log, and the assignor is called until it works.

    Without that, the partitions of a member that left would have no reader until the next change.
    """
    journal = MemoryJournal()
    assignors = [Weighing(), Weighing()]
    consumers = [make_consumer(group_local_assignors=one, journal=journal).subscribe("orders") for one in assignors]
    drive(*consumers, until=lambda: stable(broker, consumers))
    before = [consumer.partitions for consumer in consumers]
    begun = len(journal.events)  # while they joined, a computation may have been overtaken, which is told too
    for assignor in assignors:
        assignor.on_assign = misbehave
    assignors[0].weight = 3
    consumers[0].raw.request_reassignment(1)
    drive(*consumers, until=lambda: all(assignor.heard[-1][1] == error for assignor in assignors))
    assert [consumer.partitions for consumer in consumers] == before
    failures = [event.fields for event in journal.events[begun:] if event.event == "local_assignor_failed"]
    failure = next(fields for fields in failures if said in str(fields["error"]))
    if misbehave is _forget_one:
        assert failure["partitions"] == ["orders-0"]
    for assignor in assignors:
        assignor.on_assign = lambda spec: None
    drive(*consumers, until=lambda: sizes(consumers) == [9, 3])


def test_a_hanging_assignor_delays_no_heartbeat_and_another_member_takes_over(
    broker: EmbeddedBroker, make_consumer: MakeConsumer
) -> None:
    """One process with a bad day must neither fall out of the group nor hold it up."""
    journal = MemoryJournal()
    release = threading.Event()
    assignors = [Weighing(), Weighing()]
    consumers = [
        make_consumer(
            group_local_assignors=one, client_id=f"c{index}", journal=journal, group_local_assignors_timeout_ms=300
        ).subscribe("orders")
        for index, one in enumerate(assignors)
    ]
    drive(*consumers, until=lambda: stable(broker, consumers))
    stuck: list[int] = []

    def hang(index: int, spec: AssignmentSpec) -> GroupAssignment | None:
        if not stuck:
            stuck.append(index)
            release.wait(60)
        return None

    try:
        for index, assignor in enumerate(assignors):
            assignor.on_assign = functools.partial(hang, index)
        mark = broker.requests.mark()
        assignors[0].weight = 3
        drive(*consumers, until=lambda: sizes(consumers) == [9, 3])
        assert stuck
        epochs = [consumer.raw.member_epoch for consumer in consumers]
        hanging = consumers[stuck[0]].raw
        beats = broker.requests.of(ApiKey.CONSUMER_GROUP_HEARTBEAT, member=hanging.member_id, since=mark)
        assert len(beats) >= 8, "it went on at 100 ms, while the coordinator waited for a second"
        assert all(logged.error_code == 0 for logged in beats)
        drive(*consumers, until=lambda: stable(broker, consumers))
        assert epochs == [consumer.raw.member_epoch for consumer in consumers]
        said = [
            str(event.fields["error"])
            for event in journal.events
            if event.event == "local_assignor_failed" and event.member_id == hanging.member_id
        ]
        # On a busy machine metadata() may take as long.
        said = [one for one in said if not one.startswith("metadata()")]
        assert len(said) == 1
        assert "assign() of the client-side assignor 'weighing' did not return within 300 ms" in said[0]
    finally:
        release.set()
    # It came back: what it computed a second ago is dropped, and it takes part again.
    assignors[1].weight = 3
    drive(*consumers, until=lambda: sizes(consumers) == [6, 6])


def test_close_does_not_wait_for_an_assignor_that_hangs(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """A shutdown that waits for another member's bug is killed, and then nothing is committed."""
    release = threading.Event()
    hanging = threading.Event()
    assignor = Weighing()

    def hang(spec: AssignmentSpec) -> GroupAssignment | None:
        hanging.set()
        release.wait(60)
        return None

    assignor.on_assign = hang
    consumer = make_consumer(group_local_assignors=assignor, client_id="hangs").subscribe("orders")
    try:
        drive(consumer, until=hanging.is_set)
        consumer.raw.close(timeout_s=5)
        broker.wait_for_group("g", state="Empty", members=0)
    finally:
        release.set()
    wait_until(
        lambda: "kip848-assignor-hangs" not in {thread.name for thread in threading.enumerate()},
        what="the end of the assignor's thread",
    )


def test_a_consumer_that_is_dropped_without_close_leaves_no_thread_behind(broker: EmbeddedBroker) -> None:
    """A service that makes consumers as it needs them would collect one thread for each."""
    conf = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "client.id": "dropped",
        "group.local.assignors": Weighing,
    }

    def use_and_drop() -> None:
        consumer = DrivenConsumer(Consumer({**QUIET, **conf}))
        consumer.subscribe("orders")
        drive(consumer, until=lambda: len(consumer.partitions) == PARTITIONS)

    use_and_drop()
    gc.collect()
    wait_until(
        lambda: not [thread for thread in threading.enumerate() if thread.name.endswith("-dropped")],
        what="the end of both threads",
    )


# --- metadata


class Mute(PartitionAssignor):
    """Cannot describe its member."""

    name = "mute"

    def __init__(self, failure: BaseException | object) -> None:
        self.failure = failure

    def metadata(self) -> AssignorMetadata:
        if isinstance(self.failure, BaseException):
            raise self.failure
        return self.failure  # type: ignore[return-value]  # that is what is tested

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        return keep_held(spec)


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (OSError("no such file"), r"metadata\(\) of the client-side assignor 'mute' raised OSError: no such file"),
        (SystemExit(1), "raised SystemExit"),
        (b"bytes", "returned bytes; it must be an AssignorMetadata"),
        (AssignorMetadata(version=3), "returned version 3; the assignor understands 0 to 0"),
    ],
)
def test_subscribe_raises_what_the_first_metadata_raised(
    make_consumer: MakeConsumer, failure: object, said: str
) -> None:
    """A member that cannot describe itself must not join with nothing, and be given work by that."""
    consumer = make_consumer(group_local_assignors=Mute(failure))
    with pytest.raises(ClientAssignorError, match=said) as info:
        consumer.subscribe("orders")
    if isinstance(failure, BaseException):
        assert info.value.__cause__ is failure


def test_subscribe_does_not_wait_for_ever_for_the_first_metadata(make_consumer: MakeConsumer) -> None:
    """A lookup that hangs is found where it was begun."""
    release = threading.Event()

    class Slow(Weighing):
        def metadata(self) -> AssignorMetadata:
            release.wait(60)
            return super().metadata()

    consumer = make_consumer(group_local_assignors=Slow(), group_local_assignors_timeout_ms=50)
    try:
        with pytest.raises(AssignorTimeoutError, match="did not return within 50 ms"):
            consumer.subscribe("orders")
    finally:
        release.set()


def test_later_failures_of_metadata_keep_what_was_told_last(
    broker: EmbeddedBroker, make_consumer: MakeConsumer
) -> None:
    """A glitch must not look like a change, and cost the group a reassignment."""
    journal = MemoryJournal()
    mute = Mute(AssignorMetadata(b"4"))
    consumer = make_consumer(group_local_assignors=mute, journal=journal).subscribe("orders")
    drive(consumer, until=lambda: stable(broker, [consumer]))
    epoch = consumer.raw.member_epoch
    mute.failure = OSError("gone")
    drive(consumer, until=lambda: any(event.event == "local_assignor_failed" for event in journal.events))
    mute.failure = AssignorMetadata(b"4")
    broker.requests.wait_for(ApiKey.CONSUMER_GROUP_HEARTBEAT, count=3, since=broker.requests.mark(), answered=True)
    assert consumer.raw.member_epoch == epoch


# --- mixed groups


def shares(broker: EmbeddedBroker) -> tuple[str, str, list[int]]:
    """State and assignor of the group, and how many partitions its members own."""
    group = broker.groups.get("g")
    if group is None:
        return "", "", []
    return group.state, group.assignor, sorted(len(member.assigned) for member in group.members)


def test_a_librdkafka_member_turns_the_group_to_the_server_and_its_leave_turns_it_back(
    broker: EmbeddedBroker, make_consumer: MakeConsumer
) -> None:
    """Processes of another language come and go: every record is read, and the own assignor is back afterwards."""
    assignors = [Weighing(3), Weighing(1)]
    ours: list[DrivenConsumer] = [make_consumer(group_local_assignors=one).subscribe("orders") for one in assignors]
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
    drive(*ours, until=lambda: all(consumer.raw.state is MemberState.STABLE for consumer in ours))
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
