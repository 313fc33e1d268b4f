"""`client/control/observer.py` and `telemetry.py`: what operators can see of a member."""

from __future__ import annotations

import logging
import re
from uuid import UUID

import msgspec
import pytest

from kip848_client import Consumer, EmbeddedBroker, TopicPartition
from kip848_client.common.clock import ManualClock
from kip848_client.common.logs import LogEvent, log_event
from kip848_client.common.model import (
    BrokerNode,
    NamedPartition,
    OffsetAndMetadata,
    TopicIdPartition,
    shorten_partitions,
)
from kip848_client.common.telemetry import ClientMetrics
from kip848_client.errors import ErrorCode, Kip848Error
from kip848_client.journal import MemoryJournal
from kip848_client.member.core.events import ConnectCoordinator, StartCause, StartReason
from kip848_client.member.core.states import Phase
from kip848_client.member.core.statistics import Statistics
from kip848_client.network.observer import MemberObserver
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.messages.consumer_protocol import ConsumerProtocolAssignment, encode_assignment
from kip848_client.wire.messages.consumer_protocol import TopicPartition as Partitions
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kip848_client.wire.messages.join_group import JoinGroupResponse
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kip848_client.wire.messages.sync_group import SyncGroupResponse
from tests.support.waiting import wait_until

P0 = TopicIdPartition("orders", 0, UUID(int=1))


class CountingMetrics(ClientMetrics):
    """Keeps what was counted and measured; unknown names fail as in the real one."""

    def __init__(self) -> None:
        super().__init__(client_id="c", group_id="g")
        self.seen: list[tuple[str, float]] = []

    def count(self, name: str, amount: int = 1, *, cause: str | None = None) -> None:
        super().count(name, amount, cause=cause)
        self.seen.append((name, amount))

    def measure(self, name: str, ms: float) -> None:
        super().measure(name, ms)
        self.seen.append((name, ms))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(now_ms=1_000)


@pytest.fixture
def metrics() -> CountingMetrics:
    return CountingMetrics()


@pytest.fixture
def observer(journal: MemoryJournal, clock: ManualClock, metrics: CountingMetrics) -> MemberObserver:
    observer = MemberObserver(group_id="g", client_id="c", clock=clock, journal=journal, max_poll_interval_ms=200)
    observer._metrics = metrics
    return observer


def test_a_rebalance_is_measured_until_its_acknowledgement_is_due(
    observer: MemberObserver, metrics: CountingMetrics
) -> None:
    """The number that people compare with the old protocol; each of the runs that one assignment takes counts."""
    statistics = Statistics()
    for now_ms, old, new in (
        (1_000, Phase.IN_SYNC, Phase.PENDING),
        (1_040, Phase.PENDING, Phase.ACK_DUE),
        (1_050, Phase.ACK_DUE, Phase.PENDING),
        (1_150, Phase.ASSIGNING, Phase.ACK_DUE),
        (1_151, Phase.ACK_DUE, Phase.IN_SYNC),
    ):
        statistics.moved(old, new, now_ms=now_ms)
        observer.stepped(statistics)

    total, latency = "kafka.consumer.rebalance.total", "kafka.consumer.rebalance.latency"
    assert metrics.seen == [(total, 1), (latency, 40), (total, 1), (latency, 100)]


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (Phase.FENCED_RELEASE, ["kafka.consumer.failed.rebalance.total"]),
        (Phase.FATAL_RELEASE, ["kafka.consumer.failed.rebalance.total"]),
        (Phase.LEAVE_REVOKING, []),
    ],
)
def test_only_a_rebalance_that_was_cut_short_counts_as_failed(
    observer: MemberObserver, metrics: CountingMetrics, end: Phase, expected: list[str]
) -> None:
    """Leaving is no failure; being fenced while stable is none of a rebalance."""
    statistics = Statistics()
    for old, new in ((Phase.IN_SYNC, Phase.PENDING), (Phase.PENDING, end), (Phase.IN_SYNC, Phase.FENCED_RELEASE)):
        statistics.moved(old, new, now_ms=1_000)
        observer.stepped(statistics)

    assert [name for name, _ in metrics.seen] == expected


def test_answers_are_counted_with_their_latency(
    observer: MemberObserver, metrics: CountingMetrics, journal: MemoryJournal
) -> None:
    """A slow coordinator is seen here first; and what it assigns is in the event log."""
    assignment = Assignment(topic_partitions=(TopicPartitions(UUID(int=1), (0, 2)),))
    observer.answered(ConsumerGroupHeartbeatResponse(assignment=assignment), ms=7.0)
    observer.answered(ConsumerGroupHeartbeatResponse(), ms=8.0)
    observer.answered(OffsetCommitResponse(), ms=9.0)

    assert [value for name, value in metrics.seen if name.endswith(("time", "latency"))] == [7.0, 8.0, 9.0]
    [event] = journal.named("assignment_received")
    assert event.fields == {"partitions": [f"{UUID(int=1)}-0", f"{UUID(int=1)}-2"]}


