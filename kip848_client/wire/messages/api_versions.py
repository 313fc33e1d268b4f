"""ApiVersions: the request and the response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
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
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "ApiVersion",
    "SupportedFeatureKey",
    "FinalizedFeatureKey",
]


@dataclass(frozen=True, slots=True)
class ApiVersionsRequest(Request["ApiVersionsResponse"]):
    """ApiVersions request."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.API_VERSIONS, "0-4", flexible="3+")

    client_software_name: str = wire(STRING, "3+", ignorable=True)
    client_software_version: str = wire(STRING, "3+", ignorable=True)


@dataclass(frozen=True, slots=True)
class ApiVersion:
    """`ApiVersion` of ApiVersions."""

    api_key: int = wire(INT16, "0+")
    min_version: int = wire(INT16, "0+")
    max_version: int = wire(INT16, "0+")


@dataclass(frozen=True, slots=True)
class SupportedFeatureKey:
    """`SupportedFeatureKey` of ApiVersions."""

    name: str = wire(STRING, "3+")
    min_version: int = wire(INT16, "3+")
    max_version: int = wire(INT16, "3+")


@dataclass(frozen=True, slots=True)
class FinalizedFeatureKey:
    """`FinalizedFeatureKey` of ApiVersions."""

    name: str = wire(STRING, "3+")
    max_version_level: int = wire(INT16, "3+")
    min_version_level: int = wire(INT16, "3+")


@dataclass(frozen=True, slots=True)
class ApiVersionsResponse(Response):
    """ApiVersions response."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.API_VERSIONS, "0-4", flexible="3+")

    error_code: int = wire(INT16, "0+")
    api_keys: tuple[ApiVersion, ...] = wire(array(ApiVersion), "0+")
    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    supported_features: tuple[SupportedFeatureKey, ...] = wire(array(SupportedFeatureKey), "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = wire(INT64, "3+", default=-1, tag=1, ignorable=True)
    finalized_features: tuple[FinalizedFeatureKey, ...] = wire(array(FinalizedFeatureKey), "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = wire(BOOL, "3+", tag=3, ignorable=True)
