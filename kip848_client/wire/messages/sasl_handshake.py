"""SaslHandshake (17): agree on a mechanism. 1: what follows travels in SaslAuthenticate, not bare. Never flexible."""

from __future__ import annotations

from typing import ClassVar

from kip848_client.values import value
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


@value
class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    """The mechanism that the client wants."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.SASL_HANDSHAKE, "0-1", flexible="none")

    mechanism: str = wire(STRING, "0+")


@value
class SaslHandshakeResponse(Response):
    """Whether it may, and what there is."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.SASL_HANDSHAKE, "0-1", flexible="none")

    error_code: int = wire(INT16, "0+")
    mechanisms: tuple[str, ...] = wire(array(STRING), "0+")
