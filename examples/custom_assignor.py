"""Share partitions by the number of CPUs, with an assignor of your own.

    python examples/custom_assignor.py localhost:9092 orders      # as many CPUs as this process may use
    python examples/custom_assignor.py localhost:9092 orders 8    # as if it had eight

Start it on machines of different size, or twice here with different numbers: each process gets partitions in
proportion. The CPUs are asked for once in every heartbeat interval. When they change (`taskset`, a container that is
resized), the group is assigned anew, and only as many partitions move as must.

It runs on any Kafka: with `group.protocol=classic` the members of the group assign, and the broker only carries what
they say. On a coordinator with client-side assignment, such as `kip848 broker`, leave that line out.
"""

import os
import sys
from contextlib import suppress

from kip848_client import Consumer
from kip848_client.assignors import (
    AssignmentSpec,
    AssignorMetadata,
    ConsumerGroupMetadata,
    GroupAssignment,
    MemberAssignment,
    PartitionAssignor,
    spread_by_weight,
)


class ByCpus(PartitionAssignor):
    """Every member tells its number of CPUs; the member that is asked spreads the partitions by it."""

    name = "by-cpus"

    def __init__(self, cpus: int | None = None) -> None:
        self.cpus = cpus

    def metadata(self) -> AssignorMetadata:
        return AssignorMetadata(str(self.cpus or len(os.sched_getaffinity(0))).encode())

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        return spread_by_weight(spec, lambda member: int(member.metadata))

    def on_assignment(self, error: int, assignment: MemberAssignment, group_metadata: ConsumerGroupMetadata) -> None:
        partitions = tuple(assignment.partitions)
        print(f"epoch {group_metadata.member_epoch}: {len(partitions)} partitions, error {error}", flush=True)


def main(servers: str, topic: str, cpus: str = "0") -> None:
    conf = {
        "bootstrap.servers": servers,
        "group.id": "by-cpus",
        "auto.offset.reset": "earliest",
        "group.protocol": "classic",
        "group.local.assignors": ByCpus(int(cpus)),
    }
    with suppress(KeyboardInterrupt), Consumer(conf) as consumer:
        consumer.subscribe([topic])
        for message in consumer:
            print(message.topic(), message.partition(), message.offset(), message.value(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
