"""The longer commands of ``kip848 groups``: watch, export, record and reset, and the reading of ``__consumer_offsets``.

Here belongs what ``kip848 groups`` calls, and ``kip848 report`` for a cluster. Not here: what the records of groups
mean (`tools.recorder`).
"""
