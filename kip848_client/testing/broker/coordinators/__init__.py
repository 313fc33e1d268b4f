"""Hosts of the pure coordinators of groups and transactions: records, time, metrics, and which node has which.

Here belongs what carries out the results of `testing.coordinator` and `testing.transactions`. Not here: any decision
of a protocol.
"""
