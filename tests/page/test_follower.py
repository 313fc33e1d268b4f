"""The page on a cluster: rows as coordinators say, a history without holes, and what is shown without the cluster."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from kip848_client import Admin, Consumer, EmbeddedBroker
from kip848_client.cli import main
from kip848_client.cli.shared.signals import sigterm_interrupts
from kip848_client.errors import ConfigError
from kip848_client.tools.groups.follower import now_ms
from kip848_client.tools.page.analysis import timeline_of, what_went_wrong
from kip848_client.tools.page.follower import Board, Following, PageFollower
from kip848_client.tools.page.server import PageServer
from kip848_client.tools.page.situation import Level, Situation
from kip848_client.tools.page.web import Page
from tests.recorder.test_command import member, settle
from tests.support.waiting import TIMEOUT_S, wait_until

DAY_MS = 86_400_000


@pytest.fixture
def broker(kip848_broker: EmbeddedBroker) -> EmbeddedBroker:
    kip848_broker.topics.create("orders", partitions=4)
    return kip848_broker


@pytest.fixture
def one(broker: EmbeddedBroker) -> Iterator[Consumer]:
    """The member of ``billing``, which has committed."""
    with member(broker, "one") as consumer:
        settle(broker, consumer)
        commit(consumer, 0)
        yield consumer


def commit(consumer: Consumer, offset: int) -> None:
    offsets = [TopicPartition(each.topic, each.partition, offset) for each in consumer.assignment()]
    consumer.commit(offsets=offsets, asynchronous=False)


def follower(broker: EmbeddedBroker, file: Path, board: Board | None = None, **more: Any) -> PageFollower:
    conf = {"bootstrap.servers": broker.bootstrap_servers}
    return PageFollower(conf, board or Board(), file=file, size_max=10**9, keep_ms=DAY_MS, lag_every_s=0.05, **more)


def row(following: PageFollower, group_id: str = "billing") -> Situation | None:
    """The row of a group, after one more turn."""
    following.ask_for_ends()
    following.turn()
    return following.board.row(group_id)


def produce(broker: EmbeddedBroker, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(count):
        producer.produce("orders", b"x", partition=number % 4)
    producer.flush()


def test_a_row_is_what_the_coordinator_says(broker: EmbeddedBroker, one: Consumer, tmp_path: Path) -> None:
    """Members, partitions and lag; then nobody is there, and records wait."""
    produce(broker, 40)
    with follower(broker, tmp_path / "groups.sqlite") as following:
        following.catch_up()
        wait_until(lambda: (found := row(following)) is not None and found.lag == 40)
        found = row(following)
        assert found is not None
        assert (found.state, found.members, found.partitions, found.type) == ("Stable", 1, 4, "consumer")
        one.close()
        wait_until(lambda: (now := row(following)) is not None and now.level == Level.STANDING)
        found = row(following)
        assert found is not None
        assert found.text.startswith("no member, 40 records wait in 4 partitions; the last one: one")
        with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
            admin.delete_groups(["billing"]).raise_errors()
        wait_until(lambda: row(following) is None)


def test_a_page_that_was_off_has_no_hole(broker: EmbeddedBroker, one: Consumer, tmp_path: Path) -> None:
    """What happened meanwhile is in the topic; what was told before is not told twice."""
    file, whole = tmp_path / "groups.sqlite", tmp_path / "whole.sqlite"
    with follower(broker, file) as following:
        following.catch_up()
        following.turn()
    commit(one, 1)
    with member(broker, "two") as two:
        settle(broker, one, two)
        commit(one, 2)
        commit(two, 2)
    settle(broker, one)
    commit(one, 3)
    with follower(broker, file) as again, follower(broker, whole) as uninterrupted:
        lanes = []
        for each in (again, uninterrupted):
            each.catch_up()
            wait_until(lambda each=each: (found := row(each)) is not None and found.members == 1)  # type: ignore[misc]
            with contextlib.closing(each.history.reader()) as reader:
                timeline = timeline_of(
                    reader, "billing", each.untold("billing"), from_ms=0, to_ms=now_ms() + DAY_MS, is_now=False
                )
                assert timeline is not None
                lanes.append((timeline.partitions, timeline.epochs, timeline.lives.departures, timeline.bounds))
        assert lanes[0] == lanes[1]


def test_a_group_that_changes_all_the_time_gets_a_snapshot(
    broker: EmbeddedBroker, one: Consumer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at its last hour reads what came after that."""
    monkeypatch.setattr("kip848_client.tools.page.follower._SNAPSHOT_AFTER", 3)
    with follower(broker, tmp_path / "groups.sqlite") as following:
        following.catch_up()
        wait_until(lambda: (found := row(following)) is not None and found.state == "Stable")
        with contextlib.closing(following.history.reader()) as reader:
            log = reader.log("billing", from_ms=now_ms(), to_ms=now_ms() + DAY_MS)
            names = [event.event for event in log.events]
            assert names[0] == "member_joined"
            assert names.count("group_epoch_bumped") == 0, "it is the state, and not how it came about"
            told = what_went_wrong(reader, "billing", (), from_ms=log.start_ms, to_ms=now_ms() + DAY_MS, is_now=False)
        assert told == []


