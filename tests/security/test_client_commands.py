"""``kip848 consume`` and ``kip848 groups`` against a broker that demands a login; secrets come from a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from kip848_client import EmbeddedBroker
from kip848_client.cli import main
from kip848_client.cli.shared.properties import read_properties
from kip848_client.errors import ConfigError
from kip848_client.testing import BrokerSasl, BrokerTls
from tests.security.certificates import Authority, Identity

USERS = {"alice": "canary=password"}


@pytest.fixture
def broker(server_identity: Identity) -> Iterator[EmbeddedBroker]:
    tls = BrokerTls(server_identity.certificate, server_identity.key)
    with EmbeddedBroker({"orders": 1}, tls=tls, sasl=BrokerSasl(USERS)) as running:
        yield running


@pytest.fixture
def login(tmp_path: Path, authority: Authority) -> Path:
    file = tmp_path / "login.properties"
    file.write_text(
        "# as for every client\n\nsecurity.protocol = sasl_ssl\nsasl.mechanism=SCRAM-SHA-256\n"
        f"sasl.username=alice\nsasl.password=canary=password\nssl.ca.location={authority.ca_file}\n"
    )
    return file


def test_records_are_printed_and_groups_shown_after_a_login(
    broker: EmbeddedBroker, login: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The commands work on real clusters, which demand one."""

    class Arguments:
        bootstrap = "127.0.0.1:1"
        properties: tuple[str, ...] = ()
        property_file = login

    conf = read_properties(Arguments())  # type: ignore[arg-type]
    producer = confluent_kafka.Producer({**conf, "bootstrap.servers": broker.bootstrap_servers})
    producer.produce("orders", b"hello")
    assert producer.flush(20) == 0
    at = ["--bootstrap", broker.bootstrap_servers, "-F", str(login)]
    assert main(["consume", "orders", "--group", "billing", "--from-beginning", "--max", "1", *at]) == 0
    assert main(["groups", "list", "--json", *at]) == 0
    printed = capfdbinary.readouterr().out.splitlines()
    assert printed[0] == b"hello"
    assert [group["group_id"] for group in json.loads(printed[-1])["groups"]] == ["billing"]


@pytest.mark.parametrize("command", [["consume", "orders", "--group", "g"], ["groups", "list"]])
def test_a_wrong_password_ends_the_command_with_the_reason(
    broker: EmbeddedBroker, login: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the user, and does not print the password."""
    at = ["--bootstrap", broker.bootstrap_servers, "-F", str(login), "-X", "sasl.password=canary-wrong"]
    assert main([*command, *at]) != 0
    told = capsys.readouterr().err
    assert "refused user 'alice'" in told
    assert "canary" not in told


@pytest.mark.parametrize("text", ["canary", "=canary", "a=1\ncanary"])
def test_a_file_of_properties_that_cannot_be_read_is_not_shown(tmp_path: Path, text: str) -> None:
    """A line that is wrong may be a password."""

    class Arguments:
        bootstrap = "127.0.0.1:1"
        properties: tuple[str, ...] = ()
        property_file = tmp_path / "bad.properties"

    Arguments.property_file.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.properties, line \d: not KEY=VALUE") as refusal:
        read_properties(Arguments())  # type: ignore[arg-type]
    assert "canary" not in str(refusal.value)
