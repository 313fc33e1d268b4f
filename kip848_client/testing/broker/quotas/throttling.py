"""Throttles clients that exceed a quota: the answer says for how long, and the connection is not read until then.

A quota counts on each node by itself, as in Kafka. Time is the broker's, so a `ManualClock` ends a throttle, too.

Source:
    apache/kafka ``ClientQuotaManager`` and its subclasses, ``KafkaApis``; KIP-13, KIP-124, KIP-219, KIP-599.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from kip848_client.common.clock import Clock, ManualClock
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.config import BrokerConfig
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.net.server import ClientConnection
from kip848_client.testing.broker.quotas.client_quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
    Limit,
    QuotaKey,
)
from kip848_client.testing.broker.quotas.rates import Rate, TokenBucket
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.codec import encode_response
from kip848_client.wire.messages.fetch import FetchRequest, FetchResponse
from kip848_client.wire.messages.produce import ProduceRequest
from kip848_client.wire.messages.share_fetch import ShareFetchResponse
from kip848_client.wire.schema import Request, Response

_MS_PER_S: Final = 1000
_PERCENT: Final = 100
_NOT_TIMED: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.WRITE_TXN_MARKERS})
"""Requests without a quota of time: logins, and those between brokers."""
_Fetched: TypeAlias = FetchResponse | ShareFetchResponse

_METERS_MAX: Final = 10_000
"""From so many on, those that measure nothing any more are forgotten."""

_MeterKey: TypeAlias = tuple[int, QuotaKey, tuple[str, str]]
"""Node, quota, and the clients that share it."""


class Throttling:
    """Measures what clients do, and throttles them.

    Args:
        loop: the broker's; it wakes throttled connections unless the clock is moved by hand.
    """

    def __init__(
        self, quotas: ClientQuotas, config: BrokerConfig, *, clock: Clock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.quotas: Final = quotas
        self._clock: Final = clock
        self._loop: Final = loop
        self._window_ms: Final = config.quota_window_s * _MS_PER_S
        self._windows: Final = config.quota_windows
        self._mutation_window_ms: Final = config.controller_quota_window_s * _MS_PER_S
        self._mutation_windows: Final = config.controller_quota_windows
        self._rates: Final[dict[_MeterKey, Rate]] = {}
        self._buckets: Final[dict[_MeterKey, TokenBucket]] = {}
        self._muted: Final[list[tuple[int, int, ClientConnection]]] = []
        self._numbers: Final = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    # --- requests

    def watch(
        self, request: Request[Any], context: RequestContext, connection: ClientConnection, *, size_bytes: int
    ) -> None:
        """Measure a request when it is answered, and throttle its client if that was too much.

        Args:
            size_bytes: of the request on the wire.
        """
        if not self.quotas:
            return
        if isinstance(request, ProduceRequest) and request.acks == 0:
            self._mute(connection, self._exceeds(PRODUCER_BYTE_RATE, context, size_bytes))
        else:
            context.amend(lambda response: self._judge(request, response, context, connection, size_bytes))

    def fetch_bytes_max(self, context: RequestContext) -> int | None:
        """The most that a consumer can read at once without being throttled for it; None without a quota."""
        limit = self._limit(CONSUMER_BYTE_RATE, context)
        return None if limit is None else int(limit[1] * (self._windows - 1) * self._window_ms / _MS_PER_S)

    def mutations(self, context: RequestContext, *, strict_from: int) -> MutationQuota:
        """The quota for creating and deleting partitions.

        Args:
            strict_from: the version of the API from which a request is refused, and not only throttled.
        """
        limit = self._limit(CONTROLLER_MUTATION_RATE, context)
        bucket = None
        if limit is not None:
            key: _MeterKey = (context.node_id, CONTROLLER_MUTATION_RATE, limit[0])
            bucket = self._buckets.get(key)
            if bucket is None:
                bucket = self._buckets[key] = TokenBucket(
                    window_ms=self._mutation_window_ms, windows=self._mutation_windows
                )
        return MutationQuota(
            context,
            bucket,
            0.0 if limit is None else limit[1],
            now_ms=self._clock.now_ms,
            is_strict=context.api_version >= strict_from,
        )

    # --- time

    def run_due(self) -> None:
        """Read on from the connections whose throttle is over."""
        while self._muted and self._muted[0][0] <= self._clock.now_ms():
            heapq.heappop(self._muted)[2].unmute()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._muted and not isinstance(self._clock, ManualClock):
            self._timer = self._loop.call_later((self._muted[0][0] - self._clock.now_ms()) / _MS_PER_S, self.run_due)

    def close(self) -> None:
        """Wake no connection any more: the broker stops."""
        self._muted.clear()
        if self._timer is not None:
            self._timer.cancel()

    # --- internals

    def _judge(
        self,
        request: Request[Any],
        response: Response,
        context: RequestContext,
        connection: ClientConnection,
        size_bytes: int,
    ) -> Response:
        time_ms = 0
        if request.WIRE.api_key not in _NOT_TIMED:
            # Kafka bounds this one: whatever a request took, its client is read again after a window.
            time_ms = min(self._exceeds(REQUEST_PERCENTAGE, context, context.work_s() * _PERCENT), self._window_ms)
        other_ms = context.mutation_throttle_ms
        fetched = 0
        if isinstance(request, ProduceRequest):
            other_ms = self._exceeds(PRODUCER_BYTE_RATE, context, size_bytes)
        elif isinstance(response, _Fetched) and self._limit(CONSUMER_BYTE_RATE, context) is not None:
            fetched = _size_of_news(request, response, context.api_version)
            other_ms = self._exceeds(CONSUMER_BYTE_RATE, context, fetched)
        throttle_ms = max(time_ms, other_ms)
        if not throttle_ms:
            return response
        self._mute(connection, throttle_ms)
        if isinstance(response, FetchResponse) and not response.error_code:
            self._exceeds(CONSUMER_BYTE_RATE, context, -fetched)  # it is not sent now, and counted when it is
            return FetchResponse(throttle_time_ms=throttle_ms)
        # Unlike Kafka we send what a ShareFetch acquired: without it the records were locked for nothing.
        if not hasattr(response, "throttle_time_ms"):
            return response
        return replace(response, throttle_time_ms=throttle_ms)

    def _limit(self, key: QuotaKey, context: RequestContext) -> Limit | None:
        if not self.quotas:
            return None
        return self.quotas.limit(key, user=context.principal.partition(":")[2], client_id=context.client_id or "")

    def _exceeds(self, key: QuotaKey, context: RequestContext, value: float) -> int:
        """Count *value*; for how long its client must be throttled, in ms."""
        limit = self._limit(key, context)
        if limit is None:
            return 0
        now_ms = self._clock.now_ms()
        meter_key: _MeterKey = (context.node_id, key, limit[0])
        rate = self._rates.get(meter_key)
        if rate is None:
            if len(self._rates) >= _METERS_MAX:
                self._forget_idle(now_ms)
            rate = self._rates[meter_key] = Rate(window_ms=self._window_ms, windows=self._windows, now_ms=now_ms)
        rate.record(value, now_ms)
        return rate.delay_ms(limit[1], now_ms)

    def _forget_idle(self, now_ms: int) -> None:
        for key in [key for key, rate in self._rates.items() if rate.is_idle(now_ms)]:
            del self._rates[key]

    def _mute(self, connection: ClientConnection, throttle_ms: int) -> None:
        if not throttle_ms:
            return
        connection.mute()
        heapq.heappush(self._muted, (self._clock.now_ms() + throttle_ms, next(self._numbers), connection))
        self.run_due()


class MutationQuota:
    """The quota of one request that creates or deletes partitions (``controller_mutation_rate``)."""

    def __init__(
        self,
        context: RequestContext,
        bucket: TokenBucket | None,
        limit: float,
        *,
        now_ms: Callable[[], int],
        is_strict: bool,
    ) -> None:
        self._context: Final = context
        self._bucket: Final = bucket
        self._limit: Final = limit
        self._now_ms: Final = now_ms
        self._is_strict: Final = is_strict

    def take(self, partitions: int) -> None:
        """Count partitions that are about to be created or deleted.

        Raises:
            BrokerError: THROTTLING_QUOTA_EXCEEDED: the quota was used up before, and the client understands that.
        """
        bucket, now_ms = self._bucket, self._now_ms()
        if bucket is None:
            return
        if self._is_strict:
            if delay_ms := bucket.delay_ms(self._limit, now_ms):
                self._context.mutation_throttle_ms = delay_ms
                raise BrokerError("The throttling quota has been exceeded.", code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            bucket.take(partitions, self._limit, now_ms)
        else:
            bucket.take(partitions, self._limit, now_ms)
            self._context.mutation_throttle_ms = bucket.delay_ms(self._limit, now_ms)


def _size_of_news(request: Request[Any], response: _Fetched, api_version: int) -> int:
    """Bytes of an answer; of one in a fetch session only of the partitions with records."""
    if isinstance(response, FetchResponse) and isinstance(request, FetchRequest) and request.session_id:
        topics = (
            replace(topic, partitions=tuple(each for each in topic.partitions if each.records))
            for topic in response.responses
        )
        response = replace(response, responses=tuple(topic for topic in topics if topic.partitions))
    return len(encode_response(response, api_version=api_version, correlation_id=0))
