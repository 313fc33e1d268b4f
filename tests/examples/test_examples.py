"""Every example does what its docstring says, started as a reader would start it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka import Producer

from kip848_client import Consumer, EmbeddedBroker, TopicPartition
from kip848_client.errors import ErrorCode
from kip848_client.testing.faults import ALWAYS, error
from tests.support.local_state import check_local_state
from tests.support.ports import free_ports
from tests.support.waiting import TIMEOUT_S, wait_until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def produce(broker: EmbeddedBroker, topic: str, *records: tuple[str, str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for key, value in records:
        producer.produce(topic, key=key, value=value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def records(broker: EmbeddedBroker, topic: str) -> list[bytes | None]:
    """Values of everything in the first partition of a topic."""
    conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
    values = []
    with Consumer(conf) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
            values.append(message.value())
    return values


def committed_offset(broker: EmbeddedBroker, group_id: str, topic: str) -> int | None:
    """The group's offset of the first partition of a topic."""
    offset: int | None = broker.groups.committed(group_id).get((topic, 0))
    return offset


@contextmanager
def example(name: str, broker: EmbeddedBroker, topic: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A running example; whatever happens, it is gone afterwards."""
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / name), broker.bootstrap_servers, topic, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def lines_of(process: subprocess.Popen[str], count: int) -> list[str]:
    stdout: IO[str] | None = process.stdout
    assert stdout is not None
    return [stdout.readline().rstrip("\n") for _ in range(count)]


def read_until(process: subprocess.Popen[str], text: str) -> None:
    """Read lines up to one that ends with *text*."""
    while not (line := lines_of(process, 1)[0]).endswith(text):
        assert line, f"the example ended without {text!r}"


def interrupt(process: subprocess.Popen[str]) -> str:
    """Press Ctrl-C; returns what else was printed."""
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    assert errors == ""
    return output


def test_simulated_listener() -> None:
    """Users who test their own listener begin here: the careless service fails, the careful one passes."""
    path = str(EXAMPLES / "simulated_listener.py")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert "were counted twice" in done.stdout
    assert done.stdout.endswith("0 wrong counts\n")


def test_quickstart(kip848_broker: EmbeddedBroker) -> None:
    """The first program that a reader copies: it reads, commits each record, and leaves the group on Ctrl-C."""
    kip848_broker.topics.create("orders", partitions=1)
    produce(kip848_broker, "orders", ("a", "tea"), ("b", "milk"))
    with example("quickstart.py", kip848_broker, "orders") as process:
        assert lines_of(process, 3) == [
            "assigned: orders-0",
            "orders 0 0 b'tea'",
            "orders 0 1 b'milk'",
        ]
        wait_until(lambda: committed_offset(kip848_broker, "quickstart", "orders") == 2, what="the last commit")
        interrupt(process)
    kip848_broker.wait_for_group("quickstart", state="Empty", members=0)
    produce(kip848_broker, "orders", ("a", "sugar"))
    with example("quickstart.py", kip848_broker, "orders") as process:
        assert lines_of(process, 2)[1] == "orders 0 2 b'sugar'"
        interrupt(process)


def test_leader_election_and_pollers() -> None:
    """As docs/workers.md promises, another process leads when the leader goes, and each feed has one poller."""
    with EmbeddedBroker(connect_groups=True) as broker:
        with example("leader_election.py", broker, "0.05") as first:
            assert lines_of(first, 1) == ["leading with token 1"]
            with example("leader_election.py", broker, "0.05") as second:
                first.send_signal(signal.SIGINT)
                first.communicate(timeout=TIMEOUT_S)
                (line,) = lines_of(second, 1)
                assert int(line.removeprefix("leading with token ")) > 1
        with example("pollers.py", broker, "eur,gbp", "0.05") as poller:
            seen = {lines_of(poller, 1)[0].split()[0] for _ in range(20)}
            assert seen == {"eur", "gbp"}
            # The threads of the feeds go on until the worker stops them.
            assert "leaving; the others take over" in interrupt(poller).splitlines()


def test_apscheduler_leader(kip848_broker: EmbeddedBroker) -> None:
    """Every replica has the job, and one fires; after Ctrl-C another one does, with a greater token."""
    with example("apscheduler_leader.py", kip848_broker, "0.2") as first:
        (line,) = lines_of(first, 1)
        with example("apscheduler_leader.py", kip848_broker, "0.2") as second:
            kip848_broker.wait_for_group("reminders", state="Stable", members=2)
            fired = [line, *lines_of(first, 3)]
            first.send_signal(signal.SIGINT)
            output, _ = first.communicate(timeout=TIMEOUT_S)  # APScheduler warns there if it is late
            later = lines_of(second, 1)[0]
    assert (first.returncode, {*fired, *output.splitlines()}) == (0, {line})
    assert int(later.rpartition(" ")[2]) > int(line.rpartition(" ")[2])


@pytest.mark.slow
def test_fastapi_leader(kip848_broker: EmbeddedBroker) -> None:
    """One replica leads; when it is terminated another one does at once, and tells it over HTTP."""

    def leads(port: int) -> bool:
        with suppress(urllib.error.URLError), urllib.request.urlopen(f"http://127.0.0.1:{port}/leader") as answer:
            told = json.load(answer)
            return bool(told["leads"] and told["rounds"])
        return False

    ports = free_ports(2)
    with (
        example("fastapi_leader.py", kip848_broker, str(ports[0])) as first,
        example("fastapi_leader.py", kip848_broker, str(ports[1])) as second,
    ):
        wait_until(lambda: sum(map(leads, ports)) == 1, TIMEOUT_S, "a leader")
        kip848_broker.wait_for_group("shop", state="Stable", members=2, timeout_s=TIMEOUT_S)
        leader, other = (first, ports[1]) if leads(ports[0]) else (second, ports[0])
        leader.send_signal(signal.SIGTERM)
        wait_until(lambda: leads(other), TIMEOUT_S, "the next leader")
        _, errors = leader.communicate(timeout=TIMEOUT_S)
        assert errors == ""


def test_commit_by_hand(kip848_broker: EmbeddedBroker) -> None:
    """Each payment is saved once: what is summed when Ctrl-C comes is saved and committed on the way out."""
    kip848_broker.topics.create("payments", partitions=1)
    produce(kip848_broker, "payments", ("ann", "1"), ("ben", "2"), ("ann", "3"))
    with example("commit_by_hand.py", kip848_broker, "payments") as process:
        assert lines_of(process, 1) == ["saved {'ann': 4, 'ben': 2}"]
        assert interrupt(process) == ""
    produce(kip848_broker, "payments", ("ben", "5"))
    with example("commit_by_hand.py", kip848_broker, "payments") as process:
        assert lines_of(process, 1) == ["saved {'ben': 5}"]
        assert interrupt(process) == ""
    kip848_broker.wait_for_group("totals", state="Empty", members=0)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_async_consumer(kip848_broker: EmbeddedBroker, loop: str) -> None:
    """The same program runs on asyncio and trio: in order, committed, and out of the group on Ctrl-C."""
    kip848_broker.topics.create("orders", partitions=1)
    produce(kip848_broker, "orders", ("a", "tea"), ("b", "milk"))
    with example("async_consumer.py", kip848_broker, "orders", loop) as process:
        assert lines_of(process, 3) == ["assigned: 0", "0 0 tea", "0 1 milk"]
        kip848_broker.requests.wait_for("OffsetCommit", group="async", answered=True)
        assert interrupt(process) == "revoked: 0\n"
    kip848_broker.wait_for_group("async", state="Empty", members=0)


def test_exactly_once(kip848_broker: EmbeddedBroker) -> None:
    """A worker that is killed and started again under its name writes no result twice and leaves none out."""
    kip848_broker.topics.create("orders", partitions=1)
    kip848_broker.topics.create("invoices", partitions=1)

    def invoices() -> list[bytes | None]:
        return records(kip848_broker, "invoices")

    produce(kip848_broker, "orders", ("a", "tea"), ("b", "milk"))
    with example("exactly_once.py", kip848_broker, "orders", "invoices", "worker"):
        wait_until(lambda: invoices() == [b"invoice for tea", b"invoice for milk"], TIMEOUT_S, "two invoices")
    produce(kip848_broker, "orders", ("c", "bread"))
    with example("exactly_once.py", kip848_broker, "orders", "invoices", "worker") as process:
        wait_until(lambda: len(invoices()) >= 3, TIMEOUT_S, "the third invoice")
        assert interrupt(process) == ""
    assert invoices() == [b"invoice for tea", b"invoice for milk", b"invoice for bread"]
    assert list(kip848_broker.groups.committed("invoicing").values()) == [3]


def test_exactly_once_in_parallel(kip848_broker: EmbeddedBroker) -> None:
    """The program of those whose handlers wait writes one invoice for each order, and ends in good order."""
    kip848_broker.topics.create("orders", partitions=1)
    kip848_broker.topics.create("invoices", partitions=1)
    produce(kip848_broker, "orders", ("a", "tea"), ("b", "milk"))
    with example("exactly_once_parallel.py", kip848_broker, "orders", "invoices", "worker") as process:
        wait_until(lambda: len(records(kip848_broker, "invoices")) == 2, TIMEOUT_S, "two invoices")
        assert interrupt(process) == ""
    assert sorted(map(str, records(kip848_broker, "invoices"))) == ["b'invoice for milk'", "b'invoice for tea'"]
    assert list(kip848_broker.groups.committed("invoicing").values()) == [2]


def test_outputs_are_written_before_the_commit(kip848_broker: EmbeddedBroker) -> None:
    """Each order has its total, and all are committed when the program has ended."""
    kip848_broker.topics.create("orders", partitions=1)
    kip848_broker.topics.create("totals", partitions=1)
    produce(kip848_broker, "orders", ("a", "3 4"), ("b", "5"))
    with example("outputs.py", kip848_broker, "orders", "totals") as process:
        kip848_broker.wait_for_records("totals", 2, timeout_s=TIMEOUT_S)
        assert interrupt(process) == ""
    assert sorted(map(str, records(kip848_broker, "totals"))) == ["b'5'", "b'7'"]
    assert committed_offset(kip848_broker, "totals", "orders") == 2


def test_custom_assignor(kip848_broker: EmbeddedBroker) -> None:
    """Two processes of different size share in proportion, and a reader sees it without a second look."""
    kip848_broker.topics.create("orders", partitions=8)

    def shares() -> list[int]:
        group = kip848_broker.groups.get("by-cpus")
        return sorted(len(member.assigned) for member in group.members) if group is not None else []

    with example("custom_assignor.py", kip848_broker, "orders", "1") as small:
        read_until(small, "8 partitions, error 0")
        with example("custom_assignor.py", kip848_broker, "orders", "3") as large:
            read_until(large, "6 partitions, error 0")
            read_until(small, "2 partitions, error 0")
            wait_until(lambda: shares() == [2, 6], TIMEOUT_S, what="shares of 2 and 6 partitions")
            kip848_broker.wait_for_group("by-cpus", state="Stable", members=2)
            interrupt(large)
        read_until(small, "8 partitions, error 0")
        interrupt(small)
    kip848_broker.wait_for_group("by-cpus", state="Empty", members=0)


def test_custom_assignor_on_a_broker_without_client_side_assignment() -> None:
    """Apache Kafka has none: there the members of a classic group assign, and the example says so in one line."""
    with EmbeddedBroker({"orders": 2}, config={"kip848.client.assignors.enable": "false"}) as broker:
        with example("custom_assignor.py", broker, "orders") as process:
            read_until(process, "2 partitions, error 0")
            interrupt(process)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("embedded_broker.py", 3), ("faults.py", 4)])
def test_examples_that_are_tests(name: str, count: int) -> None:
    """The example is a test file: it must pass as one, in a fresh pytest with nothing but the installed plugin."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{count} passed" in done.stdout


def test_dead_letter_buries_what_it_cannot_open_and_tries_again() -> None:
    """An unreadable record must neither stop the partition nor vanish."""
    with EmbeddedBroker({"orders": 1, "orders-dead": 1}) as broker:
        produce(broker, "orders", ("a", "no json"), ("b", '{"id": 7}'), ("c", '{"no": "id"}'))
        with example("dead_letter.py", broker, "orders") as process:
            assert process.stdout is not None
            said = [process.stdout.readline().strip() for _ in range(4)]
        assert said == ["buried 0", "handled 7", "again soon: 'id'", "again soon: 'id'"]
        assert sum(1 for _ in records(broker, "orders-dead")) == 1


def test_parallel_handles_everything() -> None:
    """Every record of both partitions is handled."""
    with EmbeddedBroker({"orders": 2, "orders-dead": 1}) as broker:
        produce(broker, "orders", *[(str(number), "x") for number in range(20)])
        with example("parallel.py", broker, "orders") as process:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(20)]
        assert all(line.startswith("handled ") for line in said)


