"""The driver's side of a query, called in Spark's order, with a real member on the embedded broker. No Spark."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.cli import main
from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import OffsetRange
from kip848_client.errors import AuthenticationError, ConfigError, NoOffsetForPartitionError
from kip848_client.journal import read_journal
from kip848_client.spark.source import stream
from kip848_client.spark.values.data_loss import DataLossError
from kip848_client.spark.values.offsets import StreamOffset
from kip848_client.testing import BrokerSasl, BrokerTls
from kip848_client.testing.faults import ALWAYS, error
from tests.security.certificates import Authority
from tests.spark.arrange import GROUP, MARCH_2026_MS, committed, consumer, driving, everything, partition, produce, take
from tests.support.waiting import wait_until


def test_everything_is_read_once_and_committed(broker: EmbeddedBroker, address: str) -> None:
    """The promise of the source; lag tools see its progress."""
    with driving(address, maxOffsetsPerTrigger=64) as driver:
        driver.run(400)
        wait_until(lambda: committed(broker) == dict.fromkeys(range(4), 100))

    assert driver.rows == everything(100, partitions=4)


def test_nothing_is_joined_before_the_first_trigger(broker: EmbeddedBroker, address: str) -> None:
    """Spark makes readers that never run; each would take partitions from one that does."""
    with driving(address):
        assert broker.groups.get(GROUP) is None


def test_the_member_leaves_when_the_stream_closes(broker: EmbeddedBroker, address: str) -> None:
    """Otherwise the group waits for the session to expire."""
    with driving(address) as driver:
        assert driver.plan()
        assert len(broker.wait_for_group(GROUP, members=1).members) == 1

    assert not broker.wait_for_group(GROUP, members=0).members


def test_a_batch_in_flight_is_not_committed_when_the_query_stops(broker: EmbeddedBroker, address: str) -> None:
    """Its rows may not have been written, so the next run must read them again."""
    with driving(address, maxOffsetsPerTrigger=40) as driver:
        assert driver.plan()
        driver.finish()
        assert driver.plan()
        wait_until(lambda: sum(committed(broker).values()) == 40)

    assert sum(committed(broker).values()) == 40


def test_what_is_finished_is_committed_when_the_query_stops(
    broker: EmbeddedBroker, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A commit that failed is tried again; if not now, then the next owner reads the whole batch once more."""
    with broker.faults.on("offset_commit", error(ErrorCode.UNKNOWN_SERVER_ERROR)):
        with driving(address) as driver:
            assert driver.plan()
            driver.finish()
            assert not driver.plan()
            wait_until(lambda: "offsets were not committed" in caplog.text)

    assert committed(broker) == dict.fromkeys(range(4), 100)


@pytest.mark.parametrize("finished", [False, True])
def test_a_restart_with_another_limit_reads_nothing_twice(broker: EmbeddedBroker, address: str, finished: bool) -> None:
    """The batch that was planned is replayed as it was, and what follows begins where it ended."""
    with driving(address, maxOffsetsPerTrigger=64) as first:
        for _ in range(3):
            assert first.plan()
            first.finish()
        assert first.plan()
        interrupted = first.planned
        if finished:
            first.finish()  # written down, but the source was stopped before it heard of it

    with driving(address, start=first.offset, maxOffsetsPerTrigger=100) as second:
        if not finished:
            second.replay(interrupted)
        second.run(400 - first.rows.total())
        wait_until(lambda: committed(broker) == dict.fromkeys(range(4), 100))

    assert first.rows + second.rows == everything(100, partitions=4)


@pytest.mark.parametrize("stays", [False, True])
def test_an_interrupted_batch_is_not_read_again_where_others_have_read_it(
    broker: EmbeddedBroker, address: str, stays: bool
) -> None:
    """A release: the query is stopped in the middle of a batch, and a service takes over until it is back."""
    seen: Counter[tuple[str, int, int]] = Counter()
    with driving(address, maxOffsetsPerTrigger=200) as first:
        assert first.plan()
        first.finish()
        assert first.plan()
        interrupted = first.planned
    with consumer(address) as service:
        service.subscribe(["orders"])
        wait_until(lambda: take(service, seen, 10) >= 130)
        service.commit(asynchronous=False)
        if not stays:
            service.close()
        with driving(address, start=first.offset) as second:
            back = threading.Thread(target=second.replay, args=(interrupted,))
            back.start()
            while back.is_alive():
                if stays and take(service, seen, 10):
                    service.commit(asynchronous=False)

            def everything_is_read() -> bool:
                second.turn()
                if stays:
                    take(service, seen)
                return (first.rows + second.rows + seen).total() >= 400

            wait_until(everything_is_read)

    assert first.rows + second.rows + seen == everything(100, partitions=4)


