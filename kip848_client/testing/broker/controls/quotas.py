"""``broker.quotas``: how fast clients may be, from their next request on.

Every call raises DataDirError if the change cannot be kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.controls.live import LiveBroker
from kip848_client.testing.broker.quotas.client_quotas import CLIENT_ID, IP, USER, Entity
from kip848_client.testing.broker.state import BrokerState

_DEFAULT: Final = "<default>"


class ClientQuota(msgspec.Struct, frozen=True):
    """The quotas of a user, a client id, both, or an address.

    Attributes:
        user, client_id, ip: by name; ``<default>`` for all without a quota of their own; None if it does not matter.
        limits: by Kafka's name, such as ``producer_byte_rate``.
    """

    user: str | None
    client_id: str | None
    ip: str | None
    limits: Mapping[str, float]


class BrokerQuotas:
    """The quotas of a broker; iteration yields a `ClientQuota` for each entity.

    Example::

        broker.quotas.set(client_id="orders", consumer_byte_rate=10_000)
    """

    def __init__(self, live: LiveBroker) -> None:
        self._live: Final = live

    def set(
        self,
        *,
        user: str | None = None,
        client_id: str | None = None,
        producer_byte_rate: float | None = None,
        consumer_byte_rate: float | None = None,
        request_percentage: float | None = None,
        controller_mutation_rate: float | None = None,
    ) -> None:
        """Set the quotas of a user, a client id, or of both together; None removes a quota.

        Each client or user has a limit of its own, also by the default, on each node.

        Args:
            user: a name without ``User:``; ``<default>`` for all without a quota of their own.
            client_id: likewise.
            producer_byte_rate: bytes of produce requests, per second.
            consumer_byte_rate: bytes of fetched records, per second.
            request_percentage: of the time of the broker's thread.
            controller_mutation_rate: partitions that are created and deleted, per second.

        Raises:
            BrokerError: INVALID_REQUEST: neither user nor client id is given, or a limit is not above 0.
        """
        if user is None and client_id is None:
            text = f"Invalid empty client quota entity: name user=, client_id=, or both; {_DEFAULT!r} are all others"
            raise BrokerError(text, code=ErrorCode.INVALID_REQUEST)
        named = {CLIENT_ID: client_id, USER: user}
        entity: Entity = tuple(
            (kind, None if name == _DEFAULT else name) for kind, name in named.items() if name is not None
        )
        changes = {
            "producer_byte_rate": producer_byte_rate,
            "consumer_byte_rate": consumer_byte_rate,
            "request_percentage": request_percentage,
            "controller_mutation_rate": controller_mutation_rate,
        }
        self._live.on_loop(lambda state: state.throttling.quotas.alter(entity, changes))

    def clear(self) -> None:
        """Remove all quotas. A connection that is throttled stays so until its time is over."""

        def clear(state: BrokerState) -> None:
            quotas = state.throttling.quotas
            for entity, limits in list(quotas.items()):
                quotas.alter(entity, dict.fromkeys(limits))

        self._live.on_loop(clear)

    def __iter__(self) -> Iterator[ClientQuota]:
        def read(state: BrokerState) -> list[ClientQuota]:
            found = []
            for entity, limits in state.throttling.quotas.items():
                named = {kind: _DEFAULT if name is None else name for kind, name in entity}
                found.append(ClientQuota(named.get(USER), named.get(CLIENT_ID), named.get(IP), dict(limits)))
            return found

        return iter(self._live.on_loop(read))
