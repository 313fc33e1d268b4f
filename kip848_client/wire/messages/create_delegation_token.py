"""CreateDelegationToken (38): a token that logs in for a user (KIP-48). 2: flexible. 3: another owner (KIP-373)."""

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


class CreatableRenewers(WireStruct, frozen=True):
    """A principal that may renew the token."""

    principal_type: Annotated[str, wire("1+")] = ""
    principal_name: Annotated[str, wire("1+")] = ""


class CreateDelegationTokenRequest(Request["CreateDelegationTokenResponse"], frozen=True):
    """Owner, renewers and lifetime of the token."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.CREATE_DELEGATION_TOKEN, "1-3", flexible="2+")

    owner_principal_type: Annotated[str | None, wire("3+", nullable="3+")] = None
    owner_principal_name: Annotated[str | None, wire("3+", nullable="3+")] = None
    renewers: Annotated[tuple[CreatableRenewers, ...], wire("1+")] = ()
    max_lifetime_ms: Annotated[Int64, wire("1+")] = 0


class CreateDelegationTokenResponse(Response, frozen=True):
    """The token; times are milliseconds since 1970."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CREATE_DELEGATION_TOKEN, "1-3", flexible="2+")

    error_code: Annotated[Int16, wire("1+")] = 0
    principal_type: Annotated[str, wire("1+")] = ""
    principal_name: Annotated[str, wire("1+")] = ""
    token_requester_principal_type: Annotated[str, wire("3+")] = ""
    token_requester_principal_name: Annotated[str, wire("3+")] = ""
    issue_timestamp_ms: Annotated[Int64, wire("1+")] = 0
    expiry_timestamp_ms: Annotated[Int64, wire("1+")] = 0
    max_timestamp_ms: Annotated[Int64, wire("1+")] = 0
    token_id: Annotated[str, wire("1+")] = ""
    hmac: Annotated[bytes, wire("1+")] = b""
    throttle_time_ms: Annotated[Int32, wire("1+")] = 0
