"""What a member of a share group says about a record that it has acquired."""

from __future__ import annotations

import enum
from typing import Final


class AcknowledgeType(enum.IntEnum):
    """What is said about an acquired record. Values and names are Kafka's."""

    ACCEPT = 1
    """It was handled, and is never delivered again."""
    RELEASE = 2
    """It was not handled: it may be delivered again at once, here or elsewhere, unless its deliveries are used up."""
    REJECT = 3
    """It cannot be handled, and is never delivered again."""
    RENEW = 4
    """It is still being handled: its lock begins anew. Needs ShareFetch version 2 (Kafka 4.2)."""


GAP: Final = 0
"""Said of an acquired offset that holds no record: a transaction's marker, or one that compaction removed."""
