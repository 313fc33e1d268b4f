"""SaslAuthenticate (36): one step of authentication. 1: how long the session lasts. 2: flexible."""

from __future__ import annotations

from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    BYTES,
    INT16,
    INT64,
    STRING,
    MessageSpec,
    Request,
    Response,
    request,
    response,
    wire,
)

__all__ = [
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
]


@value
class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"]):
    """What the mechanism says."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.SASL_AUTHENTICATE, "0-2", flexible="2+")

    auth_bytes: bytes = wire(BYTES, "0+")


@value
class SaslAuthenticateResponse(Response):
    """What the mechanism answers."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.SASL_AUTHENTICATE, "0-2", flexible="2+")

    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+")
    auth_bytes: bytes = wire(BYTES, "0+")
    session_lifetime_ms: int = wire(INT64, "1+", ignorable=True)
