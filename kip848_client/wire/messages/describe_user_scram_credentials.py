"""DescribeUserScramCredentials (50): which users can log in by SCRAM (KIP-554)."""

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


class UserName(WireStruct, frozen=True):
    """A user."""

    name: Annotated[str, wire("0+")] = ""


class DescribeUserScramCredentialsRequest(Request["DescribeUserScramCredentialsResponse"], frozen=True):
    """The users to describe; null or none for all."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "0", flexible="0+", answered_by={"users": "results"}
    )

    users: Annotated[tuple[UserName, ...] | None, wire("0+", nullable="0+")] = ()


class CredentialInfo(WireStruct, frozen=True):
    """A mechanism (1: SCRAM-SHA-256, 2: SCRAM-SHA-512) and the iterations of its credential."""

    mechanism: Annotated[Int8, wire("0+")] = 0
    iterations: Annotated[Int32, wire("0+")] = 0


class DescribeUserScramCredentialsResult(WireStruct, frozen=True):
    """The credentials of one user, or an error."""

    user: Annotated[str, wire("0+")] = ""
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = ""
    credential_infos: Annotated[tuple[CredentialInfo, ...], wire("0+")] = ()


class DescribeUserScramCredentialsResponse(Response, frozen=True):
    """A result for each user."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "0", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = ""
    results: Annotated[tuple[DescribeUserScramCredentialsResult, ...], wire("0+")] = ()
