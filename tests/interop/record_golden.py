"""Record the bytes of a real Kafka broker: `python -m tests.interop.record_golden` writes tests/golden/wire/ anew.

Owns the conversations that are kept. Each exchange gives two files per direction: `<api>_v<n>_<case>_request.hex`, the
frame without its size, and `.json`, the same decoded by kio (names and units: see kafka_wire.py). Ids, ports and times
differ in every recording; run it when the broker's version changes or a case is missing, and read the diff.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from kio.index import load_response_schema

from tests.interop.kafka_broker import KafkaBroker
from tests.interop.kafka_wire import CLIENT_ID, Exchange, Json, WireConnection, read_payload
from tests.support.waiting import wait_until

GOLDEN_FOLDER: Final = Path(__file__).parents[1] / "golden" / "wire"
HEX_LINE: Final = 96
TOPIC: Final = "orders"
UNKNOWN_ID: Final = "00000000-0000-0000-0000-000000000007"
ALICE, BOB, CAROL = "alice-1", "bob-1", "carol-1"
"""Member ids: any string that the client makes."""


def main() -> None:
    """Start a broker, hold every conversation, write the files."""
    with KafkaBroker() as broker, WireConnection(broker.bootstrap_servers) as connection:
        GOLDEN_FOLDER.mkdir(parents=True, exist_ok=True)
        for old in GOLDEN_FOLDER.glob("*_re*.*"):
            old.unlink()
        recorder = Recorder(connection, broker_name=f"Apache Kafka {broker.version}")
        record_versions(recorder)
        topic_id = record_topics(recorder)
        record_records(recorder, broker.bootstrap_servers, topic_id)
        record_heartbeats(recorder, topic_id)
        record_refusals(recorder)
        record_static_members(recorder)
        record_offsets(recorder, topic_id)
        record_classic_group(recorder)
        record_admin(recorder)
        record_transactions(recorder)
    sys.stdout.write(f"{recorder.count} exchanges in {GOLDEN_FOLDER}\n")


class Recorder:
    """Exchanges requests and keeps those that have a case name."""

    def __init__(self, connection: WireConnection, *, broker_name: str) -> None:
        self.connection: Final = connection
        self.count = 0
        self._broker_name: Final = broker_name

    def ask(self, case: str, api: str, version: int, expect: int | None = None, /, **fields: Json) -> dict[str, Json]:
        """One exchange; *expect* is its top-level error code, None if the response has none or it does not matter."""
        exchange = self.connection.exchange(api, version, fields)
        if expect is not None and exchange.error_code != expect:
            raise AssertionError(f"{api} v{version} {case}: error code {exchange.error_code}, expected {expect}")
        self.keep(case, exchange)
        return exchange.response

    def beat(self, case: str, expect: int, version: int = 1, /, **fields: Json) -> dict[str, Json]:
        """One ConsumerGroupHeartbeat; what is not given is null, which means unchanged."""
        return self.ask(case, "consumer_group_heartbeat", version, expect, **{"topic_partitions": None, **fields})

    def join(self, case: str, expect: int, version: int = 1, /, **fields: Json) -> dict[str, Json]:
        """A joining heartbeat: epoch 0, nothing owned."""
        joining: dict[str, Json] = {"member_epoch": 0, "rebalance_timeout_ms": 30_000, "topic_partitions": []}
        return self.beat(case, expect, version, **{**joining, **fields})

    def keep(self, case: str, exchange: Exchange) -> None:
        """Write the four files of one exchange."""
        self.count += 1
        for direction, header, frame, fields in (
            ("request", exchange.request_header_version, exchange.request_bytes, exchange.request),
            ("response", exchange.response_header_version, exchange.response_bytes, exchange.response),
        ):
            described: dict[str, Json] = {
                "api": exchange.api,
                "api_key": exchange.api_key,
                "version": exchange.version,
                "direction": direction,
                "case": case,
                "header_version": header,
                "correlation_id": exchange.correlation_id,
                "client_id": CLIENT_ID if direction == "request" else None,
                "fields": fields,
            }
            self.write(described, frame)

    def write(self, described: dict[str, Json], frame: bytes) -> None:
        """Write one frame and what it says."""
        name = "{api}_v{version}_{case}_{direction}".format_map(described)
        text = frame.hex()
        lines = [text[start : start + HEX_LINE] for start in range(0, len(text), HEX_LINE)]
        (GOLDEN_FOLDER / f"{name}.hex").write_text("\n".join(lines) + "\n")
        said = {"broker": self._broker_name, **described}
        (GOLDEN_FOLDER / f"{name}.json").write_text(json.dumps(said, indent=1) + "\n")


def record_versions(recorder: Recorder) -> None:
    """ApiVersions in its layouts, and the answer to a version from the future, which has the layout of version 0."""
    software: dict[str, Json] = {"client_software_name": "wire", "client_software_version": "1"}
    recorder.ask("all", "api_versions", 0, 0)
    recorder.ask("all", "api_versions", 3, 0, **software)
    known = recorder.connection.exchange("api_versions", 4, software)
    recorder.keep("all", known)
    too_new = known.request_bytes[:2] + struct.pack(">h", 99) + known.request_bytes[4:]
    answer = recorder.connection.exchange_raw(too_new)
    refused = read_payload(load_response_schema(18, 0), answer)
    described: dict[str, Json] = {
        "api": "api_versions",
        "api_key": 18,
        "version": 0,
        "direction": "response",
        "case": "unsupported_version",
        "header_version": 0,
        "correlation_id": known.correlation_id,
        "client_id": None,
        "fields": refused,
    }
    recorder.write(described, answer)


def record_topics(recorder: Recorder) -> str:
    """Create a topic and look at it; returns its id."""
    new: dict[str, Json] = {
        "name": TOPIC,
        "num_partitions": 4,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": "retention.ms", "value": "-1"}],
    }
    recorder.ask("one", "create_topics", 7, topics=[new], timeout_ms=10_000, validate_only=False)
    recorder.ask("exists", "create_topics", 5, topics=[new], timeout_ms=10_000, validate_only=True)
    recorder.ask("one", "find_coordinator", 6, key_type=0, coordinator_keys=["g"])
    recorder.ask("one", "find_coordinator", 2, 0, key="g", key_type=0)
    recorder.ask(
        "brokers",
        "describe_cluster",
        2,
        0,
        include_cluster_authorized_operations=True,
        endpoint_type=1,
        include_fenced_brokers=False,
    )
    wait_until_loaded(recorder.connection)
    asked: dict[str, Json] = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    found = recorder.ask("by_name", "metadata", 13, topics=[{"topic_id": None, "name": TOPIC}], **asked)
    recorder.ask("unknown_name", "metadata", 13, topics=[{"topic_id": None, "name": "nowhere"}], **asked)
    recorder.ask("unknown_id", "metadata", 12, topics=[{"topic_id": UNKNOWN_ID, "name": None}], **asked)
    recorder.ask("all", "metadata", 1, topics=None)
    (topic,) = rows(found["topics"])
    topic_id = topic["topic_id"]
    assert isinstance(topic_id, str)
    return topic_id


def record_records(recorder: Recorder, bootstrap_servers: str, topic_id: str) -> None:
    """Records that librdkafka wrote, read back; offsets; and a produce request with the same batch."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 50})
    for number in range(3):
        headers: list[tuple[str, str | bytes | None]] = [("number", str(number).encode())]
        producer.produce(TOPIC, f"value {number}".encode(), key=b"key", partition=0, headers=headers, timestamp=1_000)
    assert producer.flush(20) == 0
    partition: dict[str, Json] = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1_048_576,
    }
    fetch: dict[str, Json] = {
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 1_048_576,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    by_id = recorder.ask(
        "three_records", "fetch", 16, 0, topics=[{"topic_id": topic_id, "partitions": [partition]}], **fetch
    )
    past_end = {**partition, "fetch_offset": 99}
    recorder.ask("out_of_range", "fetch", 16, 0, topics=[{"topic_id": topic_id, "partitions": [past_end]}], **fetch)
    by_name: dict[str, Json] = {"replica_id": -1, "topics": [{"topic": TOPIC, "partitions": [partition]}]}
    recorder.ask("three_records", "fetch", 12, 0, **by_name, **fetch)
    (read,) = rows(rows(by_id["responses"])[0]["partitions"])
    data: dict[str, Json] = {"index": 0, "records": read["records"]}
    produce: dict[str, Json] = {"transactional_id": None, "acks": -1, "timeout_ms": 10_000}
    recorder.ask("batch", "produce", 11, topic_data=[{"name": TOPIC, "partition_data": [data]}], **produce)
    recorder.ask("batch", "produce", 13, topic_data=[{"topic_id": topic_id, "partition_data": [data]}], **produce)
    ends: list[Json] = [
        {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
        for index, timestamp in ((0, -1), (1, -2), (2, 500))
    ]
    listed: dict[str, Json] = {"replica_id": -1, "isolation_level": 0}
    topics: list[Json] = [{"name": TOPIC, "partitions": ends}]
    recorder.ask("ends", "list_offsets", 7, topics=topics, **listed)
    recorder.ask("ends", "list_offsets", 10, topics=topics, timeout_ms=10_000, **listed)
    epochs: dict[str, Json] = {"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}
    recorder.ask(
        "end_of_epoch", "offset_for_leader_epoch", 4, replica_id=-1, topics=[{"topic": TOPIC, "partitions": [epochs]}]
    )


def record_heartbeats(recorder: Recorder, topic_id: str) -> None:
    """Alice is alone, Bob joins, Alice gives up half, Bob takes it; both leave."""
    alice: dict[str, Json] = {"group_id": "g", "member_id": ALICE}
    bob: dict[str, Json] = {"group_id": "g", "member_id": BOB}
    joined = recorder.join("join_alone", 0, **alice, subscribed_topic_names=[TOPIC])
    epoch = joined["member_epoch"]
    every: list[Json] = [{"topic_id": topic_id, "partitions": [0, 1, 2, 3]}]
    recorder.beat("keepalive", 0, **alice, member_epoch=epoch)
    recorder.beat("acknowledge", 0, **alice, member_epoch=epoch, topic_partitions=every)
    full: dict[str, Json] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [TOPIC]}
    recorder.beat("full", 0, **alice, **full, member_epoch=epoch, topic_partitions=every)
    recorder.beat("keepalive", 0, 0, **alice, member_epoch=epoch)
    newcomer = recorder.join("join_waits", 0, **bob, subscribed_topic_names=[TOPIC], rack_id="rack-1")
    told = recorder.beat("told_to_revoke", 0, **alice, member_epoch=epoch)
    recorder.ask("reconciling", "consumer_group_describe", 1, group_ids=["g"], include_authorized_operations=True)
    assignment = told["assignment"]
    assert isinstance(assignment, dict)
    kept = assignment["topic_partitions"]
    recorder.beat("revoked", 0, **alice, member_epoch=epoch, topic_partitions=kept)
    recorder.beat("revoked_resent_with_previous_epoch", 0, **alice, member_epoch=epoch, topic_partitions=kept)
    recorder.beat("previous_epoch_without_owned", 110, **alice, member_epoch=epoch)
    recorder.beat("takes_over", 0, **bob, member_epoch=newcomer["member_epoch"])
    recorder.ask("stable", "consumer_group_describe", 1, group_ids=["g"], include_authorized_operations=False)
    recorder.ask("stable", "consumer_group_describe", 0, group_ids=["g", "none"], include_authorized_operations=False)
    recorder.ask("stable", "list_groups", 5, 0, states_filter=["Stable"], types_filter=["consumer"])
    recorder.ask("stable", "list_groups", 4, 0, states_filter=[])
    recorder.ask("not_classic", "describe_groups", 6, groups=["g", "none"], include_authorized_operations=False)
    recorder.beat("epoch_too_high", 110, **bob, member_epoch=99)
    recorder.beat("leave", 0, **bob, member_epoch=-1)
    recorder.beat("leave_twice", 25, **bob, member_epoch=-1)
    recorder.ask("assigning", "consumer_group_describe", 1, group_ids=["g"], include_authorized_operations=False)
    recorder.beat("last_leaves", 0, **alice, member_epoch=-1)
    recorder.ask("empty", "consumer_group_describe", 1, group_ids=["g"], include_authorized_operations=False)
    made = recorder.join("join_without_id", 0, 0, group_id="v0", member_id="", subscribed_topic_names=[TOPIC])
    recorder.beat("leave", 0, 0, group_id="v0", member_id=made["member_id"], member_epoch=-1)
    recorder.join("join_by_regex", 0, group_id="r", member_id=ALICE, subscribed_topic_regex="ord.*")


def record_refusals(recorder: Recorder) -> None:
    """Heartbeats that the broker refuses, one per reason."""
    new: dict[str, Json] = {"group_id": "refused", "member_id": ALICE, "subscribed_topic_names": [TOPIC]}
    recorder.join("blank_group", 42, **{**new, "group_id": " "})
    recorder.join("blank_member", 42, **{**new, "member_id": ""})
    recorder.join("join_without_timeout", 42, **{**new, "rebalance_timeout_ms": -1})
    recorder.join("join_with_owned_null", 42, **{**new, "topic_partitions": None})
    recorder.join("join_without_subscription", 42, **{**new, "subscribed_topic_names": None})
    recorder.join("unknown_assignor", 112, **{**new, "server_assignor": "sticky"})
    recorder.join("bad_regex", 128, **{**new, "subscribed_topic_regex": "("})
    recorder.beat("static_leave_without_instance", 42, group_id="refused", member_id=ALICE, member_epoch=-2)
    recorder.beat("unknown_group", 69, group_id="refused", member_id=ALICE, member_epoch=5)


def record_static_members(recorder: Recorder) -> None:
    """An instance id is released by -2, and only then taken over."""
    held: dict[str, Json] = {"group_id": "s", "instance_id": "box-1"}
    bob, carol = {**held, "member_id": BOB}, {**held, "member_id": CAROL}
    recorder.join("static_join", 0, **bob, subscribed_topic_names=[TOPIC])
    recorder.join("unreleased_instance", 111, **carol, subscribed_topic_names=[TOPIC])
    recorder.beat("fenced_instance", 82, **carol, member_epoch=2)
    recorder.beat("static_leave", 0, **bob, member_epoch=-2)
    recorder.ask(
        "static_member_away", "consumer_group_describe", 1, group_ids=["s"], include_authorized_operations=False
    )
    recorder.join("static_replaces", 0, **carol, subscribed_topic_names=[TOPIC])
    recorder.beat("static_leaves_for_good", 0, **carol, member_epoch=-1)


def record_offsets(recorder: Recorder, topic_id: str) -> None:
    """Commit and fetch, by name and by id, with the right epoch and with others."""
    epoch = recorder.join("join_to_commit", 0, group_id="o", member_id=ALICE, subscribed_topic_names=[TOPIC])[
        "member_epoch"
    ]
    assert isinstance(epoch, int)
    offset: dict[str, Json] = {"committed_offset": 2, "committed_leader_epoch": 0, "committed_metadata": "note"}
    partitions: list[Json] = [{"partition_index": 0, **offset}]
    for case, member, member_epoch in (
        ("current_epoch", ALICE, epoch),
        ("stale_epoch", ALICE, epoch - 1),
        ("unknown_member", BOB, epoch),
    ):
        commit: dict[str, Json] = {
            "group_id": "o",
            "generation_id_or_member_epoch": member_epoch,
            "member_id": member,
            "group_instance_id": None,
        }
        recorder.ask(case, "offset_commit", 9, **commit, topics=[{"name": TOPIC, "partitions": partitions}])
        recorder.ask(case, "offset_commit", 10, **commit, topics=[{"topic_id": topic_id, "partitions": partitions}])
        asking: dict[str, Json] = {"group_id": "o", "member_id": member, "member_epoch": member_epoch}
        indexes: dict[str, Json] = {"partition_indexes": [0, 1]}
        by_name: dict[str, Json] = {**asking, "topics": [{"name": TOPIC, **indexes}]}
        by_id: dict[str, Json] = {**asking, "topics": [{"topic_id": topic_id, **indexes}]}
        recorder.ask(case, "offset_fetch", 9, groups=[by_name], require_stable=True)
        recorder.ask(case, "offset_fetch", 10, groups=[by_id], require_stable=True)
    admin: dict[str, Json] = {"group_id": "o", "member_id": None, "member_epoch": -1, "topics": None}
    recorder.ask("all_topics", "offset_fetch", 9, groups=[admin], require_stable=False)
    recorder.ask("one_group", "offset_fetch", 5, group_id="o", topics=[{"name": TOPIC, "partition_indexes": [0]}])
    unknown: dict[str, Json] = {"topic_id": UNKNOWN_ID, "partition_indexes": [0]}
    recorder.ask("unknown_topic_id", "offset_fetch", 10, groups=[{**admin, "topics": [unknown]}], require_stable=False)
    wanted: list[Json] = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
    recorder.ask("subscribed", "offset_delete", 0, 0, group_id="o", topics=wanted)
    recorder.ask("not_empty", "delete_groups", 2, groups_names=["o", "none"])


def record_classic_group(recorder: Recorder) -> None:
    """One member of the older protocol: join twice, sync, heartbeat, leave."""
    subscription = "0000" + "00000001" + "0006" + TOPIC.encode().hex() + "ffffffff"
    joining: dict[str, Json] = {
        "group_id": "classic",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription}],
        "reason": "first join",
    }
    member = recorder.ask("member_id_required", "join_group", 9, 79, member_id="", **joining)["member_id"]
    joined = recorder.ask("leader", "join_group", 9, 0, member_id=member, **joining)
    generation = joined["generation_id"]
    assignment = "0000" + "00000001" + "0006" + TOPIC.encode().hex() + "00000001" + "00000000" + "ffffffff"
    known: dict[str, Json] = {"group_id": "classic", "generation_id": generation, "member_id": member}
    recorder.ask(
        *("leader", "sync_group", 5, 0),
        **known,
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": member, "assignment": assignment}],
    )
    recorder.ask("stable", "heartbeat", 4, 0, **known, group_instance_id=None)
    recorder.ask("stable", "describe_groups", 6, groups=["classic"], include_authorized_operations=False)
    going: dict[str, Json] = {"member_id": member, "group_instance_id": None, "reason": "done"}
    recorder.ask("one", "leave_group", 5, 0, group_id="classic", members=[going])


