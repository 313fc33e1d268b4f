"""``python -m tests.interop.embedded.share_worker ADDRESS GROUP TOPIC MODE``: a worker on librdkafka's ShareConsumer.

It says on standard output, one line each: ``took PARTITION OFFSET COUNT ...`` for the records of a poll, and ``done
PARTITION OFFSET ...`` once they are accepted. MODE is ``implicit`` (a poll accepts the records of the one before),
``sync`` or ``async`` (each record is accepted, then all are committed so). It ends when standard input does.
"""

from __future__ import annotations

import sys
import threading

from confluent_kafka import AcknowledgeType, KafkaException, Messages, ShareConsumer, TopicPartition


def main(address: str, group_id: str, topic: str, mode: str) -> None:
    """Work until standard input ends."""
    ended = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    explicit = "implicit" if mode == "implicit" else "explicit"
    consumer = ShareConsumer(
        {"bootstrap.servers": address, "group.id": group_id, "share.acknowledgement.mode": explicit}
    )
    consumer.set_acknowledgement_commit_callback(accepted)
    consumer.subscribe([topic])
    while not ended.is_set():
        batch = consumer.poll(0.2)
        took(batch)
        if mode == "implicit":
            continue
        for message in batch:
            consumer.acknowledge(message, AcknowledgeType.ACCEPT)
        if mode == "sync":
            consumer.commit_sync()
        else:
            consumer.commit_async()
    consumer.close()


def took(batch: Messages) -> None:
    places = [f"{message.partition()} {message.offset()} {message.delivery_count()}" for message in batch]
    if places:
        print("took", *places, flush=True)


def accepted(offsets: dict[TopicPartition, set[int]], error: KafkaException | None) -> None:
    for place, done in offsets.items():
        if error is None:
            print("done", *(f"{place.partition} {offset}" for offset in sorted(done)), flush=True)
        else:
            print("refused", error, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
