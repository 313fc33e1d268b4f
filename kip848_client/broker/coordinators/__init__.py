"""Hosts of the pure coordinators of groups and transactions: records, time, metrics, and which node has which.

Here belongs what carries out the results of `kip848_client.coordinator` and `kip848_client.transactions`. Not here: any
decision of a protocol.
"""
