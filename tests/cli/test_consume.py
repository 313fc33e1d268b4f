"""``kip848 consume``: what it prints and how it configures its consumer."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
from typing import cast

import msgspec
import pytest

from kip848_client.admin import Admin, Results
from kip848_client.cli.shared.signals import stop_on_signal
from kip848_client.common.model import NamedPartition
from kip848_client.errors import ConfigError
from kip848_client.tools.commands import consume
from kip848_client.tools.records import spelling
from kip848_client.tools.records.places import find, place


class Record(msgspec.Struct):
    data: bytes | None = b"v"
    name: bytes | None = None
    tags: list[tuple[str, bytes | None]] | None = None
    time: tuple[int, int] = (1, 1_700_000_000_000)

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 42

    def timestamp(self) -> tuple[int, int]:
        return self.time

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.data

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.tags


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    consume.add_arguments(parser)
    return parser.parse_args(["orders", "--bootstrap", "localhost:9092", "--group", "g", *arguments])


def test_values_are_printed_as_they_are() -> None:
    """A value that is re-encoded on the way cannot be piped into another program."""
    assert spelling.spell_value(Record(b"\xff\x00")) == b"\xff\x00"
    assert spelling.spell_value(Record(None)) == b""


def test_a_record_as_json_has_everything() -> None:
    """Scripts read these JSON names; a renamed or missing field breaks them."""
    record = Record("grün".encode(), b"k", [("trace", b"1"), ("none", None)])
    assert json.loads(spelling.spell_json(record)) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp_ms": 1_700_000_000_000,
        "key": "k",
        "value": "grün",
        "headers": [["trace", "1"], ["none", None]],
    }


def test_bytes_that_are_no_text_survive_as_json() -> None:
    """Replacement characters would destroy a binary value without a trace."""
    assert json.loads(spelling.spell_json(Record(b"\xff")))["value"] == {"base64": "/w=="}


def test_a_record_without_a_time_has_none_as_json() -> None:
    """librdkafka says -1: printed as a time that would be 1969."""
    assert json.loads(spelling.spell_json(Record(time=(0, -1))))["timestamp_ms"] is None


def test_a_broker_that_stays_away_does_not_flood_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Two requests fail in turns, every second for as long as it is away."""
    troubles = consume.Troubles()
    for text in ("no connection for a", "no connection for b") * 9:
        troubles.emit(logging.LogRecord("kip848_client", logging.WARNING, "", 0, text, (), None))
    assert capsys.readouterr().err.splitlines() == ["% no connection for a", "% no connection for b"]


def test_the_last_records_end_where_they_were_counted() -> None:
    """A topic that is written meanwhile showed more than the N that were asked for, and fewer before them."""

    class Written:
        ends = 10

        def list_offsets(self, partitions: list[NamedPartition], at: str, **_: object) -> Results[NamedPartition, int]:
            self.ends += 5
            return Results(dict.fromkeys(partitions, 0 if at == "earliest" else self.ends), {})

    orders = NamedPartition("orders", 0)
    begin, end = find(
        cast("Admin", Written()),
        [place("-2"), place("end")],
        [orders],
        isolation_level="read_committed",
        timeout_s=1,
    )
    assert end[orders] - begin[orders] == 2


def test_properties_win_over_the_defaults() -> None:
    """-X is the way to reach what has no option of its own."""
    conf = consume.consumer_conf(parse("--from-beginning", "-X", "client.id=mine", "-X", "client.rack = a"))
    assert conf == {
        "bootstrap.servers": "localhost:9092",
        "group.id": "g",
        "client.id": "mine",
        "client.rack": "a",
        "auto.offset.reset": "earliest",
        "log_level": "2",
    }


def test_new_records_only_is_the_default() -> None:
    """As every Kafka console consumer does it: the whole history comes only when asked for."""
    assert consume.consumer_conf(parse())["auto.offset.reset"] == "latest"


@pytest.mark.parametrize("arguments", [["-X", "nonsense"], ["-X", "=x"]])
def test_a_property_without_a_name_is_refused(arguments: list[str]) -> None:
    """A typing error in ``-X`` would otherwise be ignored, and the setting with it."""
    with pytest.raises(ConfigError, match="not KEY=VALUE"):
        consume.consumer_conf(parse(*arguments))


def test_an_empty_group_is_refused() -> None:
    """A variable of a script that is not set: read without a group, nothing would be committed."""
    with pytest.raises(ConfigError, match="name the group"):
        consume.run(parse("--group", ""))


def test_the_first_signal_asks_to_stop_and_handlers_are_put_back() -> None:
    """Ctrl-C must leave the group; a second one must still end a consumer that hangs."""
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signal(second_interrupts=True) as stopped:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopped.wait(60)
        assert signal.getsignal(signal.SIGTERM) == before
    assert signal.getsignal(signal.SIGTERM) == before