def test_a_classic_member_is_seen_as_well(
    observer: MemberObserver, metrics: CountingMetrics, journal: MemoryJournal, clock: ManualClock
) -> None:
    """An operator sees why a group rebalances, which member leads, and whether heartbeats are answered."""
    observer.answered(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m"), ms=1.0)
    accepted_ms = [observer.heartbeat_accepted_ms]
    joined = JoinGroupResponse(generation_id=3, protocol_name="range", leader="m", member_id="m")
    observer.answered(joined, ms=2.0)
    observer.answered(msgspec.structs.replace(joined, leader="x"), ms=2.0)
    assignment = ConsumerProtocolAssignment((Partitions("orders", (0, 2)),))
    observer.answered(SyncGroupResponse(assignment=encode_assignment(assignment)), ms=3.0)
    observer.answered(SyncGroupResponse(), ms=3.0)
    observer.answered(SyncGroupResponse(assignment=b"?"), ms=3.0)
    accepted_ms.append(observer.heartbeat_accepted_ms)
    observer.answered(HeartbeatResponse(), ms=4.0)
    observer.request_failed(HeartbeatRequest("g", 3, "m"), kind="timed out", error=Kip848Error("silence"))

    assert accepted_ms == [None, clock.now_ms()], "a join is a sign of life as well"
    assert [value for name, value in metrics.seen if name.endswith("time")] == [1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0]
    assert [line.fields["leader"] for line in journal.named("group_joined")] == ["self", "other"]
    assert [line.fields for line in journal.named("assignment_received")] == [
        {"partitions": ["orders-0", "orders-2"]},
        {"partitions": []},
    ]
    assert len(journal.named("heartbeat_failed")) == 1


def test_assignors_of_the_application_that_do_not_run_are_told_once(
    clock: ManualClock, journal: MemoryJournal, caplog: pytest.LogCaptureFixture
) -> None:
    """In the middle of a migration the coordinator assigns, and weights or zones of the application are ignored."""
    observer = MemberObserver(group_id="g", client_id="c", clock=clock, journal=journal, own_assignors=["by-cpus"])
    with caplog.at_level(logging.WARNING, logger="kip848_client"):
        for leader in ("m", "", "", "m", ""):
            observer.answered(JoinGroupResponse(generation_id=1, leader=leader, member_id="m"), ms=1.0)

    assert caplog.text.count("member.assignors_idle group_id=g assignors=by-cpus") == 2


def test_a_listener_that_raises_is_in_the_log_with_its_error(
    observer: MemberObserver, journal: MemoryJournal, caplog: pytest.LogCaptureFixture
) -> None:
    """The exception comes out of poll(), where programs may swallow it; the log keeps it."""
    with caplog.at_level(logging.WARNING, logger="kip848_client"), pytest.raises(OSError, match="disk full"):
        with observer.listener("revoked", [P0]):
            raise OSError("disk full")
    with observer.listener("assigned", [P0]):
        pass

    assert "member.listener_failed group_id=g callback=on_partitions_revoked partitions=orders-0" in caplog.text
    assert [event.event for event in journal.events] == ["listener_failed", "partitions_assigned"]
    assert journal.events[1].fields["partitions"] == ["orders-0"]


def test_commits_that_one_broken_connection_ends_are_logged_once(
    observer: MemberObserver, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A loop that commits each record has a hundred of them on their way when the broker dies."""
    broken = Kip848Error("the connection broke")
    request = OffsetCommitRequest("g", 3, "m")
    with caplog.at_level(logging.INFO, logger="kip848_client"):
        for _ in range(100):
            observer.request_failed(request, kind="disconnected", error=broken)
            observer.commit_ended({NamedPartition("orders", 0): OffsetAndMetadata(1)}, broken, automatic=False)
        clock.advance(1_000)
        observer.request_failed(request, kind="disconnected", error=broken)
    assert caplog.text.count("member.request_failed") == 2
    assert caplog.text.count("member.commit_failed") == 1


def test_ctrl_c_in_a_listener_warns_of_nothing(observer: MemberObserver, caplog: pytest.LogCaptureFixture) -> None:
    """Who ends a program that has just been given partitions saw a warning of a listener that failed."""
    with caplog.at_level(logging.WARNING, logger="kip848_client"), pytest.raises(KeyboardInterrupt):
        with observer.listener("assigned", [P0]):
            raise KeyboardInterrupt

    assert not caplog.text


def test_a_failed_automatic_commit_is_logged(
    observer: MemberObserver, journal: MemoryJournal, caplog: pytest.LogCaptureFixture
) -> None:
    """Without on_commit there is no other trace of it."""
    offsets = {NamedPartition("orders", 0): OffsetAndMetadata(5)}
    with caplog.at_level(logging.WARNING, logger="kip848_client"):
        observer.commit_ended(offsets, Kip848Error("refused"), automatic=False)
        observer.commit_ended(offsets, Kip848Error("refused"), automatic=True)
        observer.commit_ended(offsets, None, automatic=True)

    assert caplog.text.count("member.auto_commit_failed") == 1
    assert [event.event for event in journal.events] == ["commit_failed", "commit_failed", "commit_done"]


def test_automatic_commits_that_fail_for_one_reason_are_logged_once_a_minute(
    observer: MemberObserver, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A deleted topic fails every one of them: a line each five seconds hides the rest of the log."""
    offsets = {NamedPartition("orders", 0): OffsetAndMetadata(5)}
    with caplog.at_level(logging.WARNING, logger="kip848_client"):
        for reason in (*["deleted"] * 13, "refused", None, "refused"):
            observer.commit_ended(offsets, Kip848Error(reason) if reason else None, automatic=True)
            clock.advance(5_000)

    assert caplog.text.count("member.auto_commit_failed") == 4
    assert caplog.text.count("deleted") == 2


def test_ten_thousand_partitions_are_one_short_line_each_time(
    observer: MemberObserver, caplog: pytest.LogCaptureFixture
) -> None:
    """A line of 200 kB at each rebalance would bury the log, or be cut off by what collects it."""
    many = [TopicIdPartition("orders", number, UUID(int=1)) for number in range(10_000) if number != 5_000]
    offsets = {tip: OffsetAndMetadata(7) for tip in many}
    named = {tip.topic_partition: at for tip, at in offsets.items()}
    with caplog.at_level(logging.INFO, logger="kip848_client"):
        with observer.listener("assigned", many):
            pass
        with pytest.raises(OSError), observer.listener("revoked", many):
            raise OSError
        observer.fetching_started(offsets, {tip: StartCause(StartReason.OUT_OF_RANGE, "latest", 3) for tip in many})
        observer.sought(named)
        observer.commit_ended(named, Kip848Error("refused"), automatic=True)
        observer.commit_ended(named, Kip848Error("refused"), automatic=False)
        observer.commit_gave_up(named)

    assert len(caplog.records) == 8
    for record in caplog.records:
        assert "partitions=orders-[0-4999,5001-9999] count=9999" in record.getMessage()
        assert len(record.getMessage()) < 700
    assert caplog.records[3].lost_offsets["orders-9"] == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], "none"),
        ([3], "t-3"),
        ([1, 0, 2, 9, 2], "t-[0-2,9]"),
        (range(0, 40, 2), "t-[0,2,4,6,8,10,12,14,16,18,... 10 more]"),
    ],
)
def test_numbers_of_partitions_are_shortened(numbers: list[int], text: str) -> None:
    """What a person reads at a glance, and never more than that."""
    assert shorten_partitions(NamedPartition("t", number) for number in numbers) == text


