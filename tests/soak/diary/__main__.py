"""``python -m tests.soak.diary``: does the report tell what was done to fifteen groups on a real Kafka?

Groups of ours, librdkafka, Java (KIP-848 and classic) and kafka-python (classic) read and commit. A script kills,
stops, adds and restarts members, and writes down what it did. Groups without members make it 2,000 commits a second.
Exporter, page and `groups watch` run meanwhile; the page begins again in the middle, and `groups record --from now`
begins when a third is over. At the end the reports of ``__consumer_offsets`` and of that log, all of these and the
diary are compared.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import io
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from kip848_client.cli import main as kip848
from kip848_client.tools.groups.export import Exporter
from tests.interop.conftest import create_topic
from tests.interop.kafka_broker import KafkaBroker
from tests.interop.real.administrator import Administrator
from tests.recorder.test_export import scrape, values
from tests.soak.diary import committer
from tests.soak.diary.groups import (
    MEMBERS,
    PARTITIONS,
    REPOSITORY,
    SCRIPTS,
    SESSION_S,
    DiaryEntry,
    DiaryGroup,
    Traffic,
    java_reader,
)
from tests.soak.diary.judge import STILL_MS, Verdict, gaps_of, judge_group
from tests.soak.diary.page import DiaryPage

LOG_PARTITIONS: Final = 50
PROPERTIES: Final = {
    "offsets.topic.num.partitions": str(LOG_PARTITIONS),
    "group.consumer.session.timeout.ms": str(SESSION_S * 1_000),
    "group.consumer.heartbeat.interval.ms": "500",
    "offsets.topic.segment.bytes": str(2**30),  # what has been compacted cannot be told
}
_SCRAPE_EVERY_S: Final = 1.0
_START_S: Final = 300.0
_SETTLE_S: Final = 15.0
_FROM_NOW: Final = "from-now.jsonl"
_BEGINS_MS: Final = 10_000.0
"""A log from now has the groups as they are once it was started and has asked for the ends of the topic."""
_OUTAGES_SHARE: Final = 0.9
"""So much of the outages is in the exporter's unread time; it asks for the ends of topics once a second."""
_WAITED_SHARE: Final = 0.5
"""At least so many of the records that were written in an outage are told."""


