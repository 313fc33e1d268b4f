"""Turns the ``__consumer_offsets`` records of any Kafka cluster into the events of `kip848_client.journal`.

A coordinator writes down every decision about a group. `Recorder` replays those records, compares each group before
and after a decision, and names the difference with the events that the embedded broker writes. Opens no socket:
`kip848_client.tools.groups.record` and `kip848_client.spark.analytics.group_records` read the topic.

The records do not show refused requests, heartbeats, why a member left, and the join phase of a classic group, so there
are no events about them.
"""

from __future__ import annotations

from kip848_client.tools.recorder.recorder import RawRecord, RecordCounts, Recorder

__all__ = ["Recorder", "RawRecord", "RecordCounts"]
