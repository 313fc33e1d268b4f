"""``kip848 consume``: print records on stdout: as a member of a group, or without one, from anywhere to anywhere.

::

    kip848 consume orders --from beginning --until end --json --bootstrap 127.0.0.1:9092
    kip848 consume orders --from -10 --format '%t-%p %o %k: %s\\n' --bootstrap 127.0.0.1:9092
    kip848 consume '^orders-.*' --from PT1H --until 2026-01-31T12:00:00Z --bootstrap 127.0.0.1:9092
    kip848 consume orders --value-as avro --registry http://127.0.0.1:8081 --bootstrap 127.0.0.1:9092
    kip848 consume orders payments --bootstrap 127.0.0.1:9092 --group billing --json --max 100
    kip848 consume mails --bootstrap 127.0.0.1:9092 --group mailers --share --acknowledge release

With ``--group`` it is a full member: it shares the partitions, commits the printed records, and leaves at the end;
rebalances are told on stderr. With ``--share``, too, it is a worker of a queue, and acknowledges the printed records.
Ctrl-C and SIGTERM end it cleanly.
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from kip848_client.cli.shared.options import request_timeout
from kip848_client.cli.shared.properties import add_client_arguments, read_properties
from kip848_client.cli.shared.signals import stop_on_signal
from kip848_client.common.logs import LOGGER, LogEvent
from kip848_client.common.plain_text import counted, printable
from kip848_client.errors import ConfigError
from kip848_client.tools.records import deserializers, without_group
from kip848_client.tools.records.places import WHERE, ReadFrom, place
from kip848_client.tools.records.spelling import FORMAT_FIELDS, JSON_FIELDS, speller

if TYPE_CHECKING:
    from kip848_client import Consumer, Message
    from kip848_client.admin.topics import IsolationLevel

BATCH_RECORDS: Final = 500
POLL_S: Final = 0.2
REPEAT_S: Final = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = f"{JSON_FIELDS} {FORMAT_FIELDS}"
    parser.add_argument("topics", metavar="TOPIC", nargs="+", help="a topic; '^...' is a pattern in RE2 syntax")
    parser.add_argument("--group", metavar="GROUP", help="the group to join; else partitions are read without a group")
    parser.add_argument("--share", action="store_true", help="the group is a share group: the topic is a queue")
    parser.add_argument(
        "--acknowledge",
        choices=("accept", "release", "reject"),
        help="with --share: what becomes of printed records: they are done (accept, the default), others get them "
        "(release: print once what is there, give it back, and end), or nobody gets them any more (reject)",
    )
    parser.add_argument("--from-beginning", action="store_true", help="without a committed offset start at the oldest")
    parser.add_argument(
        "--from",
        metavar="WHERE",
        type=place,
        dest="begin",
        help=f"{WHERE} (end); of a group beginning or end, without a committed offset",
    )
    parser.add_argument(
        "--until", metavar="WHERE", type=place, help="without a group: end there; the places of now, else for ever"
    )
    parser.add_argument(
        "--partition", metavar="N", type=int, action="append", help="without a group: these only; may be repeated"
    )
    parser.add_argument("--max", metavar="N", type=int, help="end after N records")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print each record as one JSON object per line")
    form.add_argument("--format", metavar="TEXT", help="print each record so, such as '%%k: %%s\\n'")
    deserializers.add_arguments(parser)
    parser.add_argument("--quiet", "-q", action="store_true", help="print nothing but records")
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=request_timeout, default=10.0, help="for questions about topics (10)"
    )
    add_client_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print records until --max or --until is reached or a signal comes.

    Raises:
        ConfigError: an option does not parse, or the consumer refuses a property.
        Kip848Error: the consumer raised it.
    """
    if arguments.max is not None and arguments.max < 1:
        raise ConfigError(f"--max {arguments.max}: at least one record is needed")
    if arguments.group == "":
        raise ConfigError('--group "": name the group, or leave --group out to read without one')
    _check_share(arguments)
    if arguments.group and arguments.begin is not None:
        _begin_as_group(arguments)
    spell = speller(as_json=arguments.json, text=arguments.format)
    conf = {**consumer_conf(arguments), **deserializers.settings(arguments)}
    read = _of_share_group if arguments.share else _of_group if arguments.group else _of_partitions
    printed = 0
    with tell_troubles(), stop_on_signal(second_interrupts=True) as stopped:
        for messages in read(arguments, conf, stopped):
            sys.stdout.buffer.write(b"".join(map(spell, messages)))
            sys.stdout.buffer.flush()  # printed before it can be committed
            printed += len(messages)
    if not arguments.quiet:
        print(counted(printed, "record"), file=sys.stderr)
    return 0


def _begin_as_group(arguments: argparse.Namespace) -> None:
    """Take ``--from beginning`` and ``--from end`` as what a group without committed offsets does."""
    if arguments.begin not in (ReadFrom("at", at="earliest"), ReadFrom("at", at="latest")):
        raise ConfigError(
            "--from: a group goes on at its committed offsets, and without any at beginning or end (--from beginning); "
            f"to move them: kip848 groups reset-offsets {arguments.group} --help"
        )
    if arguments.begin.at == "latest" and arguments.from_beginning:
        raise ConfigError("--from and --from-beginning both say where to begin: give one of them")
    arguments.from_beginning = arguments.begin.at == "earliest"


