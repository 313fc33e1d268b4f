"""Tokens of an issuer on Apache Kafka, whose own validator asks the issuer for its keys (JWKS)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kip848_client import MemberState
from kip848_client.cli import main
from kip848_client.errors import AuthenticationError
from tests.interop.conftest import require_kafka
from tests.interop.kafka_broker import KafkaBroker
from tests.interop.real.group import Group
from tests.support.driving import drive
from tests.support.issuer import AUDIENCE, Issuer

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 4
SHORT_S = 6.0
"""Life of tokens that a test sees renewed."""
MODULE = "org.apache.kafka.common.security.oauthbearer"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@pytest.fixture(scope="module")
def broker(issuer: Issuer) -> Iterator[KafkaBroker]:
    """Records and administrators use its listener without security."""
    require_kafka()
    listener = "listener.name.tokens.oauthbearer"
    properties = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{listener}.sasl.jaas.config": f"{MODULE}.OAuthBearerLoginModule required;",
        f"{listener}.sasl.server.callback.handler.class": f"{MODULE}.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": f"{issuer.base}/jwks",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": issuer.base,
        "connections.max.reauth.ms": "3600000",  # sessions end with their tokens
        "connection.failed.authentication.delay.ms": "100",
    }
    allowed = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.base}/jwks",)
    with KafkaBroker(properties=properties, listeners={"TOKENS": "SASL_PLAINTEXT"}, jvm_options=allowed) as running:
        yield running


@pytest.fixture(autouse=True)
def as_before(issuer: Issuer) -> None:
    """What a test did to the issuer ends with it, and tokens of others do not count."""
    issuer.life_s, issuer.away, issuer.audience, issuer.last_ends_s = 3_600, False, AUDIENCE, 0.0


@pytest.fixture
def topic(group: Group) -> str:
    """A topic of the test's own."""
    return group.topic(partitions=PARTITIONS)


def login(broker: KafkaBroker, issuer: Issuer, **more: str) -> dict[str, Any]:
    return {"bootstrap.servers": broker.endpoint("TOKENS"), **issuer.login(**more)}


@pytest.mark.timeout(300)
def test_members_share_and_commit_while_their_tokens_are_renewed_under_load(
    group: Group, broker: KafkaBroker, issuer: Issuer, topic: str
) -> None:
    """Every record once, although each connection shows a new token every few seconds."""
    issuer.life_s = SHORT_S
    conf = login(broker, issuer, scope="renewed")
    first = group.ours("first", **conf).subscribe(topic)
    second = group.ours("second", **conf).subscribe(topic)

    def under_load(condition: Callable[[], object]) -> Callable[[], object]:
        def holds() -> object:
            group.write(topic, 5, partitions=PARTITIONS)
            for member in (first, second):
                if member.partitions:
                    member.raw.commit()
            return condition()

        return holds

    drive(first, second, until=under_load(lambda: group.is_settled(first, second)), what="two members")
    begun = len(issuer.tokens)
    drive(
        first,
        second,
        until=under_load(lambda: len(issuer.tokens) >= begun + 4),
        what="tokens that were renewed four times",
    )
    drive(first, second, until=lambda: group.is_settled(first, second), what="two members at the end")
    first.close()
    drive(second, until=lambda: len(second.partitions) == PARTITIONS, what="everything to the second")
    group.read_all(second)
    second.raw.commit(asynchronous=False)
    group.assert_read_once()
    assert group.committed_all()


@pytest.mark.timeout(300)
def test_a_member_outlives_an_issuer_that_is_away_longer_than_its_token(
    group: Group, broker: KafkaBroker, issuer: Issuer, topic: str
) -> None:
    """It reads on when the issuer is back, and nothing was restarted."""
    issuer.life_s = SHORT_S
    member = group.ours("patient", **login(broker, issuer, scope="away")).subscribe(topic)
    drive(member, until=lambda: len(member.partitions) == PARTITIONS, what="all partitions")
    issuer.away = True
    drive(member, until=lambda: time.time() > issuer.last_ends_s + 1, what="the end of the last token")
    assert member.raw.state is not MemberState.FATAL
    issuer.away = False
    group.write(topic, 20, partitions=PARTITIONS)
    group.read_all(member)


def test_a_token_for_another_audience_is_refused_with_what_to_check(
    group: Group, broker: KafkaBroker, issuer: Issuer, topic: str
) -> None:
    """Kafka says no more than that the token is not valid."""
    issuer.audience = "another cluster"
    member = group.ours("stranger", **login(broker, issuer, scope="other")).subscribe(topic)
    with pytest.raises(AuthenticationError, match=r"the broker refused the token: .*invalid_token.*scope, audience"):
        drive(member, until=lambda: False, what="a refusal")


def test_commands_log_in(
    group: Group,
    broker: KafkaBroker,
    issuer: Issuer,
    topic: str,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """With the file of a Java application."""
    conf = login(broker, issuer)
    java = {key: text for key, text in conf.items() if "client" not in key and not key.endswith("method")}
    java["sasl.login.callback.handler.class"] = f"{MODULE}.OAuthBearerLoginCallbackHandler"
    java["sasl.jaas.config"] = (
        f"{MODULE}.OAuthBearerLoginModule required clientId='{conf['sasl.oauthbearer.client.id']}' "
        f"clientSecret='{conf['sasl.oauthbearer.client.secret']}';"
    )
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={text}\n" for key, text in java.items()))
    at = ["-F", str(file)]
    assert main(["produce", topic, "tea", *at]) == 0
    assert main(["consume", topic, "--from", "beginning", "--max", "1", *at]) == 0
    assert main(["groups", "list", "--json", *at]) == 0
    assert main(["config", "check", "--connect", "--json", *at]) == 0
    told = capfdbinary.readouterr()
    assert told.out.splitlines()[0] == b"tea"
    assert all(step["ok"] for step in json.loads(told.out.splitlines()[-1])["connect"])
    assert b"canary" not in told.out + told.err
    assert not any(token.encode() in told.out + told.err for token in issuer.tokens)
    del group
