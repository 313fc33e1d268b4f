"""Report and exporter against a diary: processes of three kinds of clients are killed, and the truth is kept.

The truth about a partition is in the ledger of its readers: when the killed process read its last record, and when the
next owner read its first one.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from kip848_client.cli import main
from kip848_client.tools.groups.export import Exporter
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.interop.real.fleet import Fleet, Stream, WorkerProcess
from tests.interop.real.group import ON_KAFKA, Group, group_of
from tests.recorder.test_export import scrape, values
from tests.support.waiting import wait_until

pytestmark = ON_KAFKA

PARTITIONS: Final = 4
SESSION_MS: Final = 5_000
KINDS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "ours": ("ours", {}),
    "librdkafka": ("librdkafka", {}),
    "classic": (
        "librdkafka",
        {"group.protocol": "classic", "session.timeout.ms": str(SESSION_MS), "heartbeat.interval.ms": "200"},
    ),
}
"""Kind of group -> the worker's client, and what it sets."""


class Scene:
    """One group of two workers, a topic that is written to, and what was done to them."""

    def __init__(self, kind: str, group: Group, folder: Path) -> None:
        client, conf = KINDS[kind]
        self.kind, self.group, self._client = kind, group, client
        if kind != "classic":
            group.configure(consumer_session_timeout_ms=SESSION_MS)
        self.topic = group.topic(partitions=PARTITIONS)
        settings = {"bootstrap.servers": group.bootstrap_servers, "group.id": group.group_id, **conf}
        folder.mkdir()
        self.fleet = Fleet(folder, self.topic, {**settings, "auto.offset.reset": "earliest"})
        self.stream = Stream(group.bootstrap_servers, self.topic, partitions=PARTITIONS, records_per_second=200)
        self.survivor = self.fleet.start(client)
        self.killed_ms = 0

    def read_by(self, worker: WorkerProcess, *, since_ns: int = 0) -> set[int]:
        """The partitions that it has read since then."""
        entries = self.fleet.ledger().entries
        return {
            one.partition
            for one in entries
            if one.kind == "read" and one.member == worker.name and one.at_ns >= since_ns
        }

    def unread_ms(self, victim: WorkerProcess) -> float:
        """The longest time between the last record of a partition that the victim read, and the next one."""
        last: dict[int, int] = {}
        longest = 0
        for one in sorted(self.fleet.ledger().entries, key=lambda entry: entry.at_ns):
            if one.kind != "read":
                continue
            if one.member == victim.name:
                last[one.partition] = one.at_ns
            elif one.partition in last:
                longest = max(longest, one.at_ns - last.pop(one.partition))
        return longest / 1e6


def test_a_killed_member_is_found_with_its_cause_and_the_time_that_it_cost(
    broker: KafkaBroker | ExternalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was told that nothing was unread: the coordinator counts a dead member as the owner until its session ends."""
    bootstrap = broker.bootstrap_servers
    with contextlib.ExitStack() as stack:
        scenes = []
        for kind in KINDS:
            scene = Scene(kind, stack.enter_context(group_of(bootstrap)), tmp_path / kind)
            stack.enter_context(scene.fleet)
            stack.enter_context(scene.stream)
            scenes.append(scene)
        wait_until(lambda: all(len(scene.read_by(scene.survivor)) == PARTITIONS for scene in scenes))
        exporter = stack.enter_context(Exporter({"bootstrap.servers": bootstrap}))
        exporter.catch_up()
        victims = {scene.kind: scene.fleet.start(KINDS[scene.kind][0]) for scene in scenes}
        wait_until(lambda: all(len(scene.read_by(victims[scene.kind])) == PARTITIONS // 2 for scene in scenes))
        settled_ns = time.monotonic_ns() + 1_500_000_000  # commits enough for an interval
        while time.monotonic_ns() < settled_ns:
            exporter.turn()
        killed_ns = time.monotonic_ns()
        for scene in scenes:
            scene.killed_ms = time.time_ns() // 1_000_000
            scene.fleet.kill(victims[scene.kind])
        wait_until(
            lambda: all(len(scene.read_by(scene.survivor, since_ns=killed_ns)) == PARTITIONS for scene in scenes)
        )
        for scene in scenes:
            scene.stream.stop()
            scene.fleet.stop(scene.survivor)
        exporter.turn()
        scraped = scrape(exporter)
        patterns = [argument for scene in scenes for argument in ("--group", scene.group.group_id)]
        log = tmp_path / "groups.jsonl"
        assert main(["groups", "record", "--no-follow", "--bootstrap", bootstrap, "--out", str(log), *patterns]) == 0
        capsys.readouterr()
        assert main(["report", str(log), "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]

    for scene in scenes:
        victim = victims[scene.kind]
        of_group = [
            one
            for one in findings  # before it, a victim may have begun to read late: the machine is busy
            if one["group_id"] == scene.group.group_id and one["start_ms"] >= scene.killed_ms - 1_000
        ]
        told = [(one["kind"], one["why"], one["rests"], one["partitions"]) for one in of_group]
        assert told == [("stand-still", "died", "at most", PARTITIONS // 2)], (scene.kind, of_group)
        (found,) = of_group
        assert found["who"][0].startswith(victim.name)
        truth_ms = scene.unread_ms(victim)
        # The bound is longer by one time between two commits and by one commit: seconds, if the machine is busy.
        assert SESSION_MS / 2 < truth_ms <= found["ms"] + 50 < truth_ms + 10_000, (scene.kind, truth_ms, found)
        assert found["start_ms"] <= scene.killed_ms + 50 < found["start_ms"] + 10_000
        assert values(scraped, "kip848_group_departures_total", group=scene.group.group_id) >= [1]
