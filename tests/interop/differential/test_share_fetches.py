"""Conversations of workers that fetch and acknowledge: random requests, sent to both brokers.

Kafka frees the records of a session that ended after its answer, so after each step the test waits until both brokers
have kept the same of every partition; that is compared as well.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import msgspec
import pytest

from kip848_client import EmbeddedBroker
from kip848_client.testing.share_partitions.share_partition import RecordState
from kip848_client.testing.share_partitions.share_state import ShareKey
from tests.interop.differential.conftest import conversing
from tests.interop.differential.share_side import GROUP, TOPICS, Kept, Place, Said, Sharing, kept_by_kafka, kept_by_ours
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.interop.kafka_wire import WireConnection
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

SEEDS: Final = "0-2"
STEPS: Final = 40
MEMBERS: Final = ("a", "b", "c")
PATIENCE_MS: Final = 5_000
"""How long Kafka may look for records that ours has found."""
WITHOUT_PATIENCE_MS: Final = 20
SETTLE_TIMEOUT_S: Final = 10.0
LOCK_MS, SHORT_LOCK_MS = 60_000, 1_000
LOCKS_MAX: Final = 2_000
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
DONE: Final = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class Shift(msgspec.Struct):
    """What both brokers have told their workers: the answers were equal."""

    epochs: dict[str, int] = msgspec.field(default_factory=dict)
    reads: dict[str, list[Place]] = msgspec.field(default_factory=dict)
    held: dict[str, dict[Place, list[tuple[int, int]]]] = msgspec.field(default_factory=dict)
    ends: dict[Place, list[int]] = msgspec.field(default_factory=dict)
    transaction: Place | None = None

    def forget(self, worker: str) -> None:
        for known in (self.epochs, self.reads, self.held):
            known.pop(worker, None)


class Play:
    """One conversation."""

    def __init__(
        self, rng: random.Random, broker: EmbeddedBroker, ours: Sharing, theirs: Sharing, wire: WireConnection
    ) -> None:
        self.rng: Final = rng
        self.broker: Final = broker
        self.ours, self.theirs = ours, theirs
        self.wire: Final = wire
        self.shift: Final = Shift()
        self.places: list[Place] = [("t0", 0), ("t0", 1), ("t1", 0)]
        self.written: list[tuple[int, int]] = []
        """Batches of the open transaction: from the first offset to the one after the last."""
        self.aborted: Final[dict[Place, list[tuple[int, int]]]] = {}
        self.told: Final[list[str]] = []
        self.altered = False
        self.limit = rng.choice((2, 3, 5, 5, 10))
        self.locks = rng.choice((100, 200, LOCKS_MAX, LOCKS_MAX))
        self.committed: Final = rng.random() < 0.5

    def both(self, name: str, step: Callable[[Sharing], Any]) -> Any:
        mine = step(self.ours)
        return self.compare(name, mine, step(self.theirs))

    def compare(self, name: str, mine: Any, kafkas: Any) -> Any:
        self.told.append(f"{name}: {mine}")
        assert mine == kafkas, self.story(f"Kafka: {kafkas}")
        return mine

    def story(self, end: str) -> str:
        head = f"limit {self.limit}, locks {self.locks}, committed {self.committed}"
        return "\n".join([head, *self.told, end])

    def begin(self) -> None:
        for sharing in (self.ours, self.theirs):
            assert sharing.side.create_topic("t0", partitions=2) == sharing.side.create_topic("t1", partitions=1) == 0
            sharing.configure(
                auto_offset_reset="earliest",
                isolation_level="read_committed" if self.committed else "read_uncommitted",
                delivery_count_limit=self.limit,
                partition_max_record_locks=self.locks,
                record_lock_duration_ms=LOCK_MS,
            )
            sharing.side.await_settings()
        self.shift.ends = {place: [0] for place in self.places}
        self.join()

    def join(self) -> None:
        """A member joins and leaves: from then on the group has begun the partitions of all topics."""
        wait_until(lambda: self.theirs.beat(0) == 0 == self.ours.beat(0), TIMEOUT_S, "the group")
        self.settle()
        self.both("leaves", lambda sharing: sharing.beat(-1))

    def settle(self) -> None:
        """Wait until Kafka has kept what ours has, and counts as ours does."""
        for place in self.places:
            self.await_equal(
                lambda place=place: self.known(place, kept_by_ours(self.broker, self.ours.side, place)),  # type: ignore[misc]
                lambda place=place: self.known(place, kept_by_kafka(self.wire, self.theirs.side, place)),  # type: ignore[misc]
                f"kept of {place}",
            )
        self.await_equal(self.ours.lags, self.theirs.lags, "lags")

    def known(self, place: Place, kept: Kept | None) -> Kept | None:
        """What was kept, after the records that are done with: Kafka's start passes them with the next change."""
        if kept is None:
            return None
        start, batches = kept.start_offset, list(kept.batches)
        passed = None
        while passed != start:
            passed = start
            for first, end in self.aborted.get(place, ()):
                if self.committed and first <= start < end:
                    start = end
            while batches and batches[0][0] <= start and (batches[0][1] < start or batches[0][2] in DONE):
                start = max(start, batches.pop(0)[1] + 1)
        return Kept(kept.state_epoch, start, batches)

    def await_equal(self, ours: Callable[[], object], theirs: Callable[[], object], what: str) -> None:
        try:
            wait_until(lambda: ours() == theirs(), SETTLE_TIMEOUT_S)
        except AssertionError:
            raise AssertionError(self.story(f"{what}: {ours()}\nKafka: {theirs()}")) from None

    # --- steps

    def produce(self) -> None:
        place, count = self.rng.choice(self.places), self.rng.randint(1, 30)
        _, base = self.both(f"produce {count} to {place}", lambda sharing: sharing.produce(place, count))
        self.shift.ends[place].append(base + count)

    def transact(self) -> None:
        count, before = self.rng.randint(1, 9), self.shift.transaction
        if before is None or self.rng.random() < 0.4:
            place = before or self.rng.choice(self.places)
            name = f"produce {count} to {place} in a transaction"
            _, base = self.both(name, lambda sharing: sharing.produce_in_transaction(place, count))
            self.written = [*(self.written if before else ()), (base, base + count)]
            self.shift.transaction = place
            return
        commits, self.shift.transaction = self.rng.random() < 0.5, None
        self.both(f"commits {commits}", lambda sharing: sharing.end_transaction(commits=commits))
        end = self.ours.end_of(before)
        wait_until(lambda: self.theirs.end_of(before) == end, TIMEOUT_S, "the marker")
        if not commits:
            self.aborted.setdefault(before, []).extend(self.written)
        self.shift.ends[before].append(end)

    def warm(self, named: Iterable[Place]) -> None:
        """Let Kafka read what it has kept of a partition before one request names several of them."""
        for place in named:
            if not self.is_read_by_ours(place):
                limits = {"max_records": 500, "batch_size": 500, "max_bytes": 100_000, "min_bytes": 1}
                self.ask(f"warm {place}", "w", 0, {place: []}, (), limits, reads_first=True)
                self.both("close w", lambda sharing: sharing.acknowledge("w", -1, {}))
                self.settle()

    def ask(
        self,
        name: str,
        worker: str,
        epoch: int,
        said: Said,
        forgotten: Sequence[Place],
        limits: dict[str, int],
        *,
        reads_first: bool = False,
    ) -> Any:
        mine = self.ours.fetch(worker, epoch, said, forgotten, max_wait_ms=0, **limits)
        found = any(acquired for *_, acquired, _ in mine[2])
        wait_ms = PATIENCE_MS if found else WITHOUT_PATIENCE_MS

        def ask() -> Any:
            return self.theirs.fetch(worker, epoch, said, forgotten, max_wait_ms=wait_ms, **limits)

        kafkas = ask()
        if reads_first and not found:  # as long as Kafka reads the state of a partition, it does not speak of it
            deadline = time.monotonic() + SETTLE_TIMEOUT_S
            while kafkas != mine and time.monotonic() < deadline:
                kafkas = ask()
        return self.compare(name, mine, kafkas)

    def fetch(self) -> None:
        worker = self.rng.choice(MEMBERS)
        epoch = self.shift.epochs.get(worker, 0)
        reads = self.shift.reads.get(worker, [])
        named: dict[Place, Sequence[Mapping[str, Any]]] = {}
        if not epoch or self.rng.random() < 0.2:
            named = {place: [] for place in self.rng.sample(self.places, self.rng.choice((1, 1, 2, 3)))}
        forgotten = [place for place in reads if self.rng.random() < 0.08]
        # What a fetch frees with its acknowledgements it may acquire, or not: docs/differences.md.
        frees = self.locks < LOCKS_MAX or self.altered
        if epoch and not frees and self.rng.random() < 0.4:
            named |= self.acknowledgements(worker, (1, 1, 3, 0), (0, 1, 3))
        forgotten = [place for place in forgotten if place not in named]
        if self.rng.random() < 0.04:
            epoch = self.rng.choice((0, 7, -1))
        self.warm([*reads, *named])
        # Which of several partitions comes first depends on what Kafka has read before: there is enough for all.
        is_alone = len({*reads, *named} - {*forgotten}) == 1
        limits = {
            "max_records": self.rng.choice((1, 5, 10, 50, 500, 500)) if is_alone else 500,
            "batch_size": self.rng.choice((1, 5, 20, 500)),
            "max_bytes": self.rng.choice((100_000, 100_000, 300)) if is_alone else 100_000,
            "min_bytes": 1,
            "share_acquire_mode": int(self.rng.random() < 0.4),
        }
        name = f"{worker} fetches at {epoch}: {named}, without {forgotten}, {limits}"
        self.hear(worker, epoch, named, self.ask(name, worker, epoch, named, forgotten, limits))
        if worker in self.shift.reads:
            self.shift.reads[worker] = [place for place in self.shift.reads[worker] if place not in forgotten]

    def hear(self, worker: str, epoch: int, named: Said, answer: Any) -> None:
        code, _, told = answer
        if code:
            return
        if epoch == -1:
            self.shift.forget(worker)
            return
        self.shift.epochs[worker] = epoch + 1
        if epoch == 0:  # what the worker holds of the session before it holds still, and may acknowledge
            self.shift.reads[worker] = []
        self.shift.reads[worker] = list(dict.fromkeys([*self.shift.reads[worker], *named]))
        held = self.shift.held.setdefault(worker, {})
        for topic, partition, _, refused, acquired, _ in told:
            place = (topic.rstrip("'"), partition)
            if not refused:
                held[place] = without(held.get(place, []), named.get(place, ()))
            held.setdefault(place, []).extend((first, last) for first, last, _ in acquired)

    def acknowledgements(
        self, worker: str, kinds: Sequence[int] = (1, 1, 1, 2, 2, 3, 0), each: Sequence[int] = (0, 1, 1, 2, 3)
    ) -> dict[Place, Sequence[Mapping[str, Any]]]:
        said: dict[Place, Sequence[Mapping[str, Any]]] = {}
        for place, ranges in self.shift.held.get(worker, {}).items():
            batches: list[Mapping[str, Any]] = []
            last = -1
            for first, end in sorted(ranges):
                if self.rng.random() < 0.4 or first <= last:
                    continue
                begin, last = first, end
                if self.rng.random() < 0.5:
                    begin, last = sorted(self.rng.choices(range(first, end + 1), k=2))
                types = [self.rng.choice(kinds)]
                if self.rng.random() < 0.3:
                    types = [self.rng.choice(each) for _ in range(begin, last + 1)]
                batches.append({"first_offset": begin, "last_offset": last, "acknowledge_types": types})
            if self.rng.random() < 0.06 and not (self.committed and place in self.aborted):
                begin = self.rng.randint(0, self.shift.ends[place][-1] + 3)
                last = begin + self.rng.randint(0, 4)
                if (
                    begin < (start := self.start_of(place)) <= last
                ):  # Kafka: UNKNOWN_SERVER_ERROR if nothing is in flight
                    begin = start
                batches.append({"first_offset": begin, "last_offset": last, "acknowledge_types": [1]})
            if batches:
                said[place] = batches
        return said

    def start_of(self, place: Place) -> int:
        """The start offset that our broker has in memory."""
        group = self.broker.share_group(self.ours.side.group_id(GROUP))
        assert group is not None
        return group.partition(self.ours.side.topic_name(place[0]), place[1]).start_offset or 0

    def acknowledge(self) -> None:
        worker = self.rng.choice(MEMBERS)
        if worker not in self.shift.epochs:
            return
        epoch, said = self.shift.epochs[worker], self.acknowledgements(worker)
        renews = self.rng.random() < 0.1
        if renews:
            said = {
                place: [{**each, "acknowledge_types": [RENEW]} for each in batches] for place, batches in said.items()
            }
        if self.rng.random() < 0.03:
            epoch = self.rng.choice((0, 9))
        name = f"{worker} at {epoch} says {said}"
        code, _, told = self.both(name, lambda sharing: sharing.acknowledge(worker, epoch, said, renews=renews))
        if code:
            return
        self.shift.epochs[worker] += 1
        for topic, partition, refused in told:
            place = (topic.rstrip("'"), partition)
            if not refused and not renews and place in self.shift.held.get(worker, {}):
                self.shift.held[worker][place] = without(self.shift.held[worker][place], said.get(place, ()))

    def close(self) -> None:
        worker = self.rng.choice(MEMBERS)
        if worker not in self.shift.epochs:
            return
        said = self.acknowledgements(worker)
        self.both(f"{worker} ends its session and says {said}", lambda sharing: sharing.acknowledge(worker, -1, said))
        self.shift.forget(worker)

    def drop(self, worker: str = "") -> None:
        """A connection ends, and both brokers have noticed it."""
        worker = worker or self.rng.choice(MEMBERS)
        self.both(f"the connection of {worker} ends", lambda sharing: sharing.drop(worker))
        self.shift.forget(worker)
        wait_until(lambda: self.count_sessions() == len(self.shift.epochs), TIMEOUT_S, "ours ends the session")
        self.settle()
        if self.ours.workers:
            return
        wait_until(lambda: not any(map(self.is_read_by_ours, self.places)), TIMEOUT_S, "ours forgets the group")
        for place in self.places:
            wait_until(lambda place=place: not self.theirs.is_read(place), TIMEOUT_S, "Kafka forgets the group")  # type: ignore[misc]

    def drop_all(self) -> None:
        """One by one: if the last two connections end at once, Kafka may forget the group before it frees records."""
        for worker in tuple(self.ours.workers):
            self.drop(worker)

    def count_sessions(self) -> int:
        """How many share sessions our broker has."""
        return self.broker._on_loop(lambda state: sum(map(len, state.share_sessions.values())))

    def is_read_by_ours(self, place: Place) -> bool:
        """Whether our broker has the partition in memory."""
        topic_id = uuid.UUID(self.ours.side.topic_id(place[0]))
        key = ShareKey(self.ours.side.group_id(GROUP), topic_id, place[1])
        return self.broker._on_loop(lambda state: state.shares.get(key)) is not None

    def delete_records(self) -> None:
        place = self.rng.choice(self.places)
        if any(ranges for held in self.shift.held.values() for of, ranges in held.items() if of == place):
            return
        before = self.rng.choice(self.shift.ends[place])
        self.both(f"delete {place} before {before}", lambda sharing: sharing.delete_records(place, before))

    def expire(self) -> None:
        """A worker fetches and does not live to see its locks end."""
        group = self.ours.side.group_id(GROUP)
        if self.altered or any(each.owner for of in self.broker.shares.partitions(group) for each in of.in_flight):
            return
        for sharing in (self.ours, self.theirs):
            sharing.configure(record_lock_duration_ms=SHORT_LOCK_MS)
            sharing.side.await_settings()
        self.fetch()
        for sharing in (self.ours, self.theirs):
            sharing.configure(record_lock_duration_ms=LOCK_MS)
            sharing.side.await_settings()
        self.broker.shares.wait_for(
            group, lambda found: all(each.lock_deadline_ms is None for of in found for each in of.in_flight)
        )
        for held in self.shift.held.values():
            held.clear()

    def alter(self) -> None:
        place = self.rng.choice(self.places)
        offset = self.rng.choice((*self.shift.ends[place], self.rng.randint(0, self.shift.ends[place][-1] + 2)))
        self.altered = True
        self.both(f"alter {place} to {offset}", lambda sharing: sharing.alter(place, offset))

    def reconfigure(self) -> None:
        """The group's settings change while its workers have records."""
        self.limit, self.locks = self.rng.choice((2, 3, 5, 10)), self.rng.choice((100, LOCKS_MAX))
        self.told.append(f"limit {self.limit}, locks {self.locks}")
        for sharing in (self.ours, self.theirs):
            sharing.configure(delivery_count_limit=self.limit, partition_max_record_locks=self.locks)
            sharing.side.await_settings()

    def delete_offsets(self) -> None:
        self.drop_all()
        topic = self.rng.choice(TOPICS)
        self.both(f"delete the offsets of {topic}", lambda sharing: sharing.delete_offsets(topic))
        self.settle()
        self.join()

    def delete_group(self) -> None:
        self.drop_all()
        self.both("delete the group", lambda sharing: sharing.delete_group())
        self.settle()
        self.join()

    def renew_topic(self) -> None:
        topic = self.rng.choice(TOPICS)
        if self.shift.transaction is not None:
            return
        count = sum(name == topic for name, _ in self.places)
        self.both(f"without {topic}", lambda sharing: sharing.side.delete_topic(topic))
        self.told.append(f"{topic} again")
        for worker, reads in tuple(self.shift.reads.items()):
            if any(name == topic for name, _ in reads):
                self.drop(worker)
        for sharing in (self.ours, self.theirs):
            assert sharing.side.create_topic(topic, partitions=count) == 0
        for place in self.places:
            if place[0] == topic:
                self.shift.ends[place] = [0]
                self.aborted.pop(place, None)
                for held in self.shift.held.values():
                    held.pop(place, None)
        self.join()

    def step(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (20, self.produce),
            (8, self.transact),
            (45, self.fetch),
            (22, self.acknowledge),
            (6, self.close),
            (4, self.drop),
            (4, self.delete_records),
            (2, self.expire),
            (2, self.alter),
            (1, self.reconfigure),
            (1, self.delete_offsets),
            (1, self.delete_group),
            (1, self.renew_topic),
        ]
        (chosen,) = self.rng.choices([step for _, step in steps], [weight for weight, _ in steps])
        chosen()
        self.settle()


