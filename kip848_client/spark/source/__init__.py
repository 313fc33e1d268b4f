"""``format("kip848")`` for reading: batches, streams, their tasks, and planned stops.

Here belongs what Spark calls to read. Not here: writing (`sink`), and membership (`group`).
"""