def test_no_broker_within_reach_is_one_event_until_one_is(observer: MemberObserver, journal: MemoryJournal) -> None:
    """The commonest reason why a consumer does nothing; once is enough, and after a success once more."""
    lookup = FindCoordinatorRequest(coordinator_keys=("g",))
    for _ in range(3):
        observer.request_failed(lookup, kind="disconnected", error=Kip848Error("no broker listens"))
    observer.coordinator_connected(node_id=1, host="h", port=9)
    observer.request_failed(
        ConnectCoordinator(1, BrokerNode(1, "h", 9), 100), kind="timed out", error=Kip848Error("silence")
    )
    told = [(line.event, line.fields.get("error")) for line in journal.events]
    assert told == [
        ("coordinator_not_found", "no broker listens"),
        ("coordinator_found", None),
        ("coordinator_not_found", "silence"),
    ]


def test_a_missed_poll_tells_by_how_much(observer: MemberObserver, journal: MemoryJournal) -> None:
    """Whether max.poll.interval.ms is too small, or the application hangs, is seen from the number."""
    observer.poll_missed(silent_ms=350)
    observer.poll_missed(silent_ms=None)

    assert [event.fields["late_ms"] for event in journal.named("poll_interval_exceeded")] == [150, None]


def test_events_carry_the_name_of_the_member_as_it_is_now(observer: MemberObserver, journal: MemoryJournal) -> None:
    """Event logs of many members are read together."""
    observer.left()
    observer.rename(member_id="m", member_epoch=4)
    observer.failed(Kip848Error("over"))
    observer.surfaced(Kip848Error("once"))
    observer.coordinator_lost("gone")
    observer.request_failed(ConsumerGroupHeartbeatRequest(), kind="timed_out", error=Kip848Error("slow"))

    assert [(event.event, event.member_id, event.member_epoch) for event in journal.events] == [
        ("left_group", "", -1),
        ("member_failed", "m", 4),
        ("error_surfaced", "m", 4),
        ("coordinator_lost", "m", 4),
        ("heartbeat_failed", "m", 4),
    ]


