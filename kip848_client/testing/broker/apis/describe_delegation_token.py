"""DescribeDelegationToken (41): refused, see `_delegation_tokens`."""

from __future__ import annotations

from typing import Final

from kip848_client.testing.broker.apis._delegation_tokens import refusal_code
from kip848_client.testing.broker.apis._permissions import nothing
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

API_KEY: Final = ApiKey.DESCRIBE_DELEGATION_TOKEN
VERSIONS: Final = (1, 3)

requires: Final = nothing


def handle(
    _broker: BrokerState, _request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """Refuse, with one of Kafka's two reasons."""
    return DescribeDelegationTokenResponse(error_code=refusal_code(context))
