"""Consumer groups: members that subscribe to topics and send ConsumerGroupHeartbeat.

Belongs here: their state, requests and records, and subscriptions by pattern. Does not: the arithmetic of epochs and
assignments (`modern`), and the classic protocol itself (`classic`).
"""
