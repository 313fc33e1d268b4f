"""Limits of one administrative request. A larger one would delay other requests by over a tenth of a second."""

from __future__ import annotations

from typing import Final

from kip848_client.broker.topics import PARTITIONS_MAX
from kip848_client.errors import BrokerError, ErrorCode

RESOURCES_MAX: Final = 1_000
"""Topics that one request creates, or resources whose configuration it describes."""


class Budget:
    """Counts what one request has asked for so far."""

    def __init__(self) -> None:
        self._resources = 0
        self._partitions = 0

    def take(self, *, partitions: int = 0) -> None:
        """Count one resource, and the partitions that it adds.

        Raises:
            BrokerError: POLICY_VIOLATION; it is one too many.
        """
        if self._resources >= RESOURCES_MAX:
            raise BrokerError(
                f"more than {RESOURCES_MAX} topics or resources in one request; send the rest in another",
                code=ErrorCode.POLICY_VIOLATION,
            )
        asked = self._partitions + max(partitions, 0)
        if asked > PARTITIONS_MAX:
            raise BrokerError(
                f"Excessively large number of partitions per request: {asked}, at most {PARTITIONS_MAX}",
                code=ErrorCode.POLICY_VIOLATION,
            )
        self._resources += 1
        self._partitions = asked
