"""Planned stops, with the progress of a query as each version of Spark shows it. No Spark; `test_queries` has one."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from kip848_client.spark.source.stopping import StopWatch, stop_gracefully

END = {"query": "q", "batch": 7, "positions": {"orders": {"0": 100}}}


class Query:
    """A streaming query, as PySpark shows it.

    Args:
        end: the offset in its ``lastProgress``.
    """

    def __init__(self, end: object) -> None:
        self.status = {"isTriggerActive": True}
        self.isActive = True
        self.lastProgress = {"sources": [{"endOffset": end}]}
        told = json.dumps({"sources": [{"endOffset": END}]})
        self._jsq = SimpleNamespace(lastProgress=lambda: SimpleNamespace(json=lambda: told))

    def stop(self) -> None:
        self.isActive = False


@pytest.mark.parametrize("end", [json.dumps(END), str(END), END], ids=["Spark 4.0 and 4.2", "Spark 4.1", "a dict"])
def test_a_query_is_told_to_stop_and_what_is_complete(end: object) -> None:
    """A service on Spark 4.1 could not be stopped: a JSONDecodeError, and the query ran on."""
    told: list[Any] = []

    def complete(ends: Any) -> bool:
        told.extend(ends)
        return True

    query = Query(end)
    watch = StopWatch("q", complete)
    try:
        assert stop_gracefully(query)  # type: ignore[arg-type]
    finally:
        watch.close()

    assert not query.isActive
    assert told == [END]
