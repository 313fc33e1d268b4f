"""What a program that configures the OpenTelemetry SDK sees of its consumer, on the embedded broker."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping

import anyio
import anyio.lowlevel
import msgspec
import pytest
from confluent_kafka import Message
from opentelemetry import trace
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kip848_client import AsyncConsumer, Consumer, EmbeddedBroker, Kip848Error, TopicPartition, Worker
from kip848_client.common import telemetry
from kip848_client.common.telemetry import GAUGES, METRICS, PROCESS_GAUGES, SPANS, WORKER_GAUGES, WORKER_METRICS
from kip848_client.config import ConfigValue
from kip848_client.errors import ErrorCode
from kip848_client.testing.faults import drop, error
from kip848_client.wire.api_keys import ApiKey
from tests.support import driving
from tests.support.driving import quiet
from tests.support.telemetry_sdk import sdk_in_memory
from tests.support.waiting import SOON_S, wait_until

pytestmark = pytest.mark.kip848_broker(topics={"orders": 2})

CLIENT = "kafka.consumer."


class Seen:
    """What the SDK of the test was given."""

    def __init__(self, exporter: InMemorySpanExporter, reader: InMemoryMetricReader) -> None:
        self._exporter = exporter
        self._reader = reader

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Those that have ended, with this name if one is given."""
        return [span for span in self._exporter.get_finished_spans() if not name or span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """The only span with this name."""
        [span] = self.spans(name)
        return span

    def figures(self) -> dict[str, list[tuple[float, Mapping[str, object]]]]:
        """Metric -> (value, or count of a histogram; attributes)."""
        collected = self._reader.get_metrics_data()
        figures: dict[str, list[tuple[float, Mapping[str, object]]]] = {}
        for resource in collected.resource_metrics if collected is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        if isinstance(point, HistogramDataPoint):
                            value: float = point.count
                        else:
                            assert isinstance(point, NumberDataPoint)
                            value = point.value
                        figures.setdefault(metric.name, []).append((value, dict(point.attributes or {})))
        return figures

    def value(self, name: str) -> float:
        """Of a metric of the only consumer, whatever the cause."""
        found = self.figures()[CLIENT + name]
        assert all(attributes.items() >= {("client-id", "c1"), ("group-id", "g")} for _, attributes in found)
        return sum(value for value, _ in found)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    with sdk_in_memory(monkeypatch) as (exporter, reader):
        yield Seen(exporter, reader)


def settings(broker: EmbeddedBroker, **conf: ConfigValue) -> dict[str, ConfigValue]:
    return quiet(driving.settings(broker.bootstrap_servers, **{"client_id": "c1", **conf}))


def poll_until(consumer: Consumer, condition: Callable[[], object], what: str) -> None:
    wait_until(lambda: (consumer.poll(0.02), condition())[1], what=what)


def id_of(span: ReadableSpan | trace.Span) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def test_a_rebalance_is_one_span_over_callbacks_and_commits(broker: EmbeddedBroker, seen: Seen) -> None:
    """After every deployment an operator asks how long rebalances took, and which callback was slow."""
    tracer = trace.get_tracer("application")

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        with tracer.start_as_current_span("save"):
            consumer.commit(asynchronous=False)

    with Consumer(settings(broker)) as consumer, Consumer(settings(broker, client_id="c2")) as second:
        consumer.subscribe(["orders"], on_revoke=on_revoke)
        with tracer.start_as_current_span("work") as work:
            poll_until(consumer, lambda: seen.spans(CLIENT + "rebalance"), "the first rebalance")
        joining = seen.one(CLIENT + "rebalance")
        assigned = seen.one(CLIENT + "partitions_assigned")
        assert joining.parent is None
        assert parent_of(assigned) == id_of(joining)
        assert [link.context.span_id for link in assigned.links] == [id_of(work)]
        assert (joining.attributes or {})["cause"] == "join"
        assert dict(assigned.attributes or {}) == {
            "messaging.system": "kafka",
            "messaging.client.id": "c1",
            "messaging.consumer.group.name": "g",
            "partitions": "orders-0, orders-1",
        }

        second.subscribe(["orders"])
        wait_until(
            lambda: (consumer.poll(0.02), second.poll(0.02), len(second.assignment()) == 1)[2], what="the hand-over"
        )
        rebalances = {id_of(span): span for span in seen.spans(CLIENT + "rebalance")}
        [revoked] = seen.spans(CLIENT + "partitions_revoked")
        assert parent_of(revoked) in rebalances
        by_kind = {
            (span.attributes or {})["kind"]: span
            for span in seen.spans(CLIENT + "commit")
            if (span.attributes or {})["messaging.client.id"] == "c1"
        }
        assert parent_of(by_kind["automatic"]) == parent_of(revoked)
        save = seen.one("save")
        assert parent_of(by_kind["sync"]) == id_of(save)
        assert parent_of(save) == id_of(revoked)
        assert all((span.status.status_code is trace.StatusCode.UNSET) for span in seen.spans())


def test_a_commit_belongs_to_what_the_application_does(broker: EmbeddedBroker, seen: Seen) -> None:
    """The trace of an order ends with its commit, and says so if it failed."""
    tracer = trace.get_tracer("application")
    with Consumer(settings(broker, enable_auto_commit=False)) as consumer:
        consumer.subscribe(["orders"])
        poll_until(consumer, consumer.assignment, "the assignment")
        with tracer.start_as_current_span("order 1") as first:
            consumer.commit(offsets=[TopicPartition("orders", 0, 1)])
        poll_until(consumer, lambda: seen.spans(CLIENT + "commit"), "the answer")
        broker.faults.on("OffsetCommit", error(ErrorCode.OFFSET_METADATA_TOO_LARGE), group="g")
        with tracer.start_as_current_span("order 2") as second, pytest.raises(Kip848Error):
            consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
    done, failed = seen.spans(CLIENT + "commit")
    assert (parent_of(done), parent_of(failed)) == (id_of(first), id_of(second))
    assert dict(done.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.client.id": "c1",
        "messaging.consumer.group.name": "g",
        "messaging.operation.name": "commit",
        "messaging.operation.type": "settle",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "partitions": "orders-0",
        "kind": "async",
    }
    assert (failed.attributes or {})["error.type"] == "OFFSET_METADATA_TOO_LARGE"
    assert done.status.status_code is trace.StatusCode.UNSET
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert "OFFSET_METADATA_TOO_LARGE" in (failed.status.description or "")


def test_polling_makes_no_span(broker: EmbeddedBroker, seen: Seen) -> None:
    """A consumer polls ten times a second; these spans would bury the others."""
    with Consumer(settings(broker, enable_auto_commit=False)) as consumer:
        consumer.subscribe(["orders"])
        poll_until(consumer, lambda: seen.spans(CLIENT + "rebalance"), "the first rebalance")
        before = len(seen.spans())
        for _ in range(100):
            consumer.poll(0.001)
        assert len(seen.spans()) == before
    assert {span.name for span in seen.spans()} <= set(SPANS)


def test_a_rebalance_that_a_removal_ends_is_marked_as_failed(broker: EmbeddedBroker, seen: Seen) -> None:
    """These are the rebalances to look at; lost partitions are reported outside of them."""

    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if not removed:
            removed.append(consumer.member_id)
            broker.groups.remove_member("g", consumer.member_id)
            wait_until(lambda: consumer.state.name == "RELEASING_ASSIGNMENT", what="the removal to be heard of")

    removed: list[str] = []
    lost: list[TopicPartition] = []
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["orders"], on_assign=on_assign, on_lost=lambda _, partitions: lost.extend(partitions))
        poll_until(consumer, lambda: len(seen.spans(CLIENT + "rebalance")) == 2, "two rebalances")
        assert seen.value("failed.rebalance.total") == 1
        assert seen.value("rebalance.total") == 1
    first, second = seen.spans(CLIENT + "rebalance")
    assert first.status.status_code is trace.StatusCode.ERROR
    assert second.status.status_code is trace.StatusCode.UNSET
    assert all(span.parent is None for span in seen.spans(CLIENT + "partitions_lost"))
    assert bool(lost) == bool(seen.spans(CLIENT + "partitions_lost"))


