"""Decisions about the cluster's metadata, all pure: ACLs, leaders and replicas, settings and names of topics.

Here belongs what Kafka's controller decides from values alone. Not here: files, sockets, records, and what a node does
with a decision.
"""
