"""Metrics that clients push to the broker (KIP-714): who should push what, which pushes are taken, and their content.

A subscription is a resource of type CLIENT_METRICS: ``metrics`` (prefixes of names), ``interval.ms``, and ``match``
(patterns that all must match the client). A client gets the union of those that match it.

Source:
    apache/kafka ``ClientMetricsManager``, ``ClientMetricsConfigs``, ``ClientMetricsInstance``.
"""

from __future__ import annotations

import uuid
import zlib
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Final

import msgspec

from kip848_client.common.clock import Clock
from kip848_client.common.model import ZERO_UUID
from kip848_client.common.patterns import Pattern, compiled
from kip848_client.errors import BrokerError, ConfigError, ErrorCode, ProtocolError
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.storage.config_store import ConfigStore
from kip848_client.wire.compression import unpack
from kip848_client.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kip848_client.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

SUBSCRIPTION_DEFAULTS: Final[Mapping[str, str]] = {"interval.ms": "300000", "match": "", "metrics": ""}
_INTERVAL_MS: Final = range(100, 3_600_001)
_MATCHED: Final = frozenset(
    {"client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address"}
)
_ALL_METRICS: Final = "*"
_COMPRESSIONS: Final = (4, 3, 1, 2)
"""Zstd, LZ4, gzip and snappy, the preferred one first; 0, no compression, is taken, too."""
_RESERVED_IDS: Final = (ZERO_UUID, uuid.UUID(int=1))
_UNPACKED_MAX: Final = 16 * 1024 * 1024
_NAMES_MAX: Final = 100_000
"""Metrics in one push."""
_FIELDS_AT_ONCE: Final = 4096
"""So many fields of a push are read before others have their turn."""
_CLIENTS_MAX: Final = 16_384
_NEVER_MS: Final = -(2**62)


class MetricsPush(msgspec.Struct, frozen=True):
    """One push of a client.

    Attributes:
        client_instance_id: of the client; the broker made it, and the client keeps it while it lives.
        client_id: as the client calls itself.
        principal: who sent it: ``User:alice``.
        node_id: the node that got it.
        terminating: the client ends with this push.
        otlp: ``opentelemetry.proto.metrics.v1.MetricsData``, unpacked.
        metric_names: the names of its metrics, in order.
    """

    client_instance_id: uuid.UUID
    client_id: str | None
    principal: str
    node_id: int
    terminating: bool
    otlp: bytes
    metric_names: tuple[str, ...]


