"""Checks of what librdkafka does not tell: records that it leaves out, and positions that do not move.

They ask the leaders of partitions over connections of their own.
"""
