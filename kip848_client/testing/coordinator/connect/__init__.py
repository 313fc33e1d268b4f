"""Connect groups: workers that share named units, each unit with one worker.

Belongs here: their state (`connect_group`), requests and records, and Kafka Connect's classic bytes. Does not: epochs
and reconciliation, which are those of every group with heartbeats (`modern`).
"""
