"""A long run against a real Apache Kafka: processes that are killed and stopped, topics that grow and are created anew.

``make soak`` runs it; ``python -m tests.soak --help`` says what can be set.
"""