def record_admin(recorder: Recorder) -> None:
    """Group configurations, more partitions, the end of a topic."""
    setting: dict[str, Json] = {"name": "consumer.heartbeat.interval.ms", "config_operation": 0, "value": "50"}
    typo: dict[str, Json] = {**setting, "name": "consumer.heartbeat.intervall.ms"}
    group: dict[str, Json] = {"resource_type": 32, "resource_name": "o"}
    recorder.ask(
        "group", "incremental_alter_configs", 1, resources=[{**group, "configs": [setting]}], validate_only=False
    )
    recorder.ask(
        "unknown_name", "incremental_alter_configs", 1, resources=[{**group, "configs": [typo]}], validate_only=False
    )
    keys: list[Json] = ["consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"]
    resource: dict[str, Json] = {**group, "configuration_keys": keys}
    recorder.ask(
        "group", "describe_configs", 4, resources=[resource], include_synonyms=True, include_documentation=False
    )
    more: dict[str, Json] = {"name": TOPIC, "count": 6, "assignments": None}
    recorder.ask("six", "create_partitions", 3, topics=[more], timeout_ms=10_000, validate_only=False)
    topics: list[Json] = [{"name": TOPIC, "topic_id": None}, {"name": "nowhere", "topic_id": None}]
    recorder.ask("one_of_two", "delete_topics", 6, topics=topics, timeout_ms=10_000)


