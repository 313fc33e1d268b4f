"""DescribeUserScramCredentials (50): who can log in by SCRAM; no secret leaves the broker (KIP-554).

Source:
    apache/kafka ``ScramImage.describe``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from kip848_client.errors import ErrorCode
from kip848_client.testing.broker.apis._permissions import whole_cluster
from kip848_client.testing.broker.apis._scram import NUMBERS
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kip848_client.wire.sasl.scram import ScramCredential

API_KEY: Final = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
VERSIONS: Final = (0, 0)

requires: Final = whole_cluster(Operation.DESCRIBE)


def handle(
    broker: BrokerState, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Describe the users that are named, or all."""
    del context
    known = broker.users.scram_users()
    named = Counter(user.name for user in request.users) if request.users else dict.fromkeys(known, 1)
    return DescribeUserScramCredentialsResponse(
        results=tuple(_describe(user, known.get(user), times) for user, times in named.items()),
    )


def _describe(
    user: str, credentials: Mapping[str, ScramCredential] | None, times_named: int
) -> DescribeUserScramCredentialsResult:
    if times_named > 1:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
        )
    if credentials is None:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {user}",
        )
    return DescribeUserScramCredentialsResult(
        user=user,
        credential_infos=tuple(
            CredentialInfo(mechanism=NUMBERS[mechanism], iterations=credential.iterations)
            for mechanism, credential in credentials.items()
        ),
    )
