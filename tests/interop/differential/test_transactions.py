"""Conversations of transactional producers from a seed, told to the embedded broker and to Apache Kafka.

Producers come back, write, end, retry, and go on as zombies, in every version of the protocol; readers look at what is
stable, aborted and committed. Answers must be equal, but for the producer ids that each broker gives.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec
import pytest

from kip848_client import EmbeddedBroker
from kip848_client.errors import ErrorCode
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.testing.judge.broker.messages import message
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.record_batch import batches_of
from tests.interop.differential.classic_side import in_order
from tests.interop.differential.talk import Talk
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.support.transactions import (
    TRANSACTIONAL,
    RawProducer,
    aborted_in,
    committed,
    end_offset,
    fetched,
    values_in,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

SEEDS: Final = "0-4"
STEPS: Final = 30
NAMES: Final = ("a", "b")
PARTITIONS: Final = (0, 1)
GROUP: Final = "g"
ENDING: Final = ("PrepareCommit", "PrepareAbort")
WAIT_S: Final = 30.0


class Side:
    """One broker: the lives of its producers, and its producer ids under shared names."""

    def __init__(self, address: str, prefix: str) -> None:
        self.connection: Final = RawConnection(address)
        self.prefix: Final = prefix
        self.topic: Final = f"{prefix}foo"
        self.lives: Final[list[RawProducer]] = []
        self._address: Final = address
        self._labels: Final[dict[int, str]] = {-1: "none"}
        self._number = 0
        topic = {"name": self.topic, "num_partitions": 2, "replication_factor": 1}
        self.ask(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=20_000)
        for partition in PARTITIONS:
            wait_until(partial(self._is_there, partition), WAIT_S, "the topic")

    def ask(self, api_key: ApiKey, version: int, **fields: object) -> Any:
        """The answer to a request with these fields."""
        return self.connection.ask(message(api_key, fields), version=version)

    def _is_there(self, partition: int) -> bool:
        return not fetched(self.connection, partition=partition, topic=self.topic).error_code

    def await_coordinators(self) -> None:
        """Wait until groups and transactions are served: Kafka makes their topics when they are asked for."""

        def is_found(kind: int) -> bool:
            found = self.ask(ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=[self.prefix])
            return not found.coordinators[0].error_code

        def is_served() -> bool:
            probe = {"transactional_id": f"{self.prefix}probe", "transaction_timeout_ms": 60_000}
            return not self.ask(ApiKey.INIT_PRODUCER_ID, 5, **probe).error_code

        wait_until(lambda: is_found(0) and is_found(1), WAIT_S, "coordinators")
        wait_until(is_served, WAIT_S, "transactions")
        wait_until(lambda: committed(self.connection, f"{self.prefix}{GROUP}", topic=self.topic)[1] == 0, WAIT_S)

    def name(self, name: str) -> str:
        """A transactional id or group of this conversation."""
        return f"{self.prefix}{name}"

    def label(self, producer_id: int) -> str:
        """A producer id in the order in which this side gave them."""
        return self._labels.setdefault(producer_id, f"id {len(self._labels)}")

    def start(self, name: str) -> RawProducer:
        """One more process with the transactional id."""
        life = RawProducer(self._address, self.name(name), topic=self.topic)
        self.lives.append(life)
        return life

    def settle(self) -> None:
        """Wait until no end is being written: Kafka answers EndTxn before."""

        def is_settled() -> bool:
            states = self.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=list(map(self.name, NAMES)))
            return all(state.transaction_state not in ENDING for state in states.transaction_states)

        wait_until(is_settled, WAIT_S, "the end of transactions")

    def clear(self) -> None:
        """Remove what the conversation left."""
        for life in self.lives:
            life.close()
        self.ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": self.topic}], timeout_ms=20_000)
        self.connection.close()


class Transactions(Talk[Side]):
    """One conversation about transactions."""

    def __init__(self, seed: int, sides: tuple[Side, Side]) -> None:
        super().__init__(seed, sides)
        self._sequences: dict[tuple[int, int], int] = {}
        """(life, partition) -> its next sequence, as far as both sides agree."""
        self._count = 0
        self._has_sent_offsets = False
        self._actions: Final[tuple[tuple[int, Callable[[], None]], ...]] = (
            (8, self._begin),
            (3, self._renew),
            (24, self._produce),
            (6, self._produce_oddly),
            (8, self._add),
            (4, self._add_offsets),
            (10, self._commit_offset),
            (20, self._end),
            (6, self._end_again),
            (10, self._read),
            (4, self._read_offsets),
            (6, self._describe),
        )

    def go(self) -> None:
        """All of it."""
        self._begin()
        while self._count < STEPS:
            ((_, action),) = self.random.choices(self._actions, [weight for weight, _ in self._actions])
            action()
        for look in (self._read, self._read_offsets, self._describe):
            look()

    # --- producers

    def _begin(self) -> None:
        """A process starts; what the one before it left open is aborted first."""
        name = self.random.choice(NAMES)
        lives = [side.start(name) for side in self.sides]
        version = self.random.choice((5, 5, 4, 1))
        for _ in range(2):
            error = self._told(
                f"InitProducerId v{version} of {name}",
                lambda side: self._heard(side, len(side.lives) - 1, version=version),
            )
            if error[0] != 51:
                break
        assert len({life.producer_id < 0 for life in lives}) == 1

    def _renew(self) -> None:
        """A process asks for its next epoch, or a zombie for one."""
        number, version = self._life(), self.random.choice((5, 4, 3))
        ahead = self.random.choice((0, 0, 0, -1, 1))
        self._told(
            f"InitProducerId v{version} of life {number} with its epoch{ahead:+}",
            lambda side: self._heard(side, number, version=version, ahead=ahead),
        )

    def _heard(self, side: Side, number: int, *, version: int, ahead: int | None = None) -> object:
        life = side.lives[number]
        given: dict[str, Any] = (
            {} if ahead is None else {"producer_id": life.producer_id, "epoch": max(life.epoch + ahead, 0)}
        )
        error, producer_id, epoch = life.init(version=version, **given)
        if not error:
            life.producer_id, life.epoch = producer_id, epoch
            self._restart(number)
        return error, side.label(producer_id), epoch

    def _produce(self) -> None:
        self._write(self.random.choice((12, 12, 12, 11, 9)))

    def _produce_oddly(self) -> None:
        """A gap, a repetition, a batch outside the transaction, another epoch."""
        kind = self.random.choice(("gap", "repeated", "plain", "epoch", "no id"))
        number, partition = self._life(), self.random.choice(PARTITIONS)
        sequence = self._sequences.get((number, partition), 0)
        kinds: dict[str, dict[str, Any]] = {
            "gap": {"sequence": sequence + 7},
            "repeated": {"sequence": max(sequence - 1, 0)},
            "plain": {"sequence": sequence, "attributes": 0},
            "epoch": {"sequence": sequence},
            "no id": {"sequence": sequence, "transactional_id": None},
        }
        fields = kinds[kind]
        version = self.random.choice((12, 9))

        def send(side: Side) -> object:
            life = side.lives[number]
            epoch = life.epoch + 1 if kind == "epoch" else None
            answer = life.produce(partition=partition, version=version, epoch=epoch, **fields)
            return answer.error_code, answer.base_offset

        error, _ = self._told(f"Produce v{version} of life {number} to {partition}, {kind}", send)
        if not error and kind in ("plain", "epoch", "gap"):
            self._sequences[number, partition] = fields["sequence"] + 1

    def _write(self, version: int) -> None:
        number, partition = self._life(), self.random.choice(PARTITIONS)
        values = tuple(f"{self._count}.{n}".encode() for n in range(self.random.randint(1, 2)))
        sequence = self._sequences.get((number, partition), 0)

        def send(side: Side) -> object:
            answer = side.lives[number].produce(
                *values, partition=partition, sequence=sequence, attributes=TRANSACTIONAL, version=version
            )
            return answer.error_code, answer.base_offset

        error, _ = self._told(f"Produce v{version} of life {number} to {partition}: {values}", send)
        if not error:
            self._sequences[number, partition] = sequence + len(values)

    def _add(self) -> None:
        number, version = self._life(), self.random.choice((3, 2, 1))
        partitions = self.random.choice(((0,), (1,), (0, 1), (0, 1), (0, 9)))
        self._told(
            f"AddPartitionsToTxn v{version} of life {number}: {partitions}",
            lambda side: side.lives[number].add(*partitions, version=version),
        )

    def _add_offsets(self) -> None:
        number = self._life()
        self._told(f"AddOffsetsToTxn of life {number}", lambda side: side.lives[number].add_offsets(side.name(GROUP)))

    def _commit_offset(self) -> None:
        number, version = self._life(), self.random.choice((6, 6, 5, 4, 3))
        partition, offset = self.random.choice((*PARTITIONS, *PARTITIONS, 9)), self.random.randint(0, 9)
        generation = self.random.choice((-1, -1, -1, 3))
        ours, _ = self.sides

        def commit(side: Side) -> int:
            error = side.lives[number].commit_offset(
                side.name(GROUP), offset, partition=partition, version=version, generation=generation
            )
            gone = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.GROUP_ID_NOT_FOUND)
            if side is ours and error in gone and self._has_sent_offsets:
                return (
                    ErrorCode.UNKNOWN_MEMBER_ID
                )  # a group that lost its offsets is gone here, and for a while empty on Kafka
            return error

        error = self._told(
            f"TxnOffsetCommit v{version} of life {number}: {partition} at {offset}, generation {generation}", commit
        )
        self._has_sent_offsets |= error == 0

    def _end(self) -> None:
        self._finish(self._life(), commit=self.random.random() < 0.6, version=self.random.choice((5, 5, 4, 1)))

    def _end_again(self) -> None:
        """The answer was lost: the producer asks again with the epoch that it had."""
        number = self._life()
        version, commit = self.random.choice((5, 4)), self.random.random() < 0.7
        before = [life.epoch for life in self._lives(number)]
        self._finish(number, commit=commit, version=version)
        epochs = dict(zip(self.sides, before, strict=True))
        self._told(
            f"EndTxn v{version} of life {number} once more: {commit}",
            lambda side: self._ended(side, number, commit=commit, version=version, epoch=epochs[side]),
        )

    def _finish(self, number: int, *, commit: bool, version: int) -> None:
        self._told(
            f"EndTxn v{version} of life {number}: {commit}",
            lambda side: self._ended(side, number, commit=commit, version=version),
        )

    def _ended(self, side: Side, number: int, *, commit: bool, version: int, epoch: int | None = None) -> object:
        life = side.lives[number]
        was = life.epoch
        answer = life.end(commit=commit, version=version, epoch=epoch)
        if life.epoch != was:
            self._restart(number)
        return answer.error_code, side.label(answer.producer_id), answer.producer_epoch

    # --- readers

    def _read(self) -> None:
        ours, _ = self.sides
        partition, start = self.random.choice(PARTITIONS), self.random.choice((0, 0, 2))
        isolation = self.random.choice((1, 1, 0))

        def read(side: Side) -> object:
            data = fetched(side.connection, start, partition=partition, isolation=isolation, topic=side.topic)
            headers = [header for _, header in batches_of(data.records or b"")]
            end = headers[-1].base_offset + headers[-1].last_offset_delta + 1 if headers else start
            return {
                "error": data.error_code,
                "values": values_in(data),
                "markers": [(header.base_offset, header.producer_epoch) for header in headers if header.is_control],
                "aborted": [
                    (side.label(producer_id), first)
                    for producer_id, first in aborted_in(data)
                    if first < end or side is ours  # Kafka also names some that begin after what was read
                ],
                "stable": data.last_stable_offset,
                "end": data.high_watermark,
                "ends": [
                    end_offset(side.connection, isolation=level, partition=partition, topic=side.topic)
                    for level in (0, 1)
                ],
            }

        self._told(f"Fetch {partition} from {start}, isolation {isolation}", read)

    def _read_offsets(self) -> None:
        self._told(
            "OffsetFetch",
            lambda side: [
                committed(side.connection, side.name(GROUP), stable=stable, partition=partition, topic=side.topic)
                for partition in PARTITIONS
                for stable in (False, True)
            ],
        )

    def _describe(self) -> None:
        def shared(side: Side, value: Any, *, topic: str = "") -> Any:
            """Part of an answer, in terms that both sides share."""
            if isinstance(value, list):
                return [shared(side, item, topic=topic) for item in value]
            if not isinstance(value, dict):
                return value.removeprefix(side.prefix) if isinstance(value, str) else value
            topic = value.get("topic", topic)
            found = {name: shared(side, item, topic=topic) for name, item in value.items()}
            if found.get("producer_id"):
                found["producer_id"] = side.label(found["producer_id"])
            if topic and topic != side.topic:
                found.pop("partitions", None)  # of offsets: Kafka has fewer of them here
            if "transaction_start_time_ms" in found:
                found["transaction_start_time_ms"] = found["transaction_start_time_ms"] > 0
            found.pop("last_timestamp", None)
            return found

        def look(side: Side) -> object:
            names = [*map(side.name, (*NAMES, "nobody"))]
            topics = [{"name": side.topic, "partition_indexes": [0, 1, 9]}]
            listed = side.ask(ApiKey.LIST_TRANSACTIONS, 1).transaction_states
            answers = (
                side.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=names),
                [state for state in listed if state.transactional_id in names],
                side.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics),
            )
            return in_order(shared(side, json.loads(msgspec.json.encode(answers))))

        self._told("what administrators see", look)

    # --- inside

    def _life(self) -> int:
        """The newest process more often than an earlier one."""
        return max(self.random.randrange(len(self.sides[0].lives)) for _ in range(3))

    def _lives(self, number: int) -> Iterator[RawProducer]:
        return (side.lives[number] for side in self.sides)

    def _restart(self, number: int) -> None:
        for partition in PARTITIONS:
            self._sequences.pop((number, partition), None)

    def _told(self, what: str, step: Callable[[Side], Any]) -> Any:
        self._count += 1
        outcome = self.tell(what, step)
        for side in self.sides:
            side.settle()
        return outcome


@pytest.fixture(scope="module")
def addresses(embedded_broker: EmbeddedBroker, kafka_broker: KafkaBroker | ExternalKafka) -> tuple[str, str]:
    """Ours and Kafka's, which serve transactions."""
    found = embedded_broker.bootstrap_servers, kafka_broker.bootstrap_servers
    for address in found:
        side = Side(address, f"x{uuid.uuid4().hex[:8]}.")
        side.await_coordinators()
        side.clear()
    return found


def test_both_brokers_answer_transactions_alike(seed: int, addresses: tuple[str, str]) -> None:
    """Code that is exactly-once here and not on Kafka would be found out in production."""
    prefix = f"x{uuid.uuid4().hex[:8]}."
    sides = Side(addresses[0], prefix), Side(addresses[1], prefix)
    try:
        Transactions(seed, sides).hold()
    finally:
        for side in sides:
            side.clear()
