"""ApiVersions (18): which APIs and versions a broker serves. The first request on every connection.

3: flexible, names the client's software, features. 4: features with a minimum version of 0 may be listed.
5: the client names the cluster and node that it means; another one answers REBOOTSTRAP_REQUIRED (KIP-1242).
A version that the broker does not know is answered in the layout of 0 with UNSUPPORTED_VERSION (KIP-511).
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    Int16,
    Int32,
    Int64,
    MessageSpec,
    Request,
    Response,
    WireStruct,
    request,
    response,
    wire,
)


class ApiVersionsRequest(Request["ApiVersionsResponse"], frozen=True):
    """Asks for the versions; names the software, which brokers count in their metrics."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.API_VERSIONS, "0-5", flexible="3+")

    client_software_name: Annotated[str, wire("3+", ignorable=True)] = ""
    client_software_version: Annotated[str, wire("3+", ignorable=True)] = ""
    cluster_id: Annotated[str | None, wire("5+", nullable="5+", ignorable=True)] = None
    node_id: Annotated[Int32, wire("5+", ignorable=True)] = -1


class ApiVersion(WireStruct, frozen=True):
    """The versions of one API, both ends included."""

    api_key: Annotated[Int16, wire("0+")] = 0
    min_version: Annotated[Int16, wire("0+")] = 0
    max_version: Annotated[Int16, wire("0+")] = 0


class SupportedFeatureKey(WireStruct, frozen=True):
    """The versions of a feature that the broker could run."""

    name: Annotated[str, wire("3+")] = ""
    min_version: Annotated[Int16, wire("3+")] = 0
    max_version: Annotated[Int16, wire("3+")] = 0


class FinalizedFeatureKey(WireStruct, frozen=True):
    """The versions of a feature that the cluster has switched to."""

    name: Annotated[str, wire("3+")] = ""
    max_version_level: Annotated[Int16, wire("3+")] = 0
    min_version_level: Annotated[Int16, wire("3+")] = 0


class ApiVersionsResponse(Response, frozen=True):
    """The APIs that the broker serves."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.API_VERSIONS, "0-5", flexible="3+")

    error_code: Annotated[Int16, wire("0+")] = 0
    api_keys: Annotated[tuple[ApiVersion, ...], wire("0+")] = ()
    throttle_time_ms: Annotated[Int32, wire("1+", ignorable=True)] = 0
    supported_features: Annotated[tuple[SupportedFeatureKey, ...], wire("3+", tag=0, ignorable=True)] = ()
    finalized_features_epoch: Annotated[Int64, wire("3+", tag=1, ignorable=True)] = -1
    finalized_features: Annotated[tuple[FinalizedFeatureKey, ...], wire("3+", tag=2, ignorable=True)] = ()
    zk_migration_ready: Annotated[bool, wire("3+", tag=3, ignorable=True)] = False
