"""`source_progress`: what people read who come from Spark's own Kafka source."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kip848_client.spark import source_progress

END = {"version": 1, "query": "q", "batch": 1, "ranges": {}, "positions": {"orders": {"0": 7, "1": 9}}}
LATEST = {
    "positions": {"orders": {"0": 10, "1": 9}},
    "source": "kip848 orders as kip848-spark-q in group billing",
    "records_behind": {"min": 0, "avg": 1.5, "max": 3},
}
OTHER = {"description": "RateStreamV2", "startOffset": "0", "endOffset": "5", "latestOffset": "5", "numInputRows": 5}


@pytest.mark.parametrize("written", [json.dumps, str], ids=["json", "text of a dict"])
def test_progress_has_the_shape_of_sparks_own_source(written: Any) -> None:
    """Dashboards and alerts on avgOffsetsBehindLatest go on; the description is no name of a Java object."""
    entry = {
        "description": "org.apache.spark.PythonMicroBatchStream@1f",
        "startOffset": None,
        "endOffset": written(END),
        "latestOffset": written(LATEST),
        "numInputRows": 16,
        "metrics": {},
    }
    assert source_progress({"sources": [OTHER, entry]}) == [
        {
            "description": "kip848 orders as kip848-spark-q in group billing",
            "startOffset": {},
            "endOffset": {"orders": {"0": 7, "1": 9}},
            "latestOffset": {"orders": {"0": 10, "1": 9}},
            "numInputRows": 16,
            "metrics": {"minOffsetsBehindLatest": "0", "avgOffsetsBehindLatest": "1.5", "maxOffsetsBehindLatest": "3"},
        }
    ]


def test_without_progress_there_is_nothing() -> None:
    """A query that has just begun, and Spark before 4.2, which does not ask for the latest offset."""
    assert source_progress(None) == []
    (entry,) = source_progress({"sources": [{"description": "d", "endOffset": json.dumps(END), "latestOffset": None}]})
    assert (entry["description"], entry["metrics"]) == ("d", {})
