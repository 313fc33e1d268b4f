"""``kip848 groups export``: what Prometheus reads."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.cli.watching.group_metrics import EndHistory, GroupMetrics, Histogram
from kip848_client.cli.watching.groups_export import Exporter
from kip848_client.errors import ConfigError
from kip848_client.model import NamedPartition
from tests.recorder.test_command import member, settle
from tests.recorder.test_watch import event
from tests.support.waiting import wait_until

MONITORING = Path(__file__).resolve().parents[2] / "examples" / "monitoring"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(exporter: Exporter) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics") as answer:
        text = answer.read().decode("utf-8")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def values(samples: Samples, name: str, **labels: str) -> list[float]:
    return [value for (at, its), value in samples.items() if at == name and labels.items() <= dict(its).items()]


@pytest.fixture
def one(kip848_broker: EmbeddedBroker) -> Iterator[Consumer]:
    """The member of ``billing``, which has committed."""
    kip848_broker.topics.create("orders", partitions=4)
    with member(kip848_broker, "one") as consumer:
        settle(kip848_broker, consumer)
        consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        yield consumer


@pytest.fixture
def exporter(kip848_broker: EmbeddedBroker, one: Consumer) -> Iterator[Exporter]:
    """An exporter that has read nothing yet."""
    with Exporter({"bootstrap.servers": kip848_broker.bootstrap_servers}, lag_every_s=0.01) as made:
        yield made


def test_a_scrape_tells_of_groups_their_rebalances_and_their_lag(
    exporter: Exporter, kip848_broker: EmbeddedBroker, one: Consumer
) -> None:
    """A scrape before the history was read tells the numbers of groups; then, each group; every metric of the alerts
    and of the dashboard is there.
    """
    early = scrape(exporter)
    assert values(early, "kip848_export_ready") == [0]
    assert values(early, "kip848_groups", type="consumer", state="Stable") == [1]
    exporter.catch_up()
    with member(kip848_broker, "two") as two:
        settle(kip848_broker, one, two)

        def rebalanced() -> list[float]:
            exporter.turn()
            return values(scrape(exporter), "kip848_rebalance_duration_seconds_count", reason="member joined")

        wait_until(rebalanced)
        found = scrape(exporter)
    assert values(found, "kip848_group_state", group="billing", type="consumer", state="Stable") == [1]
    assert values(found, "kip848_group_members", group="billing") == [2]
    assert values(found, "kip848_group_unread_partitions", group="billing") == [0]
    assert values(found, "kip848_group_lag", group="billing", topic="orders") == [0]
    assert values(found, "kip848_group_joins_total", group="billing") == [1]
    told = {name for name, _ in found}
    used = set(re.findall(r"kip848_\w+", "".join(path.read_text("utf-8") for path in MONITORING.iterdir())))
    assert used <= told


def test_durations_are_counted_in_cumulative_buckets() -> None:
    """Prometheus takes a bucket for all durations up to its edge."""
    histogram = Histogram()
    for seconds in (0.1, 0.2, 400):
        histogram.add(seconds)
    shown = dict(histogram.buckets())
    assert (shown["0.1"], shown["0.25"], shown["300.0"], shown["+Inf"]) == (1, 2, 2, 3)


def test_a_lag_in_seconds_is_how_long_ago_the_end_was_where_the_group_is() -> None:
    """Records behind say nothing to those who promised minutes."""
    ends, orders = EndHistory(), NamedPartition("orders", 0)
    for now_ms, end in ((0, 100), (10_000, 200), (20_000, 200)):
        ends.add({orders: end}, now_ms=now_ms)
    behind = {committed: ends.behind_ms(orders, committed, now_ms=20_000) for committed in (50, 100, 150, 200)}
    assert behind == {50: 20_000, 100: 20_000, 150: 15_000, 200: 0}
    assert ends.lag(orders, 150) == 50
    assert ends.lag(NamedPartition("gone", 0), 1) is None


def test_more_groups_than_are_allowed_are_counted() -> None:
    """A cluster with a new group for every run of a job would fill Prometheus."""
    metrics = GroupMetrics(groups_max=1)
    for group_id in ("billing", "other"):
        told = event("group_state_changed", old="Empty", new="Stable")
        metrics.take(msgspec.structs.replace(told, group_id=group_id), "consumer")
    assert (set(metrics.groups), metrics.left_out) == ({"billing"}, {"other"})


def test_an_address_that_is_taken_is_told(exporter: Exporter, kip848_broker: EmbeddedBroker) -> None:
    """Two exporters on one machine."""
    with pytest.raises(ConfigError, match=f"--listen 127.0.0.1:{exporter.port}: Address already in use"):
        Exporter({"bootstrap.servers": kip848_broker.bootstrap_servers}, port=exporter.port)
