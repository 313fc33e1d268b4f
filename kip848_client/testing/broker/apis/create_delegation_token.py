"""CreateDelegationToken (38): refused, see `_delegation_tokens`."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kip848_client.testing.broker.apis._delegation_tokens import no_time, refusal_code
from kip848_client.testing.broker.apis._permissions import nothing
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

API_KEY: Final = ApiKey.CREATE_DELEGATION_TOKEN
VERSIONS: Final = (1, 3)

_FIRST_VERSION_WITH_REQUESTER: Final = 3

requires: Final = nothing


def handle(
    _broker: BrokerState, request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """Refuse, with one of Kafka's two reasons."""
    kind, _, name = context.principal.partition(":")
    answer = CreateDelegationTokenResponse(
        error_code=refusal_code(context),
        principal_type=request.owner_principal_type or kind,
        principal_name=request.owner_principal_name or name,
        issue_timestamp_ms=no_time(context),
        expiry_timestamp_ms=no_time(context),
        max_timestamp_ms=no_time(context),
    )
    if context.api_version < _FIRST_VERSION_WITH_REQUESTER:
        return answer
    return replace(answer, token_requester_principal_type=kind, token_requester_principal_name=name)
