"""Random runs of the pure cores of ``process()`` with retry topics: two members, crashes, rebalances, aborts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.member.processing.core import Bounds, Processing
from kip848_client.member.processing.marks import decode_marks
from kip848_client.member.processing.tiers import FailureHeaders, Tiers, Turnstile
from kip848_client.member.processing.work import Failed, Item, Start, Work

TIERS: Final = Tiers(name="r", delays_ms=[300, 2_000])
SOURCES: Final = [NamedPartition(topic, 0) for topic in ("orders", *TIERS.topics)]
COUNT: Final = 30


class Record(msgspec.Struct, frozen=True):
    """An order, in whichever topic."""

    order: int
    failed: FailureHeaders | None = None


class Member:
    """A process that reads some of the partitions."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.core = Processing(
            Bounds(
                concurrency=4,
                buffer=8,
                buffer_bytes=1 << 20,
                metadata_known=True,
                metadata_bytes=60,
                slice_records=5 if run.transactional else None,
                slice_ms=50,
            )
        )
        self.stile = Turnstile(TIERS, "g")
        self.positions: dict[NamedPartition, int] = {}
        self.running: list[Work] = []
        self.unsent: list[tuple[Work, Sequence[tuple[str, Record]]]] = []
        self.paused: set[NamedPartition] = set()

    def assigned(self, name: NamedPartition) -> None:
        """Begin with what is committed."""
        at = self.run.committed.get(name, OffsetAndMetadata(0))
        self.core.assigned(name, at.offset, decode_marks(at.offset, at.metadata) or ())
        self.positions[name] = at.offset
        self.paused.discard(name)

    def read(self) -> None:
        """Read a partition; what is not due is paused there, maybe after another read."""
        run, core, stile = self.run, self.core, self.stile
        core.pauses()
        free = [name for name in self.positions if name not in self.paused and name not in core.paused]
        if free and core.may_read:
            name = run.rng.choice(free)
            begin = self.positions[name]
            batch = run.logs[name.topic][begin : begin + run.rng.randint(1, 6)]
            items = []
            for offset, record in enumerate(batch, begin):
                if stile.is_tier(name.topic) and not stile.passes(name, offset, record.failed, run.now):
                    continue
                items.append(Item(name, offset, None, 1, record))
            self.positions[name] = begin + len(batch)
            core.arrived(items, run.now)
        if run.rng.random() < 0.7:
            self.hold()
        self.perform()

    def hold(self) -> None:
        """Pause and resume what the turnstile says."""
        released = self.stile.releases(self.run.now)
        held = self.stile.holds()
        self.run.waited += len(held)
        self.positions |= held | released
        self.paused = (self.paused | held.keys()) - released.keys()

    def dues(self) -> list[int]:
        """When the records are due that its partitions wait for."""
        found = [self.run.logs[name.topic][offset].failed for name, offset in self.stile.waiting.items()]
        return [failed.due_ms for failed in found if failed is not None and failed.due_ms is not None]

    def end_one(self) -> None:
        """A handler ends."""
        run = self.run
        if not self.running:
            return
        work = self.running.pop(run.rng.randrange(len(self.running)))
        if run.rng.random() < 0.4:
            self.core.failed(work, OSError("down"), run.now)
        else:
            record = work.items[0].record
            work.outputs = [("results", record)]
            if not run.transactional:
                run.logs["results"].append(record)
            self.core.succeeded(work, run.now)
        self.perform()

    def perform(self) -> None:
        """Carry out the effects of the core."""
        while effects := self.core.take_effects():
            for effect in effects:
                if isinstance(effect, Start):
                    for item in effect.work.items:
                        failed = item.record.failed
                        assert failed is None or failed.due_ms is None or failed.due_ms <= self.run.now, "too early"
                    self.running.append(effect.work)
                elif isinstance(effect, Failed):
                    self.failed(effect.work)

    def failed(self, work: Work) -> None:
        """Send a record away."""
        run = self.run
        record: Record = work.items[0].record
        tier = TIERS.after(work.partition.topic)
        origin = record.failed or FailureHeaders(
            topic="orders", partition=0, offset=record.order, timestamp_ms=0, error="e", attempts=0, group="g"
        )
        due_ms = None if tier is None else run.now + TIERS.delays_ms[tier]
        target = "dead" if tier is None else TIERS.topics[tier]
        records = [(target, Record(record.order, replace(origin, due_ms=due_ms, attempts=origin.attempts + 1)))]
        if run.transactional:
            work.outputs = records
            self.core.buried(work, run.now, later=tier is not None)
        else:
            self.unsent.append((work, records))

    def acknowledge(self) -> None:
        """A broker has what was sent away; the member hears of it, unless it has died in between."""
        if self.unsent:
            work, records = self.unsent.pop(0)
            self.run.write(records)
            if not self.run.dies(self):
                self.core.buried(work, self.run.now, later=True)
                self.perform()

    def commit(self, names: Sequence[NamedPartition] | None = None) -> None:
        """Commit what is done, or write a transaction; both may be cut off."""
        core, run = self.core, self.run
        core.reached(self.stile.up_to_here({name: self.positions[name] for name in core.at_rest}))
        if not run.transactional:
            offsets = core.to_commit(names)
            run.committed |= offsets
            if not run.dies(self):
                core.committed(offsets, run.now)
        elif (slice_ := core.take_slice(run.now)) is not None:
            if run.faulty and run.rng.random() < 0.3:
                core.slice_ended(slice_, run.now, again_in_ms=10)
            else:
                for work in slice_.works:
                    run.write(work.outputs)
                run.committed |= slice_.offsets
                if not run.dies(self):
                    core.slice_ended(slice_, run.now)
        self.perform()
        run.check()

    def give_away(self, name: NamedPartition, *, lost: bool) -> None:
        """The partition is revoked, or it was lost."""
        if not lost:
            self.core.revoke([name], self.run.now)
            for _ in range(self.run.rng.randint(0, 4)):
                if name in self.positions:
                    self.run.rng.choice([self.end_one, self.acknowledge])()
            if name in self.positions:
                self.commit([name])
        if name in self.positions:  # it has not died in between
            self.stile.forget([name])
            self.core.forget([name], self.run.now)
            del self.positions[name]
            self.perform()