def without(held: Iterable[tuple[int, int]], said: Iterable[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Offsets of which a worker has said nothing."""
    gone = [(each["first_offset"], each["last_offset"]) for each in said]
    left = [
        offset
        for first, last in held
        for offset in range(first, last + 1)
        if not any(begin <= offset <= end for begin, end in gone)
    ]
    found: list[tuple[int, int]] = []
    for offset in sorted(left):
        if found and found[-1][1] == offset - 1:
            found[-1] = found[-1][0], offset
        else:
            found.append((offset, offset))
    return found


@pytest.mark.timeout(300)
def test_records_are_shared_as_by_kafka(
    embedded_broker: EmbeddedBroker, kafka_broker: KafkaBroker | ExternalKafka, seed: int
) -> None:
    """A worker that was tested here gets the same records, as often, and the same refusals on a cluster."""
    with conversing(embedded_broker, kafka_broker.bootstrap_servers) as conversation:
        ours = Sharing(conversation.ours, embedded_broker.bootstrap_servers)
        theirs = Sharing(conversation.kafka, kafka_broker.bootstrap_servers)
        with closing(ours), closing(theirs), WireConnection(kafka_broker.bootstrap_servers) as wire:
            play = Play(random.Random(seed), embedded_broker, ours, theirs, wire)
            play.begin()
            for _ in range(STEPS):
                play.step()


@pytest.mark.parametrize(("prefix", "copies", "count"), [("dlq.", True, 2), ("dlq.", False, 2), ("dead.", True, 0)])
def test_dead_letters_are_those_of_kafka(
    embedded_broker: EmbeddedBroker, kafka_broker: KafkaBroker | ExternalKafka, prefix: str, copies: bool, count: int
) -> None:
    """What handles the dead letters of a queue finds the same headers, keys and values on a cluster; or none."""
    with conversing(embedded_broker, kafka_broker.bootstrap_servers) as conversation:
        ours = Sharing(conversation.ours, embedded_broker.bootstrap_servers)
        theirs = Sharing(conversation.kafka, kafka_broker.bootstrap_servers)
        with closing(ours), closing(theirs), WireConnection(kafka_broker.bootstrap_servers) as wire:
            play = Play(random.Random(0), embedded_broker, ours, theirs, wire)
            play.limit = 2
            play.begin()
            for sharing in (ours, theirs):
                sharing.create_dead_letter_topic(prefix)
                sharing.configure_group("errors.deadletterqueue.topic.name", sharing.dead)
                sharing.configure_group("errors.deadletterqueue.copy.record.enable", str(copies).lower())
                sharing.side.await_settings()
            place = ("t0", 1)
            play.both("produce", lambda sharing: sharing.produce(place, 3))
            play.warm([place])  # the first delivery, and released
            limits = {"max_records": 500, "batch_size": 500, "max_bytes": 100_000, "min_bytes": 1}
            play.ask("fetch", "a", 0, {place: []}, (), limits)
            last = [{"first_offset": 0, "last_offset": 2, "acknowledge_types": [REJECT, RELEASE, ACCEPT]}]
            play.both("the end", lambda sharing: sharing.acknowledge("a", 1, {place: last}))
            play.settle()
            play.await_equal(ours.dead_letters, theirs.dead_letters, "dead letters")
            assert len(ours.dead_letters()) == count
