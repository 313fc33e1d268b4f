"""The documentation names every API that the embedded broker serves, with its versions, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from kip848_client.broker.apis import load_apis

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "coordinator.md"


def test_the_table_of_served_apis_is_what_the_code_serves() -> None:
    """A user who plans a test against the broker reads that table, and must be able to rely on it."""
    rows = re.findall(r"^\| (\d+) \| \w+ \| (\d+)-(\d+) \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    documented = {(int(key), int(low), int(high)) for key, low, high in rows}
    served = {(api.api_key, api.version_min, api.version_max) for api in load_apis()}
    assert documented == served
