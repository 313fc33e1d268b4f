"""Reads a partition from its beginning with kafka-python 2.0: one value a line, as many as asked for."""

import sys

from kafka import KafkaConsumer, TopicPartition

bootstrap, topic, count = sys.argv[1:]
consumer = KafkaConsumer(bootstrap_servers=bootstrap)
partition = TopicPartition(topic, 0)
consumer.assign([partition])
consumer.seek_to_beginning(partition)
for _ in range(int(count)):
    print(next(consumer).value.decode())
consumer.close()
