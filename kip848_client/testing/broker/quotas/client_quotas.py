"""Which quotas there are, what may be set, and which one counts for a client.

An entity is a user, a client id, both, or an address; each by name, or the default of its kind (None).

Source:
    apache/kafka ``ClientQuotaControlManager``, ``QuotaConfig``, ``DefaultQuotaCallback``; KIP-546.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.storage.config_store import ConfigStore

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_TYPES: Final = (USER, CLIENT_ID, IP)

QuotaKey: TypeAlias = Literal[
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"
]
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"

_KAFKAS_ORDER: Final = (CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE, PRODUCER_BYTE_RATE)
_KAFKAS_ORDER_OF_FOUR: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE)
"""In which Kafka describes the quotas of an entity: that of a hash map. Suites compare lists."""

_WHOLE_MAX: Final = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    "connection_creation_rate": 2**31 - 1,
}
"""Quotas that are whole numbers, and the largest one."""
_KEYS: Final = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE})
_KEYS_OF_IP: Final = frozenset({"connection_creation_rate"})
_FRACTION_MAX: Final = 1e-6

Entity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Pairs of type and name, sorted by type; each type once. The name None is the default of the type."""

Limit: TypeAlias = tuple[tuple[str, str], float]
"""Who shares it (user and client id, empty for all), and the limit."""


class ClientQuotas:
    """The quotas of a cluster.

    Args:
        store: where they are kept.
    """

    def __init__(self, store: ConfigStore) -> None:
        self._store: Final = store
        self._quotas: Final[dict[Entity, dict[str, float]]] = {
            _entity_of(name): {key: float(value) for key, value in store.get(name).items()} for name in store.names()
        }

    def __bool__(self) -> bool:
        return bool(self._quotas)

    def items(self) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        """All entities that have a quota, and their quotas."""
        for entity, limits in sorted(self._quotas.items(), key=lambda item: _name_of(item[0])):
            order = _KAFKAS_ORDER if len(limits) < len(_KAFKAS_ORDER) else _KAFKAS_ORDER_OF_FOUR
            yield entity, {key: limits[key] for key in order if key in limits} | limits

    def alter(self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool = False) -> None:
        """Set quotas of an entity, or remove them (None).

        Raises:
            BrokerError: INVALID_REQUEST: there is no such entity or quota, or it cannot have that value.
            DataDirError: it could not be kept; everything is as before.
        """
        allowed = _allowed_keys(entity)
        for key, value in changes.items():
            if value is not None:
                _check_value(key, value, allowed)
        if validate_only:
            return
        after = dict(self._quotas.get(entity, {}))
        for key, value in changes.items():
            if value is None:
                after.pop(key, None)
            else:
                after[key] = value
        self._store.replace(_name_of(entity), {key: repr(value) for key, value in after.items()})
        if after:
            self._quotas[entity] = after
        else:
            self._quotas.pop(entity, None)

    def limit(self, key: QuotaKey, *, user: str, client_id: str) -> Limit | None:
        """The limit of a client, by the most specific quota; None without one."""
        for client, name, shared_by in (
            ((CLIENT_ID, client_id), (USER, user), (user, client_id)),
            ((CLIENT_ID, None), (USER, user), (user, client_id)),
            (None, (USER, user), (user, "")),
            ((CLIENT_ID, client_id), (USER, None), (user, client_id)),
            ((CLIENT_ID, None), (USER, None), (user, client_id)),
            (None, (USER, None), (user, "")),
            ((CLIENT_ID, client_id), None, ("", client_id)),
            ((CLIENT_ID, None), None, ("", client_id)),
        ):
            if client is not None and not client_id:
                continue  # as in Kafka: who has no client id has no quota by client id
            entity: Entity = tuple(pair for pair in (client, name) if pair is not None)
            value = self._quotas.get(entity, {}).get(key)
            if value is not None:
                return shared_by, value
        return None


def _allowed_keys(entity: Entity) -> frozenset[str]:
    types = [kind for kind, _ in entity]
    for kind, name in entity:
        if kind not in _TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if not types:
        raise _invalid("Invalid empty client quota entity")
    if IP not in types:
        return _KEYS
    if len(types) > 1:
        raise _invalid("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
    (address,) = (name for _, name in entity)
    if address is not None and not _is_address(address):
        raise _invalid(f"{address} is not a valid IP or resolvable host.")
    return _KEYS_OF_IP


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        # Kafka looks up any name; the broker's loop must not wait for a name server.
        return text in ("localhost", socket.gethostname())
    return True


def _check_value(key: str, value: float, allowed: frozenset[str]) -> None:
    if key not in allowed:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if key not in _WHOLE_MAX:
        return
    if value > _WHOLE_MAX[key]:
        raise _invalid(f"Proposed value for {key} is too large for {'an INT' if allowed is _KEYS_OF_IP else 'a LONG'}.")
    if value % 1 > _FRACTION_MAX:
        raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_REQUEST)


def _name_of(entity: Entity) -> str:
    """The text under which an entity is kept."""
    return msgspec.json.encode(dict(entity)).decode()


def _entity_of(name: str) -> Entity:
    return tuple(sorted(msgspec.json.decode(name, type=dict[str, str | None]).items()))
