"""The consumer for asyncio and trio: `consumer`, which runs on `owner_thread`."""

from __future__ import annotations

from kip848_client.aio.consumer import AsyncConsumer, AsyncConsumerRebalanceListener

__all__ = ["AsyncConsumer", "AsyncConsumerRebalanceListener"]
