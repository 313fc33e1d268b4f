"""The embedded broker: a loopback Kafka broker that any client can use, in this process; and the fault proxy.

The names below are the whole public surface; each is imported when first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kip848_client.broker.broker import EmbeddedBroker as EmbeddedBroker
    from kip848_client.broker.cluster.nodes import NodeSnapshot as NodeSnapshot
    from kip848_client.broker.coordinators.snapshots import GroupSnapshot as GroupSnapshot
    from kip848_client.broker.coordinators.snapshots import MemberSnapshot as MemberSnapshot
    from kip848_client.broker.coordinators.transaction_host import TransactionSnapshot as TransactionSnapshot
    from kip848_client.broker.net.faults import FaultRule as FaultRule
    from kip848_client.broker.net.faults import Faults as Faults
    from kip848_client.broker.net.listener_security import BrokerSasl as BrokerSasl
    from kip848_client.broker.net.listener_security import BrokerTls as BrokerTls
    from kip848_client.broker.net.logged_request import LoggedRequest as LoggedRequest
    from kip848_client.broker.net.request_log import RequestLog as RequestLog
    from kip848_client.broker.proxy.fault_proxy import FaultProxy as FaultProxy
    from kip848_client.broker.topics.records import BrokerRecord as BrokerRecord
    from kip848_client.broker.topics.records import NewRecord as NewRecord

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
    "BrokerRecord": "kip848_client.broker.topics.records",
    "NewRecord": "kip848_client.broker.topics.records",
    "BrokerSasl": "kip848_client.broker.net.listener_security",
    "BrokerTls": "kip848_client.broker.net.listener_security",
    "EmbeddedBroker": "kip848_client.broker.broker",
    "FaultProxy": "kip848_client.broker.proxy.fault_proxy",
    "FaultRule": "kip848_client.broker.net.faults",
    "Faults": "kip848_client.broker.net.faults",
    "GroupSnapshot": "kip848_client.broker.coordinators.snapshots",
    "LoggedRequest": "kip848_client.broker.net.logged_request",
    "MemberSnapshot": "kip848_client.broker.coordinators.snapshots",
    "NodeSnapshot": "kip848_client.broker.cluster.nodes",
    "RequestLog": "kip848_client.broker.net.request_log",
    "TransactionSnapshot": "kip848_client.broker.coordinators.transaction_host",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used (PEP 562), so that importing one part does not load all parts."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
