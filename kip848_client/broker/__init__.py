"""The embedded broker: a loopback Kafka broker that any client can use, in this process.

`EmbeddedBroker` is the whole public surface; it is imported when first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kip848_client.broker.broker import EmbeddedBroker as EmbeddedBroker
    from kip848_client.broker.snapshots import GroupSnapshot as GroupSnapshot
    from kip848_client.broker.snapshots import MemberSnapshot as MemberSnapshot

__all__ = ["EmbeddedBroker", "GroupSnapshot", "MemberSnapshot"]

_HOMES: Final = {
    "EmbeddedBroker": "kip848_client.broker.broker",
    "GroupSnapshot": "kip848_client.broker.snapshots",
    "MemberSnapshot": "kip848_client.broker.snapshots",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used (PEP 562), so that importing one part does not load all parts."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
