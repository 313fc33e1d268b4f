"""Command lines of kcat and of Kafka's scripts, and names typed wrongly: the answer is what to write."""

from __future__ import annotations

import pytest

from kip848_client.cli import main

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("topics --list", "topics list"),
        (
            "topics --create --topic y --partitions 3 --bootstrap-server h:1",
            "topics create y --partitions 3 --bootstrap-server h:1",
        ),
        ("topics --describe --topic orders", "topics describe orders"),
        ("topics list -b h:1", "topics list --bootstrap h:1"),
        ("groups --list", "groups list"),
        ("groups --describe --group g --command-config f", "groups describe g -F f"),
        ("groups --describe --all-groups", "groups describe --all"),
        ("groups --describe --group g --members", "groups members g"),
        (
            "groups --reset-offsets --group g --topic t --to-earliest --execute",
            "groups reset-offsets g --topic t --to-earliest --execute",
        ),
        ("-b h:1 -t orders -C -o beginning -e", "consume orders --bootstrap h:1 --from beginning --until end"),
        ("-P -bh:1 -t orders -K :", "produce orders --bootstrap h:1 --key-separator :"),
        ("-b h:1 -L", "topics list --bootstrap h:1"),
        ("consume -b h:1 -t orders -o -10 -c 5", "consume orders --bootstrap h:1 --from -10 --max 5"),
        ("consume --topic orders --offset earliest", "consume orders --from beginning"),
        (
            "consume --topic orders --from-beginning --property print.key=true --timeout-ms 5000",
            r"consume orders --from-beginning --format '%k %s\n'",
        ),
        (
            "produce --topic orders --property parse.key=true --property key.separator=:",
            "produce orders --key-separator :",
        ),
        ("-b h:1 -G billing orders", "consume orders --bootstrap h:1 --group billing"),
        ("produce --topic orders --broker-list h:1", "produce orders --bootstrap h:1"),
    ],
)
def test_the_answer_is_the_command_to_write(written: str, instead: str, capsys: Captured) -> None:
    """Fingers know those options for ten years."""
    with pytest.raises(SystemExit) as ended:
        main(written.split())

    assert ended.value.code == 2
    assert f"write: kip848 {instead}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "meant"), [("groups lsit", "list"), ("group list", "groups"), ("topics descrbe", "describe")]
)
def test_a_misspelt_command_is_answered_with_the_one_that_was_meant(written: str, meant: str, capsys: Captured) -> None:
    """A list of all commands leaves the search to the reader."""
    with pytest.raises(SystemExit):
        main(written.split())

    assert f"did you mean {meant}?" in capsys.readouterr().err


def test_lag_without_a_group_says_what_is_missing_once(capsys: Captured) -> None:
    """The name of the command came twice, and the way out did not."""
    assert main(["groups", "lag", "--bootstrap", "127.0.0.1:1"]) == 1

    assert capsys.readouterr().err == "kip848 groups: which groups? kip848 groups lag GROUP ..., or --all\n"
