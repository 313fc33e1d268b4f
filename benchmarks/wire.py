"""Speed of our codec against kio's, which is compiled to native code for reading. Bodies of messages, without headers.

::

    python benchmarks/wire.py                   # a table
    python benchmarks/wire.py --json            # the same as one JSON object
    python benchmarks/wire.py --json-file out.json

Both sides do the same work in the same process, turn by turn, and each round gives one ratio: what else the machine
does hits both. Read the ratios (above 1: ours is faster); the microseconds belong to this machine.
"""

from __future__ import annotations

import argparse
import io
import json
import platform
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from kio import index
from kio.serial import entity_reader, entity_writer
from report_file import keep

from kip848_client.wire.compiler.compiler import decode_body, encode_body
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kip848_client.wire.schema import ApiMessage, Request

ROUNDS_DEFAULT = 15
ROUND_S = 0.02
"""How long one side runs in one round."""

MEMBER = "5f2b1c1e-6f0f-4c5e-9d3f-0b8c6c1a2d3e"
TOPICS = tuple(uuid.UUID(int=n + 1) for n in range(20))


class Subject(NamedTuple):
    """A message to measure."""

    name: str
    message: ApiMessage
    version: int


SUBJECTS = (
    Subject(
        "heartbeat request, steady",
        ConsumerGroupHeartbeatRequest(group_id="orders", member_id=MEMBER, member_epoch=42),
        1,
    ),
    Subject(
        "heartbeat request, join",
        ConsumerGroupHeartbeatRequest(
            group_id="orders",
            member_id=MEMBER,
            instance_id="instance-1",
            rack_id="rack-a",
            rebalance_timeout_ms=300_000,
            subscribed_topic_names=tuple(f"topic-{n}" for n in range(10)),
            server_assignor="uniform",
            topic_partitions=(),
        ),
        1,
    ),
    Subject(
        "heartbeat response, steady",
        ConsumerGroupHeartbeatResponse(member_id=MEMBER, member_epoch=42, heartbeat_interval_ms=5_000),
        1,
    ),
    Subject(
        "heartbeat response, 20 topics of 10",
        ConsumerGroupHeartbeatResponse(
            member_id=MEMBER,
            member_epoch=42,
            heartbeat_interval_ms=5_000,
            assignment=Assignment(tuple(TopicPartitions(topic, tuple(range(10))) for topic in TOPICS)),
        ),
        1,
    ),
    Subject(
        "OffsetCommit request, 100 partitions",
        OffsetCommitRequest(
            group_id="orders",
            member_id=MEMBER,
            generation_id_or_member_epoch=42,
            topics=(
                OffsetCommitRequestTopic(
                    name="topic",
                    partitions=tuple(OffsetCommitRequestPartition(n, 1_000_000 + n, 3) for n in range(100)),
                ),
            ),
        ),
        9,
    ),
    Subject(
        "Metadata response, 1,000 partitions",
        MetadataResponse(
            brokers=tuple(MetadataResponseBroker(n, f"broker-{n}", 9092) for n in range(3)),
            cluster_id="cluster",
            topics=tuple(
                MetadataResponseTopic(
                    name=f"topic-{n}",
                    topic_id=topic,
                    partitions=tuple(
                        MetadataResponsePartition(0, p, p % 3, 5, (0, 1, 2), (0, 1, 2), ()) for p in range(50)
                    ),
                )
                for n, topic in enumerate(TOPICS)
            ),
        ),
        12,
    ),
)


class Pair(NamedTuple):
    """The same work, done by both."""

    name: str
    ours: Callable[[], object]
    theirs: Callable[[], object]


def pairs() -> list[Pair]:
    """Encoding and decoding of every subject; checks first that both sides make the same bytes."""
    found = []
    for subject in SUBJECTS:
        message, number = subject.message, subject.version
        load = index.load_request_schema if isinstance(message, Request) else index.load_response_schema
        schema: Any = load(message.WIRE.api_key, number)
        read, write = entity_reader(schema), entity_writer(schema)
        body = _encode_ours(message, number)
        their_message, _ = read(body, 0)
        if body != _encode_theirs(write, their_message):
            raise SystemExit(f"{subject.name}: the bytes differ, so a comparison of their speed means nothing")
        cls = type(message)
        found += [
            Pair(
                f"encode {subject.name}",
                lambda message=message, number=number: _encode_ours(message, number),  # type: ignore[misc]
                lambda write=write, their_message=their_message: _encode_theirs(write, their_message),  # type: ignore[misc]
            ),
            Pair(
                f"decode {subject.name}",
                lambda cls=cls, number=number, body=body: decode_body(cls, number, body, 0),  # type: ignore[misc]
                lambda read=read, body=body: read(body, 0),  # type: ignore[misc]
            ),
        ]
    return found


def compare(pair: Pair, *, rounds: int) -> dict[str, Any]:
    """Medians over *rounds* interleaved rounds."""
    turns = max(1, int(ROUND_S / _seconds(pair.ours, 3)))
    their_turns = max(1, int(ROUND_S / _seconds(pair.theirs, 3)))
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(rounds):
        sides = [(pair.ours, turns, ours), (pair.theirs, their_turns, theirs)]
        for work, count, times in sides if number % 2 == 0 else sides[::-1]:
            times.append(_seconds(work, count))
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    return {
        "case": pair.name,
        "ratio": round(statistics.median(ratios), 2),
        "ratio_min": round(min(ratios), 2),
        "ratio_max": round(max(ratios), 2),
        "ours_us": round(statistics.median(ours) * 1e6, 2),
        "kio_us": round(statistics.median(theirs) * 1e6, 2),
    }


def main() -> int:
    """Run the comparison; the status says whether it could be made, not whether we won."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS_DEFAULT)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--json-file", type=Path, help="keep the result here")
    parser.add_argument("--quick", action="store_true", help="three rounds: to see that it works")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds = 3
    result = {
        "benchmark": "wire",
        "rounds": arguments.rounds,
        "machine": {"python": platform.python_version(), "system": platform.platform()},
        "versions": {name: version(name) for name in ("kip848_client", "kio")},
        "comparisons": [compare(pair, rounds=arguments.rounds) for pair in pairs()],
    }
    keep(result, arguments)
    if arguments.json:
        print(json.dumps(result))
    else:
        _print_table(result["comparisons"])
    return 0


def _encode_ours(message: ApiMessage, number: int) -> bytes:
    pieces: list[bytes] = []
    encode_body(message, number, pieces)
    return b"".join(pieces)


def _encode_theirs(write: Any, message: Any) -> bytes:
    buffer = io.BytesIO()
    write(buffer, message)
    return buffer.getvalue()


def _seconds(work: Callable[[], object], turns: int) -> float:
    start = time.perf_counter()
    for _ in range(turns):
        work()
    return (time.perf_counter() - start) / turns


def _print_table(comparisons: Any) -> None:
    print(f"{'case':<46}{'ours us':>10}{'kio us':>10}{'kio / ours':>12}  (min, max)")
    for row in comparisons:
        spread = f"({row['ratio_min']}, {row['ratio_max']})"
        print(f"{row['case']:<46}{row['ours_us']:>10}{row['kio_us']:>10}{row['ratio']:>12}  {spread}")


if __name__ == "__main__":
    sys.exit(main())
