"""Tests of `AsyncConsumer`, on asyncio and trio."""
