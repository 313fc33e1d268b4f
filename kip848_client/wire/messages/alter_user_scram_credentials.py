"""AlterUserScramCredentials (51): set and delete what users log in with (KIP-554)."""

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


class ScramCredentialDeletion(WireStruct, frozen=True):
    """A credential to delete."""

    name: Annotated[str, wire("0+")] = ""
    mechanism: Annotated[Int8, wire("0+")] = 0


class ScramCredentialUpsertion(WireStruct, frozen=True):
    """A credential to set. The broker is never told the password, but SaltedPassword of RFC 5802."""

    name: Annotated[str, wire("0+")] = ""
    mechanism: Annotated[Int8, wire("0+")] = 0
    iterations: Annotated[Int32, wire("0+")] = 0
    salt: Annotated[bytes, wire("0+")] = b""
    salted_password: Annotated[bytes, wire("0+")] = b""


class AlterUserScramCredentialsRequest(Request["AlterUserScramCredentialsResponse"], frozen=True):
    """Credentials to delete and to set."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        "0",
        flexible="0+",
        answered_by={"deletions": "results", "upsertions": "results"},
    )

    deletions: Annotated[tuple[ScramCredentialDeletion, ...], wire("0+")] = ()
    upsertions: Annotated[tuple[ScramCredentialUpsertion, ...], wire("0+")] = ()


class AlterUserScramCredentialsResult(WireStruct, frozen=True):
    """Whether the credentials of one user were altered."""

    user: Annotated[str, wire("0+")] = ""
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = ""


class AlterUserScramCredentialsResponse(Response, frozen=True):
    """A result for each user."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "0", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    results: Annotated[tuple[AlterUserScramCredentialsResult, ...], wire("0+")] = ()
