"""AlterUserScramCredentials (51): set and delete what users log in with (KIP-554).

A client that is logged in stays so until its session ends. Without SASL no client logs in, but a data folder keeps the
credentials for a start with SASL.

Source:
    apache/kafka ``ScramControlManager.alterCredentials``.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kip848_client.errors import BrokerError, DataDirError, ErrorCode
from kip848_client.testing.broker.apis._permissions import CLUSTER_FAILED, TEXTS, Outcome
from kip848_client.testing.broker.apis._scram import MECHANISMS
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.security.access import Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.storage.cluster_log import CredentialKey
from kip848_client.testing.broker.topics.registry import STORAGE_FAILED
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kip848_client.wire.sasl.scram import ITERATIONS_MIN, ScramCredential, credential_of_salted

API_KEY: Final = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
VERSIONS: Final = (0, 0)

_ITERATIONS_MAX: Final = 16_384


def handle(broker: BrokerState, request: AlterUserScramCredentialsRequest, context: RequestContext) -> Slices:
    """Alter user by user; one that is wrong does not stop the others."""
    del context
    users = broker.users
    asked: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    times_named = Counter(each.name for each in asked)
    failed: dict[str, BrokerError] = {}
    changes: dict[CredentialKey, ScramCredential | None] = {}
    for each in asked:
        try:
            mechanism = _mechanism(each, is_unique=times_named[each.name] == 1)
            if isinstance(each, ScramCredentialUpsertion):
                changes[each.name, mechanism] = _credential(each, mechanism)
            elif users.credential(each.name, mechanism) is None:
                raise BrokerError(
                    "Attempt to delete a user credential that does not exist", code=ErrorCode.RESOURCE_NOT_FOUND
                )
            else:
                changes[each.name, mechanism] = None
        except BrokerError as error:
            failed.setdefault(each.name, error)
        yield
    names = dict.fromkeys(each.name for each in asked)
    try:
        users.alter({key: credential for key, credential in changes.items() if key[0] not in failed})
    except DataDirError as error:
        failed = {name: failed.get(name, BrokerError(str(error), code=STORAGE_FAILED)) for name in names}
    return AlterUserScramCredentialsResponse(results=tuple(_result(name, failed.get(name)) for name in names))


def _mechanism(asked: ScramCredentialDeletion | ScramCredentialUpsertion, *, is_unique: bool) -> str:
    """The name of the mechanism.

    Raises:
        BrokerError: the user or the mechanism cannot be, or the user is named twice.
    """
    if not asked.name:
        raise BrokerError("Username must not be empty", code=ErrorCode.UNACCEPTABLE_CREDENTIAL)
    mechanism = MECHANISMS.get(asked.mechanism)
    if mechanism is None:
        raise BrokerError("Unknown SCRAM mechanism", code=ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    if not is_unique:
        raise BrokerError(
            "A user credential cannot be altered twice in the same request", code=ErrorCode.DUPLICATE_RESOURCE
        )
    return mechanism


def _credential(asked: ScramCredentialUpsertion, mechanism: str) -> ScramCredential:
    if asked.iterations < ITERATIONS_MIN:
        raise BrokerError("Too few iterations", code=ErrorCode.UNACCEPTABLE_CREDENTIAL)
    if asked.iterations > _ITERATIONS_MAX:
        raise BrokerError("Too many iterations", code=ErrorCode.UNACCEPTABLE_CREDENTIAL)
    return credential_of_salted(mechanism, asked.salted_password, salt=asked.salt, iterations=asked.iterations)


def _result(user: str, error: BrokerError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=user, error_message=None)
    return AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=str(error))


def requires(permit: Permit, request: AlterUserScramCredentialsRequest) -> Outcome:
    """ALTER on the cluster; without it each user is refused."""
    if permit.may_on_cluster(Operation.ALTER):
        return None
    return AlterUserScramCredentialsResponse(
        results=tuple(
            AlterUserScramCredentialsResult(user=user, error_code=CLUSTER_FAILED, error_message=TEXTS[CLUSTER_FAILED])
            for user in dict.fromkeys(
                [*(each.name for each in request.deletions), *(each.name for each in request.upsertions)]
            )
        )
    )
