"""``kip848 config check``: a file of a Java application, explained; and the login tried."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.cli import main
from kip848_client.testing import BrokerSasl
from tests.support.issuer import CLIENT, SECRET, Issuer

MODULE: Final = "org.apache.kafka.common.security.oauthbearer"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@pytest.fixture
def broker(issuer: Issuer) -> Iterator[EmbeddedBroker]:
    sasl = BrokerSasl(mechanisms=("OAUTHBEARER",), validate_token=issuer.validate)
    with EmbeddedBroker({"orders": 1}, sasl=sasl) as running:
        yield running


@pytest.fixture
def file(broker: EmbeddedBroker, issuer: Issuer, tmp_path: Path) -> Path:
    """As a Java application has it."""
    path = tmp_path / "client.properties"
    path.write_text(
        f"bootstrap.servers={broker.bootstrap_servers}\n"
        "security.protocol=SASL_PLAINTEXT\nkip848.allow.unencrypted.credentials=true\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.login.callback.handler.class={MODULE}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={issuer.url}?key=canary-query\n"
        f'sasl.jaas.config={MODULE}.OAuthBearerLoginModule required clientId="{CLIENT}" clientSecret="{SECRET}";\n'
        "value.deserializer=org.example.Ours\n"
    )
    return path


def test_a_file_is_explained_without_its_secrets(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who moves from Java sees line by line what becomes of it, and may send the output to others."""
    assert main(["config", "check", "-F", str(file)]) == 0
    told = capsys.readouterr().out
    assert "sasl.mechanism" in told
    assert "sasl.oauthbearer.method=oidc" in told
    assert f"sasl.oauthbearer.client.id={CLIENT}, sasl.oauthbearer.client.secret=(hidden)" in told
    assert "ignored by commands" in told
    assert "login: sasl_plaintext, OAUTHBEARER with tokens of the issuer http://127.0.0.1:" in told
    assert "canary" not in told


def test_both_parts_of_the_client_try_the_login(file: Path, issuer: Issuer, capsys: pytest.CaptureFixture[str]) -> None:
    """A command that says ok for a login that records do not have would be believed."""
    assert main(["config", "check", "-F", str(file), "--connect", "--json"]) == 0
    told = capsys.readouterr().out
    found = json.loads(told)
    assert found["problems"] == []
    assert [(step["step"], step["ok"]) for step in found["connect"]] == [
        ("token", True),
        ("group membership", True),
        ("records (librdkafka)", True),
    ]
    assert f"for {CLIENT!r}; it ends in 3," in found["connect"][0]["told"]
    assert "1 broker in cluster" in found["connect"][2]["told"]
    assert "canary" not in told
    assert not any(token in told for token in issuer.tokens)


def test_a_login_that_fails_is_told_by_the_part_that_failed(
    file: Path, issuer: Issuer, capsys: pytest.CaptureFixture[str]
) -> None:
    """First the token: without one the rest would only repeat it."""
    issuer.answer = (401, b'{"error":"invalid_client"}')
    assert main(["config", "check", "-F", str(file), "--connect"]) == 1
    told = capsys.readouterr().out
    assert "token: failed: the issuer http://127.0.0.1:" in told
    assert "refuses (HTTP 401): invalid_client" in told
    assert "records" not in told
    issuer.answer = (200, json.dumps({"access_token": "not-of-this-issuer", "expires_in": 600}).encode())
    assert main(["config", "check", "-F", str(file), "--connect", "--timeout", "5"]) == 1
    told = capsys.readouterr().out
    assert "token: ok" in told
    assert "group membership: failed" in told
    assert "records (librdkafka): failed: " in told
    assert "not-of-this-issuer" not in told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("sasl.oauthbearer.client.id=other", "differ; give one of them"),
        ("sasl.oauthbearer.metadata.authentication.type=moon", "must be one of"),
        ("no.such.key=1", "no.such.key is not a configuration key"),
        ("sasl.oauthbearer.scopes=x", "did you mean sasl.oauthbearer.scope"),
        ("sasl.oauthbearer.client.secret", "line 9: not KEY=VALUE"),
    ],
)
def test_what_is_wrong_is_told(file: Path, line: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The status is for a script that checks files before a deploy."""
    file.write_text(file.read_text() + line)
    assert main(["config", "check", "-F", str(file)]) == 1
    printed = capsys.readouterr()
    assert told in printed.out + printed.err
    assert "canary" not in printed.out + printed.err


def test_without_security_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """A forgotten protocol is the most common mistake."""
    with EmbeddedBroker() as broker:
        assert main(["config", "check", "--bootstrap", broker.bootstrap_servers, "--connect"]) == 0
    told = capsys.readouterr().out
    assert "login: plaintext, no encryption and no login" in told
    assert "group membership: ok, connected" in told
