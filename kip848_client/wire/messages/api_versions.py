"""ApiVersions (18): which APIs and versions a broker serves. The first request on every connection.

3: flexible, names the client's software, features. 4: features with a minimum version of 0 may be listed.
A version that the broker does not know is answered in the layout of 0 with UNSUPPORTED_VERSION (KIP-511).
"""

from __future__ import annotations

from typing import ClassVar

from kip848_client.values import value
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


@value
class ApiVersionsRequest(Request["ApiVersionsResponse"]):
    """Asks for the versions; names the software, which brokers count in their metrics."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.API_VERSIONS, "0-4", flexible="3+")

    client_software_name: str = wire(STRING, "3+", ignorable=True)
    client_software_version: str = wire(STRING, "3+", ignorable=True)


@value
class ApiVersion:
    """The versions of one API, both ends included."""

    api_key: int = wire(INT16, "0+")
    min_version: int = wire(INT16, "0+")
    max_version: int = wire(INT16, "0+")


@value
class SupportedFeatureKey:
    """The versions of a feature that the broker could run."""

    name: str = wire(STRING, "3+")
    min_version: int = wire(INT16, "3+")
    max_version: int = wire(INT16, "3+")


@value
class FinalizedFeatureKey:
    """The versions of a feature that the cluster has switched to."""

    name: str = wire(STRING, "3+")
    max_version_level: int = wire(INT16, "3+")
    min_version_level: int = wire(INT16, "3+")


@value
class ApiVersionsResponse(Response):
    """What the broker serves."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.API_VERSIONS, "0-4", flexible="3+")

    error_code: int = wire(INT16, "0+")
    api_keys: tuple[ApiVersion, ...] = wire(array(ApiVersion), "0+")
    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    supported_features: tuple[SupportedFeatureKey, ...] = wire(array(SupportedFeatureKey), "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = wire(INT64, "3+", default=-1, tag=1, ignorable=True)
    finalized_features: tuple[FinalizedFeatureKey, ...] = wire(array(FinalizedFeatureKey), "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = wire(BOOL, "3+", tag=3, ignorable=True)
