"""Logins with tokens that keys name, on the embedded broker: both planes, renewal, an issuer that fails, commands."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import anyio
import pytest

from kip848_client import Admin, AsyncConsumer, Consumer, EmbeddedBroker, MemberState, ShareConsumer, Unit, Worker
from kip848_client.cli import main
from kip848_client.errors import AuthenticationError
from kip848_client.testing import BrokerSasl
from tests.support.driving import quiet
from tests.support.issuer import CLIENT, Issuer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

SHORT_S = 4.0
"""Life of tokens that a test sees renewed; a broker lets a connection log in again after a second."""


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@pytest.fixture
def broker(issuer: Issuer) -> Iterator[EmbeddedBroker]:
    """It takes what the issuer signed, and ends each session with its token."""
    sasl = BrokerSasl(mechanisms=("OAUTHBEARER",), validate_token=issuer.validate)
    with EmbeddedBroker({"orders": 2}, sasl=sasl) as running:
        yield running


def conf_of(broker: EmbeddedBroker, issuer: Issuer, **more: str) -> dict[str, Any]:
    conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing", "auto.offset.reset": "earliest"}
    return quiet(conf | issuer.login(**more))


class Reader:
    """A consumer of ``orders``, and what it read. Used in a ``with`` block."""

    def __init__(self, broker: EmbeddedBroker, conf: dict[str, Any]) -> None:
        self._broker = broker
        self.consumer = Consumer(conf)
        self.consumer.subscribe(["orders"])
        self.written = 0
        self.values: set[bytes | None] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()

    def go_on(self) -> None:
        """Write one more record, and poll."""
        self._broker.produce("orders", str(self.written))
        self.written += 1
        self.poll()

    def poll(self) -> None:
        self.values |= {record.value() for record in self.consumer.consume(100, 0.02)}

    def poll_until(self, condition: Callable[[], object], *, what: str, writing: bool = False) -> None:
        def holds() -> object:
            self.go_on() if writing else self.poll()
            return condition()

        wait_until(holds, what=what)

    def read_all(self) -> None:
        self.poll_until(lambda: len(self.values) == self.written, what="every record that was written")


def test_both_planes_and_an_admin_log_in_with_one_token(broker: EmbeddedBroker, issuer: Issuer) -> None:
    """A consumer whose heartbeats and records log in as different users is not the one that ACLs were written for."""
    with Reader(broker, conf_of(broker, issuer)) as reader:
        reader.go_on()
        reader.read_all()
        reader.consumer.commit(asynchronous=False)
        with Admin(conf_of(broker, issuer)) as admin:
            assert [group.group_id for group in admin.list_groups().found] == ["billing"]
        assert len(issuer.asked) == 1


def test_every_kind_of_client_logs_in(broker: EmbeddedBroker, issuer: Issuer) -> None:
    """A key that one of them does not pass on would be a login that it does not have."""
    at = {"bootstrap.servers": broker.bootstrap_servers, **issuer.login(scope="every kind")}
    broker.produce("orders", "tea")
    broker.groups.set_config("jobs", {"share.auto.offset.reset": "earliest"})

    async def read() -> object:
        conf = quiet(at | {"group.id": "async", "auto.offset.reset": "earliest"})
        async with AsyncConsumer(conf) as consumer:
            await consumer.subscribe(["orders"])
            return (await anext(aiter(consumer))).value()

    assert anyio.run(read) == b"tea"
    with ShareConsumer({**at, "group.id": "jobs"}) as queue:
        queue.subscribe(["orders"])
        wait_until(lambda: [message.value() for message in queue.poll(1.0)] == [b"tea"], what="the job")
    runs = threading.Event()
    worker = Worker({**at, "group.id": "units"}, units=[Unit("hourly")], on_assigned=lambda *_: runs.set())
    with worker:
        assert runs.wait(60)
    assert len(issuer.asked) == 1


@pytest.mark.timeout(240)
def test_tokens_are_renewed_under_load_and_no_one_notices(broker: EmbeddedBroker, issuer: Issuer) -> None:
    """A service runs for months, and its tokens for minutes."""
    issuer.life_s = SHORT_S
    with Reader(broker, conf_of(broker, issuer, scope="renewed")) as reader:
        reader.poll_until(reader.consumer.memberid, what="a member")
        member_id = reader.consumer.memberid()

        reader.poll_until(lambda: len(issuer.tokens) >= 4, what="the fourth token", writing=True)
        reader.read_all()
        reader.poll_until(lambda: reader.consumer.state is MemberState.STABLE, what="a stable member")
        assert reader.consumer.memberid() == member_id


@pytest.mark.timeout(300)
def test_a_member_outlives_an_issuer_that_is_away_longer_than_its_token(
    broker: EmbeddedBroker, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    """An outage of the issuer is not one of every service: it reads on when the issuer is back, nothing restarted."""
    issuer.life_s = SHORT_S
    with Reader(broker, conf_of(broker, issuer, scope="away")) as reader:
        reader.go_on()
        reader.read_all()
        issuer.away = True
        reader.poll_until(lambda: time.time() > issuer.last_ends_s + 1, what="the end of the last token", writing=True)
        assert reader.consumer.state is not MemberState.FATAL
        reader.poll_until(lambda: "consumer.oauth_failed" in caplog.text, what="a warning")
        issuer.life_s = 3_600
        issuer.away = False
        reader.read_all()
        reader.poll_until(lambda: reader.consumer.state is MemberState.STABLE, what="a stable member")


def test_a_wrong_secret_is_told_with_what_to_check(
    broker: EmbeddedBroker, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer of the issuer, its address and the keys: who reads this needs no other log."""
    caplog.set_level(logging.DEBUG)
    wrong = conf_of(broker, issuer, client_secret="canary-wrong")
    with pytest.raises(AuthenticationError) as refusal:
        Consumer(wrong)
    told = str(refusal.value)
    assert f"{issuer.url} refuses (HTTP 401): invalid_client: no such client" in told
    assert "sasl.oauthbearer.client.secret" in told
    with Admin(wrong) as admin, pytest.raises(AuthenticationError, match="invalid_client"):
        admin.list_groups(timeout_s=20)
    assert "canary" not in told + caplog.text


