"""What every command does when its output cannot be written or its arguments are unknown: no traceback."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kip848_client.cli import main
from tests.support.waiting import TIMEOUT_S

COMMANDS = (
    ("--help",),
    ("--version",),
    ("broker", "--help"),
    ("simulate", "--seed", "1", "--scenario", "brief"),
    ("simulate", "--seed", "1", "--scenario", "brief", "--json"),
)


def run(arguments: tuple[str, ...], *, into: str) -> subprocess.CompletedProcess[str]:
    with Path(into).open("w") as stdout:
        command = [sys.executable, "-m", "kip848_client", *arguments]
        return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_full_disk_behind_the_output_gets_a_sentence(arguments: tuple[str, ...]) -> None:
    """A script that keeps what a command prints has to learn why the file is empty."""
    ended = run(arguments, into="/dev/full")

    assert ended.stderr == "kip848: the output cannot be written: No space left on device\n"
    assert ended.returncode == 1


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_reader_that_goes_away_ends_a_command_in_silence(arguments: tuple[str, ...]) -> None:
    """``kip848 ... | head -1`` is no error."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kip848_client", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        said = process.stderr.read()

    assert (process.wait(60), said) == (141, "")


def test_output_into_a_file_is_utf8_whatever_the_code_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows the code page of a pipe lacks most characters, and a group's name would end a command."""
    with io.TextIOWrapper(io.BytesIO(), encoding="cp1252") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)

        assert main([]) == 2

        assert stdout.encoding == "utf-8"
        monkeypatch.undo()


def test_a_subcommand_refuses_an_unknown_option_with_its_own_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """The usage of `kip848` alone does not say what `kip848 topics list` takes."""
    with pytest.raises(SystemExit, match="2"):
        main(["topics", "list", "--jsn"])
    said = capsys.readouterr().err
    assert said.startswith("usage: kip848 topics list ")
    assert said.endswith("unknown argument: --jsn; did you mean --json?\n")


@pytest.mark.skipif(os.name != "posix", reason="a shell closes them")
def test_a_command_runs_without_standard_streams() -> None:
    """Where a daemon had closed them, each command ended with a traceback."""
    command = f"{shlex.quote(sys.executable)} -m kip848_client --version <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], check=False, timeout=TIMEOUT_S).returncode == 0


def test_an_option_with_one_value_is_not_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    """A report of the last of two groups looks like one of both. The broker's image gives options that users change."""
    with pytest.raises(SystemExit, match="2"):
        main(["report", "--group", "a", "--group", "b"])
    assert capsys.readouterr().err.endswith("argument --group: takes one value, and was given a and b\n")
    assert main(["broker", "--control", "127.0.0.1:9640", "--control", "127.0.0.1:x"]) == 1
    assert "--control '127.0.0.1:x' is not HOST:PORT" in capsys.readouterr().err


def test_help_names_fields_as_they_are_typed(capsys: pytest.CaptureFixture[str]) -> None:
    """argparse needs %% in some texts and prints it as it is in others."""
    with pytest.raises(SystemExit, match="0"):
        main(["consume", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "such as '%k: %s\\n'" in said
    assert "TEXT of --format may have %t topic" in said
