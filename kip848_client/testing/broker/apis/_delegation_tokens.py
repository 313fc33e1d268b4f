"""Delegation tokens are refused, as by a Kafka broker without ``delegation.token.secret.key``. No API of its own.

Source:
    apache/kafka ``KafkaApis.allowTokenRequests``, ``DelegationTokenControlManager``; KIP-48.
"""

from __future__ import annotations

from typing import Final

from kip848_client.errors import ErrorCode
from kip848_client.testing.broker.net.context import ANONYMOUS, RequestContext

NO_TIME: Final = 0
"""Of a token that there is not, as Kafka answers."""


def refusal_code(context: RequestContext) -> ErrorCode:
    """Why there is no token for the sender: it is not logged in, or tokens are switched off."""
    if context.principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