class _Client:
    """A client that has asked a node. It changes with the subscriptions: then it may ask at once."""

    __slots__ = (
        "asked_last",
        "connection_id",
        "heard_ms",
        "interval_ms",
        "last_error",
        "metrics",
        "subscription_id",
        "terminating",
        "version",
    )

    def __init__(self, *, metrics: tuple[str, ...], interval_ms: int, client_id: uuid.UUID, version: int) -> None:
        self.metrics: Final = metrics
        self.interval_ms: Final = interval_ms
        text = f"{client_id} {interval_ms} {metrics}"
        self.subscription_id: Final = zlib.crc32(text.encode()) - 2**31
        self.version: Final = version
        self.connection_id = 0
        self.heard_ms = _NEVER_MS
        self.asked_last = False
        self.terminating = False
        self.last_error = ErrorCode.NONE

    def may_ask(self, now_ms: int) -> bool:
        allowed = now_ms - self.heard_ms >= self.interval_ms or self.last_error in (
            ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
        if allowed:
            self.heard_ms, self.asked_last = now_ms, True
        return allowed

    def may_push(self, now_ms: int) -> bool:
        # The first push comes early: a client waits for a random part of the interval.
        allowed = self.asked_last or now_ms - self.heard_ms >= self.interval_ms
        if allowed:
            self.heard_ms, self.asked_last = now_ms, False
        return allowed


class ClientTelemetry:
    """The subscriptions of a cluster, and its clients.

    Args:
        store: where subscriptions are kept.
        push_bytes_max: the most that one push may have, as sent (``telemetry.max.bytes``).
        on_push: called with each push that is taken.
    """

    def __init__(
        self, store: ConfigStore, *, clock: Clock, push_bytes_max: int, on_push: Callable[[MetricsPush], None]
    ) -> None:
        self.subscriptions: Final = store
        self._clock: Final = clock
        self._push_bytes_max: Final = push_bytes_max
        self._on_push: Final = on_push
        self._clients: Final[OrderedDict[tuple[int, uuid.UUID], _Client]] = OrderedDict()
        self._software: Final[OrderedDict[int, tuple[str, str]]] = OrderedDict()
        self._version = 0

    def replace(self, name: str, settings: Mapping[str, str], *, validate_only: bool) -> None:
        """Set these, and nothing else, for a subscription; it ends without any.

        Raises:
            BrokerError: INVALID_REQUEST or INVALID_CONFIG: a setting is not allowed.
            DataDirError: it could not be kept; everything is as before.
        """
        if not name:
            raise BrokerError("Subscription name can't be empty", code=ErrorCode.INVALID_REQUEST)
        checked = {key: _checked(key, value) for key, value in settings.items()}
        if not validate_only:
            self.subscriptions.replace(name, checked)
            self._version += 1

    def remember_software(self, connection_id: int, name: str, version: str) -> None:
        """The client of a connection said what it is."""
        self._software[connection_id] = (name, version)
        if len(self._software) > _CLIENTS_MAX:
            self._software.popitem(last=False)

    def forget(self, connection_id: int) -> None:
        """A connection has ended."""
        self._software.pop(connection_id, None)
        for key in [key for key, client in self._clients.items() if client.connection_id == connection_id]:
            del self._clients[key]

    def subscribe(
        self, request: GetTelemetrySubscriptionsRequest, context: RequestContext
    ) -> GetTelemetrySubscriptionsResponse:
        """Tell a client what to push."""
        client_instance_id = request.client_instance_id
        if client_instance_id == ZERO_UUID:
            client_instance_id = uuid.uuid4()
        client = self._client(client_instance_id, context)
        if not client.may_ask(self._clock.now_ms()):
            return GetTelemetrySubscriptionsResponse(error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        client.last_error = ErrorCode.NONE
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=client_instance_id,
            subscription_id=client.subscription_id,
            accepted_compression_types=_COMPRESSIONS,
            push_interval_ms=client.interval_ms,
            telemetry_max_bytes=self._push_bytes_max,
            delta_temporality=True,
            requested_metrics=client.metrics,
        )

    def push(
        self, request: PushTelemetryRequest, context: RequestContext
    ) -> Generator[None, None, PushTelemetryResponse]:
        """Take the metrics of a client; others may have their turn while they are read."""
        if request.client_instance_id in _RESERVED_IDS:
            return PushTelemetryResponse(error_code=ErrorCode.INVALID_REQUEST)
        client = self._client(request.client_instance_id, context)
        client.last_error = yield from self._take(request, context, client)
        client.terminating = request.terminating
        return PushTelemetryResponse(error_code=client.last_error)

    def _take(
        self, request: PushTelemetryRequest, context: RequestContext, client: _Client
    ) -> Generator[None, None, ErrorCode]:
        if client.terminating:
            return ErrorCode.INVALID_REQUEST
        if not client.may_push(self._clock.now_ms()) and not request.terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if request.subscription_id != client.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if request.compression_type not in (0, *_COMPRESSIONS):
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if len(request.metrics) > self._push_bytes_max:
            return ErrorCode.TELEMETRY_TOO_LARGE
        if not request.metrics:
            return ErrorCode.NONE
        try:
            otlp = unpack(
                request.compression_type, request.metrics, unpacked_max=_UNPACKED_MAX, where="the metrics of a client"
            )
            names: list[str] = []
            for name in metric_names_of(otlp):
                if name is None:
                    yield
                elif len(names) < _NAMES_MAX:
                    names.append(name)
                else:
                    return ErrorCode.INVALID_RECORD
        except ProtocolError:
            return ErrorCode.INVALID_RECORD
        self._on_push(
            MetricsPush(
                request.client_instance_id,
                context.client_id,
                context.principal,
                context.node_id,
                request.terminating,
                otlp,
                tuple(names),
            )
        )
        return ErrorCode.NONE

    def _client(self, client_instance_id: uuid.UUID, context: RequestContext) -> _Client:
        key = (context.node_id, client_instance_id)
        client = self._clients.get(key)
        if client is None or client.version < self._version:
            client = self._clients[key] = self._new_client(client_instance_id, context)
        client.connection_id = context.connection_id
        self._clients.move_to_end(key)
        if len(self._clients) > _CLIENTS_MAX:
            self._clients.popitem(last=False)
        return client

    def _new_client(self, client_instance_id: uuid.UUID, context: RequestContext) -> _Client:
        name, version = self._software.get(context.connection_id, (None, None))
        known = {
            "client_instance_id": str(client_instance_id),
            "client_id": context.client_id,
            "client_software_name": name,
            "client_software_version": version,
            "client_source_address": context.client_host.removeprefix("/"),
        }
        metrics: set[str] = set()
        interval_ms = int(SUBSCRIPTION_DEFAULTS["interval.ms"])
        for each in self.subscriptions.names():
            settings = {**SUBSCRIPTION_DEFAULTS, **self.subscriptions.get(each)}
            if all(
                (value := known[what]) is not None and pattern.fullmatch(value)
                for what, pattern in _patterns(settings["match"])
            ):
                metrics.update(_parts(settings["metrics"]))
                interval_ms = min(interval_ms, int(settings["interval.ms"]))
        return _Client(
            metrics=(_ALL_METRICS,) if _ALL_METRICS in metrics else tuple(sorted(metrics)),
            interval_ms=interval_ms,
            client_id=client_instance_id,
            version=self._version,
        )


def metric_names_of(otlp: bytes) -> Iterator[str | None]:
    """The names of the metrics in a ``MetricsData``; None wherever others may have their turn.

    Raises:
        ProtocolError: these bytes are no protobuf message.
    """
    for resource_metrics in _field(otlp, 1):
        for scope_metrics in _field(resource_metrics, 2):
            for metric in _field(scope_metrics, 2):
                for name in _field(metric, 1):
                    yield None if name is None else _text(name)


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"the name {name[:80]!r} of a metric is not UTF-8") from error


