"""DescribeAcls (29): the ACLs that a filter matches, by pattern."""

from __future__ import annotations

from typing import Final

from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.apis._acls import NO_AUTHORIZER, filter_of
from kip848_client.testing.broker.apis._permissions import whole_cluster
from kip848_client.testing.broker.metadata.acls import Acl, Operation
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

API_KEY: Final = ApiKey.DESCRIBE_ACLS
VERSIONS: Final = (1, 3)

requires: Final = whole_cluster(Operation.DESCRIBE)


def handle(broker: BrokerState, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Show what the filter matches."""
    del context
    if broker.access is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    try:
        wanted = filter_of(request)
    except BrokerError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=str(error))
    by_pattern: dict[tuple[int, str, int], list[Acl]] = {}
    for acl in broker.access.store.acls.matching(wanted):
        by_pattern.setdefault((acl.resource_type, acl.name, acl.pattern_type), []).append(acl)
    return DescribeAclsResponse(
        error_message=None,
        resources=tuple(
            DescribeAclsResource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=tuple(
                    AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in acls
                ),
            )
            for (resource_type, name, pattern_type), acls in by_pattern.items()
        ),
    )