def test_another_cluster_is_refused_before_anything_is_written(
    broker: EmbeddedBroker, one: Consumer, tmp_path: Path
) -> None:
    """The same file for two clusters would mix them up."""
    with follower(broker, tmp_path / "groups.sqlite") as following:
        following.catch_up()
    with pytest.raises(ConfigError, match="choose another file"):
        follower(broker, tmp_path / "groups.sqlite", groups=("orders-*",))


def test_a_cluster_that_goes_away_is_told_and_awaited(broker: EmbeddedBroker, one: Consumer, tmp_path: Path) -> None:
    """The last known state stays on the page, which says since when it is old."""
    board = Board()
    following = Following(board, lambda: follower(broker, tmp_path / "groups.sqlite", board, timeout_s=1.0))
    following.start()
    try:
        wait_until(lambda: board.status.phase == "live" and board.row("billing") is not None)
        broker.stop()
        wait_until(lambda: board.status.phase == "away")
        assert board.status.text
        assert board.status.since_ms <= now_ms()
        assert board.row("billing") is not None
    finally:
        following.stop()


def test_a_page_opens_before_the_cluster_answers(tmp_path: Path) -> None:
    """Somebody who looks during an outage must see that it is one."""
    board = Board()
    conf = {"bootstrap.servers": "127.0.0.1:1"}
    following = Following(
        board,
        lambda: PageFollower(
            conf, board, file=tmp_path / "groups.sqlite", size_max=10**9, keep_ms=DAY_MS, timeout_s=0.2
        ),
    )
    following.start()
    try:
        wait_until(lambda: board.status.phase == "away")
        assert "127.0.0.1:1" in board.status.text
    finally:
        following.stop()


@contextlib.contextmanager
def served(board: Board) -> Iterator[PageServer]:
    with PageServer(board) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join()


def test_changes_arrive_while_a_page_is_open(broker: EmbeddedBroker, one: Consumer, tmp_path: Path) -> None:
    """Server-sent events: first all there is to know, then each change, and no more when the server ends."""
    board = Board()
    with served(board) as server, follower(broker, tmp_path / "groups.sqlite", board) as following:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        following.catch_up()
        row(following)
        connection.request("GET", f"/events?version={board.version}")
        stream = connection.getresponse()
        assert stream.headers["content-type"].startswith("text/event-stream")
        with member(broker, "two") as two:
            settle(broker, one, two)
            wait_until(lambda: (found := row(following)) is not None and found.members == 2)
            members = 0
            while members != 2:
                line = stream.readline()
                assert line, "the stream ended"
                if line.startswith(b"data: "):
                    news = json.loads(line.removeprefix(b"data: "))
                    members = max((one["members"] for one in news.get("groups", ())), default=members)
        server.stop()
        while stream.readline():
            pass
        connection.close()


