"""AlterConfigs (33): replace all that topics and groups override. What is not given goes back to its default.

The older way: a client that changes one setting so takes back every other. IncrementalAlterConfigs changes what it
names.

Source:
    apache/kafka ``ConfigAdminManager``, ``ConfigurationControlManager.legacyAlterConfigs``.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kip848_client.broker.apis._configs import change_configs, invalid_request, outcome_of
from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

API_KEY: Final = ApiKey.ALTER_CONFIGS
VERSIONS: Final = (0, 2)


def handle(broker: BrokerState, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Change each resource; one that cannot be changed carries its own error."""
    del context
    times_named = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    return AlterConfigsResponse(
        responses=tuple(
            _answer(
                broker,
                resource,
                validate_only=request.validate_only,
                is_unique=times_named[resource.resource_type, resource.resource_name] == 1,
            )
            for resource in request.resources
        )
    )


def _answer(
    broker: BrokerState, resource: AlterConfigsResource, *, validate_only: bool, is_unique: bool
) -> AlterConfigsResourceResponse:
    code, message = outcome_of(
        lambda: change_configs(
            broker, resource, lambda _own, _defaults: _given(resource.configs), validate_only=validate_only
        ),
        is_unique=is_unique,
    )
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _given(configs: tuple[AlterableConfig, ...]) -> dict[str, str]:
    if len({config.name for config in configs}) < len(configs):
        raise invalid_request("Error due to duplicate config keys")
    given = {}
    for config in configs:
        if config.value is None:
            raise invalid_request(f"Null value not supported for : {config.name}")
        given[config.name] = config.value
    return given
