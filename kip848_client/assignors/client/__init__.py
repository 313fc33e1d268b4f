"""`PartitionAssignor`: the interface, helpers to write one, checks and pictures, and those of the classic protocol.

Here belongs what an assignor on a member is given, and what is asked of it. Not here: ready ones (`library`).
"""
