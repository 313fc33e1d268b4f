"""``kip848 broker`` as a process: the ready file, signals, and mistakes on the command line."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.cli import main
from kip848_client.cli.shared.options import parse_topics
from kip848_client.common.addresses import parse_listen_address
from kip848_client.errors import ConfigError
from kip848_client.journal import read_journal
from kip848_client.testing.commands.broker import write_whole
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.messages.metadata import MetadataRequest
from tests.support.waiting import TIMEOUT_S, wait_until

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start ``kip848 broker`` with options; whatever still runs is killed in the end."""
    started = []

    def start_process(*options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "kip848_client", "broker", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start_process
    for process in started:
        process.kill()
        process.communicate()


def wait_for_ready(path: Path, process: subprocess.Popen[str]) -> str:
    """The address in a ready file, once it is there."""
    wait_until(lambda: path.exists() or process.poll() is not None, TIMEOUT_S, "the ready file")
    assert process.poll() is None, process.communicate()
    return str(json.loads(path.read_text())["bootstrap_servers"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_once_the_ready_file_is_there_and_stops_cleanly_on_a_signal(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    """Scripts in any language start it, wait for the file, connect, and end it with a signal."""
    ready, log = tmp_path / "ready.json", tmp_path / "events.jsonl"
    process = start(
        *("--topic", "orders:3", "--topic", "users", "--ready-file", str(ready), "--journal", str(log), "--json")
    )
    address = wait_for_ready(ready, process)
    with RawConnection(address) as connection:
        topics = connection.ask(MetadataRequest(topics=None), version=12).topics
    assert {topic.name: len(topic.partitions) for topic in topics} == {"orders": 3, "users": 1}
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert json.loads(stdout)["bootstrap_servers"] == address
    assert stderr == ""
    assert [event.event for event in read_journal(log)][-1] == "broker_stopped"


def test_a_ready_file_that_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """`--ready-file /dev/stdout` of root, as in a container, made a file of the device."""
    link, target = tmp_path / "stdout", tmp_path / "target"
    target.touch()
    link.symlink_to(target)
    write_whole(link, "ready")
    assert link.is_symlink()
    assert target.read_text() == "ready"


def test_it_can_be_a_cluster_of_several_brokers(start: Start, tmp_path: Path) -> None:
    """Clients in other languages could not be tested for the death of a broker."""
    ready = tmp_path / "ready.json"
    process = start("--nodes", "3", "--racks", "a,b,c", "--ready-file", str(ready), "--json")
    addresses = wait_for_ready(ready, process).split(",")
    for address in addresses:
        with RawConnection(address) as connection:
            brokers = connection.ask(MetadataRequest(topics=()), version=12).brokers
        assert [f"{node.host}:{node.port}" for node in brokers] == addresses
        assert [(node.node_id, node.rack) for node in brokers] == [(1, "a"), (2, "b"), (3, "c")]


def test_a_wrong_option_is_one_line_on_stderr_and_status_1(start: Start) -> None:
    """A traceback for a misspelt property is not an answer."""
    process = start("--set", "group.consumer.sesion.timeout.ms=1000")
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert stdout == ""
    assert stderr == (
        "kip848 broker: broker property 'group.consumer.sesion.timeout.ms' is not known; "
        "did you mean 'group.consumer.session.timeout.ms'?\n"
    )


def test_what_was_repaired_in_the_data_folder_is_printed(start: Start, tmp_path: Path) -> None:
    """A person who finds records missing has to learn that files were set aside, and where."""
    with EmbeddedBroker({"orders": 1}, data_dir=tmp_path / "data"):
        pass
    (tmp_path / "data" / "cluster.log").unlink()
    ready = tmp_path / "ready.json"

    process = start("--data-dir", str(tmp_path / "data"), "--ready-file", str(ready), "--json")
    wait_for_ready(ready, process)
    process.terminate()
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)

    first, second = stderr.splitlines()
    assert first.startswith(f"kip848 broker: repaired: {tmp_path / 'data' / 'topics'}")
    assert first.endswith("was not in cluster.log; topic 'orders' is restored from it")
    assert second.startswith(f"kip848 broker: repaired: {tmp_path / 'data' / 'cluster.log'}: was missing")
    assert len(stdout.splitlines()) == 1


def test_a_folder_that_is_not_a_brokers_is_one_line_on_stderr_and_status_1(start: Start, tmp_path: Path) -> None:
    """A mistyped --data-dir must end before anything is touched, with the way out."""
    (tmp_path / "notes.txt").write_text("mine")

    process = start("--data-dir", str(tmp_path))
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)

    assert (process.returncode, stdout, stderr.count("\n")) == (1, "", 1)
    assert "it holds notes.txt and no kip848-data-folder.json. Nothing in it was touched" in stderr
    assert [child.name for child in tmp_path.iterdir()] == ["notes.txt"]


def test_help_lists_the_commands_that_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    """The help is how a person finds out what the tool can do."""
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "run the embedded broker" in capsys.readouterr().out


def test_help_of_a_command_lists_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    """Options of the asked command only are loaded; they must then all be there."""
    with pytest.raises(SystemExit):
        main(["broker", "--help"])
    text = capsys.readouterr().out
    for option in ("--listen", "--topic", "--set", "--data-dir", "--profile", "--ready-file", "--journal", "--json"):
        assert option in text


def test_version_is_the_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Bug reports begin with the output of ``kip848 --version``."""
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("kip848 ")


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts tell a misspelt command by exit status 2, as with any Unix command."""
    with pytest.raises(SystemExit) as ended:
        main(["brooker"])
    assert ended.value.code == 2
    assert "there is no 'brooker'; did you mean broker?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:9092", ("127.0.0.1", 9092)), ("[::1]:0", ("::1", 0)), ("localhost:1", ("localhost", 1))],
)
def test_addresses_are_read(text: str, expected: tuple[str, int]) -> None:
    """IPv6 addresses hold colons themselves, and only the last colon separates the port."""
    assert parse_listen_address(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("9092", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:٣"),
        *("127.0.0.1:" + "9" * 5000, "[::1:0", "::1]:0"),
    ],
)
def test_a_wrong_address_is_refused(text: str) -> None:
    """The message quotes the address, so that the user sees what is wrong with it."""
    with pytest.raises(ConfigError, match="is not HOST:PORT"):
        parse_listen_address(text)


