"""Limits of one administrative request. A larger one would delay other requests by over a tenth of a second."""

from __future__ import annotations

from typing import Final

from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.topics.registry import PARTITIONS_MAX

CREATED_MAX: Final = 1_000
"""Topics that one request creates or lets grow."""
DESCRIBED_MAX: Final = 300
"""Resources whose configuration one request describes; each has over thirty settings, which are sent at once."""


class Budget:
    """Counts what one request has asked for so far.

    Args:
        resources_max: how many topics or resources it may ask for.
    """

    def __init__(self, resources_max: int = CREATED_MAX) -> None:
        self._resources_max: Final = resources_max
        self._resources = 0
        self._partitions = 0

    def take(self, *, partitions: int = 0) -> None:
        """Count one resource, and the partitions that it adds.

        Raises:
            BrokerError: POLICY_VIOLATION; it is one too many.
        """
        if self._resources >= self._resources_max:
            raise BrokerError(
                f"more than {self._resources_max} topics or resources in one request; send the rest in another",
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
