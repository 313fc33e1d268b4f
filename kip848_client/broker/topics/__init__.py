"""Topics and their records: the registry, waiting fetches, fetch sessions, retention, ``__consumer_offsets``.

Here belongs what serves records. Not here: the log of one partition (`kip848_client.partition_log`), which is pure, and
the files (`storage`).
"""
