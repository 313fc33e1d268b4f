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

from kip848_client.broker.apis._configs import LIST_CONFIGS, ResourceType, check_group_name, topic_of, unsupported
from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.broker.topic_configs import TOPIC_CONFIG_DEFAULTS, check_topic_configs
from kip848_client.broker.topics import STORAGE_FAILED
from kip848_client.errors import BrokerError, ConfigError, DataDirError, ErrorCode
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
    code, message = ErrorCode.NONE, None
    try:
        if not is_unique:
            raise _invalid("Each resource must appear at most once.")
        _alter(broker, resource, validate_only=validate_only)
    except BrokerError as error:
        code, message = ErrorCode(error.code), str(error)
    except ConfigError as error:
        code, message = ErrorCode.INVALID_CONFIG, str(error)
    except DataDirError as error:
        code, message = STORAGE_FAILED, str(error)
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _alter(broker: BrokerState, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            topic = topic_of(broker.topics, name)
            configs = _altered(topic.configs, resource.configs, defaults=TOPIC_CONFIG_DEFAULTS)
            check_topic_configs(configs)
            if not validate_only:
                broker.topics.set_configs(name, configs)
        case ResourceType.GROUP:
            check_group_name(name)
            overrides = _altered(
                broker.groups.config_overrides(name), resource.configs, defaults=broker.groups.config_defaults()
            )
            broker.groups.set_config_overrides(name, overrides, validate_only=validate_only)
        case ResourceType.BROKER:
            raise _invalid("this broker's configuration is fixed at its start; give it there")
        case _:
            raise unsupported(resource.resource_type)


def _altered(
    before: Mapping[str, str], changes: Sequence[AlterableConfig], *, defaults: Mapping[str, str]
) -> dict[str, str]:
    """*before* with *changes*, values unchecked but for what makes no sense of any setting."""
    if len({change.name for change in changes}) < len(changes):
        raise _invalid("Error due to duplicate config keys")
    after = dict(before)
    for change in changes:
        name, value = change.name, change.value
        if change.config_operation == Operation.DELETE:
            after.pop(name, None)
            continue
        if value is None:
            raise _invalid(f"Null value not supported for : {name}")
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
            raise _invalid(f"operation {change.config_operation} is unknown")
    return after


def _invalid(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_REQUEST)
