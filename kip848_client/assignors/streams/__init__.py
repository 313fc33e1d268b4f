"""`StreamsAssignor`: tasks with local state, their standbys and warm-ups, by a client-side assignor.

A service that keeps state for each partition (SQLite, a dictionary, a model) gets what Kafka Streams gives its own: the
state stays where it is, copies of it stand by, and a partition moves only when its new owner has caught up.

Source: KIP-848 "Kafka Streams", KIP-441, KIP-708, KIP-1071.
"""

from __future__ import annotations

from kip848_client.assignors.streams.assignor import Owner, StreamsAssignor
from kip848_client.assignors.streams.runner import TaskHandler, TaskRunner
from kip848_client.assignors.streams.topology import Subtopology, Task, Topology, TopologyError

__all__ = ["Owner", "StreamsAssignor", "Subtopology", "Task", "TaskHandler", "TaskRunner", "Topology", "TopologyError"]
