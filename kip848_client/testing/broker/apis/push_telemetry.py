"""PushTelemetry (72): take the metrics of a client (KIP-714). Served only if it is turned on."""

from __future__ import annotations

from typing import Final

from kip848_client.testing.broker.apis._permissions import nothing
from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.push_telemetry import PushTelemetryRequest

API_KEY: Final = ApiKey.PUSH_TELEMETRY
VERSIONS: Final = (0, 0)
EXTENSION: Final = "telemetry"

requires: Final = nothing


def handle(broker: BrokerState, request: PushTelemetryRequest, context: RequestContext) -> Slices:
    """Keep the metrics for the test that started the broker."""
    answer = yield from broker.telemetry.push(request, context)
    return answer