class Run:
    """A cluster, and two members."""

    def __init__(self, seed: int, *, transactional: bool) -> None:
        self.rng = random.Random(seed)
        self.transactional = transactional
        self.now = 0
        self.logs: dict[str, list[Record]] = {topic: [] for topic in ("orders", *TIERS.topics, "dead", "results")}
        self.logs["orders"] = [Record(order) for order in range(COUNT)]
        self.committed: dict[NamedPartition, OffsetAndMetadata] = {}
        self.crashes = self.waited = self.moves = 0
        self.faulty = True
        self.members = [Member(self), Member(self)]
        for name in SOURCES:
            self.members[0].assigned(name)

    # --- steps

    def write(self, records: Sequence[tuple[str, Record]]) -> None:
        """Append records."""
        for topic, record in records:
            self.logs[topic].append(record)

    def dies(self, member: Member) -> bool:
        """Whether a member dies now; another one begins with its partitions."""
        if not self.faulty or self.rng.random() > 0.05:
            return False
        self.crashes += 1
        follower = Member(self)
        self.members[self.members.index(member)] = follower
        for name in member.positions:
            follower.assigned(name)
        member.positions = {}
        return True

    def move(self) -> None:
        """A rebalance gives a partition to the other member."""
        name = self.rng.choice(SOURCES)
        owner = next(member for member in self.members if name in member.positions)
        index = self.members.index(owner)
        owner.give_away(name, lost=self.faulty and self.rng.random() < 0.3)
        if name in self.members[index].positions:  # the owner has died, and its follower has it
            return
        self.members[1 - index].assigned(name)
        self.moves += 1

    def wait(self) -> None:
        """Time passes, to what is due next at most."""
        due_ms = min((due_ms for member in self.members for due_ms in member.dues()), default=self.now + 200)
        self.now += self.rng.randint(0, max(0, min(200, due_ms - self.now)))
        for member in self.members:
            member.hold()
            member.core.tick(self.now)
            assert all(due_ms > self.now for due_ms in member.dues()), "late"
            next_ms = member.stile.next_due_ms()
            assert next_ms is None or next_ms > self.now, "it comes back when it is due"
            member.perform()

    def step(self) -> None:
        """One random thing happens."""
        member = self.rng.choice(self.members)
        step = self.rng.choice([member.read, member.end_one, member.acknowledge, member.commit, self.wait])
        step()
        if self.rng.random() < 0.05:
            self.move()
        self.dies(self.rng.choice(self.members))

    # --- rules

    def copies(self) -> list[int]:
        """Of each order: where it is to be handled, done or dead."""
        found = [0] * COUNT
        for topic, log in self.logs.items():
            at = self.committed.get(NamedPartition(topic, 0), OffsetAndMetadata(0))
            done = decode_marks(at.offset, at.metadata) or ()
            for offset, record in enumerate(log):
                if offset >= at.offset and not any(first <= offset < end for first, end in done):
                    found[record.order] += 1
        return found

    def check(self) -> None:
        """Without transactions an order is somewhere at least, with them exactly once."""
        copies = self.copies()
        assert min(copies) >= 1, f"lost: {copies}"
        if self.transactional:
            assert max(copies) == 1, f"twice: {copies}"

    def play(self) -> None:
        """Faults, and then none until all orders have ended."""
        for _ in range(600):
            self.step()
        self.faulty = False
        for _ in range(40_000):
            if len({record.order for topic in ("results", "dead") for record in self.logs[topic]}) == COUNT:
                break
            self.step()
        for member in self.members:
            member.commit()
        ended = [record.order for topic in ("results", "dead") for record in self.logs[topic]]
        assert set(ended) == set(range(COUNT)), "not all have ended"
        assert not self.transactional or len(ended) == COUNT, "one has ended twice"


