"""DeleteAcls (31): remove what filters match, and say what that was."""

from __future__ import annotations

from typing import Final

from kip848_client.errors import BrokerError, DataDirError, ErrorCode
from kip848_client.testing.broker.apis._acls import NO_AUTHORIZER, filter_of
from kip848_client.testing.broker.apis._permissions import whole_cluster
from kip848_client.testing.broker.metadata.acls import Acl, Operation
from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import STORAGE_FAILED
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

API_KEY: Final = ApiKey.DELETE_ACLS
VERSIONS: Final = (1, 3)

requires: Final = whole_cluster(Operation.ALTER)


_MATCHES_MAX: Final = 50_000
"""ACLs in one answer. Thousands of filters that each match thousands of ACLs would take all memory."""


def handle(broker: BrokerState, request: DeleteAclsRequest, context: RequestContext) -> Slices:
    """Remove all in one step; an ACL that two filters match is in the results of both."""
    del context
    if broker.access is None:
        disabled = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        return DeleteAclsResponse(filter_results=(disabled,) * len(request.filters))
    store = broker.access.store
    removed: list[Acl] = []
    results = []
    for asked in request.filters:
        try:
            found = store.acls.matching(filter_of(asked))
            if removed and len(removed) + len(found) > _MATCHES_MAX:
                raise BrokerError(
                    f"the filters match more than {_MATCHES_MAX} ACLs; send the rest in another request",
                    code=ErrorCode.POLICY_VIOLATION,
                )
        except BrokerError as error:
            results.append(DeleteAclsFilterResult(error_code=error.code, error_message=str(error)))
        else:
            removed += found
            results.append(DeleteAclsFilterResult(error_message=None, matching_acls=tuple(map(_removed, found))))
        yield
    try:
        store.change(removed=removed)
    except DataDirError as error:
        failed = DeleteAclsFilterResult(error_code=STORAGE_FAILED, error_message=str(error))
        results = [result if result.error_code else failed for result in results]
    return DeleteAclsResponse(filter_results=tuple(results))


def _removed(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
