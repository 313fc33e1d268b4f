"""SaslHandshake (17): agree on a mechanism. 1: what follows travels in SaslAuthenticate, not bare. Never flexible."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Int16, MessageSpec, Request, Response, request, response, wire


class SaslHandshakeRequest(Request["SaslHandshakeResponse"], frozen=True):
    """The mechanism that the client wants."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.SASL_HANDSHAKE, "0-1", flexible="none")

    mechanism: Annotated[str, wire("0+")] = ""


class SaslHandshakeResponse(Response, frozen=True):
    """Whether it may, and what there is."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.SASL_HANDSHAKE, "0-1", flexible="none")

    error_code: Annotated[Int16, wire("0+")] = 0
    mechanisms: Annotated[tuple[str, ...], wire("0+")] = ()