def test_an_interrupted_batch_waits_for_the_batch_of_another_query(
    broker: EmbeddedBroker, address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The other's batch may last for minutes: read again meanwhile, its records were written twice, without a word."""
    monkeypatch.setattr(stream, "FIRST_ASSIGNMENT_MS", 0)
    monkeypatch.setattr(stream, "TELL_WAITING_S", 0.0)
    with driving(address, maxOffsetsPerTrigger=200) as first:
        assert first.plan()
        interrupted = first.planned
    with driving(address, maxOffsetsPerTrigger=400) as other:
        wait_until(other.plan)
        with driving(address, firstAssignmentTimeout=None) as second:
            back = threading.Thread(target=second.replay, args=(interrupted,))
            back.start()
            wait_until(lambda: "was interrupted, and others hold partitions of it" in caplog.text)
            assert not second.rows
            other.finish()
            while back.is_alive():
                other.turn()

    assert other.rows + second.rows == everything(100, partitions=4)
    assert "written twice" not in caplog.text


def test_an_interrupted_batch_is_repeated_when_its_time_is_over(
    broker: EmbeddedBroker, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who would rather write twice than wait says how long; it is not silent."""
    with driving(address, maxOffsetsPerTrigger=200) as first:
        assert first.plan()
        interrupted = first.planned
    with driving(address) as other:
        wait_until(other.plan)
        with driving(address, firstAssignmentTimeout="0s") as second:
            second.replay(interrupted)

    assert second.rows.total() == 200
    assert "is repeated although its partitions are not all back after 0 s" in caplog.text


@pytest.mark.parametrize("selection", [{}, {"subscribe": None, "assign": '{"orders":[0,1,2,3]}'}])
def test_where_the_first_batch_began_is_not_chosen_again_when_it_is_repeated(
    broker: EmbeddedBroker, address: str, selection: dict[str, object]
) -> None:
    """The options say "from the end", and since then the end has moved: what came in between would be missing."""
    changed: dict[str, object] = {**selection, "startingOffsets": "latest"}
    begun = {partition(number): 90 for number in range(4)}
    planned = StreamOffset(
        ranges=tuple(OffsetRange(each, 90, 95) for each in begun),
        positions=dict.fromkeys(begun, 95),
        counts={"orders": 4},
        query="q",
        batch=1,
    )
    with driving(address, changed) as second:
        second.replay(planned.to_json())
        second.run(40)

    assert second.rows == Counter(("orders", number, offset) for number in range(4) for offset in range(90, 100))


@pytest.mark.parametrize(
    ("key", "assignors"),
    [
        ("partition.assignment.strategy", "range,roundrobin"),
        ("partition.assignment.strategy", "cooperative-sticky"),
        ("group.local.assignors", "kip848_client.assignors.library:CoPartitioned"),
    ],
    ids=["eager", "cooperative", "own"],
)
def test_a_query_shares_a_group_of_the_classic_protocol(
    broker: EmbeddedBroker, address: str, key: str, assignors: str
) -> None:
    """Clusters and services that are not on the new protocol yet: members assign, and nothing is lost or doubled."""
    protocol = {"group.protocol": "classic", key: assignors}
    seen: Counter[tuple[str, int, int]] = Counter()
    changed = {f"kafka.{name}": text for name, text in protocol.items()}
    with driving(address, changed, maxOffsetsPerTrigger=50) as driver:
        driver.run(400)
        with consumer(address, **protocol) as service:
            service.subscribe(["orders"])
            wait_until(lambda: (driver.turn(), take(service, seen), len(service.assignment()))[-1] == 2)
            produce(address, "orders", 100, partitions=4, first=100)

            def all_is_read() -> bool:
                driver.turn()
                take(service, seen)
                return (driver.rows + seen).total() >= 800

            wait_until(all_is_read)
            service.commit(asynchronous=False)
            driver.drain()
            wait_until(lambda: committed(broker) == dict.fromkeys(range(4), 200))
        driver.stream.bound()
        driver.drain()

    assert len({number for _, number, _ in seen}) == 2
    assert driver.rows + seen == everything(200, partitions=4)


def test_a_batch_that_the_query_itself_has_committed_is_repeated_as_it_was(
    broker: EmbeddedBroker, address: str
) -> None:
    """A checkpoint that was restored from a backup: the sink replaces the batch, so that it must have all of it."""
    with driving(address, maxOffsetsPerTrigger=200) as first:
        assert first.plan()
        end, first_rows = first.planned, Counter(first.rows)
        first.finish()
        first_rows = first.rows - first_rows
        assert first.plan()
        wait_until(lambda: committed(broker) == dict.fromkeys(range(4), 50))
    with driving(address) as second:
        second.replay(end)

    assert second.rows == first_rows


def test_a_revocation_waits_for_the_batch_and_then_hands_over_with_offsets(
    broker: EmbeddedBroker, address: str
) -> None:
    """No row is read twice, and none is missed, when a consumer takes half of the partitions in mid-batch."""
    with driving(address, maxOffsetsPerTrigger=40) as driver, consumer(address) as plain:
        assert driver.plan()
        plain.subscribe(["orders"])
        seen: Counter[tuple[str, int, int]] = Counter()
        wait_until(lambda: take(plain, seen) or len(broker.wait_for_group(GROUP).members) == 2)
        broker.groups.wait_for(
            GROUP, lambda group: any(member.target and not member.assigned for member in group.members)
        )
        for _ in range(20):
            assert not take(plain, seen), "the query reads all four partitions"

        driver.finish()
        wait_until(lambda: driver.turn() + take(plain, seen) and (driver.rows + seen).total() == 400)
        plain.commit(asynchronous=False)

    assert driver.rows + seen == everything(100, partitions=4)
    assert len({number for _, number, _ in seen}) == 2


def test_what_a_consumer_read_is_not_read_again_when_it_leaves(broker: EmbeddedBroker, address: str) -> None:
    """The query goes on at the committed offsets of the partition's meantime owner."""
    with driving(address, maxOffsetsPerTrigger=40) as driver:
        seen: Counter[tuple[str, int, int]] = Counter()
        with consumer(address) as plain:
            plain.subscribe(["orders"])
            wait_until(lambda: take(plain, seen, 7) >= 30)
            plain.commit(asynchronous=False)
        driver.run(400 - seen.total())

    assert driver.rows + seen == everything(100, partitions=4)


def test_partitions_that_were_lost_are_neither_planned_nor_committed(broker: EmbeddedBroker, address: str) -> None:
    """The group gave them to another member already; a commit now would set that consumer back."""
    with driving(address, {"kafka.client.id": "query"}, maxOffsetsPerTrigger=40) as driver:
        assert driver.plan()
        broker.wait_for_group(GROUP, members=1)
        loading = error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        with broker.faults.on(
            "heartbeat", loading, client_id="query", when=lambda request: request.member_epoch == 0, times=ALWAYS
        ):  # it hears that it was removed, but is not back before the other one has its partitions
            broker.groups.remove_member(GROUP, "query")
            with consumer(address) as plain:
                plain.subscribe(["orders"])
                taken: Counter[tuple[str, int, int]] = Counter()
                wait_until(lambda: take(plain, taken, 20) >= 20)
                plain.commit(asynchronous=False)
                at = committed(broker)
                driver.finish()
                driver.turn()
                assert all(committed(broker)[number] >= offset for number, offset in at.items())
        wait_until(lambda: not driver.turn() and set(driver.rows) | set(taken) == set(everything(100, partitions=4)))

    assert max(driver.rows.values()) == 1, "within one query nothing is read twice"
    assert set(driver.rows) | set(taken) == set(everything(100, partitions=4))


def test_two_queries_share_a_group(broker: EmbeddedBroker, address: str) -> None:
    """A user scales out by starting the application a second time with the same group."""
    with driving(address, maxOffsetsPerTrigger=40) as one, driving(address, maxOffsetsPerTrigger=40) as two:
        assert one.plan()
        one.finish()
        joining = threading.Thread(target=two.plan, name="second-query")
        joining.start()
        wait_until(lambda: not one.turn() and not joining.is_alive(), 120.0)
        joining.join()
        two.finish()
        produce(address, "orders", 50, partitions=4, first=100)
        wait_until(lambda: not (one.turn() + two.turn()) and (one.rows + two.rows).total() >= 600)
        owners = [
            {tp.partition for tp in member.assigned} for member in broker.wait_for_group(GROUP, state="Stable").members
        ]

    assert one.rows + two.rows == everything(150, partitions=4)
    assert sorted(map(len, owners)) == [2, 2]


# --- where to begin


def test_committed_offsets_come_first(broker: EmbeddedBroker, address: str) -> None:
    """A query takes over from whatever read the group before."""
    seen: Counter[tuple[str, int, int]] = Counter()
    with consumer(address) as plain:
        plain.subscribe(["orders"])
        wait_until(lambda: take(plain, seen) == 400)
        plain.commit(asynchronous=False)
    produce(address, "orders", 5, partitions=4, first=100)

    with driving(address) as driver:
        driver.run(20)

    assert {offset for _, _, offset in driver.rows} == set(range(100, 105))


def test_a_new_query_can_begin_elsewhere(address: str) -> None:
    """startingOffsets as Spark has them: JSON with -1 and -2."""
    starting = '{"orders":{"0":90,"1":-1,"2":-2,"3":100}}'
    with driving(address, startingOffsets=starting) as driver:
        driver.run(110)

    assert Counter(number for _, number, _ in driver.rows) == {0: 10, 2: 100}


def test_a_new_query_can_begin_at_a_time(broker: EmbeddedBroker) -> None:
    """One time for all, or one for each partition; what is after the last record begins at the end."""
    produce(broker.bootstrap_servers, "orders", 50, partitions=4, timestamp_ms=MARCH_2026_MS)
    with driving(broker.bootstrap_servers, startingTimestamp=MARCH_2026_MS + 45) as for_all:
        for_all.run(20)
    times = {str(number): MARCH_2026_MS + late for number, late in enumerate((48, 49, 0, 10_000))}
    changed = {"kafka.group.id": "another", "startingOffsetsByTimestampStrategy": "latest"}
    each = json.dumps({"orders": times})
    with driving(broker.bootstrap_servers, changed, startingOffsetsByTimestamp=each) as for_each:
        for_each.run(53)

    assert {offset for _, _, offset in for_all.rows} == set(range(45, 50))
    assert Counter(number for _, number, _ in for_each.rows) == {0: 2, 1: 1, 2: 50}


def test_starting_offsets_must_name_every_partition(address: str) -> None:
    """Spark refuses that too; guessing would skip records."""
    with driving(address, startingOffsets='{"orders":{"0":90}}') as driver:
        with pytest.raises(ConfigError, match=r"not for orders-1, orders-2, orders-3"):
            driver.plan()


def test_without_a_policy_a_missing_commit_is_an_error(address: str) -> None:
    """auto.offset.reset=none is for those who would rather stop than guess."""
    fixed = {"subscribe": None, "assign": '{"orders":[1,3]}'}
    with driving(address, {"auto.offset.reset": "none"}) as driver:
        with pytest.raises(NoOffsetForPartitionError, match="orders-0"):
            driver.plan()
    with driving(address, {**fixed, "auto.offset.reset": "none"}) as alone:
        with pytest.raises(NoOffsetForPartitionError, match="orders-1, orders-3"):
            alone.plan()


def test_what_comes_after_a_query_began_at_the_end_is_not_skipped_by_its_next_run(
    broker: EmbeddedBroker, address: str
) -> None:
    """A job that runs every night, and found nothing new in its first one, would begin at the end for ever."""
    with driving(address, {"auto.offset.reset": "latest"}) as first:
        first.drain()
        wait_until(lambda: committed(broker) == dict.fromkeys(range(4), 100))
    produce(address, "orders", 5, partitions=4, first=100)
    with driving(address, {"auto.offset.reset": "latest"}) as second:
        second.run(20)

    assert {offset for _, _, offset in second.rows} == set(range(100, 105))


@pytest.mark.parametrize(
    "chosen",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": "latest", "commit": "off"},
        {"auto.offset.reset": "latest", "commit": "off"},
        {"subscribe": None, "assign": '{"orders":[0,1,2,3]}', "startingOffsets": "latest", "kafka.group.id": None},
    ],
)
def test_where_a_query_begins_is_in_its_checkpoint_before_there_is_anything_to_read(
    address: str, chosen: dict[str, object]
) -> None:
    """A restart before the first record would begin later, or at the beginning, and skip or repeat what is between."""
    with driving(address, chosen) as first:
        assert first.plan()
        assert first.stream.tasks(first.planned) == []
        first.finish()
        assert not first.plan(), "once is enough"
    produce(address, "orders", 5, partitions=1, first=100)
    with driving(address, chosen, start=first.offset) as second:
        second.run(5)
    produce(address, "orders", 5, partitions=4, first=105)
    with driving(address, chosen, start=second.offset) as third:
        third.run(20)

    assert not first.rows
    assert sorted(second.rows) == [("orders", 0, offset) for offset in range(100, 105)]
    assert Counter(number for _, number, _ in third.rows) == dict.fromkeys(range(4), 5)


def test_partitions_that_a_topic_gains_are_read_from_their_beginning(broker: EmbeddedBroker, address: str) -> None:
    """Also with auto.offset.reset=latest: their first records were produced before anybody could know of them."""
    with driving(address, {"auto.offset.reset": "latest"}) as driver:
        driver.drain()
        broker.topics.add_partitions("orders", 6)
        produce(address, "orders", 10, partitions=6, first=100)
        driver.run(60)

    assert Counter(number for _, number, _ in driver.rows) == dict.fromkeys(range(6), 10)


# --- data loss


def test_a_deleted_topic_fails_the_query(broker: EmbeddedBroker, address: str) -> None:
    """failOnDataLoss is on by default, as in Spark."""
    with driving(address) as driver:
        driver.run(400)
        broker.topics.delete("orders")
        with pytest.raises(DataLossError, match=r"do not exist any more: orders.*failOnDataLoss"):
            wait_until(driver.plan)


def test_without_fail_on_data_loss_a_deleted_topic_is_let_go(broker: EmbeddedBroker, address: str) -> None:
    """The other topics of the query go on."""
    broker.topics.create("payments", 2)
    with driving(address, subscribe="orders,payments", failOnDataLoss=False) as driver:
        driver.run(400)
        broker.topics.delete("orders")
        broker.groups.wait_for(
            GROUP, lambda group: {tp.topic for m in group.members for tp in m.assigned} == {"payments"}
        )
        produce(address, "payments", 10, partitions=2)
        driver.run(420)

    assert driver.rows == everything(100, partitions=4) + everything(10, partitions=2, topic="payments")


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_that_was_made_anew_is_noticed(broker: EmbeddedBroker, address: str, fail: bool) -> None:
    """Its offsets begin again at 0; by number alone old and new records could not be told apart."""
    with driving(address, failOnDataLoss=fail) as driver:
        driver.run(400)
        broker.topics.recreate("orders", 4)
        produce(address, "orders", 150, partitions=4)
        if fail:
            with pytest.raises(DataLossError, match="made anew: orders"):
                wait_until(driver.plan)
            return
        driver.run(400 + 600)

    assert driver.rows == everything(100, partitions=4) + everything(150, partitions=4)


@pytest.mark.parametrize("fail", [True, False])
def test_records_that_retention_took_are_noticed(broker: EmbeddedBroker, address: str, fail: bool) -> None:
    """A query that was too slow must not silently skip what it never saw."""
    with driving(address, maxOffsetsPerTrigger=40, failOnDataLoss=fail) as driver:
        assert driver.plan()
        driver.finish()
        broker.topics.delete_records("orders", 2, 60)
        if fail:
            with pytest.raises(DataLossError, match=r"orders-2 was read up to 10, and now begins at 60"):
                driver.plan()
            return
        driver.run(400 - 50)

    assert Counter(number for _, number, _ in driver.rows) == {0: 100, 1: 100, 2: 50, 3: 100}


@pytest.mark.parametrize("fail", [True, False])
def test_records_that_go_between_plan_and_read_are_noticed(broker: EmbeddedBroker, address: str, fail: bool) -> None:
    """Retention may delete records of a planned batch; ``failOnDataLoss`` must not miss it."""
    with driving(address, failOnDataLoss=fail) as driver:
        assert driver.plan()
        broker.topics.delete_records("orders", 2, 60)
        if fail:
            with pytest.raises(DataLossError, match=r"orders-2"):
                driver.finish()
            return
        driver.finish()

    assert Counter(number for _, number, _ in driver.rows) == {0: 100, 1: 100, 2: 40, 3: 100}


# --- options


def test_commit_can_be_turned_off(broker: EmbeddedBroker, address: str) -> None:
    """For a query that only looks on: the group's offsets stay where others put them."""
    with driving(address, commit="off", maxOffsetsPerTrigger=100) as driver:
        driver.run(400)

    assert committed(broker) == {}


def test_fixed_partitions_need_no_group(broker: EmbeddedBroker, address: str) -> None:
    """assign reads beside every group, and joins none."""
    fixed = {"subscribe": None, "assign": '{"orders":[1,3]}', "kafka.group.id": None, "startingOffsets": "earliest"}
    with driving(address, fixed, maxOffsetsPerTrigger=60) as driver:
        driver.run(200)

    assert Counter(number for _, number, _ in driver.rows) == {1: 100, 3: 100}
    assert broker.groups.ids() == ()


def test_fixed_partitions_can_commit(broker: EmbeddedBroker, address: str) -> None:
    """As a simple consumer does: accepted while the group has no members; the next query goes on there."""
    fixed = {"subscribe": None, "assign": '{"orders":[1,3]}', "commit": "group"}
    with driving(address, fixed, maxOffsetsPerTrigger=60) as driver:
        driver.run(200)
    assert committed(broker) == {1: 100, 3: 100}
    produce(address, "orders", 3, partitions=4, first=100)
    with driving(address, fixed) as second:
        second.run(6)

    assert {offset for _, _, offset in second.rows} == {100, 101, 102}


def test_the_report_tells_the_ends_of_what_is_owned(address: str) -> None:
    """Spark's progress shows it beside the offset; the difference is the lag."""
    with driving(address, maxOffsetsPerTrigger=40) as driver:
        assert driver.stream.report() is None
        assert driver.plan()
        report = driver.stream.report()

    assert report is not None
    assert report["positions"] == {"orders": dict.fromkeys("0123", 100)}
    assert report["records_behind"] == {"min": 90, "avg": 90.0, "max": 90}
    assert report["rebalances"] == 1
    assert report["source"].startswith("kip848 orders as kip848-spark-")


def test_fixed_partitions_that_go_are_noticed(broker: EmbeddedBroker, address: str) -> None:
    """The group does not take them away, so that the query itself must see it."""
    fixed = {"subscribe": None, "assign": '{"orders":[1,3]}', "startingOffsets": "earliest", "commit": "off"}
    with driving(address, fixed) as strict, driving(address, fixed, failOnDataLoss=False) as lenient:
        strict.run(200)
        lenient.run(200)
        broker.topics.delete("orders")
        with pytest.raises(DataLossError, match="orders-1, orders-3 cannot be read any more"):
            strict.plan()
        assert not lenient.plan()


def test_tls_and_passwords_reach_both_the_member_and_the_tasks(tmp_path: Path) -> None:
    """Clusters that matter have both; options are Spark's, with ``kafka.`` before each."""
    authority = Authority(tmp_path)
    server = authority.issue("server", "localhost", "127.0.0.1")
    tls = BrokerTls(server.certificate, server.key)
    sasl = BrokerSasl({"alice": "secret"}, ("SCRAM-SHA-256",))
    with EmbeddedBroker({"orders": 2}, tls=tls, sasl=sasl) as broker:
        secured = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.ca_file),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "secret",
        }
        produce(broker.bootstrap_servers, "orders", 30, partitions=2, secured=secured)
        chosen = {f"kafka.{name}": text for name, text in secured.items()}
        with driving(broker.bootstrap_servers, chosen, maxOffsetsPerTrigger=20) as driver:
            driver.run(60)
            wait_until(lambda: committed(broker) == {0: 30, 1: 30})
        wrong = {**chosen, "kafka.sasl.password": "wrong"}
        with driving(broker.bootstrap_servers, wrong) as refused, pytest.raises(AuthenticationError):
            refused.run(60)

    assert driver.rows == everything(30, partitions=2)


def test_the_member_writes_an_event_log(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The query's member has an event log, to be read beside those of other members."""
    path = tmp_path / "query.jsonl"
    with driving(address, eventLog=path) as driver:
        driver.run(400)
        wait_until(lambda: any(event.event == "commit_done" for event in read_journal(path)))
    seen = [event.event for event in read_journal(path)]

    assert {"heartbeat_sent", "partitions_assigned", "fetching_started", "commit_done"} <= set(seen)
    assert seen[-1] == "left_group"
    assert main(["report", str(path)]) == 0
    assert f"group {GROUP}: 1 member, 4 partitions" in capsys.readouterr().out


def test_an_event_log_that_cannot_be_written_is_told_before_anything_is_joined(
    broker: EmbeddedBroker, address: str, tmp_path: Path
) -> None:
    """A folder that is missing on the driver's machine."""
    with driving(address, eventLog=tmp_path / "missing" / "log.jsonl") as driver:
        with pytest.raises(ConfigError, match=r"eventLog=.*missing/log\.jsonl cannot be written: No such file"):
            driver.plan()
    assert broker.groups.get(GROUP) is None
