"""Consumers, workers and transactions for asyncio and trio. A consumer (`consumer`) runs on `owner_thread`."""
