"""The state of the running demo: workers, partitions, rebalances, what was said. Pure: it draws nothing.

It receives reports of the workers, events of the coordinator's log and progress of the producer, and keeps what the
table and the result need. `table` draws it, `story` waits for it.
"""

from __future__ import annotations

import enum
import itertools
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from demo.ledger import Disappearance, Ledger
from demo.processes import Ended, News, Said
from demo.reports import Committed, Counted, Left, Moved, Started, Status, Troubled
from kip848_client.journal import JournalEvent

LINES_KEPT: Final = 200


class Fate(enum.Enum):
    """Where a worker is in its life, as the demo sees it."""

    STARTING = "starting"
    RUNNING = "running"
    LEAVING = "leaving"
    LEFT = "left"
    KILLED = "killed"
    """The process is gone; the coordinator still counts it as a member."""
    REMOVED = "removed"
    """The coordinator's session timeout for it has passed."""
    FAILED = "failed"
    """The process ended unexpectedly."""

    @property
    def gone(self) -> bool:
        """Whether the process has ended."""
        return self in {Fate.LEFT, Fate.KILLED, Fate.REMOVED, Fate.FAILED}


class WorkerView(msgspec.Struct):
    """One worker. `owned` is what it said last; for a killed one that is what the coordinator still holds for it."""

    name: str
    fate: Fate = Fate.STARTING
    pid: int | None = None
    state: str = ""
    member_epoch: int = 0
    owned: tuple[int, ...] = ()
    uncommitted: bool = False
    stderr: tuple[str, ...] = ()


class Rebalance(msgspec.Struct, frozen=True):
    """From the first change of the group epoch until all members had what the coordinator wanted them to have."""

    reason: str
    group_epoch: int
    members: int
    duration_ms: int


class Line(msgspec.Struct, frozen=True):
    """One line of what happened.

    Args:
        actor: a worker's name, ``coordinator`` or ``demo``.
    """

    elapsed_ms: int
    actor: str
    text: str


