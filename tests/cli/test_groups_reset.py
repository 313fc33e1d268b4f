"""``kip848 groups reset-offsets``, ``members`` and ``validate-regex``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.cli import main
from kip848_client.common.model import NamedPartition
from kip848_client.testing import NewRecord

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def billing(kip848_broker: EmbeddedBroker) -> EmbeddedBroker:
    """Ten records in each of two partitions, a second apart; offset 4 of partition 0 is committed."""
    kip848_broker.topics.create("orders", partitions=2)
    kip848_broker.produce_many(
        "orders",
        [NewRecord("tea", partition=p, timestamp_ms=1_767_225_600_000 + 1_000 * n) for n in range(10) for p in (0, 1)],
    )
    kip848_broker.topics.delete_records("orders", 0, before_offset=2)
    conf = {"bootstrap.servers": kip848_broker.bootstrap_servers, "group.id": "billing"}
    with Consumer(conf | {"auto.offset.reset": "earliest", "enable.auto.commit": False}) as consumer:
        consumer.subscribe(["orders"])
        while (message := consumer.poll(10)) is not None:
            if (message.partition(), message.offset()) == (0, 3):
                consumer.commit(message, asynchronous=False)
                break
    return kip848_broker


def groups(broker: EmbeddedBroker, *arguments: str) -> int:
    """Run ``kip848 groups``."""
    return main(["groups", *arguments, "--bootstrap", broker.bootstrap_servers])


@pytest.mark.parametrize(
    ("options", "new"),
    [
        (["--to-earliest"], {0: 2}),
        (["--to-latest", "--topic", "orders"], {0: 10, 1: 10}),
        (["--to-offset", "7", "--topic", "orders:1"], {1: 7}),
        (["--to-offset", "1"], {0: 2}),  # is not there any more: the first one that is
        (["--shift-by", "-1"], {0: 3}),
        (["--shift-by", "100"], {0: 10}),
        (["--to-datetime", "2026-01-01T00:00:05Z", "--topic", "orders"], {0: 5, 1: 5}),
        (["--to-datetime", "2027-01-01T00:00:00Z"], {0: 10}),
        (["--by-duration", "PT1H"], {0: 10}),
        (["--to-current"], {0: 4}),
    ],
)
def test_offsets_are_shown_first_and_committed_on_request(
    billing: EmbeddedBroker, options: list[str], new: dict[int, int], capsys: Captured
) -> None:
    """A wrong offset is a day of records read twice, or never."""
    assert groups(billing, "reset-offsets", "billing", *options, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert {row["partition"]: row["new"] for row in shown["offsets"]} == new
    assert billing.groups.committed("billing") == {("orders", 0): 4}
    assert groups(billing, "reset-offsets", "billing", *options, "--execute") == 0
    assert "committed" in capsys.readouterr().out
    assert billing.groups.committed("billing") == {("orders", 0): 4} | {
        ("orders", p): offset for p, offset in new.items()
    }


def test_offsets_come_from_a_file(billing: EmbeddedBroker, tmp_path: Path, capsys: Captured) -> None:
    """Kafka's own tool exports them so; an offset that was right yesterday is committed again."""
    file = tmp_path / "offsets.csv"
    file.write_text("orders,1,7\n")
    assert groups(billing, "reset-offsets", "billing", "--from-file", str(file), "--execute") == 0
    assert billing.groups.committed("billing") == {("orders", 0): 4, ("orders", 1): 7}
    file.write_text("orders,1\n")
    assert groups(billing, "reset-offsets", "billing", "--from-file", str(file), "--execute") == 1
    assert "line 1: 'orders,1' is not topic,partition,offset" in capsys.readouterr().err


def test_an_offset_outside_of_the_partition_is_told(billing: EmbeddedBroker, capsys: Captured) -> None:
    """The nearest one is committed, and an operator who mistyped it would not notice."""
    assert groups(billing, "reset-offsets", "billing", "--topic", "orders:0", "--to-offset", "999") == 0
    assert "instead of 999" in capsys.readouterr().err


def test_a_group_at_work_is_left_alone(billing: EmbeddedBroker, capsys: Captured) -> None:
    """Its members would go on from where they are, and commit that."""
    conf = {"bootstrap.servers": billing.bootstrap_servers, "group.id": "billing", "client.id": "a"}
    with Consumer(conf) as consumer:
        consumer.subscribe(["orders"])
        while len(consumer.assignment()) != 2:
            consumer.poll(0.01)
        assert groups(billing, "reset-offsets", "billing", "--to-latest", "--execute") == 1
        assert "'billing': 1; they would go on from where they are; stop them first" in capsys.readouterr().err
        assert groups(billing, "members", "billing") == 0
        said = capsys.readouterr().out
        assert "orders 0-1" in said
        assert "COMMITTED" not in said
    assert billing.groups.committed("billing")["orders", 0] < 10


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--to-latest", "--topic", "ordres"], "there is no such topic"),
        (["--to-latest", "--topic", "orders:x"], "is not NAME or NAME:0,1,2"),
        (["--to-latest", "--topic", "orders:7"], "there is no orders-7"),
        (["--to-datetime", "yesterday"], "is not a time such as"),
        (["--shift-by", "1", "--topic", "orders:1"], "nothing is committed for orders-1"),
    ],
)
def test_what_cannot_be_reset_is_told(
    billing: EmbeddedBroker, options: list[str], problem: str, capsys: Captured
) -> None:
    """A reset that cannot be carried out fails as a whole: no offset of the group changes."""
    assert groups(billing, "reset-offsets", "billing", *options, "--execute") == 1
    assert problem in capsys.readouterr().err
    assert billing.groups.committed("billing") == {("orders", 0): 4}


