"""DescribeDelegationToken (41): the tokens of some owners (KIP-48). 2: flexible. 3: who asked for each (KIP-373)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    Int16,
    Int32,
    Int64,
    MessageSpec,
    Request,
    Response,
    WireStruct,
    request,
    response,
    wire,
)


class DescribeDelegationTokenOwner(WireStruct, frozen=True):
    """A principal."""

    principal_type: Annotated[str, wire("1+")] = ""
    principal_name: Annotated[str, wire("1+")] = ""


class DescribeDelegationTokenRequest(Request["DescribeDelegationTokenResponse"], frozen=True):
    """The owners; null means all."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.DESCRIBE_DELEGATION_TOKEN, "1-3", flexible="2+")

    owners: Annotated[tuple[DescribeDelegationTokenOwner, ...] | None, wire("1+", nullable="1+")] = ()


class DescribedDelegationTokenRenewer(WireStruct, frozen=True):
    """A principal that may renew the token."""

    principal_type: Annotated[str, wire("1+")] = ""
    principal_name: Annotated[str, wire("1+")] = ""


class DescribedDelegationToken(WireStruct, frozen=True):
    """A token; times are milliseconds since 1970."""

    principal_type: Annotated[str, wire("1+")] = ""
    principal_name: Annotated[str, wire("1+")] = ""
    token_requester_principal_type: Annotated[str, wire("3+")] = ""
    token_requester_principal_name: Annotated[str, wire("3+")] = ""
    issue_timestamp: Annotated[Int64, wire("1+")] = 0
    expiry_timestamp: Annotated[Int64, wire("1+")] = 0
    max_timestamp: Annotated[Int64, wire("1+")] = 0
    token_id: Annotated[str, wire("1+")] = ""
    hmac: Annotated[bytes, wire("1+")] = b""
    renewers: Annotated[tuple[DescribedDelegationTokenRenewer, ...], wire("1+")] = ()


class DescribeDelegationTokenResponse(Response, frozen=True):
    """The tokens."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_DELEGATION_TOKEN, "1-3", flexible="2+")

    error_code: Annotated[Int16, wire("1+")] = 0
    tokens: Annotated[tuple[DescribedDelegationToken, ...], wire("1+")] = ()
    throttle_time_ms: Annotated[Int32, wire("1+")] = 0
