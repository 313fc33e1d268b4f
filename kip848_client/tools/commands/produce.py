"""``kip848 produce``: write records to a topic: arguments, lines of standard input, or JSON objects.

::

    kip848 produce orders hello world --bootstrap 127.0.0.1:9092
    kip848 produce orders --key-separator : --bootstrap 127.0.0.1:9092 < lines.txt
    kip848 produce orders tea --key ann --header trace=17 --bootstrap 127.0.0.1:9092
    kip848 consume orders --from beginning --until end --json ... | kip848 produce copy --json ...

A JSON object has ``value`` and may have ``key``, ``headers`` (a list of pairs), ``partition`` and ``timestamp_ms``, as
``kip848 consume --json`` prints them; bytes that are not text are ``{"base64": "..."}``.
"""

from __future__ import annotations

import argparse
import base64
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from kip848_client.cli.shared.options import key_value, request_timeout
from kip848_client.cli.shared.properties import add_client_arguments, reach, read_properties
from kip848_client.common.plain_text import counted
from kip848_client.errors import BrokerError, ConfigError, ErrorCode, Kip848Error, error_for_code
from kip848_client.tools.records.spelling import unescaped
from kip848_client.tools.shared.admin_client import client_conf

_TIMEOUT_S: Final = 10.0
_LINE_END: Final = os.linesep.encode()
JSON_FIELDS: Final = (
    "With --json each record is an object with value, and it may have key, headers (a list of pairs), partition and "
    'timestamp_ms; bytes that are not text are {"base64": "..."}, and null is no value (a tombstone).'
)