def test_log_events_are_one_line_with_fields(caplog: pytest.LogCaptureFixture) -> None:
    """Alerts match on the name; `from` is a field although Python reserves the word."""
    with caplog.at_level(logging.INFO, logger="kip848_client"):
        log_event(logging.INFO, LogEvent.STATE_CHANGED, from_="STABLE", to="RECONCILING")
        log_event(logging.DEBUG, LogEvent.STATE_CHANGED, from_="never seen")

    assert caplog.messages == ["member.state_changed from=STABLE to=RECONCILING"]


def test_the_fields_of_a_log_event_are_attributes_of_its_record(caplog: pytest.LogCaptureFixture) -> None:
    """JSON formatters and structlog take them from there with their types, without parsing the message."""
    with caplog.at_level(logging.WARNING, logger="kip848_client"):
        log_event(
            logging.WARNING,
            LogEvent.COMMIT_GAVE_UP,
            offsets={NamedPartition("orders", 0): 5},
            partitions=["orders-0", "orders-1"],
            member_epoch=3,
            error=ValueError("gone"),
            from_=None,
        )

    (record,) = caplog.records
    given = {"offsets", "partitions", "member_epoch", "error", "from", "kip848_event"}
    assert {name: vars(record)[name] for name in given} == {
        "kip848_event": "member.commit_gave_up",
        "offsets": {"orders-0": 5},
        "partitions": ["orders-0", "orders-1"],
        "member_epoch": 3,
        "error": "gone",
        "from": None,
    }
    assert record.getMessage() == (
        "member.commit_gave_up offsets=orders-0: 5 partitions=orders-0, orders-1 member_epoch=3 error=gone from=None"
    )


def test_no_field_of_a_log_event_hides_what_a_record_has_itself() -> None:
    """`logging` raises KeyError for such a name, on the path that should be observed."""
    own = vars(logging.makeLogRecord({})).keys() | {"message", "asctime"}
    names = {name for event in LogEvent for name in re.findall(r"\w+", event.fields.split(":")[0])}
    assert names & {"error", "partitions", "member_epoch"}
    assert not names & own


def test_a_heartbeat_is_written_with_when_it_was_due_on_the_wall_clock(
    observer: MemberObserver, journal: MemoryJournal, clock: ManualClock
) -> None:
    """Logs of several machines are read together; a monotonic clock means nothing outside its process."""
    statistics = Statistics(heartbeats=1, last_heartbeat_ms=1_000)
    observer.stepped(statistics)
    observer.stepped(statistics)
    clock.advance(700)
    statistics.heartbeats, statistics.last_heartbeat_ms, statistics.last_heartbeat_due_ms = 2, 1_700, 1_500
    observer.stepped(statistics)
    wall_ms = clock.wall_ms()
    assert [event.fields for event in journal.named("heartbeat_sent")] == [
        {"due_ms": None, "sent_ms": wall_ms - 700},
        {"due_ms": wall_ms - 200, "sent_ms": wall_ms},
    ]


def test_every_log_event_of_a_consumer_names_its_group_and_its_member(
    kip848_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A service has several consumers, and its log is one."""
    kip848_broker.topics.create("orders")
    conf = {"bootstrap.servers": kip848_broker.bootstrap_servers, "group.id": "billing"}
    with caplog.at_level(logging.INFO, logger="kip848_client"), Consumer(conf) as consumer:
        consumer.subscribe(["orders"])
        wait_until(lambda: consumer.poll(0.05) is None and bool(consumer.assignment()))
        member_id = consumer.member_id
        consumer.pause([TopicPartition("payments", 0)])

    told = [vars(record) for record in caplog.records if record.name == "kip848_client"]
    names = [record["kip848_event"] for record in told]
    assert {"member.coordinator_connected", "member.state_changed", "consumer.not_assigned"} <= set(names)
    assert {record["group_id"] for record in told} == {"billing"}
    assert {record["member_id"] for record in told[names.index("consumer.not_assigned") :]} == {member_id}
