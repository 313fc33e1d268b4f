"""The progress of a query in the shape of Spark's own Kafka source. Pure, without Spark.

Spark takes no metrics of a source in Python, and describes it by the name of a class of its own. What our source
reports is in the offsets.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

_BEHIND = {"min": "minOffsetsBehindLatest", "avg": "avgOffsetsBehindLatest", "max": "maxOffsetsBehindLatest"}


def source_progress(progress: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """What Spark's own Kafka source would have in ``progress["sources"]``, for each of our sources of a query.

    Args:
        progress: ``query.lastProgress``, or ``event.progress`` in a StreamingQueryListener; None before the first one.

    Returns:
        Entries with ``description`` (topics, client id and group), ``startOffset``, ``endOffset`` and ``latestOffset``
        (topic -> partition -> next offset), ``metrics`` (``minOffsetsBehindLatest``, ``avg...``, ``max...``, as
        texts; empty before Spark 4.2, which asks for no latest offset), and the figures of the original entry, such as
        ``numInputRows``.

    Example::

        for source in source_progress(query.lastProgress):
            print(source["description"], source["metrics"])
    """
    found = []
    for source in [] if progress is None else progress["sources"]:
        start, end, latest = (_offset(source.get(name)) for name in ("startOffset", "endOffset", "latestOffset"))
        if not end.get("query"):
            continue  # of another source
        behind = latest.get("records_behind", {})
        entry = dict(source)
        entry.update(
            description=latest.get("source", source["description"]),
            startOffset=start.get("positions", {}),
            endOffset=end["positions"],
            latestOffset=latest.get("positions", {}),
            metrics={name: str(behind[key]) for key, name in _BEHIND.items() if key in behind},
        )
        found.append(entry)
    return found


def _offset(told: object) -> dict[str, Any]:
    """An offset: a mapping, its JSON, or in Spark 4.1 the text of a dict."""
    if isinstance(told, str):
        for read in (json.loads, ast.literal_eval):
            try:
                return _offset(read(told))
            except (ValueError, SyntaxError):
                continue
        return {}
    return dict(told) if isinstance(told, Mapping) else {}
