"""DescribeClientQuotas (48): the quotas of users, client ids and addresses (KIP-546)."""

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


class ComponentData(WireStruct, frozen=True):
    """What an entity must have: a type, and by *match_type* a name (0), the default (1), or any of both (2)."""

    entity_type: Annotated[str, wire("0+")] = ""
    match_type: Annotated[Int8, wire("0+")] = 0
    match: Annotated[str | None, wire("0+", nullable="0+")] = ""


class DescribeClientQuotasRequest(Request["DescribeClientQuotasResponse"], frozen=True):
    """Which entities are asked for. *strict* leaves out those with more types than are named."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.DESCRIBE_CLIENT_QUOTAS, "0-1", flexible="1+")

    components: Annotated[tuple[ComponentData, ...], wire("0+")] = ()
    strict: Annotated[bool, wire("0+")] = False


class EntityData(WireStruct, frozen=True):
    """One type of an entity and its name; null is the default of the type."""

    entity_type: Annotated[str, wire("0+")] = ""
    entity_name: Annotated[str | None, wire("0+", nullable="0+")] = ""


class ValueData(WireStruct, frozen=True):
    """One quota."""

    key: Annotated[str, wire("0+")] = ""
    value: Annotated[float, wire("0+")] = 0.0


class EntryData(WireStruct, frozen=True):
    """The quotas of one entity."""

    entity: Annotated[tuple[EntityData, ...], wire("0+")] = ()
    values: Annotated[tuple[ValueData, ...], wire("0+")] = ()


class DescribeClientQuotasResponse(Response, frozen=True):
    """The entities that match; null with an error."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_CLIENT_QUOTAS, "0-1", flexible="1+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = ""
    entries: Annotated[tuple[EntryData, ...] | None, wire("0+", nullable="0+")] = ()