def test_the_page_and_its_metrics_are_served(broker: EmbeddedBroker, one: Consumer, tmp_path: Path) -> None:
    """People and Prometheus ask the same program."""
    board = Board()
    with served(board) as server, follower(broker, tmp_path / "groups.sqlite", board) as following:
        board.follower, board.lock = following, following.lock
        following.catch_up()
        row(following)
        following.turn()

        def get(path: str) -> str:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            with contextlib.closing(connection):
                connection.request("GET", path)
                answer = connection.getresponse()
                body = answer.read().decode()
                assert answer.status == 200, body
                return body

        assert 'kip848_group_members{group="billing"} 1.0' in get("/metrics")
        told = json.loads(get("/api/groups/billing"))
        assert [(each["name"], each["owned"]) for each in told["members"]] == [("one", 4)]
        assert {each["partition"]: each["owner"] for each in told["partitions"]} == {
            f"orders-{index}": "one" for index in range(4)
        }
        drawn = json.loads(get("/api/timeline/billing"))
        (lanes,) = drawn["timelines"]
        assert [lane["partition"] for lane in lanes["partitions"]] == [f"orders-{index}" for index in range(4)]
        assert "<script>" in get("/report/billing"), "the page of a report needs nothing else"


def test_a_period_that_ends_in_an_outage_tells_of_it(broker: EmbeddedBroker, one: Consumer, tmp_path: Path) -> None:
    """A link to the minute in which it began would otherwise show that nothing was wrong."""
    produce(broker, 40)
    with follower(broker, tmp_path / "groups.sqlite") as following:
        board = following.board
        board.follower, board.lock = following, following.lock
        following.catch_up()
        one.close()
        wait_until(lambda: (now := row(following)) is not None and now.level == Level.STANDING)
        following.turn()
        (begin,) = (each for each in board.rows() if each.since_ms is not None)
        assert begin.since_ms is not None
        wait_until(lambda: now_ms() > (begin.since_ms or 0) + 50)
        drawn = Page(board).draw("billing", begin.since_ms - 1_000, begin.since_ms + 10, is_now=False)
        assert drawn is not None
        (found,) = drawn["findings"]
        assert (found.kind, found.start_ms, found.records) == ("outage", begin.since_ms, 40)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--listen", "0.0.0.0:0"], "give --token-file FILE"),
        (["--listen", "nowhere"], "is not HOST:PORT"),
        (["--keep", "long"], "--keep long: a number with m, h or d"),
        (["--lag-every", "0"], "are above 0"),
        (["--token-file", "/nothing/here"], "--token-file /nothing/here"),
    ],
)
def test_wrong_options_are_answered_in_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is opened."""
    assert main(["groups", "serve", "--bootstrap", "127.0.0.1:1", *arguments]) == 1
    assert says in capsys.readouterr().err


def test_sigterm_ends_a_page_as_ctrl_c_does(tmp_path: Path) -> None:
    """It died at once, and each page without --file left its temporary folder, of up to 500 MB."""
    command = [sys.executable, "-m", "kip848_client", "groups", "serve", "--bootstrap", "127.0.0.1:1"]
    environment = os.environ | {"TMPDIR": str(tmp_path), "TEMP": str(tmp_path), "TMP": str(tmp_path)}
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        host, _, port = process.stderr.readline().strip().removeprefix("http://").rstrip("/").partition(":")
        with contextlib.closing(http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)) as connection:
            connection.request("GET", "/health")
            assert connection.getresponse().status == 503
        assert len(list(tmp_path.iterdir())) == 1
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    assert list(tmp_path.iterdir()) == []


def test_sigterm_interrupts_what_runs_until_it_is_interrupted() -> None:
    """`groups record` lost what it had not written yet, and left half a line."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), sigterm_interrupts():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before
