"""AlterClientQuotas (49): set and remove quotas of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.describe_client_quotas import EntityData
from kip848_client.wire.schema import (
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


class OpData(WireStruct, frozen=True):
    """One quota, to set or to remove."""

    key: Annotated[str, wire("0+")] = ""
    value: Annotated[float, wire("0+")] = 0.0
    remove: Annotated[bool, wire("0+")] = False


class EntryData(WireStruct, frozen=True):
    """The changes of one entity."""

    entity: Annotated[tuple[EntityData, ...], wire("0+")] = ()
    ops: Annotated[tuple[OpData, ...], wire("0+")] = ()


class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"], frozen=True):
    """The changes."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.ALTER_CLIENT_QUOTAS, "0-1", flexible="1+", answered_by={"entries": "entries", "entity": "entity"}
    )

    entries: Annotated[tuple[EntryData, ...], wire("0+")] = ()
    validate_only: Annotated[bool, wire("0+")] = False


class EntryResult(WireStruct, frozen=True):
    """Whether the quotas of one entity were changed."""

    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = ""
    entity: Annotated[tuple[EntityData, ...], wire("0+")] = ()


class AlterClientQuotasResponse(Response, frozen=True):
    """A result for each entity."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.ALTER_CLIENT_QUOTAS, "0-1", flexible="1+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    entries: Annotated[tuple[EntryResult, ...], wire("0+")] = ()