CLASSIC = {CLIENT + name for name in ("join.total", "join.time", "sync.total", "sync.time")}


def test_a_classic_member_has_the_metrics_of_its_protocol(broker: EmbeddedBroker, seen: Seen) -> None:
    """A dashboard of Java's classic consumer goes on working."""
    with Consumer(settings(broker, group_protocol="classic", heartbeat_interval_ms=20)) as consumer:
        consumer.subscribe(["orders"])
        poll_until(consumer, consumer.assignment, "the assignment")
        answered_s = consumer.health().heartbeat_answered_s
        assert answered_s is not None, "the join counts"
        assert answered_s < 30
        poll_until(consumer, lambda: CLIENT + "heartbeat.response.time" in seen.figures(), "a heartbeat")
        assert (seen.value("join.total"), seen.value("sync.total")) == (2, 1), "one join is for the member id"
        assert (seen.value("join.time"), seen.value("rebalance.total")) == (2, 1)


def test_a_record_in_hand_is_in_the_metrics_and_in_the_health(broker: EmbeddedBroker, seen: Seen) -> None:
    """An operator sees that a handler of process() hangs, and what waits behind it."""
    for _ in range(2):
        broker.produce("orders", "value", key="k", partition=0)
    found: list[tuple[set[str], object]] = []

    def handle(message: Message) -> None:
        figures, health = seen.figures(), consumer.health().processing
        found.append((PROCESS_GAUGES.keys() - figures.keys(), health and health.oldest))
        if message.offset() == 1:
            found.append((set(), [figures["kip848.process." + name][0][0] for name in ("running", "done.total")]))
            consumer.hand_over(0)

    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["orders"])
        consumer.process(handle, concurrency=2)
        assert found == [(set(), ("orders", 0, 0)), (set(), ("orders", 0, 1)), (set(), [1, 1])]
        assert consumer.health().processing is None
        assert not seen.figures().keys() & PROCESS_GAUGES.keys()


