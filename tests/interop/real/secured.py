"""An Apache Kafka broker that demands TLS and a login: its properties, its users, and what clients set to be let in."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from cryptography.hazmat.primitives import serialization

from kip848_client.config import ConfigValue
from tests.interop.kafka_broker import KafkaBroker
from tests.security.certificates import Authority, Identity

USER: Final = "alice"
PASSWORD: Final = "canary-alice"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = ("PLAIN", *SCRAM, "OAUTHBEARER")

LISTENERS: Final = {"SECURE": "SASL_SSL", "MUTUAL": "SSL", "SASL": "SASL_PLAINTEXT"}
"""Listener -> protocol: a login over TLS, a client certificate, a login without TLS."""

FORMAT_ARGUMENTS: Final = tuple(
    argument for mechanism in SCRAM for argument in ("--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]")
)

_LOGIN_MODULES: Final = {
    "PLAIN": f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "OAUTHBEARER": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";'
    ),
}


def secured_properties(folder: Path, authority: Authority, *, session_ms: int = 0) -> dict[str, str]:
    """Broker properties for the listeners above.

    Args:
        folder: where the broker's key goes.
        session_ms: connections.max.reauth.ms; 0 is never.
    """
    identity = authority.issue("kafka", "localhost", "127.0.0.1")
    store = folder / "kafka-store.pem"
    store.write_bytes(as_pkcs8(identity) + identity.certificate.read_bytes())
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca_file),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connections.max.reauth.ms": str(session_ms),
        "connection.failed.authentication.delay.ms": "100",
    }
    for listener in ("secure", "sasl"):
        for mechanism, module in _LOGIN_MODULES.items():
            properties[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = module
    return properties


def as_pkcs8(identity: Identity) -> bytes:
    """The private key in the only form that Kafka reads."""
    key = serialization.load_pem_private_key(identity.key.read_bytes(), None)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class Clients(msgspec.Struct, frozen=True):
    """What clients of a secured broker set."""

    broker: KafkaBroker
    authority: Authority

    def login(self, mechanism: str, *, listener: str = "SECURE", password: str = PASSWORD) -> dict[str, ConfigValue]:
        """Log in as `USER`; by OAUTHBEARER with tokens that this process makes itself."""
        protocol = LISTENERS[listener].lower()
        conf: dict[str, ConfigValue] = {
            "bootstrap.servers": self.broker.endpoint(listener),
            "security.protocol": protocol,
            "sasl.mechanism": mechanism,
        }
        if protocol == "sasl_ssl":
            conf["ssl.ca.location"] = str(self.authority.ca_file)
        if mechanism == "OAUTHBEARER":
            return conf | {"oauth_cb": Tokens()}
        return conf | {"sasl.username": USER, "sasl.password": password}

    def certificate(self, identity: Identity) -> Mapping[str, ConfigValue]:
        """Show a certificate."""
        return {
            "bootstrap.servers": self.broker.endpoint("MUTUAL"),
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.authority.ca_file),
            "ssl.certificate.location": str(identity.certificate),
            "ssl.key.location": str(identity.key),
        }


class Tokens:
    """An ``oauth_cb`` that makes unsigned tokens, which the broker's test validator takes.

    Args:
        life_s: of each token.
    """

    def __init__(self, life_s: float = 3_600) -> None:
        self._life_s = life_s
        self.made = 0

    def __call__(self, _config: str | None) -> tuple[str, float]:
        self.made += 1
        now_s = time.time()
        claims = {"sub": USER, "iat": now_s - 1, "exp": now_s + self._life_s, "jti": str(self.made)}
        return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}.", now_s + self._life_s


def _encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
