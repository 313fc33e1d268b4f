"""SaslAuthenticate (36): one step of authentication. 1: how long the session lasts. 2: flexible."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Int16, Int64, MessageSpec, Request, Response, request, response, wire


class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"], frozen=True):
    """The bytes of the mechanism."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.SASL_AUTHENTICATE, "0-2", flexible="2+")

    auth_bytes: Annotated[bytes, wire("0+")] = b""


class SaslAuthenticateResponse(Response, frozen=True):
    """The answer of the mechanism."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.SASL_AUTHENTICATE, "0-2", flexible="2+")

    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = ""
    auth_bytes: Annotated[bytes, wire("0+")] = b""
    session_lifetime_ms: Annotated[Int64, wire("1+", ignorable=True)] = 0
