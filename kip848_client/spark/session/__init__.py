"""The session, its Java, and what all of this package does with Spark's own API.

Here belongs code that any Spark program could use. Not here: Kafka.
"""
