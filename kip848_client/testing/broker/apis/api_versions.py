"""ApiVersions (18): the APIs and versions that are served, computed from the files of this folder.

The one API that answers a version it does not know: the answer is then in version 0, with UNSUPPORTED_VERSION and our
own range of it, so that a newer client can step down (KIP-511). `broker.net.server` sees to the framing of that case,
and to the response header, which never has tagged fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from kip848_client.common.error_codes import ErrorCode
from kip848_client.testing.broker.apis._permissions import nothing
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

API_KEY: Final = ApiKey.API_VERSIONS
VERSIONS: Final = (0, 5)

_FIRST_VERSION_WITH_LEVEL_0: Final = 4

requires: Final = nothing

GROUP_VERSION: Final = "group.version"
"""Kafka's feature for the consumer group protocol; level 1 = the protocol of KIP-848 is on."""

SHARE_VERSION: Final = "share.version"
"""Kafka's feature for share groups; level 2 = with dead-letter topics (KIP-1191)."""

TRANSACTION_VERSION: Final = "transaction.version"
"""Kafka's feature for transactions; level 2 = each end of one moves the producer's epoch on (KIP-890)."""

METADATA_VERSION: Final = "metadata.version"
"""Kafka's feature for the cluster's own records; level 33 is that of Kafka 4.4."""

KRAFT_VERSION: Final = "kraft.version"
"""Kafka's feature for the quorum of controllers; level 1 = voters can change, which they do not here."""

_ADVERTISED_FROM: Final = {ApiKey.PRODUCE: 0}
"""APIs whose lowest advertised version is not served. librdkafka up to 2.10.1 takes that version for the oldest
message format, and compresses with gzip, snappy or lz4 only if it is below 3 (KAFKA-18659)."""

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""The software names and versions of clients that Kafka accepts (KIP-511)."""


def handle(broker: BrokerState, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """List the served APIs and the features."""
    if context.api_version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if context.api_version >= 3:
        broker.telemetry.remember_software(
            context.connection_id, request.client_software_name, request.client_software_version
        )
    if (request.cluster_id is None) != (request.node_id == -1):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != (broker.cluster_id, context.node_id):
        # KIP-1242: the client's metadata is of a cluster or node that had this address before.
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    known = features(broker)
    # KAFKA-17492: clients below version 4 cannot read a supported feature whose minimum is 0.
    supported = tuple(
        SupportedFeatureKey(name=name, min_version=feature.lowest, max_version=feature.highest)
        for name, feature in known.items()
        if feature.lowest or context.api_version >= _FIRST_VERSION_WITH_LEVEL_0
    )
    finalized = tuple(
        FinalizedFeatureKey(name=name, max_version_level=feature.level, min_version_level=feature.level)
        for name, feature in known.items()
        if feature.level
    )
    return ApiVersionsResponse(
        api_keys=_served(broker),
        supported_features=supported,
        finalized_features_epoch=0,
        finalized_features=finalized,
    )


class Feature(msgspec.Struct, frozen=True):
    """The levels that a feature could have in Kafka, and the one that it has here; level 0 is not finalised."""

    highest: int
    level: int
    lowest: int = 0


def features(broker: BrokerState) -> Mapping[str, Feature]:
    """All features, by name."""
    return {
        GROUP_VERSION: Feature(highest=1, level=1),
        KRAFT_VERSION: Feature(highest=1, level=1),
        METADATA_VERSION: Feature(lowest=7, highest=33, level=33),
        SHARE_VERSION: Feature(highest=2, level=2),
        TRANSACTION_VERSION: Feature(highest=2, level=broker.config.transaction_version),
    }


def unsupported_version(broker: BrokerState) -> ApiVersionsResponse:
    """The answer, to be sent as version 0, for a request of a version above ours."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_served(broker))


def _served(broker: BrokerState) -> tuple[ApiVersion, ...]:
    return tuple(
        ApiVersion(api_key=api_key, min_version=_ADVERTISED_FROM.get(ApiKey(api_key), lowest), max_version=highest)
        for api_key, (lowest, highest) in broker.served.items()
    )
