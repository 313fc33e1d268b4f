"""The core of ``process()``: which record is handled when, and what may be committed. Pure.

Here belongs what asynchronous and threaded processing share. Not here: tasks, threads, and calls of the consumer
(`kip848_client.consumer.processing`, `kip848_client.aio.processing`).
"""