@pytest.mark.parametrize("transactional", [False, True])
def test_an_order_is_never_lost_and_with_transactions_in_one_place(transactional: bool) -> None:
    """A crash between a tier and a commit would lose an order, or with transactions handle it twice."""
    crashes = waited = moves = 0
    for seed in range(20):
        run = Run(seed, transactional=transactional)
        run.play()
        crashes += run.crashes
        waited += run.waited
        moves += run.moves
    assert min(crashes, waited, moves) > 30, "the runs have what they are about"


def _passes_later(original: Any) -> Callable[..., bool]:
    def passes(stile: Turnstile, name: NamedPartition, offset: int, failed: FailureHeaders, now_ms: int) -> bool:
        late = replace(failed, due_ms=now_ms + 300) if (failed.due_ms or 0) > now_ms else failed
        return bool(original(stile, name, offset, late, now_ms))

    return passes


@pytest.mark.parametrize(
    ("method", "bug", "transactional", "found"),
    [
        ("up_to_here", lambda _, positions: positions, False, "lost"),
        ("forget", lambda *_: None, True, "twice"),
        ("passes", _passes_later(Turnstile.passes), False, "late"),
        ("passes", lambda *_: True, False, "too early"),
    ],
    ids=[
        "a commit passes what waits",
        "what waited at another member is not forgotten",
        "the delay is counted from when a record is read",
        "a record is handled before it is due",
    ],
)
def test_a_bug_of_the_turnstile_is_found(
    monkeypatch: pytest.MonkeyPatch, method: str, bug: Callable[..., Any], transactional: bool, found: str
) -> None:
    """If it is not, green runs say nothing about it."""
    monkeypatch.setattr(Turnstile, method, bug)

    def play() -> None:
        for seed in range(20):
            Run(seed, transactional=transactional).play()

    with pytest.raises(AssertionError, match=found):
        play()
