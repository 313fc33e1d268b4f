"""ACLs and filters on the wire. No API of its own."""

from __future__ import annotations

import enum
from typing import TypeVar

from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.metadata.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from kip848_client.wire.messages.create_acls import AclCreation
from kip848_client.wire.messages.delete_acls import DeleteAclsFilter
from kip848_client.wire.messages.describe_acls import DescribeAclsRequest

NO_AUTHORIZER = "No Authorizer is configured."
"""Kafka's text for SECURITY_DISABLED."""

EnumT = TypeVar("EnumT", bound=enum.IntEnum)


def acl_of(asked: AclCreation) -> Acl:
    """The ACL that a client wants to create.

    Raises:
        BrokerError: INVALID_REQUEST: there can be no such ACL.
    """
    acl = Acl(
        _known(ResourceType, asked.resource_type, "resource type"),
        _known(PatternType, asked.resource_pattern_type, "pattern type"),
        asked.resource_name,
        asked.principal,
        asked.host,
        _known(Operation, asked.operation, "operation"),
        _known(Permission, asked.permission_type, "permission type"),
    )
    if acl.pattern_type is PatternType.MATCH or 1 in (
        acl.resource_type,
        acl.pattern_type,
        acl.operation,
        acl.permission,
    ):
        raise _invalid("ANY and MATCH are for filters only")
    if not acl.name:
        raise _invalid("Resource name should not be empty")
    if acl.resource_type is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if ":" not in acl.principal:
        raise _invalid(f"Could not parse principal from `{acl.principal}` (no colon is present separating the type)")
    return acl


def filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """The filter that a client asks with.

    Raises:
        BrokerError: INVALID_REQUEST: a number stands for nothing.
    """
    return AclFilter(
        _known(ResourceType, asked.resource_type_filter, "resource type"),
        _known(PatternType, asked.pattern_type_filter, "pattern type"),
        asked.resource_name_filter,
        asked.principal_filter,
        asked.host_filter,
        _known(Operation, asked.operation, "operation"),
        _known(Permission, asked.permission_type, "permission type"),
    )


def _known(kind: type[EnumT], value: int, what: str) -> EnumT:
    try:
        return kind(value)
    except ValueError as error:
        raise _invalid(f"{what} {value} is not known") from error


def _invalid(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_REQUEST)
