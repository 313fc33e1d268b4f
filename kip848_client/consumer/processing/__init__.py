"""``process()`` around the pure core: retries, dead letters, and handlers in threads.

Not here: handlers as tasks (`kip848_client.aio.processing`).
"""
