"""The embedded broker: a loopback Kafka broker that any client can use, in this process; and the fault proxy.

Here belongs everything that serves Kafka's protocol. Users import its names from `kip848_client.testing`.
"""