def test_every_metric_is_there_with_the_name_of_its_consumer(broker: EmbeddedBroker, seen: Seen) -> None:
    """Dashboards are built on these names; a renamed metric leaves an empty panel."""
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["orders"])
        assert seen.value("last.poll.seconds.ago") == -1
        assert seen.value("last.heartbeat.seconds.ago") == -1
        assert seen.value("last.rebalance.seconds.ago") == -1
        poll_until(consumer, consumer.assignment, "the assignment")
        broker.groups.remove_member("g", consumer.member_id)
        poll_until(consumer, lambda: seen.value("rebalance.total") == 2, "the member to be back")
        consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        consumer.committed([TopicPartition("orders", 0)])
        consumer.unsubscribe()
        consumer.subscribe(["orders"])
        poll_until(consumer, lambda: seen.value("rebalance.total") == 3, "the acknowledgement of the assignment")
        figures = seen.figures()
        removed_in_peace = {CLIENT + "failed.rebalance.total"}
        standby = {f"kip848.consumer.{name}" for name in ("standby.total", "takeover.total", "standby.time")}
        assert not figures.keys() & (CLASSIC | standby)
        without_records = {CLIENT + name for name in ("records.lag", "lag.seconds", "bytes.consumed.total")}
        assert set(figures) | removed_in_peace | without_records | CLASSIC | standby == {
            *METRICS,
            *GAUGES,
            "messaging.client.operation.duration",
        }
        causes = {attributes["cause"]: value for value, attributes in figures[CLIENT + "rebalance.total"]}
        assert causes == {"join": 2, "rejoin_removed": 1}
        assert seen.value("assigned.partitions") == 2
        assert seen.value("heartbeat.total") >= 6
        assert seen.value("commit.total") >= 1
        assert seen.value("commit.sync.time.ns.total") > 1_000
        assert seen.value("partition.lost.latency") == seen.value("partition.revoked.latency") == 1
        assert 0 <= seen.value("last.heartbeat.seconds.ago") < 30
        assert 0 <= seen.value("last.poll.seconds.ago") < 30
        assert seen.value("time.between.poll.max") >= 0
        consumer.poll(0.2)
        consumer.poll(0)
        assert seen.value("time.between.poll.max") >= 150
        assert seen.value("time.between.poll.avg") >= 0
        consumer.poll(0.2)
        assert 0 < seen.value("poll.idle.ratio.avg") <= 1
    assert not {name for name in seen.figures() if name in GAUGES}, "a closed consumer is no longer reported"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_spans_cross_to_the_event_loop_and_back(broker: EmbeddedBroker, seen: Seen, backend: str) -> None:
    """AsyncConsumer works on another thread; its spans must not be orphans there, nor those inside its listeners."""
    tracer = trace.get_tracer("application")

    async def on_assign(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        with tracer.start_as_current_span("load"):
            await anyio.lowlevel.checkpoint()
            await consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)

    async def main() -> None:
        async with AsyncConsumer(settings(broker, enable_auto_commit=False)) as consumer:
            await consumer.subscribe(["orders"], on_assign=on_assign)
            with anyio.fail_after(60):
                while not seen.spans(CLIENT + "rebalance"):
                    await consumer.poll(0.02)
            with tracer.start_as_current_span("order"):
                await consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
            assert not trace.get_current_span().get_span_context().is_valid

    anyio.run(main, backend=backend)
    assigned, load, order = seen.one(CLIENT + "partitions_assigned"), seen.one("load"), seen.one("order")
    inside, outside = seen.spans(CLIENT + "commit")
    assert parent_of(assigned) == id_of(seen.one(CLIENT + "rebalance"))
    assert parent_of(load) == id_of(assigned)
    assert (parent_of(inside), parent_of(outside)) == (id_of(load), id_of(order))


