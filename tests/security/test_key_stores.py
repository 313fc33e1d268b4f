"""PKCS#12 key stores: a client certificate as it is handed out by Aiven, Strimzi and many a company."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.config.security import for_librdkafka
from kip848_client.errors import ConfigError
from kip848_client.testing import BrokerTls
from kip848_client.wire.key_stores import read_key_store
from tests.security.certificates import Authority, Identity
from tests.support.driving import quiet
from tests.support.waiting import wait_until

PASSWORD = "canary-store"


@pytest.fixture
def store(client_identity: Identity, tmp_path: Path) -> Path:
    key: Any = serialization.load_pem_private_key(client_identity.key.read_bytes(), None)
    certificate, *chain = x509.load_pem_x509_certificates(client_identity.certificate.read_bytes())
    data = pkcs12.serialize_key_and_certificates(
        b"client", key, certificate, chain, serialization.BestAvailableEncryption(PASSWORD.encode())
    )
    file = tmp_path / "client.p12"
    file.write_bytes(data)
    return file


def test_both_planes_show_the_certificate_of_a_store(
    store: Path, authority: Authority, server_identity: Identity
) -> None:
    """One file for both: our connections read it by cryptography, librdkafka by OpenSSL."""
    tls = BrokerTls(server_identity.certificate, server_identity.key, client_ca=authority.ca_file)
    with EmbeddedBroker({"orders": 1}, tls=tls) as broker:
        conf: dict[str, Any] = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "ssl",
            "ssl.ca.location": str(authority.ca_file),
            "ssl.keystore.location": str(store),
            "ssl.keystore.password": PASSWORD,
        }
        producer = Producer(quiet(for_librdkafka(conf)))
        producer.produce("orders", b"tea")
        assert producer.flush(60) == 0
        with Consumer(quiet(conf | {"group.id": "g", "auto.offset.reset": "earliest"})) as consumer:
            consumer.subscribe(["orders"])
            wait_until(lambda: consumer.consume(1, 0.1), what="the record")


@pytest.mark.parametrize("password", ["canary-wrong", None])
def test_a_store_that_does_not_open_is_told_without_its_password(store: Path, password: str | None) -> None:
    """OpenSSL does not tell a wrong password from a damaged file."""
    with pytest.raises(ConfigError, match=r"client\.p12 is not a PKCS#12 store, or ssl\.keystore\.password") as refusal:
        read_key_store(str(store), password)
    assert "canary" not in str(refusal.value)


def test_without_the_library_the_way_out_is_told(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain install does not have it."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(ConfigError, match=r"pip install 'kip848_client\[pkcs12\]', or convert the store"):
        read_key_store(str(store), PASSWORD)