def test_retry_topics_let_orders_wait(kip848_broker: EmbeddedBroker) -> None:
    """An order that the API takes at the third attempt is handled then; one that it refuses is not tried again."""
    kip848_broker.topics.create("orders")
    kip848_broker.topics.create("orders-dead")
    produce(kip848_broker, "orders", ("a", "later"), ("b", "refused"), ("c", "tea"))
    with example("retry_topics.py", kip848_broker, "orders") as process:
        assert lines_of(process, 2) == ["handled orders 2 b'tea' attempt 1", "handled orders 0 b'later' attempt 3"]
        kip848_broker.wait_for_records("orders-dead", 1)
        interrupt(process)


def test_jobs_are_done_and_given_back_with_sigterm(kip848_broker: EmbeddedBroker) -> None:
    """A container that is stopped lets its jobs end, and gives the rest to other workers."""
    kip848_broker.topics.create("jobs")
    kip848_broker.groups.set_config("jobs", {"share.auto.offset.reset": "earliest"})
    kip848_broker.produce_many("jobs", [str(number) for number in range(20)])
    with example("jobs.py", kip848_broker, "jobs") as process:
        assert all(line.startswith("done ") for line in lines_of(process, 20))
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=TIMEOUT_S) == ("", "")
        assert process.returncode == 0
    (partition,) = kip848_broker.shares.partitions("jobs")
    assert partition.unfinished == 0