PROGRAM = """
import sys
from kip848_client import Consumer, TopicPartition
conf = {"bootstrap.servers": sys.argv[1], "group.id": "g", "log_level": 0}
with Consumer(conf) as consumer:
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    reader, exporter = InMemoryMetricReader(), InMemorySpanExporter()
    metrics.set_meter_provider(MeterProvider([reader]))
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    consumer.subscribe(["orders"])
    with Consumer({**conf, "client.id": "another"}) as another:
        another.subscribe(["orders"])
        while not consumer.assignment() or not another.assignment():
            consumer.poll(0.02), another.poll(0.02)
        consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        data = reader.get_metrics_data()
names = {m.name for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}
print(sorted(name for name in names if "assigned" in name))
print(sorted({span.name for span in exporter.get_finished_spans()}))
"""


def test_metrics_are_collected_while_a_consumer_begins_to_offer_its_own(broker: EmbeddedBroker, seen: Seen) -> None:
    """Broken: the SDK collects under a lock that a new gauge needs as well; exporter and consumer wait for ever."""
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["orders"])
        collecting = threading.Thread(target=seen.figures, daemon=True)
        with telemetry._making_gauges:  # as another consumer does, in the middle of making its gauges
            collecting.start()
            collecting.join(SOON_S)
            assert not collecting.is_alive()


