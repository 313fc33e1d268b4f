"""The control plane of every client: connections to brokers, requests, metadata, and their logs and metrics.

Here belongs what speaks Kafka's wire and knows no record. Not here: librdkafka (`consumer.records`), the calls
of applications.
"""
