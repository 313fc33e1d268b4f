"""The kinds of groups that the coordinator has: a new kind is one more row here. See `core.kind.GroupKind`."""

from __future__ import annotations

from typing import Any, Final

from kip848_client.testing.coordinator.classic.classic_kind import ClassicKind
from kip848_client.testing.coordinator.connect.connect_kind import ConnectKind
from kip848_client.testing.coordinator.consumer.consumer_kind import ConsumerKind
from kip848_client.testing.coordinator.core.kind import GroupKind
from kip848_client.testing.coordinator.share.share_kind import ShareKind

KINDS: Final[tuple[type[GroupKind[Any]], ...]] = (ClassicKind, ConsumerKind, ShareKind, ConnectKind)
"""All kinds of groups, in the order in which they are loaded."""
