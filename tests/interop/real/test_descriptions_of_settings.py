"""How settings are described: the recording that the embedded broker shows is what Apache Kafka says."""

from __future__ import annotations

import json

import pytest

from tests.interop.kafka_broker import KafkaBroker
from tests.interop.record_configs import RECORDED, recorded

pytestmark = [pytest.mark.interop, pytest.mark.kafka]


def test_kafka_describes_its_settings_as_it_was_recorded() -> None:
    """A new version has other texts, defaults and settings: record them again."""
    with KafkaBroker() as broker:
        found = recorded(broker)
    said = json.loads(RECORDED.read_text())
    assert json.loads(json.dumps(found)) == {kind: said[kind] for kind in found}
