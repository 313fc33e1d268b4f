"""The page about the broker names the APIs that it does not serve; the others are listed from the code."""

from __future__ import annotations

import re
from pathlib import Path

from kip848_client.testing.broker.apis import load_apis
from kip848_client.wire.api_keys import ApiKey

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "broker.md"
OF_KAFKA_3 = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN}


def test_the_page_names_the_apis_that_are_not_served() -> None:
    """A user who plans a test against the broker reads that table, and must be able to rely on it."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("## APIs")[2].partition("\n## ")[0]
    names = {key.name.replace("_", "").lower(): key for key in ApiKey}
    rows = re.findall(r"^\| (\w+(?:, \w+)*) \| [^|]+\|$", section, re.MULTILINE)[1:]
    told = [names[name.lower()] for row in rows for name in row.split(", ")]
    served = {api.api_key for api in load_apis()}
    assert sorted(told) == sorted(key for key in ApiKey if key not in served | OF_KAFKA_3)
