"""The embedded broker: a loopback Kafka broker that any client can use, in this process; and the fault proxy.

The names below are the whole public surface; each is imported when first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kip848_client.broker.broker import EmbeddedBroker as EmbeddedBroker
    from kip848_client.broker.faults import FaultRule as FaultRule
    from kip848_client.broker.faults import Faults as Faults
    from kip848_client.broker.logged_request import LoggedRequest as LoggedRequest
    from kip848_client.broker.nodes import NodeSnapshot as NodeSnapshot
    from kip848_client.broker.proxy import FaultProxy as FaultProxy
    from kip848_client.broker.records import BrokerRecord as BrokerRecord
    from kip848_client.broker.records import NewRecord as NewRecord
    from kip848_client.broker.request_log import RequestLog as RequestLog
    from kip848_client.broker.security import BrokerSasl as BrokerSasl
    from kip848_client.broker.security import BrokerTls as BrokerTls
    from kip848_client.broker.snapshots import GroupSnapshot as GroupSnapshot
    from kip848_client.broker.snapshots import MemberSnapshot as MemberSnapshot
    from kip848_client.broker.transactions import TransactionSnapshot as TransactionSnapshot

__all__ = [
    "BrokerRecord",
    "BrokerSasl",
    "BrokerTls",
    "EmbeddedBroker",
    "FaultProxy",
    "FaultRule",
    "Faults",
    "GroupSnapshot",
    "LoggedRequest",
    "MemberSnapshot",
    "NewRecord",
    "NodeSnapshot",
    "RequestLog",
    "TransactionSnapshot",
]

_HOMES: Final = {
    "BrokerRecord": "kip848_client.broker.records",
    "NewRecord": "kip848_client.broker.records",
    "BrokerSasl": "kip848_client.broker.security",
    "BrokerTls": "kip848_client.broker.security",
    "EmbeddedBroker": "kip848_client.broker.broker",
    "FaultProxy": "kip848_client.broker.proxy",
    "FaultRule": "kip848_client.broker.faults",
    "Faults": "kip848_client.broker.faults",
    "GroupSnapshot": "kip848_client.broker.snapshots",
    "LoggedRequest": "kip848_client.broker.logged_request",
    "MemberSnapshot": "kip848_client.broker.snapshots",
    "NodeSnapshot": "kip848_client.broker.nodes",
    "RequestLog": "kip848_client.broker.request_log",
    "TransactionSnapshot": "kip848_client.broker.transactions",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used (PEP 562), so that importing one part does not load all parts."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
