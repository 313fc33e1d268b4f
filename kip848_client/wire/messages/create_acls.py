"""CreateAcls (30): add ACLs.

1: the same. 2: flexible. 3: user resources.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    Int8,
    Int16,
    Int32,
    MessageSpec,
    Request,
    Response,
    WireStruct,
    request,
    response,
    wire,
)


class AclCreation(WireStruct, frozen=True):
    """One ACL."""

    resource_type: Annotated[Int8, wire("0+")] = 0
    resource_name: Annotated[str, wire("0+")] = ""
    resource_pattern_type: Annotated[Int8, wire("1+")] = 3
    principal: Annotated[str, wire("0+")] = ""
    host: Annotated[str, wire("0+")] = ""
    operation: Annotated[Int8, wire("0+")] = 0
    permission_type: Annotated[Int8, wire("0+")] = 0


class CreateAclsRequest(Request["CreateAclsResponse"], frozen=True):
    """The ACLs to add."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.CREATE_ACLS, "1-3", flexible="2+", answered_by={"creations": "results"}
    )

    creations: Annotated[tuple[AclCreation, ...], wire("0+")] = ()


class AclCreationResult(WireStruct, frozen=True):
    """Whether one was added."""

    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = ""


class CreateAclsResponse(Response, frozen=True):
    """A result for each, in the order of the request."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CREATE_ACLS, "1-3", flexible="2+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    results: Annotated[tuple[AclCreationResult, ...], wire("0+")] = ()