def options(broker: EmbeddedBroker, issuer: Issuer, folder: Path, **more: str) -> list[str]:
    """The options by which a command logs in."""
    file = folder / "client.properties"
    lines = {"bootstrap.servers": broker.bootstrap_servers, **issuer.login(**more)}
    file.write_text("".join(f"{key}={text}\n" for key, text in lines.items()))
    return ["-F", str(file)]


def test_commands_log_in_with_the_same_file(
    broker: EmbeddedBroker, issuer: Issuer, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """MSK, Event Hubs and Confluent Cloud were out of reach for commands, which can have no oauth_cb."""
    at = options(broker, issuer, tmp_path)
    assert main(["produce", "orders", "tea", *at]) == 0
    assert main(["consume", "orders", "--group", "billing", "--from-beginning", "--max", "1", *at]) == 0
    assert main(["groups", "list", "--json", *at]) == 0
    assert main(["topics", "list", *at]) == 0
    assert main(["topics", "create", "more", *at]) == 0
    assert main(["cluster", "--json", *at]) == 0
    told = capfdbinary.readouterr()
    assert told.out.splitlines()[0] == b"tea"
    assert b"billing" in told.out
    assert b"canary" not in told.out + told.err
    assert not any(token.encode() in told.out + told.err for token in issuer.tokens)


@pytest.mark.parametrize("command", [["consume", "orders"], ["groups", "list", "--json"], ["produce", "orders", "x"]])
def test_a_command_that_is_refused_says_why(
    broker: EmbeddedBroker,
    issuer: Issuer,
    tmp_path: Path,
    command: list[str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The message names the issuer's answer; the secret stays in its file."""
    assert main([*command, *options(broker, issuer, tmp_path, client_secret="canary-wrong")]) == 1
    told = capfd.readouterr()
    assert "refuses (HTTP 401): invalid_client" in told.err
    assert CLIENT in told.err
    assert "canary" not in told.out + told.err
