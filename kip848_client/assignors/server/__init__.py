"""The algorithms that a coordinator runs: ``range``, ``uniform`` and ``uniform-rack-aware``.

Here belongs what works on the coordinator's own data. Not here: `PartitionAssignor` and what users write.
"""
