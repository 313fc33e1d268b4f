"""The Spark session of `tests.spark`, for what takes too long to be there."""

from __future__ import annotations

from tests.spark.conftest import spark

__all__ = ["spark"]
