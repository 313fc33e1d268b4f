"""The lines of docs/security.md for each hosted Kafka are understood, by consumers and by commands."""

from __future__ import annotations

import argparse
import importlib.util
import re
from pathlib import Path
from typing import Final

import pytest

from kip848_client.cli.shared.properties import add_client_arguments, read_properties
from kip848_client.config import parse_consumer_config
from kip848_client.logins.oauth_tokens import OAuthTokens
from tests.security.certificates import Authority, Identity

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "security.md"
TABLE: Final = PAGE.read_text(encoding="utf-8").partition("## Hosted Kafkas")[2].partition("\n## ")[0]
ROWS: Final = {
    cells[0].strip(): re.findall(r"`([^`]*)`", cells[1])
    for line in TABLE.splitlines()
    if "`" in line and len(cells := line.strip().strip("|").split(" | ")) >= 2 and not line.startswith(("is ", "A "))
    if "=" in line and line.startswith("|")
}
BROKER: Final = {
    "Amazon": "b-1.shop.k1.c2.kafka.eu-west-1.amazonaws.com:9098",
    "Azure": "x.servicebus.windows.net:9093",
}
SOURCES: Final = {
    "Confluent Cloud, OAuth": "the issuer https://idp.example/oauth2/token for client 'CLIENT'",
    "Amazon MSK, IAM (port 9098)": "AWS IAM in eu-west-1",
    "Azure Event Hubs, Entra ID": ("Azure's metadata service http://169.254.169.254/metadata/identity/oauth2/token"),
    "Keycloak, Okta and other OIDC": (
        "the issuer https://keycloak.example/realms/kafka/protocol/openid-connect/token for client 'CLIENT'"
    ),
    "Google Cloud Managed Kafka": "Google's authentication library",
}
NEEDS: Final = {"Amazon MSK, IAM (port 9098)": "aws_msk_iam_sasl_signer", "Google Cloud Managed Kafka": "google.auth"}


@pytest.fixture
def folder(tmp_path: Path, authority: Authority, client_identity: Identity, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files with the names that the providers give them."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    for name in ("ca.pem", "ca.crt", "issuer-ca.pem"):
        (tmp_path / name).write_bytes(authority.ca_file.read_bytes())
    (tmp_path / "service.cert").write_bytes(client_identity.certificate.read_bytes())
    (tmp_path / "service.key").write_bytes(client_identity.key.read_bytes())
    key = serialization.load_pem_private_key(client_identity.key.read_bytes(), None)
    certificate = x509.load_pem_x509_certificate(client_identity.certificate.read_bytes())
    store = pkcs12.serialize_key_and_certificates(
        b"user",
        key,  # type: ignore[arg-type]
        certificate,
        None,
        serialization.BestAvailableEncryption(b"PASSWORD"),
    )
    (tmp_path / "user.p12").write_bytes(store)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_of_the_kafkas_that_people_use_has_its_row() -> None:
    """Who comes with an account looks for its name."""
    for name in ("Confluent Cloud", "MSK, IAM", "MSK, SCRAM", "Event Hubs", "Aiven", "Redpanda", "Strimzi", "Keycloak"):
        assert any(name in row for row in ROWS), name


@pytest.mark.parametrize("row", sorted(ROWS))
def test_its_lines_are_understood(row: str, folder: Path) -> None:
    """Lines of a page that are refused would be the first thing that a new user sees."""
    library = NEEDS.get(row)
    if library is not None and importlib.util.find_spec(library.partition(".")[0]) is None:
        pytest.skip(f"{library} is not installed")
    lines = [f"bootstrap.servers={BROKER.get(row.partition(' ')[0], 'kafka.example:9093')}", *ROWS[row]]
    if not any(line.startswith("security.protocol=") for line in lines):
        lines.append("security.protocol=sasl_ssl")
    file = folder / "client.properties"
    file.write_text("\n".join(lines))
    parser = argparse.ArgumentParser()
    add_client_arguments(parser)
    properties = read_properties(parser.parse_args(["-F", str(file)]), role="member")
    config = parse_consumer_config({"group.id": "g", **properties})
    tokens = config.data_plane.get("oauth_cb")
    assert (tokens.source.name if isinstance(tokens, OAuthTokens) else None) == SOURCES.get(row)
    assert config.security.protocol == ("ssl" if tokens is None and config.security.sasl is None else "sasl_ssl")
