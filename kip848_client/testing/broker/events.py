"""What a broker writes into its event log (journal) and its log about itself; groups write their own events.

Names and fields of the events: docs/observability.md.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final, assert_never

import msgspec

from kip848_client.common.clock import Clock
from kip848_client.common.logs import BROKER_LOGGER, LogEvent, log_event
from kip848_client.errors import DataDirError
from kip848_client.journal import Journal, JournalEvent, JsonValue
from kip848_client.testing.broker.metadata.acls import Operation, ResourceType
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.net.logged_request import api_title
from kip848_client.testing.broker.storage.data_dir import Repair
from kip848_client.testing.broker.topics.registry import (
    PartitionsAdded,
    TopicChange,
    TopicCreated,
    TopicDeleted,
    TopicReconfigured,
    TopicRegistry,
)
from kip848_client.testing.faults import Action, Subject


class BrokerEvents:
    """Writes the events of one broker."""

    def __init__(self, journal: Journal, *, clock: Clock) -> None:
        self._journal: Final = journal
        self._clock: Final = clock

    def write(self, event: str, fields: Mapping[str, JsonValue], *, client_id: str | None = None) -> None:
        """Write one event, with the time of the broker's wall clock."""
        self._journal.write(
            JournalEvent(
                ts_ms=self._clock.wall_ms(), source="coordinator", event=event, client_id=client_id, fields=fields
            )
        )

    def started(
        self, topics: TopicRegistry, repairs: Iterable[Repair], *, bootstrap_servers: str, nodes: Collection[int]
    ) -> None:
        """The broker serves.

        Args:
            nodes: ids of its nodes, the lowest first.
        """
        for repair in repairs:
            self.write("data_folder_repaired", msgspec.to_builtins(repair))
        fields: dict[str, JsonValue] = {
            "bootstrap_servers": bootstrap_servers,
            "node_id": next(iter(nodes)),
            "nodes": len(nodes),
            "topics": {topic.name: topic.partition_count for topic in topics},
        }
        self.write("broker_started", fields)

    def storage_failed(self, error: DataDirError) -> None:
        """The data folder cannot be written."""
        log_event(logging.ERROR, LogEvent.STORAGE_FAILED, logger=BROKER_LOGGER, error=error)
        self.write("storage_failed", {"error": str(error)})

    def storage_recovered(self, data_dir: object) -> None:
        """The data folder can be written again."""
        log_event(logging.WARNING, LogEvent.STORAGE_RECOVERED, logger=BROKER_LOGGER, data_dir=data_dir)
        self.write("storage_recovered", {})

    def connection_refused(self, reason: str) -> None:
        """A client could not connect, or log in."""
        self.write("connection_refused", {"reason": reason})

    def authorization_denied(
        self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str
    ) -> None:
        """No ACL allows what a client asked for."""
        fields: dict[str, JsonValue] = {
            "principal": context.principal,
            "host": context.client_host,
            "api": api_title(context.api_key),
            "operation": operation.name,
            "resource_type": resource_type.name,
            "resource_name": name,
        }
        self.write("authorization_denied", fields, client_id=context.client_id)

    def fault_injected(self, context: RequestContext, subject: Subject, action: Action) -> None:
        """A fault rule did something to a request."""
        fields: dict[str, JsonValue] = {
            "api": api_title(context.api_key),
            "action": str(action),
            "groups": [*sorted(subject.groups)],
            "members": [*sorted(subject.members)],
        }
        self.write("fault_injected", fields, client_id=context.client_id)

    def topic_changed(self, change: TopicChange) -> None:
        """A topic is new, another one, or gone."""
        topic = change.topic
        fields: dict[str, JsonValue] = {"topic": topic.name, "topic_id": str(topic.topic_id)}
        match change:
            case TopicCreated():
                self.write("topic_created", fields | {"partitions": topic.partition_count})
            case PartitionsAdded():
                self.write("partitions_added", fields | {"partitions": topic.partition_count})
            case TopicDeleted():
                self.write("topic_deleted", fields)
            case TopicReconfigured():
                self.write("topic_reconfigured", {**fields, "configs": {**topic.configs}})
            case _:
                assert_never(change)
