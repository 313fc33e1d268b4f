"""DescribeClientQuotas (48): the quotas of users, client ids and addresses.

Source:
    apache/kafka ``ClientQuotasImage.describe``; KIP-546.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.apis._configs import invalid_request
from kip848_client.testing.broker.apis._permissions import CLUSTER_FAILED, TEXTS, Outcome
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.quotas.client_quotas import CLIENT_ID, IP, USER, Entity
from kip848_client.testing.broker.security.access import Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

API_KEY: Final = ApiKey.DESCRIBE_CLIENT_QUOTAS
VERSIONS: Final = (0, 1)

_EXACT, _DEFAULT, _ANY = range(3)


def handle(
    broker: BrokerState, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """Describe the entities that have what is asked for."""
    del context
    try:
        exact, any_name = _filter(request.components)
    except BrokerError as error:
        return _refused(error.code, str(error))

    def matches(entity: Entity) -> bool:
        of_type = dict(entity)
        return (
            (not request.strict or len(entity) == len(exact) + len(any_name))
            and exact.items() <= of_type.items()
            and any_name <= of_type.keys()
        )

    return DescribeClientQuotasResponse(
        entries=tuple(
            EntryData(
                entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
                values=tuple(ValueData(key=key, value=value) for key, value in limits.items()),
            )
            for entity, limits in broker.throttling.quotas.items()
            if matches(entity)
        )
    )


def _filter(components: Iterable[ComponentData]) -> tuple[dict[str, str | None], set[str]]:
    """The names that entities must have by type, and the types that may have any name.

    Raises:
        BrokerError: such a filter makes no sense.
    """
    exact: dict[str, str | None] = {}
    any_name: set[str] = set()
    for component in components:
        kind, match = component.entity_type, component.match
        if not kind:
            raise invalid_request("Invalid empty entity type.")
        if kind in exact or kind in any_name:
            raise invalid_request(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (IP, USER, CLIENT_ID):
            raise BrokerError(f"Unsupported entity type {kind}", code=ErrorCode.UNSUPPORTED_VERSION)
        if component.match_type == _EXACT:
            if match is None:
                raise invalid_request("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            exact[kind] = match
        elif component.match_type not in (_DEFAULT, _ANY):
            raise invalid_request(f"Unknown match type {component.match_type}")
        elif match is not None:
            name = "MATCH_TYPE_DEFAULT" if component.match_type == _DEFAULT else "MATCH_TYPE_SPECIFIED"
            raise invalid_request(f"Request specified {name}, but also specified a match string.")
        elif component.match_type == _DEFAULT:
            exact[kind] = None
        else:
            any_name.add(kind)
    kinds = exact.keys() | any_name
    if IP in kinds and len(kinds) > 1:
        raise invalid_request(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )
    return exact, any_name


def _refused(code: int, message: str) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


def requires(permit: Permit, _request: DescribeClientQuotasRequest) -> Outcome:
    """DESCRIBE_CONFIGS on the cluster."""
    allowed = permit.may_on_cluster(Operation.DESCRIBE_CONFIGS)
    return None if allowed else _refused(CLUSTER_FAILED, TEXTS[CLUSTER_FAILED])
