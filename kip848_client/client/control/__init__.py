"""The control plane: connections to brokers, requests, metadata, and their logs and metrics.

Here belongs what speaks Kafka's wire and knows no record. Not here: librdkafka (`records`), the application's calls.
"""
