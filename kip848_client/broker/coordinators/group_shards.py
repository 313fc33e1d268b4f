"""The groups of a cluster of several nodes: one coordinator for each partition of ``__consumer_offsets``, as in Kafka.

When they begin and end: `shards`.

The answer depends on the node that got the request: NOT_COORDINATOR elsewhere, COORDINATOR_LOAD_IN_PROGRESS while the
records are read.

Source:
    apache/kafka ``GroupCoordinatorService``, ``CoordinatorRuntime``; who answers what: KafkaApis.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec.structs import replace

from kip848_client.broker.config import BrokerConfig
from kip848_client.broker.coordinators.group_configs import GroupConfigStore
from kip848_client.broker.coordinators.group_errors import refusal
from kip848_client.broker.coordinators.group_host import GroupHost
from kip848_client.broker.coordinators.group_metrics import GroupMetrics
from kip848_client.broker.coordinators.shards import ShardLog, Shards, Waiter
from kip848_client.broker.coordinators.snapshots import GroupSnapshot
from kip848_client.broker.metadata.placement import GROUP_OFFSETS, Placement, coordinator_partition
from kip848_client.broker.net.context import RequestContext
from kip848_client.broker.storage.group_log import GroupLog
from kip848_client.broker.topics.offsets_topic import OffsetsTopic
from kip848_client.broker.topics.topic_images import TopicImages
from kip848_client.clock import Clock
from kip848_client.coordinator.core.group_overrides import GroupConfig
from kip848_client.coordinator.core.inputs import GroupMessage
from kip848_client.coordinator.core.timers import TimerKind
from kip848_client.errors import BrokerError, DataDirError, ErrorCode
from kip848_client.journal import Journal
from kip848_client.wire.messages import message_pair
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor
from kip848_client.wire.messages.group_records import UnknownRecord, decode_record, group_of
from kip848_client.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kip848_client.wire.schema import Response, fields_of

if TYPE_CHECKING:
    from kip848_client.telemetry import Figure

__all__ = ["GroupShards", "Groups"]


class GroupShards(Shards[GroupHost]):
    """All group coordinators of one cluster. To its callers it looks like one `GroupHost`.

    Args:
        log: where the records of all partitions are kept.
        placement: which node leads which partition.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        log: GroupLog,
        configs: GroupConfigStore,
        images: TopicImages,
        offsets_topic: OffsetsTopic,
        placement: Placement,
        clock: Clock,
        journal: Journal,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(GROUP_OFFSETS, log=log, placement=placement)
        self._config: Final = config
        self._configs: Final = configs
        self._images: Final = images
        self._offsets_topic: Final = offsets_topic
        self._clock: Final = clock
        self._journal: Final = journal
        self._loop: Final = loop
        self._metrics: Final = {node: GroupMetrics(loop) for node in placement.nodes}

    # --- life

    def stop_coordinating(self, partitions: Collection[int] | None = None) -> None:
        """Answer the requests that wait for others, so that their clients look for a coordinator at once."""
        for partition, host in self._hosts.items():
            if partitions is None or partition in partitions:
                host.stop_coordinating()

    def close(self) -> None:
        """Stop timers and metrics, and refuse the calls that wait."""
        for metrics in self._metrics.values():
            metrics.close()
        super().close()

    # --- requests

    def handle(self, message: GroupMessage, context: RequestContext) -> None:
        """Give a request to the coordinators of its groups, if they are on the node that it came to."""
        parts = _parts_of(message, context.api_version)
        if parts is None:
            partition = coordinator_partition(_group_of(message))
            code = self._why_not(partition, context.node_id)
            if code:
                context.reply(refusal(message, code=code, api_version=context.api_version))
            else:
                self._host(partition).handle(message, context)
        elif isinstance(message, ListGroupsRequest):
            context.reply(self._list(message, context))
        else:
            context.reply(_joined(message, [self._part(group_id, part, context) for group_id, part in parts]))

    def why_not_here(self, group_id: str, node_id: int) -> ErrorCode:
        """The error for a request about a group that came to *node_id*; NONE if it is served there."""
        return self._why_not(coordinator_partition(group_id), node_id)

    def ask(self, message: GroupMessage, *, api_version: int) -> Response:
        """Answer a read-only request of the broker itself about one group."""
        return self._host_of(message, api_version).ask(message, api_version=api_version)

    def submit(self, message: GroupMessage, *, api_version: int) -> Response:
        """Do a request of the broker's own about one group, as if a client had sent it, and return its answer."""
        return self._host_of(message, api_version).submit(message, api_version=api_version)

    def begin(self, message: GroupMessage, *, api_version: int) -> Response | None:
        """See `GroupHost.begin`."""
        return self._host_of(message, api_version).begin(message, api_version=api_version)

    def end_transaction(self, producer_id: int, partitions: Collection[int], *, commit: bool) -> None:
        """See `GroupHost.end_transaction`.

        Raises:
            BrokerError: a partition has no coordinator now.
        """
        for partition in partitions:
            if not self._acts(partition):
                raise _no_coordinator(partition)
        for partition in partitions:
            self._serving(partition).end_transaction(producer_id, (), commit=commit)

    def let_time_run_out(self, kind: TimerKind, *, group_id: str, member_id: str) -> None:
        """See `GroupHost.let_time_run_out`."""
        self._serving(coordinator_partition(group_id)).let_time_run_out(kind, group_id=group_id, member_id=member_id)

    # --- configuration of groups

    def config_defaults(self) -> Mapping[str, str]:
        """The configuration of a group without overrides."""
        return GroupConfig.of(self._config.coordinator).properties()

    def config_overrides(self, group_id: str) -> Mapping[str, str]:
        """The overrides of a group, which need not exist."""
        return self._configs.get(group_id)

    def ids_with_overrides(self) -> Sequence[str]:
        """Ids of the groups that have overrides, sorted; the groups need not exist."""
        return self._configs.group_ids()

    def set_config_overrides(self, group_id: str, overrides: Mapping[str, str], *, validate_only: bool = False) -> None:
        """See `GroupHost.set_config_overrides`."""
        host = self._serving(coordinator_partition(group_id))
        host.set_config_overrides(group_id, overrides, validate_only=validate_only)

    # --- for other parts of the broker

    def group_ids(self) -> tuple[str, ...]:
        """Ids of all groups, sorted."""
        return tuple(sorted(group_id for host in self._hosts.values() for group_id in host.group_ids()))

    def figures(self) -> tuple[Figure, ...]:
        """Metrics of the coordinators, node by node."""
        return tuple(
            figure
            for node_id, metrics in self._metrics.items()
            for figure in metrics.figures(
                [group for host in self._led_by(node_id) for group in host.listed()],
                waiting=sum(host.waiting_count for host in self._led_by(node_id)),
                partitions=len(self._placement.led_by(GROUP_OFFSETS, node_id)),
                attributes={"node-id": str(node_id)},
            )
        )

    def snapshot(self, group_id: str) -> GroupSnapshot | None:
        """A group as it is now; None if there is none of that id, only offsets, or no coordinator of it now."""
        host = self._hosts.get(coordinator_partition(group_id))
        return None if host is None else host.snapshot(group_id)

    def offered_assignors(self, group_id: str) -> tuple[Assignor, ...]:
        """See `GroupHost.offered_assignors`."""
        return self._serving(coordinator_partition(group_id)).offered_assignors(group_id)

    @property
    def has_waiters(self) -> bool:
        """Whether any call waits for a group."""
        return bool(self._waiters) or any(host.has_waiters for host in self._hosts.values())

    def add_waiter(
        self,
        group_id: str,
        predicate: Callable[[GroupSnapshot], bool],
        future: concurrent.futures.Future[GroupSnapshot],
    ) -> None:
        """See `GroupHost.add_waiter`; without a coordinator now, the next one tells."""
        partition = coordinator_partition(group_id)
        if self._is_served(partition):
            self._host(partition).add_waiter(group_id, predicate, future)
        else:
            self._waiters.append((group_id, predicate, future))

    # --- internals

    def _id_of(self, key: bytes, value: bytes | None) -> str | None:
        record = decode_record(key, value)
        return None if isinstance(record, UnknownRecord) else group_of(record.key)

    def _wait_again(self, waiter: Waiter) -> None:
        self.add_waiter(*waiter)

    def _serving(self, partition: int) -> GroupHost:
        if not self._is_served(partition):
            raise _no_coordinator(partition)
        return self._host(partition)

    def _new_host(self, partition: int, log: ShardLog) -> GroupHost:
        return GroupHost(
            self._config,
            log=log,
            configs=self._configs,
            images=self._images,
            offsets_topic=self._offsets_topic,
            metrics=self._metrics[self._leader(partition)],
            clock=self._clock,
            journal=self._journal,
            loop=self._loop,
            has=lambda group_id: coordinator_partition(group_id) == partition,
            acts=lambda: self._acts(partition),
        )

    def _host_of(self, message: GroupMessage, api_version: int) -> GroupHost:
        parts = _parts_of(message, api_version)
        group_id = _group_of(message) if parts is None else parts[0][0]
        return self._serving(coordinator_partition(group_id))

    def _list(self, message: ListGroupsRequest, context: RequestContext) -> Response:
        if self._is_loading_at(context.node_id):
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        answers = [host.ask(message, api_version=context.api_version) for host in self._led_by(context.node_id)]
        groups = [group for answer in answers if isinstance(answer, ListGroupsResponse) for group in answer.groups]
        return ListGroupsResponse(groups=tuple(sorted(groups, key=lambda group: group.group_id)))

    def _part(self, group_id: str, part: GroupMessage, context: RequestContext) -> Response:
        partition, api_version = coordinator_partition(group_id), context.api_version
        code = self._why_not(partition, context.node_id)
        if code:
            return refusal(part, code=code, api_version=api_version)
        try:
            return self._host(partition).submit(part, api_version=api_version)
        except DataDirError as error:
            unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return refusal(part, code=unavailable, reason=str(error), api_version=api_version)


