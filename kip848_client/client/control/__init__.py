"""The control plane: connections to brokers, requests, metadata, and what is told about them.

Here belongs what speaks Kafka's wire and knows no record. Not here: librdkafka (`records`), the application's calls.
"""
