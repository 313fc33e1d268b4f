"""A broker without a network: topics, configuration, and timers that run when the test says so."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import msgspec

from kip848_client.common.clock import ManualClock
from kip848_client.journal import NullJournal
from kip848_client.testing.broker.client_telemetry import ClientTelemetry
from kip848_client.testing.broker.cluster.live_settings import LiveSettings
from kip848_client.testing.broker.cluster.nodes import Listener, Nodes
from kip848_client.testing.broker.config import BrokerConfig
from kip848_client.testing.broker.coordinators.transaction_shards import TransactionShards
from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.quotas.client_quotas import ClientQuotas
from kip848_client.testing.broker.quotas.throttling import Throttling
from kip848_client.testing.broker.security.scram_users import ScramChanges, Users
from kip848_client.testing.broker.share.dead_letters import DeadLetterTopics
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.storage.config_store import ConfigStore
from kip848_client.testing.broker.storage.data_dir import DataDir
from kip848_client.testing.broker.storage.transaction_log import MemoryTransactionLog
from kip848_client.testing.broker.topics.log_cleaner import LogCleaner
from kip848_client.testing.broker.topics.offsets_topic import OffsetsTopic
from kip848_client.testing.broker.topics.registry import TopicRegistry
from kip848_client.testing.judge.broker.messages import Fields, message
from kip848_client.wire.record_batch import Record, build_batch
from kip848_client.wire.schema import Request, Response

if TYPE_CHECKING:
    from kip848_client.testing.broker.coordinators.group_shards import GroupShards
    from kip848_client.testing.broker.share.share_partition_manager import SharePartitionManager


class ManualTimer(msgspec.Struct, eq=False):
    due_ms: int
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class QuietBroker(BrokerState, eq=False):
    """A `BrokerState` whose timers wait for `run_timers`."""

    timers: list[ManualTimer] = msgspec.field(default_factory=list)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(self.clock.now_ms() + delay_ms, callback)
        self.timers.append(timer)
        return timer

    def run_timers(self, *, after_ms: int = 0) -> None:
        """Move the clock and run what is due, in order, also what it starts."""
        assert isinstance(self.clock, ManualClock)
        self.clock.advance(after_ms)
        while due := [t for t in self.timers if not t.cancelled and t.due_ms <= self.clock.now_ms()]:
            timer = min(due, key=lambda item: item.due_ms)
            self.timers.remove(timer)
            timer.callback()

    @property
    def pending_timers(self) -> int:
        return sum(not timer.cancelled for timer in self.timers)


@contextmanager
def opened(path: Path, **options: int) -> Iterator[DataDir]:
    """A data folder, closed in the end."""
    folder = DataDir.open(path, **options)
    try:
        yield folder
    finally:
        folder.close()


@contextmanager
def a_registry(path: Path, **options: int) -> Iterator[TopicRegistry]:
    """The topics of a data folder, which is closed in the end."""
    with opened(path, **options) as folder:
        yield TopicRegistry(folder)


def a_broker(
    topics: Mapping[str, int] | None = None,
    *,
    data_dir: DataDir | None = None,
    config: Mapping[str, object] | None = None,
) -> QuietBroker:
    ids = (uuid.UUID(int=number) for number in range(100, 10_000))
    parsed = BrokerConfig.parse(config or {})
    clock = ManualClock()
    registry = TopicRegistry(data_dir, new_id=lambda: next(ids), message_bytes_max=parsed.message_bytes_max)
    for name, partitions in (topics or {}).items():
        registry.create(name, partitions)
    nodes = Nodes({1: (9092,)}, [Listener("127.0.0.1")])
    cleaner = LogCleaner(
        registry,
        clock=clock,
        loop=cast("asyncio.AbstractEventLoop", None),
        retention_interval_ms=0,
        compaction_interval_ms=0,
    )
    return QuietBroker(
        nodes=nodes,
        cluster_id="a-cluster-of-one-node_",
        clock=clock,
        config=parsed,
        loop=cast("asyncio.AbstractEventLoop", None),
        served={},
        topics=registry,
        offsets_topic=OffsetsTopic(registry.watchers),
        groups=cast("GroupShards", None),
        transactions=TransactionShards(
            parsed,
            log=MemoryTransactionLog(),
            topics=registry,
            groups=cast("GroupShards", None),
            clock=clock,
            loop=cast("asyncio.AbstractEventLoop", None),
        ),
        shares=cast("SharePartitionManager", None),
        cleaner=cleaner,
        settings=LiveSettings(
            parsed,
            ConfigStore("broker"),
            nodes=nodes,
            topics=registry,
            cleaner=cleaner,
            groups=cast("GroupShards", None),
            dead_letter_topics=DeadLetterTopics(
                registry, clock=clock, name_prefix="", creates_topics=False, partitions=1
            ),
            data=data_dir,
        ),
        journal=NullJournal(),
        data_dir=None,
        users=Users(None, ScramChanges()),
        telemetry=ClientTelemetry(
            ConfigStore("client_metrics"),
            clock=clock,
            push_bytes_max=parsed.telemetry_bytes_max,
            on_push=lambda _: None,
        ),
        throttling=Throttling(
            ClientQuotas(ConfigStore("client_quota")),
            parsed,
            clock=clock,
            loop=cast("asyncio.AbstractEventLoop", None),
        ),
    )


class Asked(msgspec.Struct, eq=False):
    """One request on its way: its context, and the answer once there is one."""

    context: RequestContext
    answers: list[Response | None] = msgspec.field(default_factory=list)

    @property
    def answered(self) -> bool:
        return bool(self.answers)


def ask(broker: BrokerState, api: ModuleType, request: Request[Any] | Fields, *, version: int | None = None) -> Asked:
    """Give *request*, or the one with these fields, to the handler of *api*; by default in its newest version."""
    asked: Asked
    if not isinstance(request, Request):
        request = message(api.API_KEY, request)

    def complete(context: RequestContext) -> None:
        asked.answers.append(context.response)

    context = RequestContext(
        complete,
        api_key=int(api.API_KEY),
        api_version=api.VERSIONS[1] if version is None else version,
        correlation_id=7,
        client_id="client",
        client_host="/127.0.0.1",
        connection_id=1,
        now_ms=broker.clock.now_ms(),
        node_id=1,
    )
    asked = Asked(context)
    handled = api.handle(broker, request, context)
    response = _at_once(handled) if isinstance(handled, Generator) else handled
    if response is not None:
        context.reply(response)
    return asked


def _at_once(work: Slices) -> Response | None:
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast("Response | None", end.value)


def answer_of(
    broker: BrokerState, api: ModuleType, request: Request[Any] | Fields, *, version: int | None = None
) -> Any:
    """The answer of a handler that answers at once."""
    asked = ask(broker, api, request, version=version)
    assert len(asked.answers) == 1, "the request was parked"
    return asked.answers[0]


def a_batch(
    *values: bytes,
    timestamps: tuple[int, ...] | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
) -> bytes:
    """A batch as a producer sends it; *producer* is (id, epoch, first sequence)."""
    times = timestamps or tuple(1000 + index for index in range(len(values)))
    return build_batch(
        [Record(value=value, timestamp=time) for value, time in zip(values, times, strict=True)],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        attributes=attributes,
    )
