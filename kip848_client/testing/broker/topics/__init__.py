"""Topics and their records: the registry, waiting fetches, fetch sessions, retention, ``__consumer_offsets``.

Here belongs what serves records. Not here: the log of one partition, which is pure (`testing.partitions`), and
the files (`storage`).
"""