class Base64(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that are not text."""

    base64: str


class RecordLine(msgspec.Struct, frozen=True):
    """One record as JSON; other fields, such as the offset that it had elsewhere, are ignored."""

    value: str | Base64 | None
    key: str | Base64 | None = None
    headers: tuple[tuple[str, str | Base64 | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = JSON_FIELDS
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("values", metavar="VALUE", nargs="*", help="one record each; none: lines of standard input")
    parser.add_argument("--json", action="store_true", help="each value or line is a JSON object")
    parser.add_argument("--key", metavar="TEXT", help="the key of every record without one")
    parser.add_argument(
        "--header", metavar="NAME=VALUE", type=key_value, action="append", default=[], help="a header of every record"
    )
    parser.add_argument(
        "--key-separator",
        metavar="TEXT",
        type=unescaped,
        help="the text before its first occurrence is the key; \\t is a tab, as in kcat",
    )
    parser.add_argument("--partition", metavar="N", type=int, help="for records without a partition")
    parser.add_argument("--timeout", metavar="SECONDS", type=request_timeout, help="for each record (10)")
    add_client_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the records, and print their number.

    Raises:
        ConfigError: an option, a property or a line cannot be read. The lines before it are written.
        Kip848Error: records were not written.
    """
    from confluent_kafka import KafkaException, Producer  # here, so that the options can be listed without librdkafka

    if arguments.json and arguments.key_separator is not None:
        raise ConfigError("--key-separator is for lines; with --json the key is a field")
    if arguments.key_separator is not None and arguments.key is not None:
        raise ConfigError("--key and --key-separator both say which key: give one of them")
    if arguments.partition is not None and arguments.partition < 0:
        raise ConfigError(f"--partition {arguments.partition}: 0 or more")
    timeout_s = _TIMEOUT_S if arguments.timeout is None else arguments.timeout
    options = {} if arguments.timeout is None else {"message.timeout.ms": str(int(timeout_s * 1000))}
    reach(read_properties(arguments, role="producer", options=options), timeout_s=timeout_s)
    conf = client_conf(arguments, role="producer", options=options)
    failures: list[str] = []
    written = 0

    def delivered(error: Any, _message: Any) -> None:
        nonlocal written
        if error is None:
            written += 1
        else:
            failures.append(error.str())

    settings: dict[str, Any] = {"enable.idempotence": "true", "message.timeout.ms": str(int(_TIMEOUT_S * 1000))}
    if "debug" not in conf:  # it writes fatal errors on stderr whatever its level is; they are told below, too
        settings["logger"] = logging.getLogger(f"{__name__}.librdkafka")
        settings["logger"].disabled = True
    try:
        producer = Producer({**settings, **conf})
    except KafkaException as error:
        raise ConfigError(f"{error.args[0].str()}") from error
    try:
        try:
            for fields in _records(arguments):
                _produce(producer, arguments.topic, fields, delivered)
        finally:
            try:
                producer.flush()
            finally:
                print(f"{counted(written, 'record')} written", file=sys.stderr)
    except (KafkaException, SystemError) as error:
        raise _fatal(error, arguments.topic) from error
    if failures:
        try:
            is_missing = arguments.topic not in producer.list_topics(timeout=timeout_s).topics
            hidden = "there is no such topic; see kip848 topics create (or this user may not DESCRIBE it)"
            why = hidden if is_missing else failures[0]
        except KafkaException:
            why = f"no answer from {conf['bootstrap.servers']}: check that a broker listens there"
        raise Kip848Error(f"records not written to {arguments.topic!r}: {len(failures):,}: {why}")
    return 0


def _fatal(raised: Exception, topic: str) -> Kip848Error:
    """What librdkafka gave up for. confluent-kafka raises it, or a SystemError from it if it was calling back."""
    from confluent_kafka import KafkaException

    from kip848_client.consumer.records.data_plane import translate

    cause = raised if isinstance(raised, KafkaException) else raised.__cause__
    if not isinstance(cause, KafkaException):
        raise raised
    error = translate(cause, what=f"records not written to {topic!r}")
    if isinstance(error, BrokerError) and error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        advice = "this user needs WRITE on the topic, and has it on none"
        return error_for_code(error.code, f"records not written to {topic!r}; {advice}")
    return error


def _produce(producer: Any, topic: str, fields: dict[str, Any], delivered: Any) -> None:
    from confluent_kafka import KafkaException

    while True:
        try:
            producer.produce(topic, on_delivery=delivered, **fields)
        except BufferError:
            producer.poll(0.1)  # its queue is full
        except KafkaException as error:
            raise Kip848Error(f"a record cannot be written to {topic!r}: {error.args[0].str()}") from error
        else:
            producer.poll(0)
            return


def _records(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    lines: Iterable[bytes] = (value.encode("utf-8", "surrogateescape") for value in arguments.values)
    if not arguments.values:
        lines = (line.removesuffix(_LINE_END).removesuffix(b"\n") for line in sys.stdin.buffer)
    separator = (arguments.key_separator or "").encode()
    of_all = [(name, value.encode("utf-8", "surrogateescape")) for name, value in arguments.header]
    for number, line in enumerate(lines, start=1):
        if arguments.json:
            fields = _from_json(line, number)
        else:
            key, found, value = line.partition(separator) if separator else (None, b"", line)
            if separator and not found:
                raise ConfigError(f"record {number} has no {arguments.key_separator!r}, which ends its key")
            fields = {"key": key, "value": value}
        if arguments.partition is not None:
            fields.setdefault("partition", arguments.partition)
        if arguments.key is not None and fields["key"] is None:
            fields["key"] = arguments.key.encode("utf-8", "surrogateescape")
        fields["headers"] = [*fields.get("headers", ()), *of_all]
        yield fields


def _from_json(line: bytes, number: int) -> dict[str, Any]:
    try:
        record = msgspec.json.decode(line, type=RecordLine)
        fields: dict[str, Any] = {
            "key": _bytes(record.key),
            "value": _bytes(record.value),
            "headers": [(name, _bytes(value)) for name, value in record.headers],
        }
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"record {number} is not what --json takes: {error}") from error
    if record.partition is not None:
        fields["partition"] = record.partition
    if record.timestamp_ms is not None:
        fields["timestamp"] = record.timestamp_ms
    return fields


def _bytes(text: str | Base64 | None) -> bytes | None:
    if isinstance(text, Base64):
        return base64.b64decode(text.base64, validate=True)
    return None if text is None else text.encode()