def test_threads_end_with_sigterm(kip848_broker: EmbeddedBroker) -> None:
    """A container that is stopped lets its handlers end, commits what they have done, and says goodbye."""
    kip848_broker.topics.create("orders")
    produce(kip848_broker, "orders", *[(str(number), "x") for number in range(20)])
    with example("threads.py", kip848_broker, "orders") as process:
        assert all(line.startswith("handled ") for line in lines_of(process, 20))
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=TIMEOUT_S) == ("", "")
        assert process.returncode == 0
    assert committed_offset(kip848_broker, "threads", "orders") == 20


def test_dead_letter_keeps_a_record_that_it_cannot_bury() -> None:
    """A dead-letter topic that is missing, or read-only for this user, must not make the record vanish."""
    with EmbeddedBroker({"orders": 1, "orders-dead": 1}) as broker:
        broker.faults.on("Produce", error(ErrorCode.TOPIC_AUTHORIZATION_FAILED), topic="orders-dead", times=ALWAYS)
        produce(broker, "orders", ("a", '{"id": 7}'), ("b", "no json"))
        with example("dead_letter.py", broker, "orders") as process:
            output, errors = process.communicate(timeout=TIMEOUT_S)
        assert output == "handled 7\n"
        assert "Topic authorization failed" in errors
        assert committed_offset(broker, "orders", "orders") == 1


