"""Tokens of an issuer in Spark jobs: the driver and the tasks log in; plans and logs have no secret."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.config.security import for_librdkafka
from kip848_client.testing import BrokerSasl
from tests.spark.arrange import committed, driving, everything, produce
from tests.spark.queries import read
from tests.support.issuer import CLIENT, SECRET, Issuer
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEARER: Final = "org.apache.kafka.common.security.oauthbearer"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@pytest.fixture
def secured(issuer: Issuer) -> Iterator[EmbeddedBroker]:
    """A broker that takes the issuer's tokens, with thirty records in each of two partitions."""
    sasl = BrokerSasl(mechanisms=("OAUTHBEARER",), validate_token=issuer.validate)
    with EmbeddedBroker({"orders": 2, "copies": 1}, sasl=sasl) as running:
        login = for_librdkafka({"bootstrap.servers": running.bootstrap_servers, **issuer.login()})
        produce(running.bootstrap_servers, "orders", 30, partitions=2, secured=login)  # type: ignore[arg-type]
        yield running


def options(issuer: Issuer, *, java: bool) -> dict[str, object]:
    """Options of a login, as librdkafka or as Java spells it."""
    keys = issuer.login()
    if java:
        keys = {key: text for key, text in keys.items() if "client" not in key and not key.endswith("method")}
        keys["sasl.login.callback.handler.class"] = f"{BEARER}.OAuthBearerLoginCallbackHandler"
        keys["sasl.jaas.config"] = (
            f'{BEARER}.OAuthBearerLoginModule required clientId="{CLIENT}" clientSecret="{SECRET}";'
        )
    return {f"kafka.{key}": text for key, text in keys.items()}


def test_a_stream_logs_in_with_tokens(secured: EmbeddedBroker, issuer: Issuer) -> None:
    """The member on the driver, and the tasks that read."""
    with driving(secured.bootstrap_servers, options(issuer, java=True), maxOffsetsPerTrigger=20) as driver:
        driver.run(60)
        wait_until(lambda: committed(secured) == {0: 30, 1: 30})
    assert driver.rows == everything(30, partitions=2)


@pytest.mark.parametrize("java", [False, True])
def test_a_job_reads_and_writes_with_tokens_and_shows_no_secret(
    spark: SparkSession,
    secured: EmbeddedBroker,
    issuer: Issuer,
    java: bool,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Plans are in Spark's page, its event log, and many a bug report."""
    caplog.set_level(logging.DEBUG, logger="kip848_client")  # py4j logs every word that it carries
    chosen = options(issuer, java=java)
    frame = read(spark, secured.bootstrap_servers, chosen)
    assert frame.count() == 60
    written = {"kafka.bootstrap.servers": secured.bootstrap_servers, "topic": "copies", **chosen}
    texts = {name: str(text) for name, text in written.items()}
    frame.selectExpr("value").write.format("kip848").options(**texts).mode("append").save()
    copies = read(spark, secured.bootstrap_servers, {**chosen, "subscribe": "copies"})
    assert copies.count() == 60
    plan = io.StringIO()
    with redirect_stdout(plan):
        frame.explain("extended")
        frame.explain("formatted")
    told = plan.getvalue() + str(frame._jdf.queryExecution().toString()) + caplog.text + "".join(capfd.readouterr())
    assert "orders" in told or "kip848" in told
    assert "canary" not in told
    assert not any(token in told for token in issuer.tokens)


def test_a_refused_job_says_why(spark: SparkSession, secured: EmbeddedBroker, issuer: Issuer, tmp_path: Path) -> None:
    """Spark shows the error of the source, with the issuer's answer and without the secret."""
    del tmp_path
    chosen = options(issuer, java=False) | {"kafka.sasl.oauthbearer.client.secret": "canary-wrong"}
    with pytest.raises(Exception, match=r"refuses \(HTTP 401\): invalid_client") as refusal:
        read(spark, secured.bootstrap_servers, chosen).count()
    assert "canary" not in str(refusal.value)
