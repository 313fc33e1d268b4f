"""The event log of any Kafka cluster: records of ``__consumer_offsets`` in, events of `kip848_client.journal` out.

A coordinator writes down every decision about a group. `Recorder` replays those records, compares each group before
and after a decision, and names the difference with the events that the embedded broker writes. Opens no socket: who
reads the topic is `kip848_client.cli.groups_record` and `kip848_client.spark.group_records`.

What the records do not hold, the events do not say: refused requests, heartbeats, why a member left, and the join
phase of a classic group.
"""

from __future__ import annotations

from kip848_client.recorder.recorder import Counts, RawRecord, Recorder

__all__ = ["Recorder", "RawRecord", "Counts"]
