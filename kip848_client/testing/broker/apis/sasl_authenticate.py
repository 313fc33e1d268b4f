"""SaslAuthenticate (36): one step of a mechanism. Without SASL it is answered ILLEGAL_SASL_STATE, as by Kafka."""

from __future__ import annotations

from typing import Final

from kip848_client.testing.broker.apis._permissions import nothing
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.security.authentication import illegal_state
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

API_KEY: Final = ApiKey.SASL_AUTHENTICATE
VERSIONS: Final = (0, 2)

requires: Final = nothing


def handle(
    broker: BrokerState, request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse | None:
    """Take what the client's mechanism says."""
    if broker.authentication is None:
        return illegal_state()
    return broker.authentication.proceed(request, context)
