"""Logging in: the mechanisms, the conversation on a connection, and sessions that end.

Here belongs what proves who a client is. Not here: encryption (`wire.tls`), and what the broker lets a user do.
"""
