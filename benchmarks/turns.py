"""How long one request holds the embedded broker, and with it other clients: 12,000 entries in every list of every API.

::

    python benchmarks/turns.py                       # three minutes; the goal is 100 ms
    python benchmarks/turns.py --apis FETCH,PRODUCE
    python benchmarks/turns.py --quick               # a twentieth of the limit: to see that it works

For each list of each request it sends one with `ENTRIES_OF_LIST` entries: the same entry again and again, names and
numbers that do not exist, and ones that do (3,000 topics and groups, 9,000 partitions). It gives the longest turn of
the broker's loop, in milliseconds of CPU time of its thread, so that others hardly matter; a slow machine does.

Then requests whose work is not in the number of their entries: `heavy`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from report_file import keep, machine, options, table, versions

sys.path.insert(0, str(Path(__file__).parents[1]))  # the requests are those of the tests

from kip848_client import EmbeddedBroker
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages import message_pair
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kip848_client.wire.record_batch import Record, build_batch
from kip848_client.wire.schema import INT32, INT64, STRING, ArrayOf, FieldSpec, Scalar, WireStruct, fields_of
from tests.support.well_formed_requests import ADVERTISED, ROWS, Scene, error_codes

TOPICS = 3_000
GROUPS = 3_000
PARTITIONS = 9_000
OLDER_VERSIONS = {ApiKey.PRODUCE: 12, ApiKey.FETCH: 12, ApiKey.OFFSET_COMMIT: 9, ApiKey.ADD_PARTITIONS_TO_TXN: 3}
"""Measured beside the newest: the last version of another layout."""
ENTRIES = ("same", "missing", "existing")
TOPIC_FIELDS = {"topic", "name", "topic_name", "subscribed_topic_names", "resource_name"}
GROUP_FIELDS = {"group_id", "groups", "groups_names", "group_ids"}
PARTITION_FIELDS = {"partition", "partition_index", "index", "partitions", "partition_indexes"}
PLAIN = {"string": "x", "uuid": uuid.UUID(int=1), "bytes": b"", "bool": False}

ListPath = tuple[str, ...]


class Turns:
    """The longest turn of any loop that does not run on this thread."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        handle_class: Any = asyncio.Handle
        run = handle_class._run

        def timed(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            run(handle)
            self.longest_s = max(self.longest_s, time.thread_time() - began)

        handle_class._run = timed


class World:
    """A broker with topics, partitions and groups, and requests that name them."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        self._ids = [broker.topics.create(f"t{number}") for number in range(TOPICS)]
        self._wide_id = broker.topics.create("wide", PARTITIONS)
        topic = OffsetCommitRequestTopic(name="t0", partitions=(OffsetCommitRequestPartition(committed_offset=1),))
        with RawConnection(broker.bootstrap_servers) as connection:
            for number in range(GROUPS):
                connection.ask(OffsetCommitRequest(group_id=f"g{number}", topics=(topic,)), version=9)
        self.scene = Scene.arrange(broker.bootstrap_servers)

    def widened(self, message: Any, path: ListPath, entries: int, kind: str) -> Any:
        """*message* with the list at *path* grown, so that all its lists together have at most *entries*."""
        return self._widened(message, path, entries - _size(message) - len(path), kind)

    def _widened(self, message: Any, path: ListPath, entries: int, kind: str) -> Any:
        cls: type[WireStruct] = type(message)
        field = next(field for field in fields_of(cls) if field.name == path[0])
        sample = _sample(field, getattr(message, field.name))
        if len(path) > 1:
            if kind == "existing":
                wide = {"topic_id": self._wide_id, "topic": "wide", "name": "wide"}
                sample = replace(sample, **{name: wide[name] for name in sample.__struct_fields__ if name in wide})
            return replace(message, **{field.name: (self._widened(sample, path[1:], entries, kind),)})
        count = max(1, entries // (1 + _size(sample)))
        return replace(message, **{field.name: tuple(self._entry(field, sample, n, kind) for n in range(count))})

    def _entry(self, field: FieldSpec, sample: Any, number: int, kind: str) -> Any:
        assert isinstance(field.kind, ArrayOf)
        element = field.kind.element
        if isinstance(element, Scalar):
            return self._value(field.name, element, sample, number, kind)
        parts = {part.name: part.kind for part in fields_of(element) if isinstance(part.kind, Scalar)}
        return replace(
            sample, **{name: self._value(name, of, getattr(sample, name), number, kind) for name, of in parts.items()}
        )

    def _value(self, name: str, of: Scalar, sample: Any, number: int, kind: str) -> Any:
        if kind == "existing":
            if name in TOPIC_FIELDS:
                return f"t{number % TOPICS}"
            if name in GROUP_FIELDS:
                return f"g{number % GROUPS}"
            if name == "topic_id":
                return self._ids[number % TOPICS]
            return number % PARTITIONS if name in PARTITION_FIELDS and of is INT32 else sample
        if kind == "missing":
            if of is STRING and sample is not None:
                return f"{sample}{number}"
            if name == "topic_id":
                return uuid.UUID(int=number + 1)
            return number if name in PARTITION_FIELDS or (of is INT64 and name.startswith("producer_id")) else sample
        return sample


ENTRIES_OF_LIST = 12_000
"""Enough for 10,000 partitions. Larger requests, up to ``kip848.request.max.elements``, hold the broker for longer."""


def lists_of(cls: type[WireStruct], version: int, path: ListPath = ()) -> Iterator[ListPath]:
    """Where *cls* has lists in *version*, at any depth."""
    for field in fields_of(cls):
        if isinstance(field.kind, ArrayOf) and field.versions.includes(version):
            yield (*path, field.name)
            if not isinstance(field.kind.element, Scalar):
                yield from lists_of(field.kind.element, version, (*path, field.name))


def measure(world: World, turns: Turns, api_key: int, version: int, entries: int) -> Iterator[dict[str, Any]]:
    """The longest turn for each list of one request, in each kind of entry."""
    for path in lists_of(message_pair(api_key).request, version):
        for kind in ENTRIES:
            request = world.widened(ROWS[api_key](world.scene, version), path, entries, kind)
            gc.collect()
            with RawConnection(world.broker.bootstrap_servers) as connection:
                turns.longest_s = 0.0
                connection.ask(request, version=version)
                dict(world.broker.topics)  # one turn later, so that the last one has been counted
            yield {
                "api": ApiKey(api_key).name,
                "version": version,
                "list": ".".join(path),
                "entries": kind,
                "longest_turn_ms": round(turns.longest_s * 1_000, 1),
            }


def heavy(turns: Turns, entries: int) -> Iterator[dict[str, Any]]:
    """A push of 15 MB in 15 KB, a batch that is acknowledged record by record, and as many filters as ACLs."""
    config = {"kip848.client.telemetry.enable": "true", "super.users": "User:ANONYMOUS"}
    records = min(entries, 2_000)  # `group.share.partition.max.record.locks`
    with (
        EmbeddedBroker({"jobs": 1}, acls=True, config=config) as broker,
        RawConnection(broker.bootstrap_servers) as raw,
    ):

        def row(api: ApiKey, what: str, version: int, **fields: Any) -> dict[str, Any]:
            gc.collect()
            turns.longest_s = 0.0
            assert not error_codes(raw.call(api, version, **fields))
            dict(broker.topics)
            longest_ms = round(turns.longest_s * 1_000, 1)
            return {"api": api.name, "version": version, "list": what, "entries": "", "longest_turn_ms": longest_ms}

        pusher = raw.call(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, client_instance_id=uuid.UUID(int=0))
        gzip = zlib.compressobj(9, wbits=31)
        yield row(
            ApiKey.PUSH_TELEMETRY,
            "(bytes)",
            0,
            client_instance_id=pusher.client_instance_id,
            subscription_id=pusher.subscription_id,
            compression_type=1,
            metrics=gzip.compress(bytes(1_250 * entries)) + gzip.flush(),
        )
        batch = build_batch([Record(b"x", None, timestamp=1) for _ in range(records)])
        data = [{"name": "jobs", "partition_data": [{"records": batch}]}]
        raw.call(ApiKey.PRODUCE, 9, acks=-1, timeout_ms=10_000, topic_data=data)
        broker.groups.set_config("g", {"share.auto.offset.reset": "earliest"})
        member: dict[str, Any] = {"group_id": "g", "member_id": str(uuid.UUID(int=1))}
        for epoch in (0, 1):
            raw.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **member, member_epoch=epoch, subscribed_topic_names=["jobs"])
        topic_id = raw.call(ApiKey.METADATA, 12, topics=[{"name": "jobs"}]).topics[0].topic_id
        limits = {"max_bytes": 10**8, "max_records": records, "batch_size": records}
        asked = [{"topic_id": topic_id, "partitions": [{}]}]
        raw.call(ApiKey.SHARE_FETCH, 2, **member, **limits, share_session_epoch=0, topics=asked)
        said = [{"first_offset": n, "last_offset": n, "acknowledge_types": [1 + n % 2]} for n in range(records)]
        asked = [{"topic_id": topic_id, "partitions": [{"acknowledgement_batches": said}]}]
        yield row(ApiKey.SHARE_ACKNOWLEDGE, "(one batch)", 2, **member, share_session_epoch=1, topics=asked)

        def names(suffix: str) -> list[dict[str, Any]]:
            common = {"host": "*", "principal": "User:a"} if not suffix else {}
            return [{f"resource_type{suffix}": 2, f"resource_name{suffix}": f"t{n}", **common} for n in range(entries)]

        acl = {"resource_pattern_type": 3, "operation": 3, "permission_type": 3}
        raw.call(ApiKey.CREATE_ACLS, 3, creations=[each | acl for each in names("")])
        anyone = {"pattern_type_filter": 3, "operation": 1, "permission_type": 1}
        nobody: dict[str, Any] = {"principal_filter": None, "host_filter": None}
        filters = [each | anyone | nobody for each in names("_filter")]
        yield row(ApiKey.DELETE_ACLS, "(filters, ACLs)", 3, filters=filters)


def main() -> None:
    """Measure what was asked for."""
    arguments = _options()
    entries = ENTRIES_OF_LIST // (20 if arguments.quick else 1)
    newest = {api_key: max(version for key, version in ADVERTISED if key == api_key) for api_key in ROWS}
    wanted = set(arguments.apis.split(",")) if arguments.apis else {ApiKey(api_key).name for api_key in newest}
    turns = Turns()
    rows: list[dict[str, Any]] = []
    config = {"group.consumer.session.timeout.ms": 60_000}
    with EmbeddedBroker(config=config) as broker:
        world = World(broker)
        for api_key, version in newest.items():
            if ApiKey(api_key).name in wanted:
                for chosen in sorted({version, OLDER_VERSIONS.get(ApiKey(api_key), version)}):
                    rows += measure(world, turns, api_key, chosen, entries)
        world.scene.connection.close()
    rows += [row for row in heavy(turns, entries) if row["api"] in wanted]
    rows.sort(key=lambda row: -row["longest_turn_ms"])
    table([list(rows[0]), *(list(row.values()) for row in rows[:25])])
    result = {"benchmark": "turns", "entries": entries, "machine": machine(), "versions": versions(), "turns": rows}
    keep(result, arguments)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument("--apis", help="only these, with commas between: FETCH,PRODUCE")
    return parser.parse_args()


def _size(message: Any) -> int:
    """How many entries all lists of a message have together."""
    if isinstance(message, tuple):
        return sum(1 + _size(item) for item in message)
    return sum(_size(getattr(message, name)) for name in getattr(message, "__struct_fields__", ()))


def _sample(field: FieldSpec, values: Any) -> Any:
    """The first entry that a list has, or a plain one."""
    assert isinstance(field.kind, ArrayOf)
    if values:
        return values[0]
    element = field.kind.element
    return PLAIN.get(element.name, 0) if isinstance(element, Scalar) else element()


if __name__ == "__main__":
    main()