def test_local_state_commits_no_order_whose_total_is_not_written(tmp_path: Path) -> None:
    """The total would be missing in each copy, and in each file that is made from the changelog."""
    with EmbeddedBroker({"orders": 1, "orders-totals": 1}) as broker:
        produce(broker, "orders", ("ann", "5"))
        refused = error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        broker.faults.on("Produce", refused, topic="orders-totals", times=ALWAYS)
        with example("local_state.py", broker, str(tmp_path), "0") as process:
            _, errors = process.communicate(timeout=TIMEOUT_S)
        assert "Topic authorization failed" in errors
        assert committed_offset(broker, "totals", "orders") is None
        broker.faults.clear()
        with example("local_state.py", broker, str(tmp_path), "0"):
            wait_until(lambda: committed_offset(broker, "totals", "orders") == 1, what="the order to be committed")
        assert records(broker, "orders-totals") == [b"[5, 0]"]


def test_health_answers_probes() -> None:
    """Operators copy this example into a deployment, whose probes expect these answers."""
    with EmbeddedBroker({"orders": 1}) as broker:
        produce(broker, "orders", ("a", "1"))
        with example("health.py", broker, "orders", "0") as process:
            port_line, handled = lines_of(process, 2)
            assert handled == "handled 0"
            url = f"http://127.0.0.1:{port_line.rsplit(' ', 1)[1]}"
            with urllib.request.urlopen(f"{url}/live") as live, urllib.request.urlopen(f"{url}/ready") as ready:
                assert (live.status, ready.status) == (200, 200)
                assert json.load(ready)["state"] == "STABLE"
            with pytest.raises(urllib.error.HTTPError, match="404") as refused:
                urllib.request.urlopen(f"{url}/other")
            refused.value.close()


@pytest.mark.slow
def test_local_state(kip848_broker: EmbeddedBroker, tmp_path: Path) -> None:
    """docs/assignors.md: a task moves when its new process has the state, and any process answers."""
    for topic in ("orders", "orders-totals"):
        kip848_broker.topics.create(topic, partitions=2)
    check_local_state(kip848_broker.bootstrap_servers, tmp_path, protocol="consumer")
