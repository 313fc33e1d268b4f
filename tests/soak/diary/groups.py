"""The groups of the diary: processes of one kind of client, a topic, and what is done to them and written down."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias

import msgspec
from confluent_kafka import KafkaException, Producer

from tests.interop.kafka_libs import KAFKA_FOLDER, java_command, kafka_libs
from tests.interop.real.ledger import Entry, entries_of
from tests.soak.diary.reader import BATCH, HOLD_S, LATE_S

REPOSITORY: Final = Path(__file__).parents[3]
PARTITIONS: Final = 6
SESSION_S: Final = 6
POLL_INTERVAL_S: Final = 12
MEMBERS: Final[Mapping[str, int]] = dict.fromkeys(("ours", "librdkafka", "java", "java-classic", "kafka-python"), 2)
"""Kind of client -> members of a group. The last two are of classic groups, which most Java clients still are."""
_CLASSIC: Final = frozenset({"java-classic", "kafka-python"})

Act: TypeAlias = Literal["add", "leave", "kill", "stop", "pause", "roll", "grow", "late", "hold", "flap", "out"]
SCRIPTS: Final[Mapping[str, Sequence[Act]]] = {
    "a": ("kill", "add", "leave", "add", "stop"),
    "b": ("roll", "out", "roll", "grow", "kill", "add", "late"),
    "c": ("hold", "leave", "flap", "pause", "late", "out"),
}
"""What is done to the three groups of a kind, over and over. The group of ours whose name ends with c is left alone."""
UNTOUCHED: Final = "ours-c"
_POLLED_LATE: Final = re.compile(r"\[(.*?)\] WARN .*Time between subsequent calls to poll\(\) was longer")
_REFUSED: Final = re.compile(
    r".* (failed (with|because of) (UNKNOWN_MEMBER_ID|STALE_MEMBER_EPOCH)|poll timeout has expired"
    r"|Offset commit failed .* The coordinator is not aware of this member)"
)
"""What a Java member prints beside that, and after it was stopped for longer than its session."""
_NOT_OF_JAVA: Final = frozenset({"late", "hold"})
_CALM_S: Final = (8.0, 12.0)
_FLAPS: Final = 4
_OUT_S_MIN: Final = 11.0
_JOIN_S: Final = 120.0


class DiaryEntry(msgspec.Struct):
    """One thing that was done to a group.

    Attributes:
        who: the client ids that it was done to.
        departures, joins: how many of each the coordinator must have seen.
        maybe: how many more of each it may have seen, since the machine was busy.
    """

    group: str
    act: Act
    start_ms: float
    who: list[str]
    end_ms: float = 0.0
    departures: int = 0
    joins: int = 0
    maybe: int = 0


class Process(msgspec.Struct, frozen=True):
    """One member."""

    name: str
    popen: subprocess.Popen[bytes]


class DiaryGroup:
    """One group.

    Args:
        java: the command line of DiaryReader.
        out_s_max: how long all members are away at most.
    """

    def __init__(
        self,
        group_id: str,
        kind: str,
        bootstrap: str,
        folder: Path,
        java: Sequence[str],
        *,
        grow: Callable[[str, int], None],
        rng: random.Random,
        out_s_max: float = 40.0,
    ) -> None:
        self.group_id: Final = group_id
        self.kind: Final = kind
        self.partitions = PARTITIONS
        self.diary: Final[list[DiaryEntry]] = []
        self.started = 0
        self._bootstrap, self._folder, self._java, self._grow, self._rng = bootstrap, folder, java, grow, rng
        self._out_s_max = out_s_max
        self._numbers = itertools.count()
        self._running: list[Process] = []
        self._paths: list[Path] = []
        self._stuck: list[str] = []

    def script(self, name: str) -> Iterator[float]:
        """Do what the script says; yields how long to wait before it goes on."""
        if self.group_id == UNTOUCHED:
            return
        for act in itertools.cycle(SCRIPTS[name]):
            if act in _NOT_OF_JAVA and self.kind.startswith("java"):
                continue
            if act in {"kill", "leave"} and len(self._running) < 2:
                act = "add"  # a group that is empty has nothing to tell
            yield self._rng.uniform(*_CALM_S)
            entry = DiaryEntry(self.group_id, act, _now_ms(), [])
            self.diary.append(entry)
            yield from self._do(act, entry)
            entry.end_ms = _now_ms()
            yield self._rng.uniform(*_CALM_S) / 2

    def start(self, name: str | None = None) -> Process:
        """Start a member; with a name, one that was there before."""
        self.started += 1
        name = name or f"{self.group_id}-{next(self._numbers)}"
        path = self._folder / f"{name}-{self.started}.jsonl"
        self._paths.append(path)
        conf: dict[str, object] = {
            "bootstrap.servers": self._bootstrap,
            "group.id": self.group_id,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "max.poll.interval.ms": POLL_INTERVAL_S * 1000,
        }
        if self.kind in _CLASSIC:
            conf |= {"session.timeout.ms": SESSION_S * 1000, "heartbeat.interval.ms": 500}
        else:
            conf["group.protocol"] = "consumer"
        if self.kind.startswith("java"):
            conf["max.poll.records"] = BATCH
            command = [*self._java, str(path), self.group_id]
            command += [f"{key}={str(value).lower() if value is False else value}" for key, value in conf.items()]
        else:
            if self.kind != "kafka-python":
                conf["log_level"] = 0
            command = [sys.executable, "-m", "tests.soak.diary.reader", self.kind, str(path), self.group_id]
            command.append(json.dumps(conf))
        with path.with_suffix(".output").open("wb") as output:
            popen = subprocess.Popen(
                command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        process = Process(name, popen)
        self._running.append(process)
        return process

    def close(self) -> None:
        """Kill all members."""
        for process in self._running:
            process.popen.kill()
            process.popen.wait()

    def ledger(self) -> list[Entry]:
        """What was read and committed, in order of time."""
        entries = itertools.chain.from_iterable(entries_of(path) for path in self._paths if path.exists())
        return sorted((each for each in entries if each.kind != "error"), key=lambda each: each.at_ns)

    def all_read(self) -> bool:
        """Whether every member has read something."""
        return all(path.exists() and path.stat().st_size for path in self._paths)

    def outputs(self) -> Iterator[str]:
        """What the processes printed, which should be nothing; and those that read nothing.

        That a member was too slow between two polls since the machine is busy goes into the diary.
        """
        yield from (
            f"{name} read nothing for {_JOIN_S:.0f} s: is the machine too busy for this?" for name in self._stuck
        )
        for path in self._paths:
            name = path.stem.rpartition("-")[0]
            for line in path.with_suffix(".output").read_text(errors="replace").splitlines():
                late = _POLLED_LATE.match(line)
                if late is None:
                    if not _REFUSED.match(line):
                        yield f"{path.stem}: {line[-400:]}"
                    continue
                at_ms = dt.datetime.strptime(late[1], "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp() * 1000
                # What was done to it just then tells of it already.
                if not any(name in each.who and each.start_ms <= at_ms <= each.end_ms for each in self.diary):
                    self.diary.append(DiaryEntry(self.group_id, "late", at_ms, [name], at_ms + 5_000, maybe=1))
        self.diary.sort(key=lambda each: each.start_ms)

    # --- acts

    def _do(self, act: Act, entry: DiaryEntry) -> Iterator[float]:
        match act:
            case "add":
                entry.who.append(self.start().name)
                entry.joins += 1
                yield from self._until_it_reads()
            case "leave":
                self._leave(self._any(), entry)
            case "kill":
                process = self._any()
                self._running.remove(process)
                process.popen.kill()
                process.popen.wait()
                entry.who.append(process.name)
                entry.departures += 1
                yield SESSION_S + 4.0
            case "stop" | "pause":
                process = self._any()
                entry.who.append(process.name)
                process.popen.send_signal(signal.SIGSTOP)
                yield SESSION_S + 5.0 if act == "stop" else SESSION_S / 2
                process.popen.send_signal(signal.SIGCONT)
                entry.maybe = int(act == "pause")  # its session may end
                if act == "stop":
                    entry.departures += 1
                    entry.joins += 1
                    yield 4.0
            case "roll":
                for process in list(self._running):
                    self._leave(process, entry)
                    self.start(process.name)
                    entry.joins += 1
                    yield from self._until_it_reads()
                    yield 2.0
            case "grow":
                self.partitions += 2
                self._grow(self.group_id, self.partitions)
                yield 6.0
            case "late":
                process = self._any()
                entry.who.append(process.name)
                process.popen.send_signal(signal.SIGUSR1)
                entry.departures += 1
                entry.joins += 1
                yield LATE_S + 5.0
            case "hold":
                for each in self._running:
                    each.popen.send_signal(signal.SIGUSR2)
                    entry.who.append(each.name)
                yield 0.5
                entry.who.append(self.start().name)
                entry.joins += 1
                yield HOLD_S + 8.0
            case "out":
                names = [process.name for process in self._running]
                for process in list(self._running):
                    self._leave(process, entry)
                yield self._rng.uniform(_OUT_S_MIN, self._out_s_max)
                for name in names:
                    self.start(name)
                    entry.joins += 1
                    yield from self._until_it_reads()
                yield 6.0
            case "flap":
                name = self.start().name
                entry.joins += 1
                yield from self._until_it_reads()
                for round_ in range(_FLAPS):
                    self._leave(self._running[-1], entry)
                    if round_ + 1 < _FLAPS:
                        yield 2.0
                        self.start(name)
                        entry.joins += 1
                        yield from self._until_it_reads()

    def _until_it_reads(self) -> Iterator[float]:
        """Wait for the member that was started last."""
        until_s = time.monotonic() + _JOIN_S
        while self._paths[-1].stat().st_size == 0 if self._paths[-1].exists() else True:
            if time.monotonic() > until_s:
                self._stuck.append(self._paths[-1].stem)
                return
            yield 0.3

    def _any(self) -> Process:
        return self._rng.choice(self._running)

    def _leave(self, process: Process, entry: DiaryEntry) -> None:
        self._running.remove(process)
        process.popen.terminate()
        code = process.popen.wait(30)
        assert code in {0, 143}, f"{process.name} ended with {code}"
        if process.name not in entry.who:
            entry.who.append(process.name)
        entry.departures += 1


class Traffic:
    """Writes a record to every partition of every group's topic, over and over, on a thread of its own."""

    def __init__(self, bootstrap: str, groups: Sequence[DiaryGroup], *, records_per_second: int) -> None:
        self._groups = groups
        self._rate = records_per_second
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 1})
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic")
        self.written = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        self._producer.flush(10)

    def _run(self) -> None:
        due_s = time.monotonic()
        for group in itertools.cycle(self._groups):
            for partition in range(group.partitions):
                try:
                    self._producer.produce(group.group_id, b"x", partition=partition)
                except (BufferError, KafkaException):  # the broker is away, or does not know the partition yet
                    continue
                self.written += 1
            self._producer.poll(0)
            due_s += group.partitions / self._rate
            if self._stopped.wait(max(0.0, due_s - time.monotonic())):
                return


def java_reader(classes: Path) -> list[str]:
    """Compile DiaryReader into *classes*; the command line that runs it."""
    java, libs = java_command(), kafka_libs()
    compiler = shutil.which("javac", path=str(Path(java).parent) + os.pathsep + os.environ.get("PATH", ""))
    assert compiler is not None, "there is no javac"
    source = Path(__file__).with_name("DiaryReader.java")
    subprocess.run([compiler, "-nowarn", "-cp", f"{libs}/*", "-d", str(classes), str(source)], check=True, timeout=120)
    logging = f"-Dlog4j2.configurationFile={KAFKA_FOLDER / 'log4j2.properties'}"
    options = ["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", logging]
    return [java, *options, "-cp", f"{classes}{os.pathsep}{libs}/*", "DiaryReader"]


def _now_ms() -> float:
    return time.time_ns() / 1e6
