"""Connections and requests: frames, limits, TLS, the request log, injected faults, and calls from other threads.

Here belongs code that is the same for every API. Not here: what any API means, and who may call it.
"""
