"""Delegation tokens are refused, as by a Kafka broker without ``delegation.token.secret.key``. No API of its own.

Source:
    apache/kafka ``KafkaApis.allowTokenRequests``, ``DelegationTokenControlManager``; KIP-48.
"""

from __future__ import annotations

from kip848_client.errors import ErrorCode
from kip848_client.testing.broker.net.context import ANONYMOUS, RequestContext


def no_time(context: RequestContext) -> int:
    """Every time of a token that there is not, as Kafka answers."""
    return -1 if refusal_code(context) == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED else 0


def refusal_code(context: RequestContext) -> ErrorCode:
    """Why there is no token for the sender: it is not logged in, or tokens are switched off."""
    if context.principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
