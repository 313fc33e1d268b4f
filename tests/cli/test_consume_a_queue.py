"""``kip848 consume --share``: records of a share group, and what becomes of those that are printed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.cli import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"mails": 1}) as made:
        made.groups.set_config("mailers", {"share.auto.offset.reset": "earliest"})
        made.produce_many("mails", ["a", "b", "c"])
        yield made


def consume(broker: EmbeddedBroker, *options: str) -> int:
    group = () if "--group" in options else ("--group", "mailers")
    return main(["consume", "mails", "--bootstrap", broker.bootstrap_servers, *group, *options])


def unfinished(broker: EmbeddedBroker) -> int:
    (partition,) = broker.shares.partitions("mailers")
    return partition.unfinished


@pytest.mark.parametrize(
    ("word", "left"), [((), 1), (("--acknowledge", "reject"), 1), (("--acknowledge", "release"), 3)]
)
def test_printed_records_are_done_given_back_or_rejected(
    broker: EmbeddedBroker, capsys: Captured, word: tuple[str, ...], left: int
) -> None:
    """An operator who only looks must not take the jobs away."""
    assert consume(broker, "--share", "--max", "2", "--format", "%o %d %s\\n", *word) == 0
    assert capsys.readouterr().out.splitlines() == ["0 1 a", "1 1 b"]
    assert unfinished(broker) == left


def test_no_more_is_acquired_than_is_printed(broker: EmbeddedBroker, capsys: Captured) -> None:
    """Each look would use up a delivery of all the others."""
    assert consume(broker, "--share", "--max", "1", "--json") == 0
    assert consume(broker, "--share", "--max", "1", "--json") == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(record["offset"], record["delivery_count"]) for record in shown] == [(0, 1), (1, 1)]


def test_a_wrong_way_to_read_leaves_the_records(broker: EmbeddedBroker, capsys: Captured) -> None:
    """A consumer rejects what it cannot read: a slip of the operator would empty the queue."""
    assert consume(broker, "--share", "--value-as", "long") == 1
    assert "value.deserializer raised" in capsys.readouterr().err
    assert unfinished(broker) == 3


def test_a_file_of_consumer_properties_serves(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """The same file names the cluster for all commands; what a share group has no use for does not matter."""
    file = tmp_path / "client.properties"
    file.write_text("auto.offset.reset=earliest\nsession.timeout.ms=10000\nsocket.keepalive.enable=true\n")
    assert consume(broker, "--share", "--max", "3", "-F", str(file)) == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--group", "", "--share"), "name the group"),
        (("--acknowledge", "release"), "give --share, too"),
        (("--share", "--from", "beginning"), "share.auto.offset.reset"),
        (("--share", "--partition", "0"), "without a group"),
        (("--share", "-X", "auto.offset.reset=earliest"), "share.auto.offset.reset"),
    ],
)
def test_options_that_mean_nothing_here_are_refused(
    broker: EmbeddedBroker, capsys: Captured, options: tuple[str, ...], told: str
) -> None:
    """An option that is ignored reads other records than the operator believes."""
    assert consume(broker, *options) == 1
    assert told in capsys.readouterr().err
