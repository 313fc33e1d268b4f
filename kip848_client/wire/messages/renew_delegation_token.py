"""RenewDelegationToken (39): let a token live longer (KIP-48). 2: flexible."""

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
    request,
    response,
    wire,
)


class RenewDelegationTokenRequest(Request["RenewDelegationTokenResponse"], frozen=True):
    """The token, by its HMAC."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.RENEW_DELEGATION_TOKEN, "1-2", flexible="2+")

    hmac: Annotated[bytes, wire("1+")] = b""
    renew_period_ms: Annotated[Int64, wire("1+")] = 0


class RenewDelegationTokenResponse(Response, frozen=True):
    """When the token ends, in milliseconds since 1970."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.RENEW_DELEGATION_TOKEN, "1-2", flexible="2+")

    error_code: Annotated[Int16, wire("1+")] = 0
    expiry_timestamp_ms: Annotated[Int64, wire("1+")] = 0
    throttle_time_ms: Annotated[Int32, wire("1+")] = 0
