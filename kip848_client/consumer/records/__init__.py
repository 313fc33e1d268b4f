"""The data plane: records through librdkafka, its errors, logs and questions to brokers.

Here belongs what uses confluent_kafka. Not here: membership and commits.
"""
