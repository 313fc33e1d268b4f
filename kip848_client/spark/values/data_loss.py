"""The error for records that were lost before a query read them. Callers detect the loss."""

from __future__ import annotations

from typing import Final

from kip848_client.errors import Kip848Error

_ADVICE: Final = (
    "Some records may have been missed: they were deleted by retention, or the topic was deleted or made anew. "
    "To go on all the same, set failOnDataLoss to false"
)


class DataLossError(Kip848Error):
    """Records are gone, and failOnDataLoss is on."""


def data_loss(what: str) -> DataLossError:
    """The error for a loss that *what* describes."""
    return DataLossError(f"{what}. {_ADVICE}")
