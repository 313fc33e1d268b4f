"""Assignors of units, for workers: the interface, Kafka Connect's two, and the plans that a coordinator makes.

Here belongs who runs which unit. Not here: partitions.
"""
