"""Random runs of the pure cores of ``process()`` with retry topics: crashes, late acknowledgements, aborts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import msgspec
import pytest
from msgspec.structs import replace

from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.member.processing.core import Limits, Processing
from kip848_client.member.processing.marks import decode_marks
from kip848_client.member.processing.tiers import Failed as HasFailed
from kip848_client.member.processing.tiers import Tiers, Turnstile
from kip848_client.member.processing.work import Failed, Item, Start, Work

TIERS: Final = Tiers(name="r", delays_ms=[300, 2_000])
ORDERS: Final = NamedPartition("orders", 0)
SOURCES: Final = [ORDERS, *(NamedPartition(topic, 0) for topic in TIERS.topics)]
COUNT: Final = 30


class Record(msgspec.Struct, frozen=True):
    """An order, in whichever topic."""

    order: int
    failed: HasFailed | None = None


class Run:
    """A cluster, and one member after the other."""

    def __init__(self, seed: int, *, transactional: bool) -> None:
        self.rng = random.Random(seed)
        self.transactional = transactional
        self.now = 0
        self.logs: dict[str, list[Record]] = {topic: [] for topic in ("orders", *TIERS.topics, "dead", "results")}
        self.logs["orders"] = [Record(order) for order in range(COUNT)]
        self.committed: dict[NamedPartition, OffsetAndMetadata] = {}
        self.crashes = self.waited = 0
        self.faulty = True
        self.start()

    def start(self) -> None:
        """Begin with what is committed."""
        self.core = Processing(
            Limits(
                concurrency=4,
                buffer=8,
                buffer_bytes=1 << 20,
                metadata_known=True,
                metadata_bytes=60,
                slice_records=5 if self.transactional else None,
                slice_ms=50,
            )
        )
        self.stile = Turnstile(TIERS, "g")
        self.positions: dict[NamedPartition, int] = {}
        self.running: list[Work] = []
        self.unsent: list[tuple[Work, Sequence[tuple[str, Record]]]] = []
        self.paused: set[NamedPartition] = set()
        for name in SOURCES:
            at = self.committed.get(name, OffsetAndMetadata(0))
            self.core.assigned(name, at.offset, decode_marks(at.offset, at.metadata) or ())
            self.positions[name] = at.offset

    # --- steps

    def read(self) -> None:
        """Read a partition; what is not due is paused there, maybe after another read."""
        core, stile = self.core, self.stile
        core.pauses()
        free = [name for name in SOURCES if name not in self.paused and name not in core.paused]
        if free and core.may_read:
            name = self.rng.choice(free)
            begin = self.positions[name]
            batch = self.logs[name.topic][begin : begin + self.rng.randint(1, 6)]
            items = []
            for offset, record in enumerate(batch, begin):
                if stile.is_tier(name.topic) and not stile.passes(name, offset, record.failed, self.now):
                    continue
                items.append(Item(name, offset, None, 1, record))
            self.positions[name] = begin + len(batch)
            core.arrived(items, self.now)
        if self.rng.random() < 0.7:
            self.hold()
        self.perform()

    def hold(self) -> None:
        """Pause and resume what the turnstile says."""
        released = self.stile.releases(self.now)
        held = self.stile.holds()
        self.waited += len(held)
        self.positions |= held | released
        self.paused = (self.paused | held.keys()) - released.keys()

    def end_one(self) -> None:
        """A handler ends."""
        if not self.running:
            return
        work = self.running.pop(self.rng.randrange(len(self.running)))
        if self.rng.random() < 0.4:
            self.core.failed(work, OSError("down"), self.now)
        else:
            record = work.items[0].record
            work.outputs = [("results", record)]
            if not self.transactional:
                self.logs["results"].append(record)
            self.core.succeeded(work, self.now)
        self.perform()

    def perform(self) -> None:
        """Carry out the effects of the core."""
        while effects := self.core.take_effects():
            for effect in effects:
                if isinstance(effect, Start):
                    for item in effect.work.items:
                        failed = item.record.failed
                        assert failed is None or failed.due_ms is None or failed.due_ms <= self.now, "too early"
                    self.running.append(effect.work)
                elif isinstance(effect, Failed):
                    self.failed(effect.work)

    def failed(self, work: Work) -> None:
        """Send a record away."""
        record: Record = work.items[0].record
        tier = TIERS.after(work.partition.topic)
        origin = record.failed or HasFailed(
            topic="orders", partition=0, offset=record.order, timestamp_ms=0, error="e", attempts=0, group="g"
        )
        due_ms = None if tier is None else self.now + TIERS.delays_ms[tier]
        target = "dead" if tier is None else TIERS.topics[tier]
        records = [(target, Record(record.order, replace(origin, due_ms=due_ms, attempts=origin.attempts + 1)))]
        if self.transactional:
            work.outputs = records
            self.core.buried(work, self.now, later=tier is not None)
        else:
            self.unsent.append((work, records))

    def acknowledge(self) -> None:
        """A broker has what was sent away; the member hears of it, unless it has died in between."""
        if self.unsent:
            work, records = self.unsent.pop(0)
            self.write(records)
            if not self.dies():
                self.core.buried(work, self.now, later=True)
                self.perform()

    def write(self, records: Sequence[tuple[str, Record]]) -> None:
        """Append records."""
        for topic, record in records:
            self.logs[topic].append(record)

    def commit(self) -> None:
        """Commit what is done, or write a transaction; both may be cut off."""
        core = self.core
        core.reached(self.stile.up_to_here({name: self.positions[name] for name in core.at_rest}))
        if not self.transactional:
            offsets = core.to_commit()
            self.committed |= offsets
            if not self.dies():
                core.committed(offsets, self.now)
        elif (slice_ := core.take_slice(self.now)) is not None:
            if self.faulty and self.rng.random() < 0.3:
                core.slice_ended(slice_, self.now, again_in_ms=10)
            else:
                for work in slice_.works:
                    self.write(work.outputs)
                self.committed |= slice_.offsets
                if not self.dies():
                    core.slice_ended(slice_, self.now)
        self.perform()
        self.check()

    def dies(self) -> bool:
        """Whether the member dies now, and another one begins."""
        if not self.faulty or self.rng.random() > 0.05:
            return False
        self.crashes += 1
        self.start()
        return True

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

    def step(self) -> None:
        """One random thing happens."""
        step = self.rng.choice([self.read, self.end_one, self.acknowledge, self.commit, self.wait])
        step()
        self.dies()

    def wait(self) -> None:
        """Time passes, to what is due next at most."""
        due_ms = self.stile.next_due_ms()
        most = 200 if due_ms is None else max(0, min(200, due_ms - self.now))
        self.now += self.rng.randint(0, most)
        self.hold()
        self.core.tick(self.now)
        left_ms = self.stile.next_due_ms()
        assert left_ms is None or left_ms > self.now, "it comes back when it is due"
        self.perform()


@pytest.mark.parametrize("transactional", [False, True])
def test_an_order_is_never_lost_and_with_transactions_in_one_place(transactional: bool) -> None:
    """A crash between a tier and a commit would lose an order, or with transactions handle it twice."""
    crashes = waited = 0
    for seed in range(20):
        run = Run(seed, transactional=transactional)
        for _ in range(600):
            run.step()
        run.faulty = False
        for _ in range(20_000):
            if len({record.order for topic in ("results", "dead") for record in run.logs[topic]}) == COUNT:
                break
            run.step()
        run.commit()
        ended = [record.order for topic in ("results", "dead") for record in run.logs[topic]]
        assert set(ended) == set(range(COUNT)), f"seed {seed}"
        if transactional:
            assert len(ended) == COUNT, f"seed {seed}"
        crashes += run.crashes
        waited += run.waited
    assert crashes > 30, "the runs have what they are about"
    assert waited > 30