def test_a_pattern_is_checked_without_a_broker(capsys: Captured) -> None:
    """The coordinator would refuse it when the service is rolled out."""
    assert main(["groups", "validate-regex", "orders-.*", "orders-eu", "old-orders-eu"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["matches  orders-eu", "differs  old-orders-eu"]
    assert main(["groups", "validate-regex", "(?!x)"]) == 1
    assert "is not a pattern that coordinators take" in capsys.readouterr().err


def test_the_brokers_may_come_from_the_environment_or_a_file(
    kip848_broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Users set the address once; the nearer setting wins."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KIP848_BOOTSTRAP", raising=False)
    assert main(["groups", "list"]) == 1
    assert "no broker is named: give --bootstrap HOST:PORT, set KIP848_BOOTSTRAP" in capsys.readouterr().err
    usual = tmp_path / ".config" / "kip848" / "client.properties"
    usual.parent.mkdir(parents=True)
    usual.write_text(f"bootstrap.servers={kip848_broker.bootstrap_servers}\n")
    assert main(["groups", "list"]) == 0
    monkeypatch.setenv("KIP848_BOOTSTRAP", "127.0.0.1:1")
    assert main(["groups", "list"]) == 1
    assert main(["groups", "list", "--bootstrap", kip848_broker.bootstrap_servers]) == 0
    assert main(["groups", "list", "-X", f"bootstrap.servers={kip848_broker.bootstrap_servers}"]) == 0


def test_a_shell_completes_commands_and_options(capsys: Captured) -> None:
    """Each command is there with its options, although only one is loaded at a time."""
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert "reset-offsets" in script
    assert "--to-earliest" in script


def test_a_terminal_gets_colours_and_a_pipe_does_not(
    billing: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Scripts cut columns out of the output; colour codes would end up in them."""
    groups(billing, "list")
    plain = capsys.readouterr().out
    assert "\x1b[" not in plain
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    groups(billing, "list")
    coloured = capsys.readouterr().out
    assert "\x1b[" in coloured
    assert "billing" in coloured


def test_offsets_go_to_a_file_and_back_for_several_groups(
    billing: EmbeddedBroker, tmp_path: Path, capsys: Captured
) -> None:
    """Before a deployment that may have to be taken back."""
    assert groups(billing, "reset-offsets", "billing", "--to-current", "--export") == 0
    kept = tmp_path / "offsets.csv"
    kept.write_text(capsys.readouterr().out)
    assert kept.read_text() == "orders,0,4\n"
    to_end = ("reset-offsets", "billing", "shipping", "--to-latest", "--topic", "orders", "--execute")
    assert groups(billing, *to_end) == 0
    shown = capsys.readouterr().out
    assert "group billing\n" in shown
    assert "group shipping\n" in shown
    ends = {NamedPartition("orders", 0): 10, NamedPartition("orders", 1): 10}
    assert billing.groups.committed("billing") == billing.groups.committed("shipping") == ends
    assert groups(billing, "reset-offsets", "billing", "--from-file", str(kept), "--execute") == 0
    assert billing.groups.committed("billing")["orders", 0] == 4
    assert groups(billing, "reset-offsets", "billing", "shipping", "--to-current", "--export") == 1
    assert "offsets of one group" in capsys.readouterr().err


def test_all_groups_are_compared_and_offsets_deleted(billing: EmbeddedBroker, capsys: Captured) -> None:
    """The first question of a morning, and the last step of a topic that goes."""
    assert groups(billing, "lag", "--all", "--json") == 0
    assert [group["group_id"] for group in json.loads(capsys.readouterr().out)["groups"]] == ["billing"]
    assert groups(billing, "lag") == 1
    assert "which groups?" in capsys.readouterr().err
    for state, found in (("Empty", ["billing"]), ("Stable", [])):
        assert groups(billing, "list", "--state", state, "--json") == 0
        assert [group["group_id"] for group in json.loads(capsys.readouterr().out)["groups"]] == found
    assert groups(billing, "delete-offsets", "billing", "--topic", "orders:0") == 0
    assert capsys.readouterr().out == "deleted orders-0\n"
    assert billing.groups.committed("billing") == {}


def test_a_group_that_is_not_there_is_told_before_it_is_made(billing: EmbeddedBroker, capsys: Captured) -> None:
    """A name typed wrongly would make a second group, and leave the first one where it is."""
    assert groups(billing, "reset-offsets", "biling", "--topic", "orders", "--to-earliest") == 0

    assert "group biling does not exist: --execute makes it; did you mean billing?" in capsys.readouterr().err
