"""The session, its Java, and what all of this package does with Spark's own API.

Here belongs what is true of any Spark program. Not here: Kafka.
"""
