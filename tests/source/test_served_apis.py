"""Each API that the embedded broker serves has its row in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from kip848_client.testing.broker.apis import load_apis
from kip848_client.wire.api_keys import ApiKey

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "broker.md"


def test_the_table_of_served_apis_is_what_the_code_serves() -> None:
    """A user who plans a test against the broker reads that table, and must be able to rely on it."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("## APIs and versions")[2].partition("\n## ")[0]
    documented = re.findall(r"(\w+) (\d+)-(\d+)(?: \(key (\d+)\))?(?=, | \|)", section)
    names = {key.name.replace("_", "").lower(): key for key in ApiKey}
    told = [(names[name.lower()], int(low), int(high)) for name, low, high, _ in documented]
    assert sorted(told) == sorted((api.api_key, api.version_min, api.version_max) for api in load_apis())
    assert all(int(key) == names[name.lower()] for name, _, _, key in documented if key)
