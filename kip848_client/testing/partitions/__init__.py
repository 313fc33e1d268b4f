"""The records of one partition: the log itself, and what a producer may append to it.

Here belongs what the broker's topics and the simulation's cluster share. Pure: files are in `testing/broker/storage`.
"""