def _field(message: bytes | None, wanted: int) -> Iterator[bytes | None]:
    """The values of a field of type ``bytes``, ``string`` or message, in the order in which they are written.

    None wherever others may have their turn: it is passed through from the outside to the inside.
    """
    if message is None:
        yield None
        return
    position = fields = 0
    try:
        while position < len(message):
            fields += 1
            if fields % _FIELDS_AT_ONCE == 0:
                yield None
            key, position = _varint(message, position)
            match key & 7:
                case 0:
                    _, position = _varint(message, position)
                case 1:
                    position += 8
                case 5:
                    position += 4
                case 2:
                    size, position = _varint(message, position)
                    start, position = position, position + size
                    if key >> 3 == wanted and position <= len(message):
                        yield message[start:position]
                case other:
                    raise ProtocolError(f"a field before byte {position} has the unknown type {other}")
    except IndexError:
        position = len(message) + 1
    if position > len(message):
        raise ProtocolError("a message of metrics ends inside a field")


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
        if shift > 63:
            raise ProtocolError(f"a varint before byte {position} is longer than 64 bits")


def _checked(key: str, value: str) -> str:
    """A setting as it is kept: a list without blanks and repetitions."""
    if key not in SUBSCRIPTION_DEFAULTS:
        raise BrokerError(f"Unknown client metrics configuration: {key}", code=ErrorCode.INVALID_REQUEST)
    if key == "interval.ms":
        try:
            interval_ms = int(value)
        except ValueError as error:
            raise ConfigError(f"Invalid value {value} for configuration {key}: Not a number of type INT") from error
        if interval_ms not in _INTERVAL_MS:
            raise BrokerError(
                f"Invalid value {value} for {key}, interval must be between 100 and 3600000 (1 hour)",
                code=ErrorCode.INVALID_REQUEST,
            )
        return value
    parts = [part.strip() for part in value.split(",")] if value.strip() else []
    if not all(parts):
        raise ConfigError(f"Configuration '{key}' values must not be empty.")
    if key == "match":
        _patterns(value)
    return ",".join(dict.fromkeys(parts))


def _patterns(match: str) -> list[tuple[str, Pattern]]:
    """What must match what.

    Raises:
        ConfigError: a pattern is none.
    """
    found = []
    for part in _parts(match):
        what, *values = part.split("=")
        try:
            (pattern,) = values
            matching = compiled(pattern.strip())
        except ValueError as error:
            raise ConfigError(f"Illegal client matching pattern: {part}") from error
        if what.strip() not in _MATCHED:
            raise ConfigError(f"Illegal client matching pattern: {part}")
        found.append((what.strip(), matching))
    return found


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
