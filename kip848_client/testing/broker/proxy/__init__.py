"""`FaultProxy`: a proxy that injects faults in front of a real Kafka cluster.

Here belongs what passes requests on. Not here: the faults themselves (`kip848_client.testing.faults`, `net`).
"""