def test_an_sdk_that_is_set_up_after_the_consumer_was_made_does_as_well(broker: EmbeddedBroker) -> None:
    """Programs set up their SDK when they get to it; no warning, nothing missing."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, broker.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "['kafka.consumer.assigned.partitions', 'kafka.consumer.partition.assigned.latency']",
        "['kafka.consumer.commit', 'kafka.consumer.partitions_assigned', 'kafka.consumer.partitions_revoked', "
        "'kafka.consumer.rebalance']",
    ]


def test_consumers_without_an_sdk_share_their_instruments(broker: EmbeddedBroker) -> None:
    """OpenTelemetry keeps every proxy for ever: each consumer of a test suite, or of a web request, left 16 objects."""
    config: dict[str, ConfigValue] = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}

    def proxies() -> list[object]:
        Consumer(config).close()
        gc.collect()
        return [one for one in gc.get_objects() if type(one).__name__.startswith("_Proxy")]

    first = {id(one): one for one in proxies()}
    assert [one for one in proxies() if id(one) not in first] == []


def test_a_worker_tells_how_it_does(seen: Seen) -> None:
    """A probe restarts a worker whose callback hangs; an alert is raised when a lease ends."""
    returns = threading.Event()

    def start(*_: object) -> None:
        returns.wait()

    def fail(*_: object) -> None:
        raise ValueError

    config = {"group.connect.session.timeout.ms": 900, "group.connect.heartbeat.interval.ms": 50}
    names = {"client.id": "c1", "group.id": "g", "worker.id": "w1"}
    with EmbeddedBroker(connect_groups=True, config=config) as broker:
        conf: dict[str, ConfigValue] = {"bootstrap.servers": broker.bootstrap_servers, "rebalance.timeout.ms": 1_000}
        worker = Worker(conf | names, units=["a"], on_assigned=start, on_lost=fail)
        assert (worker.health().live, worker.health().ready) == (True, False)
        with worker:
            wait_until(lambda: not worker.health().live, what="a callback that has run for a second")
            returns.set()
            wait_until(lambda: worker.health().ready and worker.assignment())
            health = worker.health()
            assert (health.live, [owned.name for owned in health.assignment], health.failed) == (True, ["a"], ())
            assert health.heartbeat_answered_s is not None
            assert health.lease_remaining_s > 0
            attributes = {name.replace(".", "-"): value for name, value in names.items()}
            assert seen.figures()["kip848.worker.assigned.units"] == [(1, attributes)]
            assert seen.figures()["kip848.worker.without.units.seconds"] == [(0, attributes)]
            broker.faults.on(ApiKey.CONNECT_GROUP_HEARTBEAT, drop(), times=None)
            wait_until(lambda: "kip848.worker.unit.failed.total" in seen.figures(), what="the end of the lease")
            wait_until(
                lambda: str(worker.health().last_error).startswith("RequestTimeoutError"),
                what="the time-out of the heartbeat, which may come after the end of the lease",
            )
            figures = seen.figures()
            broker.faults.clear()
        seldom = {"kip848.worker.fenced.total", "kip848.worker.unit.revoked.latency"}
        assert figures.keys() | seldom >= WORKER_METRICS.keys() | WORKER_GAUGES.keys()
        assert figures["kip848.worker.unit.started.total"] == [(1, attributes)]
        assert figures["kip848.worker.unit.stopped.total"] == [(1, attributes)]
        assert msgspec.json.decode(msgspec.json.encode(worker.health()))["live"] is False
    assert not seen.figures().keys() & WORKER_GAUGES.keys(), "a closed worker is no longer reported"


def test_what_is_read_and_what_is_left_is_measured(broker: EmbeddedBroker, seen: Seen) -> None:
    """Operators promise a lag in seconds, and buy machines for a throughput."""
    for partition in (0, 1, 0, 1):  # either may be read first, and is then behind by one record
        broker.produce("orders", "value", key="k", partition=partition)

    def lags(name: str) -> dict[object, float]:
        consumer.health()  # a probe has them measured at once, and a collection only after a second
        consumer.consume(0, 0.02)
        return {attributes["partition"]: value for value, attributes in seen.figures().get(CLIENT + name, [])}

    with Consumer(settings(broker, enable_auto_commit=False)) as consumer:
        consumer.subscribe(["orders"])
        wait_until(lambda: consumer.consume(1, 0.1))
        wait_until(lambda: sum(lags("records.lag").values()) == 3, what="one of four records read")
        assert seen.value("records.lag.max") == 2
        behind = [seconds for seconds in lags("lag.seconds").values() if seconds]
        assert len(behind) == 1, "of the partition that is begun"
        assert behind[0] < 60
        wait_until(lambda: (consumer.consume(9, 0.1), lags("records.lag") == {"0": 0, "1": 0})[1])
        assert lags("lag.seconds") == {"0": 0, "1": 0}
        figures = seen.figures()
        consumer.unsubscribe()
        consumer.subscribe(["orders"], on_assign=lambda _, partitions: consumer.pause(partitions))
        wait_until(lambda: (consumer.poll(0.1), sum(lags("records.lag").values()) == 4)[1], what="all to be read again")
        assert not lags("lag.seconds"), "how old the next record is, only reading it tells"
    poll = {
        "messaging.system": "kafka",
        "messaging.consumer.group.name": "g",
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
    }
    assert figures["messaging.client.consumed.messages"] == [(4, poll | {"messaging.destination.name": "orders"})]
    tags = {"client-id": "c1", "group-id": "g", "topic": "orders"}
    assert figures[CLIENT + "bytes.consumed.total"] == [(4 * len("valuek"), tags)]
    assert poll in [attributes for _, attributes in figures["messaging.client.operation.duration"]]
