"""Apache Kafka's own consumer (Java) on an embedded broker that demands TLS and a login, with sessions that end."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from kip848_client import EmbeddedBroker
from kip848_client.testing import BrokerSasl, BrokerTls, unsecured_token
from tests.interop.embedded.clients import all_keys
from tests.interop.embedded.java_member import JavaMember
from tests.security.certificates import Authority
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

PASSWORD: Final = "alice-secret"
SESSION_MS: Final = 3_000
RENEWALS: Final = 2
"""How often the member logs in again on the connection of its heartbeats."""
PACKAGE: Final = "org.apache.kafka.common.security"
WITH_PASSWORD: Final = f'required username="alice" password="{PASSWORD}"'
LOGINS: Final = {
    "PLAIN": f"{PACKAGE}.plain.PlainLoginModule {WITH_PASSWORD};",
    "SCRAM-SHA-512": f"{PACKAGE}.scram.ScramLoginModule {WITH_PASSWORD};",
    "OAUTHBEARER": f'{PACKAGE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";',
}
"""Values of ``sasl.jaas.config``. Java makes its unsecured tokens itself."""


def token_of_alice(_: str | None) -> tuple[str, float]:
    expires_s = time.time() + 3600
    return unsecured_token("alice", expires_s=expires_s), expires_s


@pytest.mark.parametrize("mechanism", LOGINS)
def test_javas_member_logs_in_and_stays_while_its_sessions_are_renewed(
    java: list[str],
    tmp_path: Path,
    mechanism: str,
) -> None:
    """The reference client: its TLS engine, its SCRAM, and its way of authenticating again."""
    authority = Authority(tmp_path)
    server = authority.issue("server", "localhost", "127.0.0.1")
    tls = BrokerTls(server.certificate, server.key)
    sasl = BrokerSasl({"alice": PASSWORD}, (mechanism,))
    config = {"connections.max.reauth.ms": SESSION_MS}
    with EmbeddedBroker({"orders": 2}, tls=tls, sasl=sasl, config=config) as broker:
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": "sasl_ssl",
                "ssl.ca.location": str(authority.ca_file),
                "sasl.mechanism": mechanism,
                **(
                    {"oauth_cb": token_of_alice}
                    if mechanism == "OAUTHBEARER"
                    else {"sasl.username": "alice", "sasl.password": PASSWORD}
                ),
            }
        )
        properties = [
            "client.id=java",
            "security.protocol=SASL_SSL",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={authority.ca_file}",
            f"sasl.mechanism={mechanism}",
            f"sasl.jaas.config={LOGINS[mechanism]}",
        ]
        member = JavaMember(java, broker.bootstrap_servers, "g", "orders", *properties)
        produced = 0
        try:

            def is_renewed() -> bool:
                nonlocal produced
                producer.produce("orders", str(produced), partition=produced % 2)
                produced += 1
                assert producer.flush(TIMEOUT_S) == 0
                logins = Counter(each.connection_id for each in broker.requests.of("SaslHandshake", client_id="java"))
                beating = {each.connection_id for each in broker.requests.of("ConsumerGroupHeartbeat", group="g")}
                return any(logins[connection_id] > RENEWALS for connection_id in beating)

            wait_until(is_renewed, TIMEOUT_S, "renewed sessions of Java's member")
            wait_until(lambda: member.keys() == all_keys("orders", produced, partitions=2), TIMEOUT_S, "every record")
            member.leave()
            assert [fact for fact in member.facts if not fact.startswith("record ")][-1] == "closed"
        finally:
            member.kill()
        # A busy machine may let a session end; the member then goes on over another connection, and is the same one.
        heartbeats = broker.requests.of("ConsumerGroupHeartbeat", group="g")
        epochs = [getattr(each.request, "member_epoch", 0) for each in heartbeats]
        assert epochs[:-1] == sorted(epochs[:-1]), "it joined again"