def _no_coordinator(partition: int) -> BrokerError:
    return BrokerError(
        f"no node coordinates partition {partition} of {GROUP_OFFSETS} now", code=ErrorCode.COORDINATOR_NOT_AVAILABLE
    )


Groups: TypeAlias = GroupHost | GroupShards
"""The groups of a broker: of a single node, or of several."""


def _group_of(message: GroupMessage) -> str:
    group_id: str = getattr(message, "group_id", "")
    return group_id


def _parts_of(message: GroupMessage, api_version: int) -> Sequence[tuple[str, GroupMessage]] | None:
    """One request for each group that a request names; none for a request about all groups.

    Returns:
        (group id, request about it), or None for a request that is about the group in its field ``group_id``.
    """
    if _is_about_one_group(type(message), api_version):
        return None
    asked = _named_groups(message)
    return [
        (entry if isinstance(entry, str) else entry.group_id, replace(message, **{asked: (entry,)}))
        for entry in (dict.fromkeys(getattr(message, asked)) if asked else ())
    ]


@functools.cache
def _is_about_one_group(cls: type[GroupMessage], api_version: int) -> bool:
    return any(field.name == "group_id" and field.versions.includes(api_version) for field in fields_of(cls))


def _named_groups(message: GroupMessage) -> str:
    """The field of a request that names several groups; empty if it has none."""
    return next(iter(message.WIRE.answered_by), "")


def _joined(message: GroupMessage, answers: Sequence[Response]) -> Response:
    """One answer to a request that named several groups."""
    answered = message.WIRE.answered_by[_named_groups(message)]
    groups = tuple(group for answer in answers for group in getattr(answer, answered))
    return replace(message_pair(message.WIRE.api_key).response(), **{answered: groups})