def _check_share(arguments: argparse.Namespace) -> None:
    if not arguments.share:
        if arguments.acknowledge is not None:
            raise ConfigError("--acknowledge is for share groups: give --share, too")
        return
    if not arguments.group:
        raise ConfigError("--share: name the share group with --group")
    if arguments.begin is not None or arguments.from_beginning:
        raise ConfigError(
            "--from: where a share group begins is a setting of the group, share.auto.offset.reset; to move it: "
            f"kip848 groups reset-offsets {arguments.group} --help"
        )


def _refuse_places(arguments: argparse.Namespace) -> None:
    for name, given in (
        ("--until", arguments.until),
        ("--partition", arguments.partition),
    ):
        if given is not None:
            raise ConfigError(f"{name} is for reading without a group; a group has its own offsets and partitions")


def _of_share_group(
    arguments: argparse.Namespace, conf: dict[str, Any], stopped: threading.Event
) -> Iterator[list[Any]]:
    """Records that this member acquires. They are acknowledged when more are asked for, or none are left."""
    from kip848_client import AcknowledgeType, IllegalStateError, ShareConsumer  # here, as below
    from kip848_client.consumer.records.deserializers import Deserializers

    _refuse_places(arguments)
    word = AcknowledgeType[(arguments.acknowledge or "accept").upper()]
    # Not with the consumer, which rejects what it cannot read: a wrong --value-as would empty the queue.
    opened = Deserializers(
        key=conf.pop("key.deserializer", None), value=conf.pop("value.deserializer", None), on_error=None
    )
    left = arguments.max
    with ShareConsumer(conf) as consumer:
        consumer.subscribe(arguments.topics)
        while not stopped.is_set() and left != 0:
            messages = consumer.consume(BATCH_RECORDS if left is None else min(BATCH_RECORDS, left), POLL_S)
            if not messages:
                continue
            for message in messages:
                opened.open(cast("Message", message))  # it has the methods that are used
            yield messages
            for message in messages:
                try:
                    consumer.acknowledge(message, word)
                except IllegalStateError as error:
                    print(f"% {printable(str(error))}", file=sys.stderr, flush=True)
            if word is AcknowledgeType.RELEASE:
                return  # it would get the same again until their deliveries are used up
            left = None if left is None else left - len(messages)


def _of_group(arguments: argparse.Namespace, conf: dict[str, Any], stopped: threading.Event) -> Iterator[list[Any]]:
    """Records that the group gives to this member. It commits them when more are asked for, or none are left."""
    from kip848_client import Consumer  # here, so that the options can be listed without loading librdkafka

    _refuse_places(arguments)
    left = arguments.max
    with Consumer(conf) as consumer:
        subscribe(consumer, arguments.topics, quiet=arguments.quiet)
        while not stopped.is_set() and left != 0:
            wanted = BATCH_RECORDS if left is None else min(BATCH_RECORDS, left)
            messages = [message for message in next(consumer.batches(wanted, POLL_S)) if message.error() is None]
            if messages:
                yield messages
                left = None if left is None else left - len(messages)


def _of_partitions(
    arguments: argparse.Namespace, conf: dict[str, Any], stopped: threading.Event
) -> Iterator[list[Any]]:
    if arguments.from_beginning and arguments.begin is not None:
        raise ConfigError("--from and --from-beginning both say where to begin: give one of them")
    isolation_level: IsolationLevel = "read_committed"
    if conf.get("isolation.level") == "read_uncommitted":
        isolation_level = "read_uncommitted"
    wanted = without_group.ranges_of(
        read_properties(arguments),
        arguments.topics,
        numbers=arguments.partition,
        begin=arguments.begin or ReadFrom("at", at="earliest" if arguments.from_beginning else "latest"),
        until=arguments.until,
        isolation_level=isolation_level,
        timeout_s=arguments.timeout,
    )
    left = arguments.max
    for messages in without_group.read(conf, wanted, stopped):
        yield messages[:left]
        if left is not None and (left := left - len(messages)) <= 0:
            return


def consumer_conf(arguments: argparse.Namespace) -> dict[str, str]:
    """Build the consumer's configuration: the command line wins over files, and both over the defaults.

    Raises:
        ConfigError: a property without ``=``, or a file that cannot be read.
    """
    options = {"group.id": arguments.group or "kip848-consume"}  # without a group it is only a name
    if arguments.share:
        return {
            "client.id": "kip848-consume",
            "share.acquire.mode": "record_limit",  # each one more that it gave back would count as a delivery
            **read_properties(arguments, role="queue", options=options),
            "share.acknowledgement.mode": "explicit",
        }
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


class Troubles(logging.Handler):
    """Prints the client's warnings and errors; the same text at most twice a minute."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._printed_s: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Print one log record."""
        text = record.getMessage()
        failed_request = getattr(record, "kip848_event", None) == LogEvent.REQUEST_FAILED.value
        now_s = time.monotonic()
        self._printed_s = {one: at_s for one, at_s in self._printed_s.items() if now_s - at_s < REPEAT_S}
        if (failed_request or record.levelno >= logging.WARNING) and text not in self._printed_s:
            self._printed_s[text] = now_s
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
