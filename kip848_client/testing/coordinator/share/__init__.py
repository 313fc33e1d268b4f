"""Share groups (KIP-932): members, epochs and targets, and which partitions a group has begun.

What is delivered of a partition is not known here: share partitions are elsewhere.
"""
