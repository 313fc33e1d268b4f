"""The recorded conversation of Apache Kafka, held again with the embedded broker: no Kafka needed.

The files under tests/golden/wire/ say what was asked and what Kafka answered; each answer is compared with the recorded
one, in the terms of comparison.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Final

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.testing.judge.broker.comparison import disagreements, shared_form
from kip848_client.testing.judge.broker.side import Side, rows
from tests.interop.differential.conftest import SETTINGS
from tests.interop.kafka_wire import Json, WireConnection
from tests.interop.record_golden import Conversation

pytestmark = pytest.mark.interop

HELPERS: Final = ("probe", "kip848-start-probe")
"""Groups that the recording itself needed."""
AHEAD: Final = ("g", "s", "o", "v0")
"""Groups whose epochs Kafka counts from 2 on: not those that began without a subscription to a topic that exists."""
EXPECTED: Final = (
    # Settings of the test's Kafka (kafka/server.properties).
    "create_topics_v7_one: topics[0].configs[33].value",
    # Ours names the topic.
    "delete_topics_v6_one_of_two: responses[0].error_message",
)
"""What may differ, beyond what the comparison knows."""


@pytest.fixture
def embedded() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(profile="kafka", config=SETTINGS) as broker:
        yield broker


def test_recorded_conversations_go_as_they_went_with_kafka(embedded: EmbeddedBroker) -> None:
    """A change of our coordinator that moves it away from Kafka is seen where there is no Kafka to compare with."""
    address = embedded.bootstrap_servers
    found: list[str] = []
    count = 0
    with (
        closing(Side("ours", address, prefix="\0")) as ours,
        closing(Side("Kafka", address, prefix="\0")) as kafka,
        WireConnection(address) as connection,
    ):
        kafka.epoch_offset.update(dict.fromkeys(AHEAD, 1))
        conversation = Conversation(connection, change=with_our_epochs)
        for said, exchange in conversation.hold():
            if said.api == "api_versions":
                continue  # Kafka offers more; what we offer is compared by test_every_version
            for recorded_id, own_id in conversation.ids.items():
                ours.call(own_id, recorded_id)
            group = str(said.fields.get("group_id", ""))
            differences = disagreements(
                shared_form(ours, comparable(exchange.response), group=group),
                shared_form(kafka, comparable(said.answer), group=group),
            )
            found += [f"{said.api}_v{said.version}_{said.case}: {difference}" for difference in differences]
            count += 1

    assert count >= 85
    assert [one for one in found if not one.startswith(EXPECTED)] == []
    assert len(found) == len(EXPECTED)


def with_our_epochs(fields: dict[str, Json]) -> Json:
    """A recorded request with epochs as our broker counts them."""

    def changed(value: Json, *, ahead: int) -> Json:
        if isinstance(value, list):
            return [changed(item, ahead=ahead) for item in value]
        if not isinstance(value, dict):
            return value
        ahead = int(value["group_id"] in AHEAD) if "group_id" in value else ahead
        return {
            name: item - ahead
            if name in ("member_epoch", "generation_id_or_member_epoch") and isinstance(item, int) and item > 0
            else changed(item, ahead=ahead)
            for name, item in value.items()
        }

    return changed(fields, ahead=0)


def comparable(answer: Mapping[str, Json]) -> dict[str, Json]:
    """An answer without what is each broker's own: its address, and groups and topics that only it needed."""
    found = {name: value for name, value in answer.items() if name not in ("port", "cluster_id")}
    for name in ("brokers", "coordinators"):
        if name in found:
            found[name] = [comparable(row) for row in rows(found[name])]
    if "groups" in found:
        found["groups"] = [row for row in rows(found["groups"]) if row.get("group_id") not in HELPERS]
    if "brokers" in found and "topics" in found:
        found["topics"] = [row for row in rows(found["topics"]) if not row["is_internal"]]
    return found
