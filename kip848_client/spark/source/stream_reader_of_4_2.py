"""A stream as Spark calls it from 4.2 on, with the start and limit of a batch, and with Trigger.AvailableNow."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kip848_client.spark.source.stream_reader import KafkaStreamReader


class LimitedStreamReader(KafkaStreamReader, SupportsTriggerAvailableNow):
    """A stream whose batches have limits."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of maxOffsetsPerTrigger."""
        rows_max = self._options.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End when everything is read that was there at the first trigger."""
        self._running().bound()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Join the group in the first call, end the previous batch, and plan the next."""
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._running().latest(start, rows_max=rows_max)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the owned partitions."""
        return self._stream.report() if self._stream is not None else None
