"""``kip848 consume``: join a group and print its records on stdout, rebalances on stderr.

::

    kip848 consume orders --bootstrap 127.0.0.1:9092 --group billing --from-beginning
    kip848 consume orders payments --bootstrap 127.0.0.1:9092 --group billing --json --max 100
    kip848 consume '^orders-.*' --bootstrap 127.0.0.1:9092 --group billing -X client.rack=eu-1

It is a full member of the group: it shares the partitions, commits the printed records, and leaves at the end.
Ctrl-C and SIGTERM end it cleanly.
"""

from __future__ import annotations

import argparse
import base64
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from kip848_client.cli.shared.properties import add_client_arguments, read_properties
from kip848_client.errors import ConfigError
from kip848_client.json_text import to_json
from kip848_client.logs import LOGGER, LogEvent
from kip848_client.plain_text import counted, printable

if TYPE_CHECKING:
    from kip848_client import Consumer

BATCH_RECORDS: Final = 500
POLL_S: Final = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("topics", metavar="TOPIC", nargs="+", help="a topic; '^...' is a pattern in RE2 syntax")
    parser.add_argument("--group", metavar="GROUP", required=True, help="the group to join")
    parser.add_argument("--from-beginning", action="store_true", help="without a committed offset start at the oldest")
    parser.add_argument("--max", metavar="N", type=int, help="end after N records")
    parser.add_argument("--json", action="store_true", help="print each record as one JSON object per line")
    parser.add_argument("--quiet", "-q", action="store_true", help="do not print rebalances")
    add_client_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print records until --max is reached or a signal comes.

    Raises:
        ConfigError: an option does not parse, or the consumer refuses a property.
        Kip848Error: the consumer raised it.
    """
    from kip848_client import Consumer  # here, so that the options can be listed without loading librdkafka

    if arguments.max is not None and arguments.max < 1:
        raise ConfigError(f"--max {arguments.max}: at least one record is needed")
    conf = consumer_conf(arguments)
    spell = speller(as_json=arguments.json)
    with tell_troubles(), stop_on_signal() as stopped, Consumer(conf) as consumer:
        subscribe(consumer, arguments.topics, quiet=arguments.quiet)
        printed = 0
        while not stopped.is_set() and printed != arguments.max:
            wanted = BATCH_RECORDS if arguments.max is None else min(BATCH_RECORDS, arguments.max - printed)
            messages = [message for message in consumer.consume(wanted, POLL_S) if message.error() is None]
            for message in messages:
                sys.stdout.buffer.write(spell(message) + b"\n")
            if messages:
                sys.stdout.buffer.flush()  # printed before it can be committed
                printed += len(messages)
    if not arguments.quiet:
        print(counted(printed, "record"), file=sys.stderr)
    return 0


def consumer_conf(arguments: argparse.Namespace) -> dict[str, str]:
    """Build the consumer's configuration: the command line wins over files, and both over the defaults.

    Raises:
        ConfigError: a property without ``=``, or a file that cannot be read.
    """
    options = {"group.id": arguments.group}
    if arguments.from_beginning:
        options["auto.offset.reset"] = "earliest"
    return {
        "client.id": "kip848-consume",
        "auto.offset.reset": "latest",
        "log_level": "2",  # librdkafka would repeat each refused connection twenty times a second
        **read_properties(arguments, role="member", options=options),
    }


def subscribe(consumer: Consumer, topics: Sequence[str], *, quiet: bool) -> None:
    """Subscribe, and print assigned and revoked partitions on standard error."""

    def say(what: str, partitions: Sequence[Any]) -> None:
        if not quiet:
            names = ", ".join(f"{partition.topic}-{partition.partition}" for partition in partitions) or "nothing new"
            print(f"% {what} {printable(names)} (member epoch {consumer.member_epoch})", file=sys.stderr, flush=True)

    consumer.subscribe(
        list(topics),
        on_assign=lambda _consumer, partitions: say("assigned", partitions),
        on_revoke=lambda _consumer, partitions: say("revoked", partitions),
        on_lost=lambda _consumer, partitions: say("lost", partitions),
    )


def speller(*, as_json: bool) -> Callable[[Any], bytes]:
    """How records are printed: as JSON, or as values, which must not control a terminal."""
    if as_json:
        return spell_json
    return spell_for_terminal if sys.stdout.isatty() else spell_value


def spell_for_terminal(message: Any) -> bytes:
    """The value as text; what a terminal would obey is escaped, except line breaks and tabs."""
    text = spell_value(message).decode("utf-8", "backslashreplace")
    return printable(text, keep="\n\t").encode("utf-8", "backslashreplace")


def spell_value(message: Any) -> bytes:
    """The value unchanged; empty for a tombstone."""
    value = message.value()
    return bytes(value) if value is not None else b""


def spell_json(message: Any) -> bytes:
    """The record as one JSON object. Bytes that are not UTF-8 come as ``{"base64": "..."}``."""
    kind, timestamp_ms = message.timestamp()
    return to_json(
        {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp_ms": timestamp_ms if kind else None,
            "key": _readable(message.key()),
            "value": _readable(message.value()),
            "headers": [[name, _readable(value)] for name, value in message.headers() or ()],
        }
    ).encode()


def _readable(data: bytes | str | None) -> str | dict[str, str] | None:
    if data is None or isinstance(data, str):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


class Troubles(logging.Handler):
    """Prints the client's warnings and errors; consecutive equal texts once."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one log record."""
        text = record.getMessage()
        failed_request = getattr(record, "kip848_event", None) == LogEvent.REQUEST_FAILED.value
        if (failed_request or record.levelno >= logging.WARNING) and text != self._last:
            self._last = text
            print(f"% {printable(text)}", file=sys.stderr, flush=True)


@contextmanager
def tell_troubles() -> Iterator[None]:
    """Print the client's warnings on standard error, such as a broker that does not answer."""
    handler, level_before = Troubles(), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOGGER.setLevel(level_before)
        LOGGER.removeHandler(handler)


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Turn the first SIGINT or SIGTERM into an event; a second SIGINT interrupts as usual."""
    stopped = threading.Event()

    def stop(number: int, _frame: FrameType | None) -> None:
        stopped.set()
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
