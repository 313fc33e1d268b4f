"""CreateAcls (30): add ACLs; one that is there already is added again without effect."""

from __future__ import annotations

from typing import Final

from kip848_client.errors import BrokerError, DataDirError, ErrorCode
from kip848_client.testing.broker.apis._acls import NO_AUTHORIZER, acl_of
from kip848_client.testing.broker.apis._permissions import whole_cluster
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import STORAGE_FAILED
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

API_KEY: Final = ApiKey.CREATE_ACLS
VERSIONS: Final = (1, 3)

requires: Final = whole_cluster(Operation.ALTER)


def handle(broker: BrokerState, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Add the valid ones, all in one step."""
    del context
    access = broker.access
    if access is None:
        disabled = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        return CreateAclsResponse(results=(disabled,) * len(request.creations))
    acls, results = [], []
    for asked in request.creations:
        try:
            acls.append(acl_of(asked))
        except BrokerError as error:
            results.append(AclCreationResult(error_code=error.code, error_message=str(error)))
        else:
            results.append(AclCreationResult(error_message=None))
    try:
        access.store.change(added=acls)
    except DataDirError as error:
        failed = AclCreationResult(error_code=STORAGE_FAILED, error_message=str(error))
        results = [result if result.error_code else failed for result in results]
    return CreateAclsResponse(results=tuple(results))
