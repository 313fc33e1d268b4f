"""RenewDelegationToken (39): refused, see `_delegation_tokens`."""

from __future__ import annotations

from typing import Final

from kip848_client.testing.broker.apis._delegation_tokens import no_time, refusal_code
from kip848_client.testing.broker.apis._permissions import nothing
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

API_KEY: Final = ApiKey.RENEW_DELEGATION_TOKEN
VERSIONS: Final = (1, 2)

requires: Final = nothing


def handle(
    _broker: BrokerState, _request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    """Refuse, with one of Kafka's two reasons."""
    return RenewDelegationTokenResponse(error_code=refusal_code(context), expiry_timestamp_ms=no_time(context))
