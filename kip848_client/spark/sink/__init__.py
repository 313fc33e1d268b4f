"""``format("kip848")`` for writing: batches and streams.

Here belongs what Spark calls to write. Not here: reading.
"""
