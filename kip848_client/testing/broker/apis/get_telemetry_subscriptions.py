"""GetTelemetrySubscriptions (71): tell a client which metrics to push (KIP-714). Served only if it is turned on."""

from __future__ import annotations

from typing import Final

from kip848_client.testing.broker.apis._permissions import nothing
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

API_KEY: Final = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
VERSIONS: Final = (0, 0)
EXTENSION: Final = "telemetry"

requires: Final = nothing


def handle(
    broker: BrokerState, request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    """Answer with the subscriptions that match the client."""
    return broker.telemetry.subscribe(request, context)
