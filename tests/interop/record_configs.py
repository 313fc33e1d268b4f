"""Record how a real Kafka broker describes its settings: `python -m tests.interop.record_configs` writes them anew.

The embedded broker shows these types, documentation and synonyms for the settings that it has. Left out are those of
parts that it has not, such as TLS stores, tiered storage and the controller.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from kip848_client.testing.broker.config import PROPERTY_NAMES
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from tests.interop.kafka_broker import KafkaBroker
from tests.support.waiting import wait_until

RECORDED: Final = Path(__file__).parents[2] / "kip848_client/testing/broker/metadata/kafka_configs.json"

_RESOURCES: Final = {"topic": (2, "orders"), "broker": (4, "1"), "client_metrics": (16, "m"), "group": (32, "g")}
_WITHOUT_DEFAULT: Final = ("log.flush.interval.ms", "log.retention.ms", "log.roll.jitter.ms", "log.roll.ms")
"""Synonyms of a topic's settings that are shown only once they are set."""
_LEFT_OUT: Final = (
    *("alter.config.policy", "config.providers", "controller.", "create.topic.policy", "delegation.", "early.start"),
    *("follower.fetch.last.tiered", "group.streams.", "inter.broker.", "kafka.metrics.", "listener", "metadata."),
    *("metric.", "metrics.", "password.", "principal.", "remote.", "sasl.", "security.", "ssl."),
)


def recorded(broker: KafkaBroker) -> dict[str, dict[str, dict[str, Any]]]:
    """Kind of resource -> setting -> what is recorded of it."""
    with RawConnection(broker.bootstrap_servers) as connection:
        orders = {"name": "orders", "num_partitions": 1, "replication_factor": 1}
        connection.call(ApiKey.CREATE_TOPICS, 7, topics=[orders], timeout_ms=30_000)
        wait_until(lambda: "retention.ms" in _described(connection, *_RESOURCES["topic"]))
        plain = {kind: _described(connection, *_RESOURCES[kind]) for kind in _RESOURCES}
        changes = [{"name": name, "config_operation": 0, "value": "1000"} for name in _WITHOUT_DEFAULT]
        resource = {"resource_type": 4, "resource_name": "", "configs": changes}
        (answer,) = connection.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]).responses
        assert answer.error_code == 0, answer
        changed: dict[str, Any] = {}

        def is_changed() -> bool:  # Kafka answers before its brokers have heard of it
            changed.update(_described(connection, *_RESOURCES["topic"]))
            shown = {synonym.name for each in changed.values() for synonym in each.synonyms}
            return shown.issuperset(_WITHOUT_DEFAULT)

        wait_until(is_changed)
    return {
        kind: {
            name: _entry(kind, each, changed[name] if kind == "topic" else each)
            for name, each in sorted(found.items())
            if kind != "broker" or name in PROPERTY_NAMES or not name.startswith(_LEFT_OUT)
        }
        for kind, found in plain.items()
    }


def _described(connection: RawConnection, kind: int, name: str) -> dict[str, Any]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    answer = connection.call(
        ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=True, include_documentation=True
    )
    return {each.name: each for each in answer.results[0].configs}


def _entry(kind: str, plain: Any, changed: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": plain.config_type, "documentation": plain.documentation}
    if kind == "broker":
        default = next((each.value for each in plain.synonyms if each.source == 5), None)
        return entry | {"default": default, "dynamic": not plain.read_only}
    names = list(dict.fromkeys(each.name for each in changed.synonyms))
    return entry | {"synonyms": names, "shows_default": bool(plain.synonyms)}


def main() -> None:
    """Write the file."""
    with KafkaBroker() as broker:
        found = recorded(broker)
    source = "Apache Kafka 4.4.0, Apache License 2.0: its answers to DescribeConfigs (tests/interop/record_configs.py)"
    text = msgspec.json.encode({"source": source, **found})
    RECORDED.write_bytes(msgspec.json.format(text, indent=1) + b"\n")


if __name__ == "__main__":
    main()
