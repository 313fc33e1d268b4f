"""GetTelemetrySubscriptions (71): which metrics a client should push, and how often (KIP-714)."""

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


class GetTelemetrySubscriptionsRequest(Request["GetTelemetrySubscriptionsResponse"], frozen=True):
    """Who asks; zero for a client that has no instance id yet."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, "0", flexible="0+")

    client_instance_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID


class GetTelemetrySubscriptionsResponse(Response, frozen=True):
    """The prefixes of the metrics that are asked for: an empty one, and ``*``, for all; none for no metrics."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, "0", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    client_instance_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    subscription_id: Annotated[Int32, wire("0+")] = 0
    accepted_compression_types: Annotated[tuple[Int8, ...], wire("0+")] = ()
    push_interval_ms: Annotated[Int32, wire("0+")] = 0
    telemetry_max_bytes: Annotated[Int32, wire("0+")] = 0
    delta_temporality: Annotated[bool, wire("0+")] = False
    requested_metrics: Annotated[tuple[str, ...], wire("0+")] = ()
