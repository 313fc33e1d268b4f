"""DescribeAcls (29): the ACLs that a filter matches.

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


class DescribeAclsRequest(Request["DescribeAclsResponse"], frozen=True):
    """A filter; null and 1 match everything."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.DESCRIBE_ACLS, "1-3", flexible="2+")

    resource_type_filter: Annotated[Int8, wire("0+")] = 0
    resource_name_filter: Annotated[str | None, wire("0+", nullable="0+")] = ""
    pattern_type_filter: Annotated[Int8, wire("1+")] = 3
    principal_filter: Annotated[str | None, wire("0+", nullable="0+")] = ""
    host_filter: Annotated[str | None, wire("0+", nullable="0+")] = ""
    operation: Annotated[Int8, wire("0+")] = 0
    permission_type: Annotated[Int8, wire("0+")] = 0


class AclDescription(WireStruct, frozen=True):
    """One ACL."""

    principal: Annotated[str, wire("0+")] = ""
    host: Annotated[str, wire("0+")] = ""
    operation: Annotated[Int8, wire("0+")] = 0
    permission_type: Annotated[Int8, wire("0+")] = 0


class DescribeAclsResource(WireStruct, frozen=True):
    """The ACLs of one pattern."""

    resource_type: Annotated[Int8, wire("0+")] = 0
    resource_name: Annotated[str, wire("0+")] = ""
    pattern_type: Annotated[Int8, wire("1+")] = 3
    acls: Annotated[tuple[AclDescription, ...], wire("0+")] = ()


class DescribeAclsResponse(Response, frozen=True):
    """ACLs by pattern, or an error."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_ACLS, "1-3", flexible="2+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = ""
    resources: Annotated[tuple[DescribeAclsResource, ...], wire("0+")] = ()
