"""``kip848 broker`` with TLS and users: options in, a broker out that lets in whom it should."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kip848_client import Consumer
from kip848_client.cli import main
from kip848_client.errors import ConfigError
from kip848_client.testing.serving.broker_security import parse_users
from tests.security.certificates import Authority, Identity
from tests.support.waiting import wait_until


def test_a_broker_with_tls_and_users_is_started_from_the_command_line(
    tmp_path: Path, authority: Authority, server_identity: Identity
) -> None:
    """The ready file says what clients put into security.protocol; passwords are nowhere on the command line."""
    (tmp_path / "users").write_text("# of the test\nalice:alice:secret\n")
    ready = tmp_path / "ready.json"
    options = [
        *("--topic", "orders:1", "--ready-file", str(ready), "--sasl-users", str(tmp_path / "users")),
        *("--tls-certificate", str(server_identity.certificate), "--tls-key", str(server_identity.key)),
        *("--sasl-mechanism", "SCRAM-SHA-512"),
    ]
    process = subprocess.Popen([sys.executable, "-m", "kip848_client", "broker", *options], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, what="the ready file")
        told = json.loads(ready.read_text())
        assert told["security_protocol"] == "sasl_ssl"
        conf = {
            "bootstrap.servers": told["bootstrap_servers"],
            "group.id": "g",
            "security.protocol": told["security_protocol"],
            "ssl.ca.location": str(authority.ca_file),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "alice:secret",
        }
        with Consumer(conf) as consumer:
            consumer.subscribe(["orders"])
            wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), what="an assignment")
    finally:
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--tls-key", "k"], "--tls-key needs --tls-certificate"),
        (["--sasl-mechanism", "PLAIN"], "--sasl-mechanism needs --sasl-users"),
        (["--sasl-users", "/no/such/file"], "--sasl-users /no/such/file: No such file"),
        (["--tls-certificate", "/no/such/file"], "/no/such/file: No such file"),
        (["--listen", "0.0.0.0:0"], "allow_remote"),
        (["--listen", "0.0.0.0:0", "--allow-remote"], "needs authentication"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of a security set-up must not start."""
    assert main(["broker", *options]) != 0
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("text", ["alice", "alice:", ":secret", "a:1\na:2"])
def test_a_users_file_that_cannot_be_read_is_refused_without_showing_it(text: str) -> None:
    """A line that is wrong may well be a password."""
    with pytest.raises(ConfigError, match=r"users\.txt, line \d") as refusal:
        parse_users(text, where="users.txt")
    assert "secret" not in str(refusal.value)
