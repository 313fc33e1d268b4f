"""Rebalance analytics on Spark: event logs and groups' records in, tables and pages out.

Here belong counts over many groups. Not here: the figures of one group (`kip848_client.tools.report`).
"""
