"""The control port of ``kip848 broker``: the test kit for programs in other languages."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kip848_client import Consumer
from kip848_client.cli.serving.control_calls import calls
from kip848_client.cli.serving.control_port import ControlPort
from kip848_client.clock import ManualClock
from kip848_client.errors import ConfigError
from kip848_client.testing import EmbeddedBroker

Ask = Callable[..., tuple[int, Any]]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"orders": 2}) as running:
        yield running


@pytest.fixture
def ask(broker: EmbeddedBroker) -> Iterator[Ask]:
    """``ask("topics/create", name="a")`` -> status and decoded answer."""
    with ControlPort(broker, "127.0.0.1", 0) as port:
        yield _asking(port)


def _asking(port: ControlPort, headers: dict[str, str] | None = None) -> Ask:
    def ask(path: str, **arguments: object) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(port.url.removeprefix("http://"), timeout=30)
        try:
            get = path in {"", "health", "openapi.json"}
            connection.request(
                "GET" if get else "POST", f"/{path}", None if get else json.dumps(arguments), headers or {}
            )
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    return ask


def test_a_test_in_another_language_makes_topics_faults_and_waits(broker: EmbeddedBroker, ask: Ask) -> None:
    """What a Go test does: a topic, a fault, its own consumer, and waits in place of sleeps."""
    assert ask("topics/create", name="bills", partitions=3)[0] == 200
    assert ask("topics/list") == (200, {"bills": 3, "orders": 2})
    status, rule = ask("faults/on", api="OffsetCommit", script=[{"delay": {"ms": 1}}])
    assert status == 200
    assert ask("records/produce", topic="bills", value="1", partition=2)[1]["offset"] == 0
    conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    with Consumer(conf) as consumer:
        consumer.subscribe(["bills"])
        message = consumer.poll(30)
        assert message is not None
        status, group = ask("groups/wait_for", group_id="g", state="stable", members=1)
        assert (status, len(group["members"])) == (200, 1)
        consumer.commit(message, asynchronous=False)
    assert ask("faults/wait", rule=rule)[1]["hits"] == 1
    assert {"topic": "bills", "partition": 2, "value": 1} in ask("groups/committed", group_id="g")[1]
    assert ask("requests/wait_for", api="OffsetCommit", answered=True)[1]["fault"] == "delay 1 ms, then pass_through"


def test_errors_say_what_was_wrong(ask: Ask) -> None:
    """A mistyped argument or name is answered with its place, not with a stack trace."""
    assert ask("topics/create", nam="a") == (
        400,
        {"error": "ValidationError", "message": "Object contains unknown field `nam`"},
    )
    status, refused = ask("topics/create", name="orders")
    assert (status, refused["code"]) == (409, "TOPIC_ALREADY_EXISTS")
    assert ask("topics/creat", name="a")[0] == 404
    assert ask("faults/on", script=[{"dropp": {}}])[0] == 400
    assert ask("groups/wait_for", group_id="g", members=1, timeout_s=0.0)[0] == 504


def test_a_crash_and_the_clock_are_calls_too() -> None:
    """An outage, and a session that expires without a minute of waiting."""
    with (
        EmbeddedBroker({"orders": 1}, clock=ManualClock()) as broker,
        ControlPort(broker, "127.0.0.1", 0) as port,
    ):
        ask = _asking(port)
        assert ask("clock/advance", ms=60_000) == (200, None)
        assert ask("broker/crash") == (200, None)
        assert ask("health") == (503, {"serving": False})
        assert ask("topics/list")[0] == 409
        assert ask("broker/start") == (200, None)
        assert ask("topics/list") == (200, {"orders": 1})


def test_the_description_names_every_call(ask: Ask) -> None:
    """Programs are generated from it."""
    status, described = ask("openapi.json")
    assert status == 200
    assert described["paths"].keys() == {f"/{path}" for path in calls()}
    assert ask("")[1].keys() == calls().keys()
    schema = described["components"]["schemas"]["TopicsCreate"]
    assert (schema["required"], schema["properties"]["partitions"]["type"]) == (["name"], "integer")


@pytest.mark.parametrize("headers", [{"Host": "example.org"}, {"Origin": "https://example.org"}], ids=str)
def test_a_page_in_a_browser_cannot_call(broker: EmbeddedBroker, headers: dict[str, str]) -> None:
    """A web page that the developer visits must not reach the broker's controls."""
    with ControlPort(broker, "127.0.0.1", 0) as port:
        assert _asking(port, headers)("topics/delete", name="orders")[0] == 403
    assert "orders" in broker.topics


def test_with_a_token_only_who_has_it_may_call(broker: EmbeddedBroker) -> None:
    """Beyond loopback the port rules the broker for everybody who reaches it."""
    with pytest.raises(ConfigError, match="--control-token-file"):
        ControlPort(broker, "0.0.0.0", 0)
    with ControlPort(broker, "127.0.0.1", 0, token="secret") as port:
        assert _asking(port)("topics/list")[0] == 401
        assert _asking(port, {"Authorization": "Bearer wrong"})("topics/list")[0] == 401
        assert _asking(port, {"Authorization": "Bearer secret"})("topics/list")[0] == 200
        assert _asking(port)("health") == (200, {"serving": True})