class Scene(msgspec.Struct):
    """The state of the demo.

    Args:
        started_ms: wall-clock time in ms since 1970 at which the demo began; the log's times count from it.
        page: the address of the page that shows the group; empty if there is none.
    """

    topic: str
    partitions: int
    flights: int
    started_ms: int
    page: str = ""
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    workers: dict[str, WorkerView] = msgspec.field(default_factory=dict)
    produced: dict[int, int] = msgspec.field(default_factory=dict)
    committed: dict[int, int] = msgspec.field(default_factory=dict)
    group_state: str = "Empty"
    group_epoch: int = 0
    members: set[str] = msgspec.field(default_factory=set)
    """Client ids that the coordinator counts as members."""
    rebalances: list[Rebalance] = msgspec.field(default_factory=list)
    lines: deque[Line] = msgspec.field(default_factory=lambda: deque(maxlen=LINES_KEPT))
    lines_said: int = 0
    act: str = ""
    """What happens now, in a sentence."""
    _rebalance_began_ms: int | None = None
    _rebalance_reason: str = ""

    # --- what the demo does itself

    def start(self, name: str, *, now_ms: int) -> None:
        """A worker's process is started."""
        self.workers[name] = WorkerView(name)
        self.say(name, "is started", now_ms=now_ms)

    def leave(self, name: str, *, now_ms: int) -> None:
        """A worker was asked to leave."""
        self.workers[name].fate = Fate.LEAVING
        self.say(name, "is asked to leave", now_ms=now_ms)

    def kill(self, name: str, *, now_ms: int) -> None:
        """A worker was killed."""
        self.workers[name].fate = Fate.KILLED
        self.say(name, "killed with SIGKILL, without leaving", now_ms=now_ms)

    def say(self, actor: str, text: str, *, now_ms: int) -> None:
        """Add a line to what happened."""
        self.lines.append(Line(max(0, now_ms - self.started_ms), actor, text))
        self.lines_said += 1

    # --- news of the workers

    def hear(self, news: News, *, now_ms: int) -> None:
        """A worker said something, or ended."""
        worker = self.workers[news.worker]
        if isinstance(news, Ended):
            self._ended(worker, news, now_ms=now_ms)
            return
        assert isinstance(news, Said)
        match news.report:
            case Started(pid=pid):
                worker.pid = pid
                worker.fate = Fate.RUNNING
                self.say(worker.name, f"runs as process {pid}", now_ms=now_ms)
            case Status(state=state, member_epoch=epoch, partitions=owned):
                worker.state, worker.member_epoch, worker.owned = state, epoch, owned
            case Moved(what=what, partitions=partitions):
                if partitions:
                    self.say(worker.name, f"{_VERBS[what]} partitions {name_partitions(partitions)}", now_ms=now_ms)
            case Counted(runs=runs):
                worker.uncommitted = True
                self.ledger.count(worker.name, runs)
            case Committed():
                worker.uncommitted = False
            case Troubled(message=message):
                self.say(worker.name, message, now_ms=now_ms)
            case Left():
                worker.owned = ()
                worker.state = ""

    def _ended(self, worker: WorkerView, ended: Ended, *, now_ms: int) -> None:
        worker.stderr = ended.stderr
        if worker.fate in {Fate.KILLED, Fate.REMOVED}:
            return
        clean = worker.fate is Fate.LEAVING and ended.exit_code == 0
        worker.fate = Fate.LEFT if clean else Fate.FAILED
        worker.owned, worker.state = (), ""
        self.say(worker.name, "left" if clean else f"ended with status {ended.exit_code}", now_ms=now_ms)

    # --- events of the coordinator

    def note(self, event: JournalEvent) -> None:
        """The coordinator wrote an event to its log."""
        if event.group_epoch is not None:
            self.group_epoch = max(self.group_epoch, event.group_epoch)
        match event.event:
            case "member_joined":
                self.members.add(str(event.client_id))
                self._begin_rebalance(f"{event.client_id} joined", event)
            case "member_left":
                self._member_left(event)
            case "group_epoch_bumped":
                self._begin_rebalance("", event)
            case "offsets_committed":
                self._offsets_committed(event.fields.get("offsets"))
            case "group_state_changed":
                self.group_state = str(event.fields.get("new"))
                self._end_rebalance(event)

    def _member_left(self, event: JournalEvent) -> None:
        name = str(event.client_id)
        reason = str(event.fields.get("reason"))
        self.members.discard(name)
        if reason == "leave":
            self._begin_rebalance(f"{name} left", event)
            return
        why = _REMOVALS.get(reason, reason)
        self._begin_rebalance(f"{name} {why}", event)
        worker = self.workers.get(name)
        if worker is None:
            return
        killed = worker.fate is Fate.KILLED
        self.ledger.disappeared(
            Disappearance(name, dict(self.committed), "was killed" if killed else f"was removed ({reason})")
        )
        if killed:
            worker.fate = Fate.REMOVED
            worker.owned, worker.state = (), ""
        self.say("coordinator", f"{name} {why}", now_ms=event.ts_ms)

    def _begin_rebalance(self, reason: str, event: JournalEvent) -> None:
        if self._rebalance_began_ms is None:
            self._rebalance_began_ms = event.ts_ms
            self._rebalance_reason = ""
        self._rebalance_reason = reason or self._rebalance_reason

    def _end_rebalance(self, event: JournalEvent) -> None:
        if self.group_state.lower() not in {"stable", "empty"} or self._rebalance_began_ms is None:
            return
        rebalance = Rebalance(
            reason=self._rebalance_reason,
            group_epoch=self.group_epoch,
            members=len(self.members),
            duration_ms=event.ts_ms - self._rebalance_began_ms,
        )
        self._rebalance_began_ms = None
        self.rebalances.append(rebalance)
        self.say("coordinator", describe_rebalance(rebalance), now_ms=event.ts_ms)

    def _offsets_committed(self, offsets: object) -> None:
        if isinstance(offsets, Mapping):
            for name, offset in offsets.items():
                topic, _, partition = str(name).rpartition("-")
                if topic == self.topic:
                    self.committed[int(partition)] = int(offset)

    # --- what the table and the story ask

    @property
    def produced_total(self) -> int:
        """Flights that the broker has acknowledged."""
        return sum(self.produced.values())

    @property
    def caught_up(self) -> bool:
        """Whether every produced flight was counted."""
        return all(self.ledger.next_offset(partition) >= count for partition, count in self.produced.items())

    def lag(self, partitions: Iterable[int]) -> int:
        """Records of *partitions* that no worker has counted yet."""
        return sum(max(0, self.produced.get(number, 0) - self.ledger.next_offset(number)) for number in partitions)

    def settled(self, *names: str) -> bool:
        """Whether exactly *names* share all partitions, each is stable, and the coordinator says so too."""
        workers = [self.workers[name] for name in names]
        owned = sorted(itertools.chain.from_iterable(worker.owned for worker in workers))
        return (
            self.group_state.lower() == "stable"
            and owned == list(range(self.partitions))
            and all(worker.state == "STABLE" and worker.owned for worker in workers)
        )


_VERBS: Final[Mapping[str, str]] = {"assigned": "was given", "revoked": "gave up", "lost": "lost"}
_REMOVALS: Final[Mapping[str, str]] = {
    "session_timeout": "was silent for the session timeout: removed",
    "rebalance_timeout": "did not give up its partitions in time: removed",
}


def name_partitions(partitions: Iterable[int]) -> str:
    """Write partition numbers: ``0-3, 7``."""
    runs: list[str] = []
    for _, group in itertools.groupby(enumerate(sorted(partitions)), key=lambda item: item[1] - item[0]):
        numbers = [number for _, number in group]
        runs.append(str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
    return ", ".join(runs) or "none"


def describe_rebalance(rebalance: Rebalance) -> str:
    """Write one rebalance as a clause."""
    if not rebalance.members:
        return "the group is empty"
    members = "1 member" if rebalance.members == 1 else f"{rebalance.members} members"
    return f"group epoch {rebalance.group_epoch} is in effect after {rebalance.duration_ms:,} ms: {members}"
