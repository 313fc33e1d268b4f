"""``kip848 groups export``: what Prometheus reads."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from confluent_kafka import Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.common.model import NamedPartition
from kip848_client.errors import ConfigError
from kip848_client.tools.groups import follower as groups_follower
from kip848_client.tools.groups.export import Exporter
from kip848_client.tools.groups.lag_history import EndHistory
from kip848_client.tools.groups.metrics import GroupMetrics, Histogram, by_topic
from kip848_client.tools.groups.watch_view import STUCK_MS
from tests.recorder.test_command import member, settle
from tests.recorder.test_watch import NOW_MS, commits_until_one_is_silent, event
from tests.report.play import PlayedGroup
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
    kip848_broker.produce("orders", b"waits", partition=0)
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
    assert values(found, "kip848_group_lag", group="billing", topic="orders") == [1]
    assert values(found, "kip848_group_joins_total", group="billing") == [1]
    missing = [use for use in uses_in_examples() if not any(use.fits(name, dict(labels)) for name, labels in found)]
    assert missing == []


class Use(NamedTuple):
    """A metric in an expression of the dashboard or of the alert rules, and labels that the expression needs of it."""

    metric: str
    labels: frozenset[str]

    def fits(self, name: str, labels: dict[str, str]) -> bool:
        return name == self.metric and self.labels <= labels.keys()


def uses_in_examples() -> Iterator[Use]:
    """What Prometheus would not complain about: a name or label that does not exist gives an empty answer."""
    rules = (MONITORING / "alerts.yml").read_text("utf-8").split("- alert: ")[1:]
    panels = msgspec.json.decode((MONITORING / "grafana-groups.json").read_text("utf-8"))["panels"]
    expressions = [(rule, re.findall(r"\$labels\.(\w+)", rule)) for rule in rules]
    expressions += [
        (target["expr"], re.findall(r"{{(\w+)}}", target.get("legendFormat", "")))
        for panel in panels
        for target in panel["targets"]
    ]
    assert len(expressions) == len(rules) + len(panels)
    for text, shown in expressions:
        grouped = set(re.findall(r"\w+", " ".join(re.findall(r"\b(?:by|on) \(([^)]*)\)", text))))
        for metric, selectors in re.findall(r"(kip848_\w+)(?:{([^}]*)})?", text):
            selected = set(re.findall(r"(\w+)\s*[=!]", selectors))
            # What the text shows must be a label that the expression keeps: of the metric, or of its groups.
            yield Use(metric, frozenset(selected | (grouped & {"group", "topic", "type", "state", "reason"})))
            if not grouped:
                yield Use(metric, frozenset(shown))
        assert not grouped or set(shown) <= grouped, text


def test_the_lag_of_each_partition_is_told_if_it_is_asked_for(
    kip848_broker: EmbeddedBroker, exporter: Exporter
) -> None:
    """Which partition is slow is the question after the topic; a thousand groups would not fit a scrape by default."""
    kip848_broker.produce("orders", b"waits", partition=0)
    with Exporter(
        {"bootstrap.servers": kip848_broker.bootstrap_servers}, lag_every_s=0.01, by_partition=True
    ) as detailed:
        for each in (detailed, exporter):
            each.catch_up()
            each.turn()
        place = {"group": "billing", "topic": "orders", "partition": "0"}
        assert values(scrape(detailed), "kip848_group_partition_lag", **place) == [1]
        assert values(scrape(exporter), "kip848_group_partition_lag") == []


def test_a_lag_that_is_not_known_is_no_lag_of_0(exporter: Exporter) -> None:
    """An alert on lag would stay silent in the very hour in which the leaders of a topic do not answer."""
    exporter.catch_up()  # and no end was asked for yet
    found = scrape(exporter)
    assert values(found, "kip848_group_lag_unknown_partitions", group="billing", topic="orders") == [1]
    assert values(found, "kip848_group_lag") == []
    assert values(found, "kip848_group_lag_seconds") == []
    exporter.turn()
    assert values(scrape(exporter), "kip848_group_lag", group="billing", topic="orders") == [0]


def test_a_deleted_topic_has_no_lag_and_a_silent_leader_leaves_the_last_one(
    exporter: Exporter, kip848_broker: EmbeddedBroker
) -> None:
    """A topic that is gone would count as unknown for as long as the exporter runs."""
    exporter.catch_up()
    exporter.turn()
    kip848_broker.topics.delete("orders")

    def gone() -> bool:
        exporter.turn()
        return not values(scrape(exporter), "kip848_group_lag_unknown_partitions")

    wait_until(gone)
    ends, orders = EndHistory(), NamedPartition("orders", 0)
    ends.add({orders: 7}, now_ms=0)
    ends.add({}, now_ms=1_000, unanswered={orders})
    assert ends.lag(orders, 5) == 2


def test_a_topic_that_was_created_again_is_not_behind_since_before() -> None:
    """An alert on the lag in seconds would fire for a topic of a few records that are a second old."""
    ends, orders = EndHistory(), NamedPartition("orders", 0)
    ends.add({orders: 1_000}, now_ms=0)
    ends.add({orders: 0}, now_ms=59_000)
    ends.add({orders: 4}, now_ms=60_000)
    assert ends.behind_ms(orders, 2, now_ms=60_000) == 500


def test_a_member_that_stops_committing_while_others_go_on_is_counted() -> None:
    """It died or hangs, and the coordinator counts it as the owner until its session ends."""
    metrics, ends = GroupMetrics(groups_max=1), EndHistory()
    for each in commits_until_one_is_silent():
        metrics.take(each, "consumer")
    track = metrics.groups["billing"]
    now_ms = track.last_commit_ms
    assert track.silent_ms(ends) == [], "whether records wait is not known"
    ends.add({NamedPartition("orders", 0): 100, NamedPartition("orders", 1): 100}, now_ms=now_ms)
    assert track.silent_ms(ends) == [6_000]
    ends.add({NamedPartition("orders", 0): 100, NamedPartition("orders", 1): 100}, now_ms=now_ms + 3_000)
    assert by_topic(track, ends, now_ms=now_ms + 3_000)["orders"].commit_age_s == 3, "they have not waited for longer"


def test_a_commit_that_moves_nothing_does_not_hide_a_partition_that_hangs() -> None:
    """Clients commit the positions of all their partitions, also of one that a transaction holds back."""
    metrics, ends, orders = GroupMetrics(groups_max=1), EndHistory(), NamedPartition("orders", 0)
    for second in range(60):
        metrics.take(event("offsets_committed", "one", at_ms=1_000 * second, offsets={"orders-0": 5}), "consumer")
        ends.add({orders: 5 + second}, now_ms=NOW_MS + 1_000 * second)
    track = metrics.groups["billing"]
    assert by_topic(track, ends, now_ms=NOW_MS + 60_000)["orders"].commit_age_s == 60
    assert track.stuck(ends, now_ms=NOW_MS + 60_000) == [], "it has no members that could be held back"
    assigned = event(
        "member_assignment_changed", "one", state="STABLE", assigned={"orders": [0]}, pending_revocation={}
    )
    metrics.take(assigned, "consumer")
    assert [each.partition for each in track.stuck(ends, now_ms=NOW_MS + 60_000)] == [orders]
    assert track.stuck(ends, now_ms=NOW_MS + 9_000) == []


def test_a_group_that_a_transaction_holds_back_is_counted(
    exporter: Exporter, kip848_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its members are well, and its lag grows: an alert should name the cause."""
    producer = Producer({"bootstrap.servers": kip848_broker.bootstrap_servers, "transactional.id": "pay-7"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=0)
    producer.flush()
    exporter.catch_up()
    monkeypatch.setattr(groups_follower, "now_ms", lambda: time.time_ns() // 1_000_000 + STUCK_MS)
    wait_until(lambda: _turn(exporter, "kip848_group_held_back_partitions") == [1])
    producer.abort_transaction()
    wait_until(lambda: _turn(exporter, "kip848_group_held_back_partitions") == [0])


def _turn(exporter: Exporter, name: str) -> list[float]:
    exporter.turn()
    return values(scrape(exporter), name, group="billing")


@pytest.mark.parametrize(("waits", "unread_s"), [(True, 600), (False, 0)])
def test_an_outage_of_a_whole_group_is_unread_time_once_it_is_over(waits: bool, unread_s: int) -> None:
    """Five minutes without any member were 0.9 s in the metrics, and in the report five minutes."""
    group, ends = PlayedGroup("a", "b", partitions=2), EndHistory()
    group.leave("a")
    group.leave("b")
    group.run(300_000)
    metrics = GroupMetrics(groups_max=1)
    metrics.begin(now_ms=0)
    for each in group.events:
        metrics.take(each, "consumer")
    track = metrics.groups["orders"]
    before_ms = track.unread_ms
    known = {partition: found.offset + waits for partition, found in track.committed.items()}
    ends.add(known, now_ms=group.now_ms)
    track.note_waiting(ends)
    assert track.unread_ms == before_ms, "whether it was meant to be empty is not known before it is back"
    back = msgspec.structs.replace(group.events[-1], ts_ms=group.now_ms, fields={"new": "Reconciling"})
    metrics.take(back, "consumer")
    assert round((track.unread_ms - before_ms) / 1000) == unread_s


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


def test_a_lag_of_an_hour_is_one_of_an_hour() -> None:
    """The page asks for ends every three seconds, and said "behind 12 min" of a group that was out since midnight."""
    ends, orders = EndHistory(), NamedPartition("orders", 0)
    for second in range(0, 7_200, 3):
        ends.add({orders: second}, now_ms=1_000 * second)
    for behind_s in (10, 600, 3_600, 7_000):
        told_ms = ends.behind_ms(orders, 7_197 - behind_s, now_ms=7_197_000)
        assert told_ms == pytest.approx(1_000 * behind_s)


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
