"""The groups of a broker: one coordinator for each partition of ``__consumer_offsets``, as in Kafka.

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
import logging
import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from kip848_client.common.clock import Clock
from kip848_client.common.logs import BROKER_LOGGER, LogEvent, log_event
from kip848_client.errors import BrokerError, ConfigError, DataDirError, ErrorCode
from kip848_client.journal import Journal
from kip848_client.testing.broker.config import BrokerConfig
from kip848_client.testing.broker.coordinators.group_errors import refusal
from kip848_client.testing.broker.coordinators.group_host import GroupHost, Persister
from kip848_client.testing.broker.coordinators.group_metrics import CoordinatorMetrics
from kip848_client.testing.broker.coordinators.shards import ShardLog, Shards, Waiter
from kip848_client.testing.broker.coordinators.snapshots import GroupSnapshot
from kip848_client.testing.broker.metadata.placement import GROUP_OFFSETS, NO_LEADER, Placement, coordinator_partition
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.storage.config_store import ConfigStore
from kip848_client.testing.broker.storage.group_log import GroupLog, KeyAndValue
from kip848_client.testing.broker.topics.offsets_topic import OffsetsTopic
from kip848_client.testing.broker.topics.topic_images import TopicImages
from kip848_client.testing.coordinator.core.group_overrides import GroupConfig, resolve_group_config
from kip848_client.testing.coordinator.core.inputs import GroupMessage
from kip848_client.testing.coordinator.core.timers import TimerKind
from kip848_client.wire.messages import message_pair
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor
from kip848_client.wire.messages.group_records import decode_record_key, group_of
from kip848_client.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kip848_client.wire.schema import Response, fields_of

if TYPE_CHECKING:
    from kip848_client.common.telemetry import Figure


class GroupShards(Shards[GroupHost, KeyAndValue]):
    """All group coordinators of one cluster. To its callers it looks like one.

    Args:
        log: where the records of all partitions are kept.
        placement: which node leads which partition.
        share_states: the state of share partitions.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        log: GroupLog,
        configs: ConfigStore,
        images: TopicImages,
        offsets_topic: OffsetsTopic,
        placement: Placement,
        clock: Clock,
        journal: Journal,
        loop: asyncio.AbstractEventLoop,
        share_states: Persister,
    ) -> None:
        super().__init__(GROUP_OFFSETS, log=log, placement=placement)
        self._config = config
        self._configs: Final = configs
        self._images: Final = images
        self._offsets_topic: Final = offsets_topic
        self._clock: Final = clock
        self._journal: Final = journal
        self._loop: Final = loop
        self._metrics: Final = {node: CoordinatorMetrics(loop) for node in placement.nodes}
        self._default_group_config = GroupConfig.of(config.coordinator)
        self._group_configs: Final[dict[str, tuple[Mapping[str, str], GroupConfig]]] = {}
        self._share_states: Final = share_states

    # --- life

    def load(self, partitions: Collection[int] | None = None) -> None:
        """See `Shards.load`. Overrides of a group that cannot be in force any more are reported now, not at its use."""
        loading = range(len(self._placed)) if partitions is None else partitions
        metrics = [self._metrics[node] for node in {self._leader(each) for each in loading} - {NO_LEADER}]
        for each in metrics:
            each.load_begins()
        super().load(partitions)
        for group_id in self._configs.names():
            if self._is_served(coordinator_partition(group_id)):
                self._host(coordinator_partition(group_id))
        for each in metrics:
            each.loaded()

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
        if _is_about_one_group(type(message), context.api_version):
            self._handle_at(coordinator_partition(_group_of(message)), message, context)
        elif isinstance(message, ListGroupsRequest):
            context.reply(self._list(message, context))
        elif len(parts := _parts_of(message)) == 1:
            self._handle_at(*parts.popitem(), context)
        else:
            answers = [self._part(partition, part, context) for partition, part in parts.items()]
            context.reply(_joined(message, answers))

    def why_not_here(self, group_id: str, node_id: int) -> ErrorCode:
        """The error for a request about a group that came to *node_id*; NONE if it is served there."""
        host = self._host_at(coordinator_partition(group_id), node_id)
        return host if isinstance(host, ErrorCode) else ErrorCode.NONE

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

        Args:
            partitions: those of ``__consumer_offsets`` that keep the groups of the transaction.

        Raises:
            BrokerError: a partition has no coordinator now.
        """
        for partition in partitions:
            if not self._acts(partition):
                raise _no_coordinator(partition)
        for partition in partitions:
            self._serving(partition).end_transaction(producer_id, commit=commit)

    def let_time_run_out(self, kind: TimerKind, *, group_id: str, member_id: str) -> None:
        """See `GroupHost.let_time_run_out`."""
        self._serving(coordinator_partition(group_id)).let_time_run_out(kind, group_id=group_id, member_id=member_id)

    # --- configuration of groups

    def set_config(self, config: BrokerConfig) -> None:
        """Use other settings from now on."""
        self._config = config
        self._default_group_config = GroupConfig.of(config.coordinator)
        self._group_configs.clear()
        for host in self._hosts.values():
            host.set_config(config.coordinator)

    def config_defaults(self) -> Mapping[str, str]:
        """The configuration of a group without overrides."""
        return GroupConfig.of(self._config.coordinator).properties()

    def group_config(self, group_id: str) -> GroupConfig:
        """The settings in force for a group, which need not exist; overrides that are not allowed now do not count."""
        overrides = self._configs.get(group_id)
        if not overrides:  # the id may be a client's invention: nothing is kept of it
            self._group_configs.pop(group_id, None)
            return self._default_group_config
        known = self._group_configs.get(group_id)
        if known is None or known[0] != overrides:
            try:
                config = resolve_group_config(overrides, config=self._config.coordinator)
            except ConfigError:
                config = self._default_group_config
            known = self._group_configs[group_id] = (overrides, config)
        return known[1]

    def config_overrides(self, group_id: str) -> Mapping[str, str]:
        """The overrides of a group, which need not exist."""
        return self._configs.get(group_id)

    def ids_with_overrides(self) -> Sequence[str]:
        """Ids of the groups that have overrides, sorted; the groups need not exist."""
        return self._configs.names()

    def set_config_overrides(self, group_id: str, overrides: Mapping[str, str], *, validate_only: bool = False) -> None:
        """See `GroupHost.set_config_overrides`."""
        host = self._serving(coordinator_partition(group_id))
        host.set_config_overrides(group_id, overrides, validate_only=validate_only)

    # --- for other parts of the broker

    def group_ids(self) -> tuple[str, ...]:
        """Ids of all groups, sorted."""
        return tuple(sorted(group.group_id for host in self._hosts.values() for group in host.listed()))

    def figures(self) -> tuple[Figure, ...]:
        """Metrics of the coordinators, node by node."""
        return tuple(
            figure
            for node_id, metrics in self._metrics.items()
            for figure in metrics.figures(
                [group for host in self._led_by(node_id) for group in host.listed()],
                waiting=sum(host.waiting_count for host in self._led_by(node_id)),
                partitions=len(self._placement.led_by(GROUP_OFFSETS, node_id)),
                attributes={"node-id": str(node_id)} if len(self._metrics) > 1 else {},
            )
        )

    def snapshot(self, group_id: str) -> GroupSnapshot | None:
        """A group as it is now; None if there is none of that id, only offsets, or no coordinator of it now."""
        host = self._hosts.get(coordinator_partition(group_id))
        return None if host is None else host.snapshot(group_id)

    def share_partitions(self, group_id: str) -> Mapping[uuid.UUID, tuple[int, ...]]:
        """Topic id -> partitions that a share group has begun; empty if there is no such group."""
        group = self._serving(coordinator_partition(group_id)).coordinator.share_group(group_id)
        begun = {} if group is None else group.partitions.initialized
        return {topic_id: tuple(sorted(topic.partitions)) for topic_id, topic in begun.items()}

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

    def _id_of(self, record: KeyAndValue) -> str | None:
        read = decode_record_key(record[0])
        if isinstance(read, int):
            log_event(logging.WARNING, LogEvent.RECORD_SKIPPED, logger=BROKER_LOGGER, record_type=read)
            return None
        return group_of(read)

    def _wait_again(self, waiter: Waiter) -> None:
        self.add_waiter(*waiter)

    def _serving(self, partition: int) -> GroupHost:
        if not self._is_served(partition):
            raise _no_coordinator(partition)
        return self._host(partition)

    def _new_host(self, partition: int, log: ShardLog[KeyAndValue]) -> GroupHost:
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
            others=lambda: (host.coordinator for host in self._hosts.values()),
            has=lambda group_id: coordinator_partition(group_id) == partition,
            acts=lambda: self._acts(partition),
            share_states=self._share_states,
        )

    def _host_of(self, message: GroupMessage, api_version: int) -> GroupHost:
        if _is_about_one_group(type(message), api_version):
            return self._serving(coordinator_partition(_group_of(message)))
        (partition,) = _parts_of(message)
        return self._serving(partition)

    def _list(self, message: ListGroupsRequest, context: RequestContext) -> Response:
        if self._is_loading_at(context.node_id):
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        answers = [host.ask(message, api_version=context.api_version) for host in self._led_by(context.node_id)]
        groups = [group for answer in answers if isinstance(answer, ListGroupsResponse) for group in answer.groups]
        return ListGroupsResponse(groups=tuple(sorted(groups, key=lambda group: group.group_id)))

    def _handle_at(self, partition: int, message: GroupMessage, context: RequestContext) -> None:
        host = self._host_at(partition, context.node_id)
        if isinstance(host, ErrorCode):
            context.reply(refusal(message, code=host, api_version=context.api_version))
        else:
            host.handle(message, context)

    def _part(self, partition: int, part: GroupMessage, context: RequestContext) -> Response:
        api_version = context.api_version
        host = self._host_at(partition, context.node_id)
        if isinstance(host, ErrorCode):
            return refusal(part, code=host, api_version=api_version)
        try:
            return host.submit(part, api_version=api_version)
        except DataDirError as error:
            unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return refusal(part, code=unavailable, reason=str(error), api_version=api_version)


def _no_coordinator(partition: int) -> BrokerError:
    return BrokerError(
        f"no node coordinates partition {partition} of {GROUP_OFFSETS} now", code=ErrorCode.COORDINATOR_NOT_AVAILABLE
    )


def _group_of(message: GroupMessage) -> str:
    group_id: str = getattr(message, "group_id", "")
    return group_id


def _parts_of(message: GroupMessage) -> dict[int, GroupMessage]:
    """The part of a request about several groups for each partition that keeps some of them."""
    asked = next(iter(message.WIRE.answered_by))
    entries: dict[int, list[Any]] = {}
    for entry in getattr(message, asked):
        entries.setdefault(coordinator_partition(_id_in(entry)), []).append(entry)
    return {partition: replace(message, **{asked: tuple(part)}) for partition, part in entries.items()}


@functools.cache
def _is_about_one_group(cls: type[GroupMessage], api_version: int) -> bool:
    return any(field.name == "group_id" and field.versions.includes(api_version) for field in fields_of(cls))


def _joined(message: GroupMessage, answers: Sequence[Response]) -> Response:
    """One answer to a request that named several groups, in its order."""
    asked, answered = next(iter(message.WIRE.answered_by.items()))
    by_id: dict[str, deque[Any]] = {}
    for answer in answers:
        for group in getattr(answer, answered):
            by_id.setdefault(_id_in(group), deque()).append(group)
    left = (by_id.get(_id_in(entry)) for entry in getattr(message, asked))
    groups = tuple(of_group.popleft() for of_group in left if of_group)
    return replace(message_pair(message.WIRE.api_key).response(), **{answered: groups})


def _id_in(entry: Any) -> str:
    group_id: str = entry if isinstance(entry, str) else entry.group_id
    return group_id
