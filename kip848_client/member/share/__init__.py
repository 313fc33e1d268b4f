"""A member of a share group, pure: its heartbeats, its share sessions, and the records that it has acquired.

Here belongs every rule of KIP-932's client side. Not here: threads, connections and handlers (`kip848_client.share`).
"""