@pytest.mark.parametrize("texts", [["orders:0"], ["orders:many"], ["orders:1", "orders:2"], ["orders:-1"]])
def test_a_wrong_topic_is_refused(texts: list[str]) -> None:
    """A topic that is silently left out fails much later."""
    with pytest.raises(ConfigError, match="--topic"):
        parse_topics(texts)


def test_the_ready_file_is_never_seen_half_written(tmp_path: Path) -> None:
    """A script that polls for the file reads it the moment it appears."""
    path = tmp_path / "ready.json"
    path.write_text("from an earlier run")
    write_whole(path, "whole\n")
    assert path.read_text() == "whole\n"
    assert [item.name for item in tmp_path.iterdir()] == ["ready.json"]


def test_a_ready_file_without_a_folder_is_refused(tmp_path: Path) -> None:
    """The script would otherwise wait for a file that never comes."""
    with pytest.raises(ConfigError, match="--ready-file"):
        write_whole(tmp_path / "missing" / "ready.json", "x")


def test_the_addresses_of_several_nodes_are_a_list(start: Start, tmp_path: Path) -> None:
    """franz-go takes a text with commas for one address, and waits for it for ever."""
    ready = tmp_path / "ready.json"
    process = start("--nodes", "3", "--ready-file", str(ready))
    address = wait_for_ready(ready, process)

    assert json.loads(ready.read_text())["brokers"] == address.split(",")
    assert address.count(",") == 2


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_the_broker_of_the_page_for_node_starts_and_is_controlled(tmp_path: Path) -> None:
    """Readers copy it into their first test."""
    page = (Path(__file__).parents[2] / "docs/control-port.md").read_text(encoding="utf-8")
    chapter = page.partition("## A broker for each test")[2]
    code = re.findall(r"^    ```javascript\n(.*?)^    ```", chapter, re.DOTALL | re.MULTILINE)[0]
    (tmp_path / "broker.mjs").write_text(textwrap.dedent(code), encoding="utf-8")
    (tmp_path / "use.mjs").write_text(
        "import { startBroker } from './broker.mjs'\n"
        "const broker = await startBroker('--nodes', '2')\n"
        "await broker.control('topics/create', { name: 'bills', partitions: 3 })\n"
        "console.log(broker.brokers.length, (await broker.control('groups/ids', {})).length)\n"
        "broker.stop()\n",
        encoding="utf-8",
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["node", "use.mjs"], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )

    assert done.stdout.split() == ["2", "0"], done.stderr


def test_the_step_of_the_page_about_ci_starts_a_broker(tmp_path: Path) -> None:
    """The same for the pipeline: a wrong option would hold it for thirty seconds, and then say nothing."""
    page = (Path(__file__).parents[2] / "docs/control-port.md").read_text(encoding="utf-8")
    (step,) = re.findall(r"- run: \|\n((?: {10}.*\n)+)", page)
    step = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:0", step)  # these ports may be taken here
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["bash", "-e", "-c", step], cwd=tmp_path, env={**os.environ, "PATH": path}, check=True)

    told = json.loads((tmp_path / "ready.json").read_text())
    os.kill(told["pid"], signal.SIGTERM)
    assert told["control"].startswith("http://127.0.0.1:")
