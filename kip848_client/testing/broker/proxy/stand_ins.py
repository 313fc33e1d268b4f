"""Changes of a proxy in answers so that clients stay behind it: addresses of brokers, and versions it cannot read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from msgspec.structs import replace

from kip848_client.wire.messages import message_pair, supported_api_keys
from kip848_client.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kip848_client.wire.messages.describe_cluster import DescribeClusterResponse
from kip848_client.wire.messages.fetch import FetchResponse
from kip848_client.wire.messages.find_coordinator import FindCoordinatorResponse
from kip848_client.wire.messages.metadata import MetadataResponse
from kip848_client.wire.messages.produce import ProduceResponse
from kip848_client.wire.messages.share_acknowledge import ShareAcknowledgeResponse
from kip848_client.wire.messages.share_fetch import ShareFetchResponse
from kip848_client.wire.schema import Response

StandIn = Callable[[int, str, int], tuple[str, int]]
"""(node id, host, port) of a broker -> (host, port) where the proxy stands in for it."""

BrokerT = TypeVar("BrokerT")


def behind_proxy(response: Response, stand_in: StandIn) -> Response:
    """*response* as a client of the proxy may see it; the same object if there is nothing to change."""
    match response:
        case MetadataResponse():
            return replace(response, brokers=_moved(response.brokers, stand_in))
        case DescribeClusterResponse():
            return replace(response, brokers=_moved(response.brokers, stand_in))
        case FindCoordinatorResponse():
            coordinators = _moved(response.coordinators, stand_in)
            (whole,) = _moved((response,), stand_in)  # versions 0-3 have it in the answer itself
            return replace(whole, coordinators=coordinators)
        case ProduceResponse() | FetchResponse() | ShareFetchResponse() | ShareAcknowledgeResponse() if (
            response.node_endpoints
        ):
            endpoints: tuple[Any, ...] = response.node_endpoints
            return replace(response, node_endpoints=_moved(endpoints, stand_in))
        case ApiVersionsResponse(error_code=0, api_keys=api_keys):
            return replace(response, api_keys=tuple(_readable(api_keys)))
        case _:
            return response


def _moved(brokers: tuple[BrokerT, ...], stand_in: StandIn) -> tuple[BrokerT, ...]:
    """Any structs with a node id, a host and a port; those without a host (an error) stay."""
    return tuple(_moved_one(broker, stand_in) for broker in brokers)


def _moved_one(broker: Any, stand_in: StandIn) -> Any:
    if not broker.host:
        return broker
    node_id = broker.broker_id if hasattr(broker, "broker_id") else broker.node_id
    host, port = stand_in(node_id, broker.host, broker.port)
    return replace(broker, host=host, port=port)


def _readable(offered: tuple[ApiVersion, ...]) -> Iterator[ApiVersion]:
    """Versions that the proxy can read, too: of the APIs that we know only our versions, others as they are."""
    for api in offered:
        if api.api_key in supported_api_keys():
            pair = message_pair(api.api_key)
            newest = min(api.max_version, pair.request.WIRE.versions.last, pair.response.WIRE.versions.last)
            if newest >= api.min_version:
                api = replace(api, max_version=newest)
        yield api
