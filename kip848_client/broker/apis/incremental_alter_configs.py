"""IncrementalAlterConfigs (44): set and take back single settings of topics and groups.

Each resource changes as a whole or not at all. The broker's own configuration is fixed at its start.

Source:
    apache/kafka ``ConfigAdminManager``, ``ConfigurationControlManager.incrementalAlterConfigs``; KIP-339.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from kip848_client.broker.apis._configs import LIST_CONFIGS, ResourceType, change_configs, invalid_request, outcome_of
from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

API_KEY: Final = ApiKey.INCREMENTAL_ALTER_CONFIGS
VERSIONS: Final = (0, 1)


class Operation(enum.IntEnum):
    """What happens to one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def handle(
    broker: BrokerState, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Change each resource; one that cannot be changed carries its own error."""
    del context
    times_named = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    return IncrementalAlterConfigsResponse(
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
    if resource.resource_type == ResourceType.BROKER_LOGGER and is_unique and not resource.configs:
        return AlterConfigsResourceResponse(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
    code, message = outcome_of(
        lambda: change_configs(
            broker,
            resource,
            lambda own, defaults: _altered(own, resource.configs, defaults=defaults),
            validate_only=validate_only,
        ),
        is_unique=is_unique,
    )
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _altered(
    before: Mapping[str, str], changes: Sequence[AlterableConfig], *, defaults: Mapping[str, str]
) -> dict[str, str]:
    """*before* with *changes*, values unchecked but for what makes no sense of any setting."""
    if len({change.name for change in changes}) < len(changes):
        raise invalid_request("Error due to duplicate config keys")
    after = dict(before)
    for change in changes:
        name, value = change.name, change.value
        if change.config_operation == Operation.DELETE:
            after.pop(name, None)
            continue
        if value is None:
            raise invalid_request(f"Null value not supported for : {name}")
        if change.config_operation == Operation.SET:
            after[name] = value
        elif change.config_operation in (Operation.APPEND, Operation.SUBTRACT):
            if name not in LIST_CONFIGS:
                raise BrokerError(
                    f"Can't {Operation(change.config_operation).name} to key {name} because its type is not LIST.",
                    code=ErrorCode.INVALID_CONFIG,
                )
            parts = [part for part in after.get(name, defaults.get(name, "")).split(",") if part]
            given = [part for part in value.split(",") if part]
            if change.config_operation == Operation.APPEND:
                parts += [part for part in given if part not in parts]
            else:
                parts = [part for part in parts if part not in given]
            after[name] = ",".join(parts)
        else:
            raise invalid_request(f"operation {change.config_operation} is unknown")
    return after
