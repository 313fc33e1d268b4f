"""``kip848 retries``: what waits in retry topics and dead letters; hand it in again, drop it, move it.

::

    kip848 retries list orders-dead orders-retry --bootstrap 127.0.0.1:9092
    kip848 retries replay orders-dead --error OSError --since 2026-11-29T10:00 --bootstrap 127.0.0.1:9092
    kip848 retries drop orders-dead --error ValueError --limit 10 --bootstrap 127.0.0.1:9092
    kip848 retries move orders-dead --to orders-parked --bootstrap 127.0.0.1:9092

NAME is a topic of dead letters, a retry topic, or the name of ``RetryTopics``, for all of its topics. A record that was
replayed, dropped or moved is done: it is not listed again, and a repeated call does not take it again. It stays in its
topic until retention removes it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kip848_client.admin import Admin
from kip848_client.cli.shared.options import add_question_arguments
from kip848_client.cli.shared.properties import read_properties
from kip848_client.cli.shared.tables import table
from kip848_client.common.json_text import to_json
from kip848_client.common.plain_text import counted, printable
from kip848_client.errors import ConfigError
from kip848_client.member.processing.tiers import FailureHeaders, without_own
from kip848_client.tools.records.failed_records import FailedRecord, FailedRecords, by_error, topics_of
from kip848_client.tools.report.wording import duration
from kip848_client.tools.shared.admin_client import client_conf

_ERROR_CHARS: Final = 60


class Waiting(msgspec.Struct, frozen=True):
    """Records of one topic that have failed with one kind of error, and are not done.

    Attributes:
        error: the type; `example` is the whole text of the last one.
        first_ms, last_ms: when the first and the last of them failed.
        due_ms: when the first of them is due, in a retry topic.
    """

    topic: str
    group: str
    error: str
    records: int
    first_ms: int
    last_ms: int
    due_ms: int | None
    example: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, help_text in (
        ("list", "how many records wait, since when, by error"),
        ("replay", "hand records in again: to the retry topics of their group, else to the topic that they came from"),
        ("drop", "call records done that nobody needs"),
        ("move", "write records to another topic as they are, with all headers"),
    ):
        action = actions.add_parser(name, help=help_text)
        action.add_argument(
            "names", metavar="NAME", nargs="+", help="a topic of dead letters, or the name of retry topics"
        )
        action.add_argument("--group", metavar="ID", help="records of this group")
        action.add_argument("--error", metavar="TEXT", help="records whose error has this text")
        action.add_argument("--since", metavar="TIME", type=_time, help="that failed then or later: 2026-11-29T10:00")
        action.add_argument("--before", metavar="TIME", type=_time, help="that failed before")
        if name != "list":
            action.add_argument("--limit", metavar="N", type=int, help="so many records at most")
            action.add_argument("--dry-run", action="store_true", help="only say how many")
        if name in {"replay", "move"}:
            action.add_argument("--to", metavar="TOPIC", required=name == "move", help="where to")
        add_question_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    """Run the action.

    Raises:
        ConfigError: there is no such topic.
        IllegalStateError: a retry topic's group has members.
        Kip848Error: no broker answers, or it refuses.
    """
    conf = {
        "client.id": "kip848-retries",
        "log_level": "2",
        **read_properties(arguments, role="member", options={"group.id": "kip848-retries"}),
    }
    with Admin(read_properties(arguments)) as admin:
        found = FailedRecords(admin, conf, partial(_chosen, arguments), timeout_s=arguments.timeout)
        topics = [topic for name in arguments.names for topic in topics_of(admin, name, timeout_s=arguments.timeout)]
        if arguments.action == "list":
            return _list(found, topics, as_json=arguments.json)
        return _take(found, topics, admin, arguments)


def _time(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-11-29T10:00 or ...+01:00") from error


def _chosen(arguments: argparse.Namespace, record: FailedRecord) -> bool:
    failed = record.failed
    if arguments.group is not None and (failed is None or failed.group != arguments.group):
        return False
    if arguments.error is not None and (failed is None or arguments.error not in failed.error):
        return False
    if arguments.since is not None and record.failed_ms < arguments.since:
        return False
    return arguments.before is None or record.failed_ms < arguments.before


# --- list


def _list(found: FailedRecords, topics: Sequence[str], *, as_json: bool) -> int:
    kinds = [
        _kind(topic, group, error, records)
        for topic in topics
        for (group, error), records in sorted(by_error(found.waiting(topic)).items())
    ]
    if as_json:
        print(to_json({"waiting": kinds}))
        return 0
    if not kinds:
        print("nothing waits")
        return 0
    now_ms = time.time_ns() // 1_000_000
    rows = [
        (
            printable(kind.topic),
            printable(kind.group),
            f"{kind.records:,}",
            _at(kind.first_ms),
            _at(kind.last_ms),
            "-" if kind.due_ms is None else _in(kind.due_ms - now_ms),
            printable(kind.example[:_ERROR_CHARS]),
        )
        for kind in kinds
    ]
    print(table(("TOPIC", "GROUP", "RECORDS", "FIRST FAILED", "LAST FAILED", "DUE", "ERROR"), rows))
    return 0


def _kind(topic: str, group: str, error: str, records: Sequence[FailedRecord]) -> Waiting:
    last = max(records, key=lambda record: record.failed_ms)
    dues = [record.failed.due_ms for record in records if record.failed and record.failed.due_ms is not None]
    return Waiting(
        topic=topic,
        group=group,
        error=error,
        records=len(records),
        first_ms=min(record.failed_ms for record in records),
        last_ms=last.failed_ms,
        due_ms=min(dues, default=None),
        example="-" if last.failed is None else last.failed.error,
    )


def _at(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _in(ms: int) -> str:
    return "now" if ms <= 0 else f"in {duration(ms)}"


# --- replay, drop, move


def _take(found: FailedRecords, topics: Sequence[str], admin: Admin, arguments: argparse.Namespace) -> int:
    if arguments.limit is not None and arguments.limit < 1:
        raise ConfigError(f"--limit {arguments.limit}: give 1 or more")
    done, verb = 0, {"replay": "replayed", "drop": "dropped", "move": "moved"}[arguments.action]
    to = getattr(arguments, "to", None)
    if arguments.dry_run:
        for topic in topics:
            count = sum(1 for _ in found.waiting(topic))
            print(f"{printable(topic)}: {counted(count, 'record')} would be {verb}")
        return 0
    if to in topics:
        raise ConfigError(f"--to {to}: the records are there; give another topic")
    calls = _calls(arguments, topics)
    if to is not None:
        admin.list_topics([to], timeout_s=arguments.timeout).raise_errors()
    for topic in topics:
        left = None if arguments.limit is None else arguments.limit - done
        write = partial(_written, arguments.action, to=to)
        count = 0 if left == 0 else found.take(topic, calls, write, limit=left)
        done += count
        print(f"{printable(topic)}: {counted(count, 'record')} {verb}")
    return 0


def _calls(arguments: argparse.Namespace, topics: Sequence[str]) -> Any:
    """A producer that ends what another call of this command for the same topics is at."""
    from confluent_kafka import KafkaException, Producer  # here, so that the options can be listed without librdkafka

    from kip848_client.consumer.transactions.producer_calls import ProducerCalls

    settings = {
        **client_conf(arguments, role="producer", options={}),
        "transactional.id": f"kip848-retries-{topics[0]}",
        "enable.idempotence": "true",
    }
    try:
        calls = ProducerCalls(Producer(settings))
    except KafkaException as error:
        raise ConfigError(f"{error.args[0].str()}") from error
    calls.give_up_s = time.monotonic() + max(60.0, arguments.timeout)
    calls.initialise()
    return calls


def _of(record: FailedRecord, topic: str, headers: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    message = record.message
    return {"topic": topic, "key": message.key(), "value": message.value(), "headers": list(headers)}


def _written(action: str, record: FailedRecord, *, to: str | None) -> dict[str, Any] | None:
    if action == "drop":
        return None
    if action == "replay":
        return _replayed(record, to=to)
    assert to is not None
    return _moved(record, to=to)


def _replayed(record: FailedRecord, *, to: str | None) -> dict[str, Any]:
    """To the first retry topic of its group, due at once, with no attempts so far; else to where it came from."""
    failed, own = record.failed, without_own(record.message.headers())
    if to is not None:
        return _of(record, to, own)
    if failed is None:
        raise ConfigError(
            f"{record.partition} at offset {record.offset} has no headers that say where it came from; give --to"
        )
    if failed.retries is not None and failed.group is not None:
        again: FailureHeaders = replace(failed, due_ms=time.time_ns() // 1_000_000, attempts=0)
        return _of(record, f"{failed.retries}-1", [*own, *again.headers()])
    return _of(record, failed.topic, own) | {"partition": failed.partition}


def _moved(record: FailedRecord, *, to: str) -> dict[str, Any]:
    kind, timestamp_ms = record.message.timestamp()
    moved = _of(record, to, record.message.headers() or ())
    return moved | ({"timestamp": timestamp_ms} if kind else {})
