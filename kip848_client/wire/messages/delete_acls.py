"""DeleteAcls (31): remove the ACLs that filters match.

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


class DeleteAclsFilter(WireStruct, frozen=True):
    """A filter; null and 1 match everything."""

    resource_type_filter: Annotated[Int8, wire("0+")] = 0
    resource_name_filter: Annotated[str | None, wire("0+", nullable="0+")] = ""
    pattern_type_filter: Annotated[Int8, wire("1+")] = 3
    principal_filter: Annotated[str | None, wire("0+", nullable="0+")] = ""
    host_filter: Annotated[str | None, wire("0+", nullable="0+")] = ""
    operation: Annotated[Int8, wire("0+")] = 0
    permission_type: Annotated[Int8, wire("0+")] = 0


class DeleteAclsRequest(Request["DeleteAclsResponse"], frozen=True):
    """Removes all ACLs that a filter matches."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.DELETE_ACLS, "1-3", flexible="2+", answered_by={"filters": "filter_results"}
    )

    filters: Annotated[tuple[DeleteAclsFilter, ...], wire("0+")] = ()


class DeleteAclsMatchingAcl(WireStruct, frozen=True):
    """An ACL that was removed."""

    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = ""
    resource_type: Annotated[Int8, wire("0+")] = 0
    resource_name: Annotated[str, wire("0+")] = ""
    pattern_type: Annotated[Int8, wire("1+")] = 3
    principal: Annotated[str, wire("0+")] = ""
    host: Annotated[str, wire("0+")] = ""
    operation: Annotated[Int8, wire("0+")] = 0
    permission_type: Annotated[Int8, wire("0+")] = 0


class DeleteAclsFilterResult(WireStruct, frozen=True):
    """The ACLs that one filter matched, or an error."""

    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = ""
    matching_acls: Annotated[tuple[DeleteAclsMatchingAcl, ...], wire("0+")] = ()


class DeleteAclsResponse(Response, frozen=True):
    """A result for each filter, in the order of the request."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DELETE_ACLS, "1-3", flexible="2+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    filter_results: Annotated[tuple[DeleteAclsFilterResult, ...], wire("0+")] = ()
