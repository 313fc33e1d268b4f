"""Groups without members that commit all the time, so that the log of commits is as busy as that of a large cluster.

``python -m tests.soak.diary.committer BOOTSTRAP COMMITS-A-SECOND``; runs until it is killed, or ends at once if the
rate is 0. A commit here is a record of ``__consumer_offsets``; a request has one for each of `PARTITIONS`. Groups
without members have no findings.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

TOPIC: Final = "committed-only"
GROUPS: Final[Sequence[str]] = [f"committer-{number}" for number in range(8)]
PARTITIONS: Final = 25


def commit(bootstrap: str, group_id: str, commits_per_second: float) -> None:
    """Commit one offset after the other, each when the one before has been answered."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group_id, "enable.auto.commit": False, "log_level": 0}
    )
    due_s = time.monotonic()
    for offset in itertools.count():
        offsets = [TopicPartition(TOPIC, partition, offset) for partition in range(PARTITIONS)]
        with contextlib.suppress(KafkaException):  # the busy machine; the rate that was reached is measured
            consumer.commit(offsets=offsets, asynchronous=False)
        due_s += PARTITIONS / commits_per_second
        time.sleep(max(0.0, due_s - time.monotonic()))  # this is the rate


def main(bootstrap: str, commits_per_second: float) -> None:
    """Run all groups; none if the rate is 0."""
    for group_id in GROUPS if commits_per_second > 0 else ():
        threading.Thread(target=commit, args=(bootstrap, group_id, commits_per_second / len(GROUPS))).start()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
