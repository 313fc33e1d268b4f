"""The recorded conversations of Apache Kafka, held again with the embedded broker: no Kafka needed.

record_golden.py says what is asked; the files under tests/golden/wire/ say what Kafka answered. The conversations about
groups are repeated and each answer is compared with the recorded one, in the terms of comparison.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Final

import pytest

from kip848_client.broker import EmbeddedBroker
from tests.interop.differential.comparison import disagreements, shared_form
from tests.interop.differential.conftest import SETTINGS
from tests.interop.differential.side import Side, rows
from tests.interop.kafka_wire import Exchange, Json, WireConnection
from tests.interop.record_golden import (
    GOLDEN_FOLDER,
    TOPIC,
    Recorder,
    record_admin,
    record_heartbeats,
    record_offsets,
    record_refusals,
    record_static_members,
)

pytestmark = pytest.mark.interop

SILENT_GROUPS: Final = ("probe", "kip848-start-probe")
"""Groups of the recording's own helpers."""
EXPECTED: Final = (
    # 99 was sent to both, and is not counted from the group's first epoch.
    "consumer_group_heartbeat_v1_epoch_too_high_response: error_message",
    # Which of the broker's values counts as a default (docs/differences.md, "The defaults are for tests").
    "describe_configs_v4_group_response: results[0].configs[0].synonyms",
    "describe_configs_v4_group_response: results[0].configs[1].synonyms",
    # Ours names the topic.
    "delete_topics_v6_one_of_two_response: responses[0].error_message",
)
"""What may differ, beyond what the comparison knows."""


class Replay(Recorder):
    """Asks the embedded broker, and compares instead of writing."""

    def __init__(self, connection: WireConnection, *, ours: Side, recorded: Side) -> None:
        super().__init__(connection, broker_name="the embedded broker")
        self.found: Final[list[str]] = []
        """What differs, each with its file."""
        self._ours: Final = ours
        self._recorded: Final = recorded

    def keep(self, case: str, exchange: Exchange) -> None:
        """Compare one answer with the recorded one."""
        self.count += 1
        name = f"{exchange.api}_v{exchange.version}_{case}_response"
        recorded = recorded_fields(name)
        if case == "join_without_id":
            self._ours.call(str(exchange.response["member_id"]), "made")
            self._recorded.call(str(recorded["member_id"]), "made")
        group = str(exchange.request.get("group_id", ""))
        ours = shared_form(self._ours, without_helpers(exchange.response), group=group)
        kafka = shared_form(self._recorded, without_helpers(recorded), group=group)
        self.found.extend(f"{name}: {difference}" for difference in disagreements(ours, kafka))

    def write(self, described: dict[str, Json], frame: bytes) -> None:
        """Refuse: the files stay as they are."""
        raise AssertionError(f"{described['case']} would overwrite a recording")


@pytest.fixture
def embedded() -> Iterator[EmbeddedBroker]:
    """A broker with the recorded topic."""
    with EmbeddedBroker({TOPIC: 4}, profile="kafka", config=SETTINGS) as broker:
        yield broker


def test_recorded_conversations_go_as_they_went_with_kafka(embedded: EmbeddedBroker) -> None:
    """A change of our coordinator that moves it away from Kafka is seen where there is no Kafka to compare with."""
    address = embedded.bootstrap_servers
    metadata: dict[str, Json] = {
        "topics": [{"topic_id": None, "name": TOPIC}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    with (
        closing(Side("ours", address, prefix="-")) as ours,
        closing(Side("Kafka", address, prefix="-")) as recorded,
        WireConnection(address) as connection,
    ):
        topic_id = topic_id_of(connection.exchange("metadata", 13, metadata).response)
        ours.call(topic_id, TOPIC)
        recorded.call(topic_id_of(recorded_fields("metadata_v13_by_name_response")), TOPIC)
        recorded.epoch_offset.update(dict.fromkeys(("g", "s", "o", "v0"), 1))  # not of r, which began with a pattern
        replay = Replay(connection, ours=ours, recorded=recorded)
        record_heartbeats(replay, topic_id)
        record_refusals(replay)
        record_static_members(replay)
        record_offsets(replay, topic_id)
        record_admin(replay)

    assert replay.count >= 65
    assert [found for found in replay.found if not found.startswith(EXPECTED)] == []
    assert len(replay.found) == len(EXPECTED)


def recorded_fields(name: str) -> dict[str, Json]:
    """A recorded answer."""
    described = json.loads((GOLDEN_FOLDER / f"{name}.json").read_text())
    fields: dict[str, Json] = described["fields"]
    return fields


def topic_id_of(metadata: Mapping[str, Json]) -> str:
    """Id of the one topic in a metadata answer."""
    return str(rows(metadata["topics"])[0]["topic_id"])


def without_helpers(answer: Mapping[str, Json]) -> dict[str, Json]:
    """An answer without the groups that the recording itself needed."""
    if "groups" not in answer:
        return dict(answer)
    return {**answer, "groups": [row for row in rows(answer["groups"]) if row.get("group_id") not in SILENT_GROUPS]}
