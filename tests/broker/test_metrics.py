"""The coordinator's metrics, with and without OpenTelemetry."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.common.clock import ManualClock
from kip848_client.common.telemetry import COORDINATOR_METRICS
from kip848_client.testing.broker.net.loop_thread import LoopThread
from kip848_client.testing.judge.broker.connection import RawConnection
from tests.broker.conftest import FullDisk
from tests.support.group_requests import commit_offset, heartbeat, join

pytestmark = pytest.mark.kip848_broker(topics={"t": 2}, clock=ManualClock(now_ms=0))

PREFIX = "kafka.group_coordinator."


def beat(broker: EmbeddedBroker, member: str, epoch: int, *, group: str = "g") -> int:
    """A join, or a heartbeat of a member that has joined; the member's epoch."""
    request = heartbeat(epoch, member, group=group) if epoch else join(member, group=group, topics=("t",))
    with RawConnection(broker.bootstrap_servers) as connection:
        response = connection.ask(request, version=1)
    assert not response.error_code, response.error_message
    return response.member_epoch


def figures(broker: EmbeddedBroker, name: str) -> dict[str, float]:
    """Attribute value -> figure, without zeros; "" if there is no attribute."""
    return {
        key.removeprefix(PREFIX + name).strip("{}").rpartition("=")[2]: value
        for key, value in broker.metrics().items()
        if key.partition("{")[0] == PREFIX + name and value
    }


def test_every_metric_of_the_kip_is_there_from_the_start(broker: EmbeddedBroker) -> None:
    """A dashboard that is built on an idle broker shows zeros and not holes."""
    names = {key.partition("{")[0] for key in broker.metrics()}
    assert names == set(COORDINATOR_METRICS)
    assert all(name.startswith(PREFIX) and "-" not in name for name in names)


def test_groups_are_counted_by_protocol_and_by_state(broker: EmbeddedBroker, connection: RawConnection) -> None:
    """An operator looks first at how many groups there are, and how many of them are not stable."""
    beat(broker, "a", 0)
    assert figures(broker, "consumer.group.count") == {"stable": 1}
    beat(broker, "b", 0)
    assert figures(broker, "consumer.group.count") == {"reconciling": 1}
    beat(broker, "c", 0, group="h")
    beat(broker, "c", -1, group="h")
    assert figures(broker, "consumer.group.count") == {"reconciling": 1, "empty": 1}
    commit_offset(connection, 3, group="only offsets", topic="t")
    assert figures(broker, "group.count") == {"consumer": 2, "classic": 1}


def test_rebalances_are_counted_with_every_cause(broker: EmbeddedBroker) -> None:
    """A group that rebalances all the time is found by this number: joins, leaves, sessions that ran out, topics."""
    beat(broker, "a", 0)
    epoch = beat(broker, "b", 0)
    assert figures(broker, "consumer.group.rebalance.count") == {"": 2}
    beat(broker, "b", epoch)
    assert figures(broker, "consumer.group.rebalance.count") == {"": 2}
    beat(broker, "a", -1)
    assert figures(broker, "consumer.group.rebalance.count") == {"": 3}
    epoch = beat(broker, "b", epoch)
    broker.topics.add_partitions("t", 4)
    beat(broker, "b", epoch)
    assert figures(broker, "consumer.group.rebalance.count") == {"": 4}
    broker.groups.expire_session("g", "b")
    assert figures(broker, "consumer.group.rebalance.count") == {"": 5}
    assert figures(broker, "consumer.group.rebalance.rate")[""] > 0


def test_the_log_is_active_and_was_loaded_in_some_time(broker: EmbeddedBroker) -> None:
    """A coordinator that still reads its log, or can no longer write it, is told apart from one that serves."""
    assert figures(broker, "partition.count") == {"active": 50}
    assert figures(broker, "partition.load.time.max")[""] >= figures(broker, "partition.load.time.avg")[""] > 0


def test_a_log_that_cannot_be_written_is_failed(broker: EmbeddedBroker, full_disk: FullDisk) -> None:
    """A full disk shows in the metrics, and so does its end."""
    beat(broker, "a", 0)
    full_disk.set()
    with pytest.raises(AssertionError, match="No space left"):
        beat(broker, "b", 0)
    assert figures(broker, "partition.count") == {"failed": 50}
    full_disk.clear()
    beat(broker, "b", 0)
    assert figures(broker, "partition.count") == {"active": 50}


def test_the_thread_is_idle_when_nothing_happens(broker: EmbeddedBroker) -> None:
    """An operator sees an overloaded broker by its idle ratio before sessions time out."""
    idle = figures(broker, "thread.idle.ratio.avg")[""]
    assert 0 <= figures(broker, "thread.idle.ratio.min")[""] <= 1
    assert 0 <= idle <= 1


def test_figures_of_a_broker_that_stopped_are_not_waited_for() -> None:
    """An exporter thread that asks in the wrong moment would hang for ever, and the process with it."""
    thread = LoopThread("test")
    blocked, done = threading.Event(), threading.Event()

    def block() -> None:
        blocked.set()
        done.wait(60)

    thread.loop.call_soon_threadsafe(block)
    blocked.wait(60)
    try:
        with pytest.raises(TimeoutError):
            thread.call(lambda: 1, timeout_s=0.01)
    finally:
        done.set()
        thread.stop()
    with pytest.raises(RuntimeError):
        thread.call(lambda: 1, timeout_s=0.01)


USERS_PROGRAM = """
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from kip848_client import EmbeddedBroker

def values(reader):
    data = reader.get_metrics_data()
    return {
        (metric.name, *sorted(point.attributes.items())): point.value
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }

reader = InMemoryMetricReader()
first = EmbeddedBroker(node_id=1).start()
metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))  # after the first broker, before the second
second = EmbeddedBroker(node_id=2).start()
seen = values(reader)
names = sorted({key[0] for key in seen})
nodes = sorted({dict(key[1:])["node-id"] for key in seen})
second.stop()
left = sorted({dict(key[1:])["node-id"] for key in values(reader)})
active = [value for key, value in values(reader).items() if ("state", "active") in key[1:]]
first.stop()
print(len(names), nodes, left, active, len(values(reader)))
"""


def test_an_opentelemetry_sdk_is_given_the_same_figures() -> None:
    """Exported metrics of the process show its brokers, each by its node, and none after it was stopped."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", USERS_PROGRAM], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.stderr == ""
    assert done.stdout.split("\n")[0] == f"{len(COORDINATOR_METRICS)} ['1', '2'] ['1'] [50] 0"
