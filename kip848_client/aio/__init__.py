"""The consumer for programs that await, on asyncio and trio. `consumer` has it; `owner_thread` is what it stands on."""

from __future__ import annotations

from kip848_client.aio.consumer import AsyncConsumer, AsyncConsumerRebalanceListener

__all__ = ["AsyncConsumer", "AsyncConsumerRebalanceListener"]
