"""`PartitionAssignor`: the interface, helpers to write one, checks and pictures, and those of the classic protocol.

Here belong the input of an assignor on a member, and its interface. Not here: ready ones (`library`).
"""
