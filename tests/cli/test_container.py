"""The Dockerfile and the compose file: their command lines start a broker. Docker itself is not needed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]


def _of_image() -> list[str]:
    dockerfile = (ROOT / "Dockerfile").read_text()
    entry = json.loads(re.search(r"^ENTRYPOINT (\[.*\])$", dockerfile, re.MULTILINE)[1])  # type: ignore[index]
    assert entry[:2] == ["kip848", "broker"]
    return [*entry[2:]]


def _health_check(ready: Path) -> list[str]:
    dockerfile = (ROOT / "Dockerfile").read_text()
    words: list[str] = json.loads(re.search(r"^    CMD (\[.*\])$", dockerfile, re.MULTILINE)[1])  # type: ignore[index]
    return [word.replace("/tmp/ready.json", str(ready)) for word in words]


def _by_default() -> list[str]:
    dockerfile = (ROOT / "Dockerfile").read_text()
    command: list[str] = json.loads(re.search(r"^CMD (\[.*\])$", dockerfile, re.MULTILINE)[1])  # type: ignore[index]
    return command


def _of_compose() -> list[str]:
    compose = (ROOT / "docker-compose.yml").read_text()
    return re.findall(r"^      - (--\S+)$", compose.partition("  kafka:\n")[0], re.MULTILINE)


@pytest.mark.parametrize(("command", "told"), [(_by_default(), "localhost"), (_of_compose(), "broker")], ids=str)
def test_the_container_serves(command: list[str], told: str, tmp_path: Path) -> None:
    """Who starts it gets a broker, its clients an address that they can reach, and Docker a word on its health."""
    (tmp_path / "control_token").write_text("for-tests\n")
    ready = tmp_path / "ready.json"
    options = [
        re.sub(r"(0\.0\.0\.0|127\.0\.0\.1):\d+", "127.0.0.1:0", option)
        .replace("/control_token", str(tmp_path / "control_token"))
        .replace("/data", str(tmp_path / "data"))
        .replace("/tmp/ready.json", str(ready))
        for option in (*_of_image(), *command)
    ]
    command_line = [sys.executable, "-m", "kip848_client", "broker", *options]
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        wait_until(lambda: ready.exists() or process.poll() is not None, what="the ready file")
        healthy = subprocess.run(_health_check(ready), check=False, capture_output=True, timeout=60)
        process.terminate()
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert healthy.returncode == 0, healthy.stderr
    assert subprocess.run(_health_check(ready), check=False, capture_output=True, timeout=60).returncode != 0
    assert json.loads(ready.read_text())["bootstrap_servers"] == f"{told}:9092"


def test_the_first_look_shows_a_fleet_on_the_page() -> None:
    """`docker compose up` must not end with a container that cannot start."""
    compose = (ROOT / "docker-compose.yml").read_text()
    entry = re.search(r"^    entrypoint: \[kip848, (groups, serve, .*)\]$", compose, re.MULTILINE)
    assert entry is not None
    words = [word.strip('"') for word in entry[1].split(", ")]
    command = [sys.executable, "-m", "kip848_client", *words]
    command[command.index("broker:9092")] = "127.0.0.1:1"
    command[command.index("0.0.0.0:9850")] = "127.0.0.1:0"
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline().startswith("http://127.0.0.1:")
        finally:
            process.terminate()
    assert re.search(r"^      - \./examples/fleet\.sh:/fleet\.sh:ro$", compose, re.MULTILINE)
    subprocess.run(["bash", "-n", ROOT / "examples" / "fleet.sh"], check=True, timeout=60)
