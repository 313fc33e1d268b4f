"""SaslHandshake (17): agree on a mechanism. Without SASL it is answered ILLEGAL_SASL_STATE, as by Kafka."""

from __future__ import annotations

from typing import Final

from kip848_client.common.error_codes import ErrorCode
from kip848_client.testing.broker.apis._permissions import nothing
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

API_KEY: Final = ApiKey.SASL_HANDSHAKE
VERSIONS: Final = (0, 1)

requires: Final = nothing


def handle(broker: BrokerState, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Begin authentication, or begin it again."""
    if broker.authentication is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return broker.authentication.begin(request, context)
