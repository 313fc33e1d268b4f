"""The common part of consumer groups and connect groups: members with epochs, targets, and the way towards them.

Belongs here: what holds for any group whose members send heartbeats with an epoch (Kafka's ``group.modern``). Does not:
what members share (topics or units), and the requests and records of one kind.
"""