def record_transactions(recorder: Recorder) -> None:
    """A producer id without a transaction."""
    asked: dict[str, Json] = {
        "transactional_id": None,
        "transaction_timeout_ms": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    exchanges: list[Exchange] = []

    def answered() -> bool:  # the first question makes the broker fetch a block of ids; until then it is "loading"
        exchanges.append(recorder.connection.exchange("init_producer_id", 5, asked))
        return exchanges[-1].error_code == 0

    wait_until(answered, what="a producer id")
    return recorder.keep("idempotent", exchanges[-1])


def wait_until_loaded(connection: WireConnection) -> None:
    """Wait until the group coordinator has learnt of the topic: a join by name is answered with partitions."""
    probe: dict[str, Json] = {"group_id": "probe", "member_id": "probe", "rebalance_timeout_ms": 1_000}
    fields: dict[str, Json] = {**probe, "member_epoch": 0, "subscribed_topic_names": [TOPIC], "topic_partitions": []}

    def is_answered_with_partitions() -> bool:
        assignment = connection.exchange("consumer_group_heartbeat", 1, fields).response["assignment"]
        return isinstance(assignment, dict) and bool(assignment["topic_partitions"])

    wait_until(is_answered_with_partitions, what="the coordinator to learn of the new topic")
    connection.exchange("consumer_group_heartbeat", 1, {**probe, "member_epoch": -1, "topic_partitions": None})


def rows(value: Json) -> list[dict[str, Json]]:
    """A JSON list of objects, as such."""
    assert isinstance(value, list)
    return [row for row in value if isinstance(row, dict)]


if __name__ == "__main__":
    main()
