"""AlterClientQuotas (49): set and remove quotas of users, client ids and addresses. They count from the next answer on.

Source:
    apache/kafka ``ClientQuotaControlManager.alterClientQuotas``; KIP-546.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kip848_client.errors import BrokerError, DataDirError, ErrorCode
from kip848_client.testing.broker.apis._permissions import CLUSTER_FAILED, Outcome, deny
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.quotas.client_quotas import Entity
from kip848_client.testing.broker.security.access import Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import STORAGE_FAILED
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryResult,
    OpData,
)
from kip848_client.wire.messages.describe_client_quotas import EntityData

API_KEY: Final = ApiKey.ALTER_CLIENT_QUOTAS
VERSIONS: Final = (0, 1)


def handle(
    broker: BrokerState, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """Change entity by entity; one that is refused does not stop the others."""
    del context
    results: dict[Entity, EntryResult] = {}
    for entry in request.entries:
        named = {part.entity_type: part.entity_name for part in entry.entity}
        entity = tuple(sorted(named.items()))
        error_code, error_message = _alter(
            broker, entity, entry.ops, is_new=entity not in results, validate_only=request.validate_only
        )
        results[entity] = EntryResult(
            error_code=error_code,
            error_message=error_message,
            entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
        )
    return AlterClientQuotasResponse(entries=tuple(results.values()))


def _alter(
    broker: BrokerState, entity: Entity, ops: Sequence[OpData], *, is_new: bool, validate_only: bool
) -> tuple[int, str | None]:
    changes = {op.key: None if op.remove else op.value for op in ops}
    if not is_new or len(changes) < len(ops):
        entries = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
        return ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity ClientQuotaEntity(entries={{{entries}}})"
    try:
        broker.throttling.quotas.alter(entity, changes, validate_only=validate_only)
    except BrokerError as error:
        return error.code, str(error)
    except DataDirError as error:
        return STORAGE_FAILED, str(error)
    return ErrorCode.NONE, None


def requires(permit: Permit, request: AlterClientQuotasRequest) -> Outcome:
    """ALTER_CONFIGS on the cluster; without it each entity is refused."""
    return None if permit.may_on_cluster(Operation.ALTER_CONFIGS) else deny(permit, request, CLUSTER_FAILED, each=True)
