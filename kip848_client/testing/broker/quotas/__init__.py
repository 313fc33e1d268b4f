"""Quotas of clients: who has which, and by how much a client that exceeds one is throttled.

Here belongs what Kafka's ``ClientQuotaManager`` does. Not here: the APIs that show and change quotas.
"""
