"""PushTelemetry (72): a client's metrics, as OpenTelemetry's ``MetricsData`` (KIP-714)."""

from __future__ import annotations

import uuid
from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    MessageSpec,
    Request,
    Response,
    request,
    response,
    wire,
)


class PushTelemetryRequest(Request["PushTelemetryResponse"], frozen=True):
    """Metrics, compressed as `compression_type` says; the last ones of a client that ends."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.PUSH_TELEMETRY, "0", flexible="0+")

    client_instance_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    subscription_id: Annotated[Int32, wire("0+")] = 0
    terminating: Annotated[bool, wire("0+")] = False
    compression_type: Annotated[Int8, wire("0+")] = 0
    metrics: Annotated[bytes, wire("0+")] = b""


class PushTelemetryResponse(Response, frozen=True):
    """Whether they were taken."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.PUSH_TELEMETRY, "0", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