class Diary:
    """The groups, what is done to them, and what was seen meanwhile."""

    def __init__(self, bootstrap: str, folder: Path, arguments: argparse.Namespace) -> None:
        self._bootstrap, self._folder, self._arguments = bootstrap, folder, arguments
        self._rng = random.Random(arguments.seed)
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        administrator = Administrator(bootstrap, "diary")
        (classes := folder / "classes").mkdir()
        java = java_reader(classes)
        self.groups: dict[str, DiaryGroup] = {}
        self.kinds = arguments.kinds
        for kind in self.kinds:
            for script in SCRIPTS:
                group_id = f"{kind}-{script}"
                create_topic(admin, group_id, partitions=PARTITIONS)
                self.groups[group_id] = DiaryGroup(
                    *(group_id, kind, bootstrap, folder, java),
                    grow=administrator.add_partitions,
                    rng=self._rng,
                    out_s_max=arguments.outage,
                )
        create_topic(admin, committer.TOPIC, partitions=committer.PARTITIONS)
        self.silent: dict[str, list[float]] = {group_id: [] for group_id in self.groups}
        """When the exporter counted a silent member."""
        self.scraped: Any = {}
        self.late_scrapes = 0

    def run(self) -> None:
        """Start the members, play the scripts, and look on."""
        traffic = Traffic(self._bootstrap, list(self.groups.values()), records_per_second=self._arguments.rate)
        with contextlib.ExitStack() as stack:
            for group in self.groups.values():
                stack.callback(group.close)
                for _ in range(MEMBERS[group.kind]):
                    group.start()
            stack.enter_context(traffic)
            self._wait_for_members()
            stack.enter_context(
                self._process("committer", "tests.soak.diary.committer", self._bootstrap, str(self._arguments.commits))
            )
            exporter = stack.enter_context(Exporter({"bootstrap.servers": self._bootstrap}, lag_every_s=1.0))
            exporter.catch_up()
            self.page = DiaryPage(self._bootstrap, self._folder / "page.sqlite")
            stack.callback(self.page.close)
            watches = [
                stack.enter_context(
                    self._process(
                        *(f"{kind}-a.watch", "kip848_client", "groups", "watch", f"{kind}-a", "--json"),
                        *("--bootstrap", self._bootstrap),
                    )
                )
                for kind in self.kinds
            ]
            written, began_s = self._commits(), time.monotonic()
            self._play(exporter, stack)
            self.commits_s = (self._commits() - written) / (time.monotonic() - began_s)
            for process in [*watches, self.recorder]:
                process.terminate()
                process.wait(30)
            self.end_ms = time.time_ns() / 1e6
            print(f"{traffic.written:,} records written", flush=True)
            self.report()
            self.page.wait_until_live()
            self.on_page = {group_id: self.page.findings(group_id, from_ms=self.begin_ms) for group_id in self.groups}
            self.shown_lately = self.page.shown_lately(self.begin_ms)

    def report(self) -> None:
        """Ask for the report while all members are there."""
        began = time.monotonic()
        out = self._folder / "groups.jsonl"
        assert kip848(["groups", "record", "--no-follow", "--bootstrap", self._bootstrap, "--out", str(out)]) == 0
        self.record_s = time.monotonic() - began
        self.told = _report(out)
        assert kip848(["report", str(out), "--html", str(self._folder / "report.html")]) == 0
        self.report_s = time.monotonic() - began - self.record_s
        self.told_from_now = _report(self._folder / _FROM_NOW)

    def judge(self) -> Sequence[Verdict]:
        """Compare the report, the page and the report from now with the diary."""
        with contextlib.closing(self._consumer()) as self._places:
            return self._judge()

    def _judge(self) -> Sequence[Verdict]:
        verdict, of_page, of_now = Verdict(), Verdict(), Verdict()
        wall_ms = time.time_ns() / 1e6 - time.monotonic_ns() / 1e6
        for group in self.groups.values():
            verdict.wrong += group.outputs()
            gaps = gaps_of(group.ledger(), wall_ms=wall_ms, since_ms=self.begin_ms, until_ms=self.end_ms)
            findings = [each for each in _of(self.told, group.group_id) if each["start_ms"] >= self.begin_ms]
            judge_group(verdict, group.diary, gaps, findings)
            judge_group(of_page, group.diary, gaps, self.on_page[group.group_id])
            since_ms = self.recorder_ms + _BEGINS_MS
            for each in group.diary:  # what began before is told in part
                if each.start_ms < since_ms < (each.end_ms or self.end_ms):
                    since_ms = (each.end_ms or self.end_ms) + _BEGINS_MS
            lately = [each for each in gaps if each.start_ms >= since_ms]
            late = [each for each in _of(self.told_from_now, group.group_id) if each["start_ms"] >= since_ms]
            judge_group(of_now, group.diary, lately, late)
            for one, told in ((verdict, findings), (of_page, self.on_page[group.group_id]), (of_now, late)):
                one.wrong += self._judge_waiting(told)
            lasting = {each["text"] for each in self.on_page[group.group_id] if each["kind"] == "outage"}
            shown = {each["text"] for each in self.shown_lately if each["group_id"] == group.group_id}
            of_page.wrong += [f"not on the first page: {text}" for text in lasting - shown]
            self._judge_exporter(verdict, group)
            self._judge_watch(verdict, group)
        verdict.wrong += [
            f"invented: {each['group_id']}: {each['text']}"
            for each in self.told["findings"]
            if each["group_id"] not in self.groups
        ]
        return verdict, of_page, of_now

    # --- internals

    def _play(self, exporter: Exporter, stack: contextlib.ExitStack) -> None:
        began = time.monotonic()
        self.begin_ms = time.time_ns() / 1e6
        end_s = began + self._arguments.minutes * 60
        due = [
            (began + 5 + number, number, group.script(group.group_id[-1]))
            for number, group in enumerate(self.groups.values())
        ]
        heapq.heapify(due)
        scrape_s = began
        acts = 0
        record_s, middle_s = began + self._arguments.minutes * 20, began + self._arguments.minutes * 30
        recorder = None
        while due and (
            due[0][0] < end_s or any(not each.diary[-1].end_ms for each in self.groups.values() if each.diary)
        ):
            exporter.turn()
            now_s = time.monotonic()
            if now_s >= scrape_s:
                scrape_s = now_s + _SCRAPE_EVERY_S
                self._scrape(exporter)
            if now_s >= record_s and recorder is None:
                self.recorder_ms: float = time.time_ns() / 1e6
                command = ["kip848_client", "groups", "record", "--bootstrap", self._bootstrap, "--from", "now"]
                command += ["--out", str(self._folder / _FROM_NOW)]
                self.recorder = recorder = stack.enter_context(self._process("record.output", *command))
            if now_s >= middle_s and not self.page.restarts:
                self.page.begin_again()
            if now_s < due[0][0]:
                continue
            _, number, script = heapq.heappop(due)
            group = list(self.groups.values())[number]
            if now_s >= end_s and (not group.diary or group.diary[-1].end_ms):
                continue
            wait_s = next(script, None)
            if len(group.diary) and not group.diary[-1].end_ms and group.diary[-1].start_ms > time.time_ns() / 1e6 - 50:
                acts += 1
                print(f"{now_s - began:6.1f} s  {group.group_id}: {group.diary[-1].act}", flush=True)
            if wait_s is not None:
                heapq.heappush(due, (time.monotonic() + wait_s, number, script))
        settled_s = time.monotonic() + _SETTLE_S
        while time.monotonic() < settled_s:
            exporter.turn()
        self._scrape(exporter)

    def _scrape(self, exporter: Exporter) -> None:
        began = time.monotonic()
        self.scraped = scrape(exporter)
        self.late_scrapes += time.monotonic() - began > 1
        now_ms = time.time_ns() / 1e6
        for group_id, times in self.silent.items():
            if sum(values(self.scraped, "kip848_group_silent_members", group=group_id)):
                times.append(now_ms)

    def _commits(self) -> int:
        """The records of the log so far; nearly all of them are commits."""
        with contextlib.closing(self._consumer()) as consumer:
            places = [TopicPartition("__consumer_offsets", number) for number in range(LOG_PARTITIONS)]
            return sum(consumer.get_watermark_offsets(place, timeout=30)[1] for place in places)

    def _consumer(self) -> Consumer:
        return Consumer({"bootstrap.servers": self._bootstrap, "group.id": "ends", "log_level": 0})

    @contextlib.contextmanager
    def _process(self, name: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        with (self._folder / name).open("wb") as out:
            process = subprocess.Popen([sys.executable, "-m", *command], cwd=REPOSITORY, stdout=out)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def _wait_for_members(self) -> None:
        until_s = time.monotonic() + _START_S
        while time.monotonic() < until_s:
            if all(group.all_read() for group in self.groups.values()):
                return
            time.sleep(1)  # other processes write the files: nothing tells when
        raise AssertionError([name for name, group in self.groups.items() if not group.all_read()])

    def _judge_waiting(self, findings: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """Compare how many records waited in outages with how many were written meanwhile."""
        for each in findings:
            if each["kind"] == "outage":
                start_ms, end_ms = each["start_ms"], each["start_ms"] + each["ms"]
                written = self._written(each["which"], start_ms, end_ms)
                sooner = self._written(each["which"], start_ms - STILL_MS, start_ms)
                if not _WAITED_SHARE * written <= each["records"] <= written + sooner:
                    yield f"{written} records were written in it: {each['group_id']}: {each['text']}"

    def _written(self, which: Sequence[str], start_ms: float, end_ms: float) -> int:
        """How many records these partitions got in a time."""
        total = 0
        for sign, at_ms in ((-1, start_ms), (1, end_ms)):
            asked = []
            for name in which:
                topic, _, number = name.rpartition("-")
                asked.append(TopicPartition(topic, int(number), int(at_ms)))
            total += sign * sum(each.offset for each in self._places.offsets_for_times(asked, timeout=30))
        return total

    def _judge_exporter(self, verdict: Verdict, group: DiaryGroup) -> None:
        done = [each for each in group.diary if each.start_ms >= self.begin_ms]
        for metric, expected in (
            ("kip848_group_departures_total", sum(each.departures for each in done)),
            ("kip848_group_joins_total", sum(each.joins for each in done)),
        ):
            (told,) = values(self.scraped, metric, group=group.group_id)
            if not expected <= told <= expected + sum(each.maybe for each in done):
                verdict.wrong.append(f"exporter: {metric} of {group.group_id} is {told}, and the diary has {expected}")
        (unread_s,) = values(self.scraped, "kip848_group_unread_partition_seconds_total", group=group.group_id)
        out_s = sum(
            each["ms"] * each["partitions"] / 1_000
            for each in _of(self.told, group.group_id)
            if each["kind"] == "outage" and each["start_ms"] >= self.begin_ms
        )
        if unread_s < _OUTAGES_SHARE * out_s:
            verdict.wrong.append(
                f"exporter: {group.group_id} had {unread_s:.0f} s unread, and outages of {out_s:.0f} s"
            )
        for entry in done:
            if entry.act in {"kill", "stop", "pause"}:
                until_ms = entry.start_ms + SESSION_S * 1000
                seen = any(entry.start_ms <= at <= until_ms for at in self.silent[group.group_id])
                verdict.silences[f"exporter, {entry.act}: {'seen' if seen else 'not seen'}"] += 1
        for at in self.silent[group.group_id]:
            if not any(each.start_ms - 500 <= at <= (each.end_ms or at) + 3_000 for each in group.diary):
                verdict.wrong.append(f"exporter: a silent member in {group.group_id} at {at:.0f}, and nothing was done")

    def _judge_watch(self, verdict: Verdict, group: DiaryGroup) -> None:
        path = self._folder / f"{group.group_id}.watch"
        if not path.exists():
            return
        shown = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
        for entry in group.diary:
            if entry.act != "kill":
                continue
            during = [one for one in shown if entry.start_ms <= one["ts_ms"] <= entry.start_ms + SESSION_S * 1000]
            named = {one["client_id"] for each in during for one in each["members"] if one["silent"]}
            verdict.silences[f"watch, kill: {'seen' if named else 'not seen'}"] += 1
            if named - set(entry.who):
                verdict.wrong.append(f"watch: {entry.who} was killed in {group.group_id}, and {named} were silent")
            after = [one for one in shown if one["ts_ms"] > entry.start_ms + (SESSION_S + 3) * 1000][:1]
            if after and entry.who[0] in {one["client_id"] for one in after[0]["members"]}:
                verdict.wrong.append(f"watch: {entry.who} is still in {group.group_id} after {entry.start_ms:.0f}")


def main() -> int:
    """Play it; the exit code says whether everything agreed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.diary", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--rate", type=int, default=500, help="records a second")
    parser.add_argument("--commits", type=int, default=1_500, help="a second, beside those of the members")
    parser.add_argument("--outage", type=float, default=40, help="seconds that a whole group is away at most")
    parser.add_argument("--kinds", nargs="+", choices=sorted(MEMBERS), default=list(MEMBERS), help="of clients (all)")
    parser.add_argument("--seed", type=int, default=1, help="of victims and pauses")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="leave everything there")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kip848-diary-")))
        folder.mkdir(parents=True, exist_ok=True)
        broker = stack.enter_context(KafkaBroker(properties=PROPERTIES))
        diary = Diary(broker.bootstrap_servers, folder, arguments)
        diary.run()
        verdict, of_page, of_now = diary.judge()
    entries: list[DiaryEntry] = [each for group in diary.groups.values() for each in group.diary]
    (folder / "diary.json").write_bytes(msgspec.json.encode(entries))
    result = {
        "kafka": broker.version,
        "groups": len(diary.groups),
        "acts": Counter(each.act for each in entries),
        "commits/s": round(diary.commits_s),
        **_summary(verdict),
        "by cause": verdict.by_cause,
        "silences seen": verdict.silences,
        "seconds to record": round(diary.record_s, 1),
        "seconds to report": round(diary.report_s, 1),
        "scrapes over 1 s": diary.late_scrapes,
        "page": _summary(of_page),
        "from now": _summary(of_now),
    }
    print(json.dumps(result, indent=1))
    wrong = 0
    for who, one in (("", verdict), ("page: ", of_page), ("from now: ", of_now)):
        for problem in one.wrong:
            wrong += 1
            print(f"WRONG {who}{problem}")
    return 1 if wrong else 0


def _summary(verdict: Verdict) -> Mapping[str, object]:
    return {
        "stand-stills of partitions": verdict.gaps,
        "found": verdict.found,
        "not seen": verdict.unseen,
        "findings": verdict.findings,
        "agreed": verdict.agreed,
        "of unknown cause": verdict.unknown,
        "bounds minus truth, ms": sorted(verdict.off_ms),
    }


def _report(log: Path) -> Mapping[str, Any]:
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        assert kip848(["report", str(log), "--json"]) == 0
    told: Mapping[str, Any] = json.loads(written.getvalue())
    return told


def _of(told: Mapping[str, Any], group_id: str) -> list[Mapping[str, Any]]:
    return [each for each in told["findings"] if each["group_id"] == group_id]


if __name__ == "__main__":
    sys.exit(main())
