"""The protocol of KIP-848: heartbeats, reconciliation, hand-over and client-side assignors.

Here belongs what only consumer groups have. Not here: steps that classic groups take, too (`group`).
"""
