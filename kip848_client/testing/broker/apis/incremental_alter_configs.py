"""IncrementalAlterConfigs (44): set and delete single settings of topics, groups and brokers.

Each resource changes as a whole or not at all. Of a broker only `LIVE_SETTINGS` can be changed.

Source:
    apache/kafka ``ConfigAdminManager``, ``ConfigurationControlManager.incrementalAlterConfigs``; KIP-339.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final

from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.apis._configs import (
    LIST_CONFIGS,
    ConfigResourceType,
    alter_each,
    change_configs,
    check_distinct_keys,
    invalid_request,
    value_of,
)
from kip848_client.testing.broker.apis._permissions import alter_configs
from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

API_KEY: Final = ApiKey.INCREMENTAL_ALTER_CONFIGS
VERSIONS: Final = (0, 1)

requires: Final = alter_configs


class ConfigOperation(enum.IntEnum):
    """The change of one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def handle(broker: BrokerState, request: IncrementalAlterConfigsRequest, context: RequestContext) -> Slices:
    """Change each resource; one that cannot be changed carries its own error."""

    def alter(resource: AlterConfigsResource) -> None:
        if resource.resource_type == ConfigResourceType.BROKER_LOGGER and not resource.configs:
            return
        change_configs(
            broker,
            resource,
            lambda own, defaults: _altered(own, resource.configs, defaults=defaults),
            node_id=context.node_id,
            validate_only=request.validate_only,
        )

    return IncrementalAlterConfigsResponse(responses=(yield from alter_each(request.resources, alter)))


def _altered(
    before: Mapping[str, str], changes: Sequence[AlterableConfig], *, defaults: Mapping[str, str]
) -> dict[str, str]:
    """Apply *changes* to *before*. Checks only what holds for every setting; the caller checks the values."""
    check_distinct_keys(changes)
    after = dict(before)
    for change in changes:
        name = change.name
        if change.config_operation == ConfigOperation.DELETE:
            after.pop(name, None)
            continue
        value = value_of(change)
        if change.config_operation == ConfigOperation.SET:
            after[name] = value
        elif change.config_operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
            if name not in LIST_CONFIGS:
                raise BrokerError(
                    f"Can't {ConfigOperation(change.config_operation).name} to key {name} because its type is "
                    "not LIST.",
                    code=ErrorCode.INVALID_CONFIG,
                )
            parts = [part for part in after.get(name, defaults.get(name, "")).split(",") if part]
            given = [part for part in value.split(",") if part]
            if change.config_operation == ConfigOperation.APPEND:
                parts += [part for part in given if part not in parts]
            else:
                parts = [part for part in parts if part not in given]
            after[name] = ",".join(parts)
        else:
            raise invalid_request(f"operation {change.config_operation} is unknown")
    return after
