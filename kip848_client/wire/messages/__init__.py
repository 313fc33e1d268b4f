"""The registry of messages: API key -> request and response class. One file per API in this folder, imported on use.

A new API is one file, found by the name of its key, and one line of `SUPPORTED_API_KEYS`.
"""

from __future__ import annotations

import functools
import importlib
from typing import Final, NamedTuple

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Request, Response

__all__ = ["MessagePair", "message_pair", "SUPPORTED_API_KEYS"]


class MessagePair(NamedTuple):
    """The two messages of one API."""

    request: type[Request[Response]]
    response: type[Response]


SUPPORTED_API_KEYS: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.API_VERSIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DELETE_GROUPS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.OFFSET_DELETE,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT,
        ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT,
        ApiKey.CONNECT_GROUP_HEARTBEAT,
        ApiKey.CONNECT_GROUP_PREPARE_ASSIGNMENT,
        ApiKey.CONNECT_GROUP_INSTALL_ASSIGNMENT,
        ApiKey.CONNECT_GROUP_DESCRIBE,
    }
)
"""Every API that has a file here."""


@functools.cache
def message_pair(api_key: int) -> MessagePair:
    """The request and response class of *api_key*.

    Raises:
        KeyError: we have no messages for that key.
    """
    if api_key not in SUPPORTED_API_KEYS:
        raise KeyError(api_key)
    name = ApiKey(api_key).name.lower()
    module = importlib.import_module(f"{__name__}.{name}")
    stem = "".join(part.capitalize() for part in name.split("_"))
    return MessagePair(getattr(module, f"{stem}Request"), getattr(module, f"{stem}Response"))
