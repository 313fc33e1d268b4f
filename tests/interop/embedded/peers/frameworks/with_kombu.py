"""Puts numbers into a queue of kombu, on which Celery is built, takes them out again and prints them."""

import sys

from kombu import Connection

bootstrap, count = sys.argv[1], int(sys.argv[2])
with Connection(f"confluentkafka://{bootstrap}") as connection, connection.SimpleQueue("numbers") as queue:
    for number in range(count):
        queue.put(number)
    for _ in range(count):
        message = queue.get(timeout=60)
        print(message.payload)
        message.ack()
