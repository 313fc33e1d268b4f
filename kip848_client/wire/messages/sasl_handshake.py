"""SaslHandshake: the request and the response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    INT16,
    STRING,
    MessageSpec,
    Request,
    Response,
    array,
    request,
    response,
    wire,
)

__all__ = [
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
]


@dataclass(frozen=True, slots=True)
class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    """SaslHandshake request."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.SASL_HANDSHAKE, "0-1", flexible="none")

    mechanism: str = wire(STRING, "0+")


@dataclass(frozen=True, slots=True)
class SaslHandshakeResponse(Response):
    """SaslHandshake response."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.SASL_HANDSHAKE, "0-1", flexible="none")

    error_code: int = wire(INT16, "0+")
    mechanisms: tuple[str, ...] = wire(array(STRING), "0+")
