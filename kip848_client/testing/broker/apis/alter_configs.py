"""AlterConfigs (33): replace all overrides of topics, groups and brokers. What is left out is reset.

This is the older API. IncrementalAlterConfigs changes only the settings that it names.

Source:
    apache/kafka ``ConfigAdminManager``, ``ConfigurationControlManager.legacyAlterConfigs``.
"""

from __future__ import annotations

from typing import Final

from kip848_client.testing.broker.apis._configs import alter_each, change_configs, check_distinct_keys, value_of
from kip848_client.testing.broker.apis._permissions import alter_configs
from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)

API_KEY: Final = ApiKey.ALTER_CONFIGS
VERSIONS: Final = (0, 2)

requires: Final = alter_configs


def handle(broker: BrokerState, request: AlterConfigsRequest, context: RequestContext) -> Slices:
    """Change each resource; one that cannot be changed carries its own error."""

    def alter(resource: AlterConfigsResource) -> None:
        change_configs(
            broker,
            resource,
            lambda _own, _defaults: _given(resource.configs),
            node_id=context.node_id,
            validate_only=request.validate_only,
        )

    return AlterConfigsResponse(responses=(yield from alter_each(request.resources, alter)))


def _given(configs: tuple[AlterableConfig, ...]) -> dict[str, str]:
    check_distinct_keys(configs)
    return {config.name: value_of(config) for config in configs}
