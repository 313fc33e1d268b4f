"""The control port of ``kip848 broker``: the test kit for programs in other languages."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from kip848_client import Consumer
from kip848_client.common.clock import ManualClock
from kip848_client.errors import ConfigError
from kip848_client.testing import EmbeddedBroker
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.testing.serving import control_port
from kip848_client.testing.serving.control_calls import calls
from kip848_client.testing.serving.control_port import ControlPort
from tests.support.group_requests import join
from tests.support.waiting import wait_until

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
    assert {"topic": "bills", "partition": 2, "offset": 1} in ask("groups/committed", group_id="g")[1]
    assert {"topic": "bills", "partition": 2} in group["members"][0]["assigned"]
    assert ask("requests/wait_for", api="OffsetCommit", answered=True)[1]["fault"] == "delay 1 ms, then pass_through"


def test_errors_say_what_was_wrong(ask: Ask) -> None:
    """A mistyped argument or name is answered with its place, not with a stack trace."""
    status, refused = ask("topics/create", nam="a")
    assert (status, refused["error"]) == (400, "ConfigError")
    assert "unknown field `nam`; it takes name, partitions, configs, replication_factor" in refused["message"]
    status, refused = ask("topics/create", name="orders")
    assert (status, refused["code"]) == (409, "TOPIC_ALREADY_EXISTS")
    status, refused = ask("topics/creat", name="a")
    assert (status, refused["message"]) == (404, "there is no call /topics/creat; did you mean /topics/create?")
    assert ask("groups/wait_for", group_id="g", members=1, timeout_s=0.0)[0] == 504


@pytest.mark.parametrize(
    ("call", "arguments", "status", "said"),
    [
        ("faults/on", {"script": [{"dropp": {}}]}, 400, "drop(), close(reset)"),
        (
            "faults/on",
            {"script": [{"delay": {"ms": "5"}}]},
            400,
            "Expected `int`, got `str` - at `$.script[0].delay.ms`",
        ),
        ("faults/on", {"script": [{"drop": {}, "close": {}}]}, 400, "one name, not with drop and close"),
        ("faults/on", {"script": [{"drop": {}}], "node_id": 9}, 409, "there is no node 9"),
        ("faults/on", {"script": [{"drop": {}}], "times": 0}, 400, ">= 1"),
        ("requests/wait_for", {"count": 0}, 400, ">= 1"),
        ("groups/wait_for", {"group_id": "g", "timeout_s": -1}, 400, ">= 0"),
        ("groups/wait_for", {"group_id": "g", "timeout_s": 1e10}, 400, "<= 1000000"),
        ("transactions/wait_for", {"transactional_id": "t", "state": "Ongoin"}, 400, "its states are Empty, Ongoing"),
        ("clock/advance", {"ms": 10**26}, 400, "not beyond the year 9999"),
        ("clock/advance", {"ms": -1}, 400, "time goes forward"),
        ("records/produce", {"topic": "orders", "value": "AP8", "encoding": "base64"}, 400, "is not base64"),
    ],
    ids=str,
)
def test_a_mistake_is_refused_at_once(call: str, arguments: dict[str, object], status: int, said: str) -> None:
    """A call that can never succeed must not wait, act later, or break the connection."""
    with (
        EmbeddedBroker({"orders": 1}, clock=ManualClock()) as broker,
        ControlPort(broker, "127.0.0.1", 0) as port,
    ):
        answered, refused = _asking(port)(call, **arguments)
    assert answered == status
    assert said in refused["message"]


@pytest.mark.parametrize(
    ("request_line", "header", "status", "allowed"),
    [
        ("GET /topics/list", "", 405, "POST"),
        ("PUT /topics/list", "", 405, "POST"),
        ("POST /health", "", 405, "GET, HEAD"),
        ("GET /nowhere", "", 404, None),
        ("POST /topics/list", f"Content-Length: {10**9}", 413, None),
        ("POST /topics/list", "Content-Length: many", 400, None),
        ("POST /topics/list", "Content-Length: 2\r\nContent-Length: 3", 400, None),
        ("POST /topics/list", f"Content-Length: {'9' * 5_000}", 413, None),
        ("POST /topics/list", f"Cookie: {'x' * 40_000}", 431, None),
        ("POST /topics/list", "Origin: https://example.org\r\nContent-Length: 1000", 403, None),
        ("POST /topics/list", "Transfer-Encoding: chunked", 411, None),
    ],
    ids=str,
)
def test_what_is_no_call_is_refused_in_json_too(
    broker: EmbeddedBroker, request_line: str, header: str, status: int, allowed: str | None
) -> None:
    """Clients decode every answer; a page of HTML would hide what is wrong."""
    with ControlPort(broker, "127.0.0.1", 0) as port:
        host, number = port.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(number)), 30) as connection:
            lines = [f"{request_line} HTTP/1.1", f"Host: {host}", *filter(None, [header]), "", ""]
            connection.sendall("\r\n".join(lines).encode())
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            assert (answer.status, answer.getheader("Allow")) == (status, allowed)
            assert json.loads(answer.read())["message"]


def test_a_client_that_goes_away_leaves_no_traceback(broker: EmbeddedBroker, capfd: pytest.CaptureFixture[str]) -> None:
    """A test that gives up a wait must not fill the broker's log."""
    with ControlPort(broker, "127.0.0.1", 0) as port:
        host, number = port.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(number)), 30) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close resets
            connection.sendall(b"POST /topics/list HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{")
            wait_until(lambda: any(map(_serves, threading.enumerate())), what="a thread for it")
        wait_until(lambda: not any(map(_serves, threading.enumerate())), what="its end")
    assert capfd.readouterr().err == ""


UNFINISHED = b"POST /topics/list HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n{"


def _connected(port: ControlPort) -> socket.socket:
    host, number = port.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(number)), 30)


def test_unfinished_bodies_take_no_memory_and_strangers_not_even_a_wait(broker: EmbeddedBroker) -> None:
    """Eighty of them took 1.2 GB, before the token was looked at."""
    with ControlPort(broker, "127.0.0.1", 0, token="secret") as port, _connected(port) as stranger:
        stranger.sendall(UNFINISHED % 2**24)
        assert stranger.recv(12) == b"HTTP/1.1 401"
    with ControlPort(broker, "127.0.0.1", 0) as port, ExitStack() as stack:
        tracemalloc.start()
        stack.callback(tracemalloc.stop)

        def another_one_is_refused() -> bool:
            stack.enter_context(_connected(port)).sendall(UNFINISHED % 2**24)  # one more: ours may have taken its place
            return _asking(port)("topics/create", name="a", configs={"x": "y" * 2**18})[0] == 503

        wait_until(another_one_is_refused)
        its_own = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, control_port.__file__)])
        assert sum(trace.size for trace in its_own.traces) < 2**23
        assert _asking(port)("topics/list")[0] == 200


def test_connections_without_a_request_give_way_to_others(broker: EmbeddedBroker) -> None:
    """Who only connects, or sends a header a minute, must not keep a test from its broker."""
    with ControlPort(broker, "127.0.0.1", 0) as port, ExitStack() as stack:
        kept = http.client.HTTPConnection(port.url.removeprefix("http://"), timeout=30)
        stack.callback(kept.close)
        kept.request("POST", "/groups/wait_for", '{"group_id": "g", "state": "Stable", "timeout_s": 600}')
        idle = [stack.enter_context(_connected(port)) for _ in range(300)]
        assert _asking(port)("topics/list")[0] == 200
        assert idle[0].recv(1) == b""
        with RawConnection(broker.bootstrap_servers) as member:
            member.ask(join(topics=("orders",)), version=1)
            assert kept.getresponse().status == 200


def _serves(thread: threading.Thread) -> bool:
    return "process_request_thread" in thread.name


def test_records_keep_bytes_that_are_no_text(broker: EmbeddedBroker, ask: Ask) -> None:
    """Values of Avro or Protobuf, and headers that repeat, come through unchanged."""
    headers = [{"name": "h", "value": "AA=="}, {"name": "h", "value": None}]
    status, record = ask("records/produce", topic="orders", value="/wA=", headers=headers, encoding="base64")
    assert (status, record["value"]) == (200, "/wA=")
    assert ask("records/list", topic="orders", encoding="base64")[1] == [record]
    assert record["headers"] == headers
    [stored] = broker.records("orders")
    assert (stored.value, stored.headers) == (b"\xff\x00", (("h", b"\0"), ("h", None)))


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


def test_quotas_are_set_and_listed(ask: Ask) -> None:
    """How a service behaves that is throttled is tested in other languages, too."""
    assert ask("quotas/set", client_id="shop", consumer_byte_rate=10_000) == (200, None)
    shop = {"user": None, "client_id": "shop", "ip": None, "limits": {"consumer_byte_rate": 10_000.0}}
    assert ask("quotas/list") == (200, [shop])
    assert ask("quotas/set", consumer_byte_rate=10_000)[1]["code"] == "INVALID_REQUEST"
    assert ask("quotas/clear") == (200, None)
    assert ask("quotas/list") == (200, [])


def test_a_push_of_metrics_is_waited_for() -> None:
    """It is the only way to see what a client in another language pushes."""
    config = {"kip848.client.telemetry.enable": True}
    with EmbeddedBroker({"orders": 1}, config=config) as broker, ControlPort(broker, "127.0.0.1", 0) as port:
        ask = _asking(port)
        assert ask("telemetry/subscribe", name="ours", metrics=["*"], interval_ms=100) == (200, None)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "shop"})
        producer.produce("orders", b"tea")
        producer.flush()
        status, push = ask("telemetry/wait_for", metric="org.apache.kafka.producer.", client_id="shop")
        assert (status, push["client_id"], push["node_id"]) == (200, "shop", 1)
        assert any(name.startswith("org.apache.kafka.producer.") for name in push["metric_names"])
        assert base64.b64decode(push["otlp"])
        assert push in ask("telemetry/list")[1]


def test_a_share_group_is_waited_for(broker: EmbeddedBroker, ask: Ask) -> None:
    """A queue worker's test waits until all records were handled; a group that has not begun has not handled them."""
    assert ask("shares/wait_for", group_id="workers", timeout_s=0)[0] == 504
    broker.produce("orders", "tea", partition=0)

    def begin(state: BrokerState) -> None:
        topic_id = state.topics.find("orders").topic_id
        state.shares.initialize("workers", topic_id, 0, state_epoch=1, start_offset=0)

    broker._on_loop(begin)
    assert ask("shares/wait_for", group_id="workers", timeout_s=0)[0] == 504
    status, (partition,) = ask("shares/wait_for", group_id="workers", unfinished=1)
    assert (status, partition["topic"], partition["unfinished"]) == (200, "orders", 1)
    assert ask("shares/wait_for", group_id="workers", unfinished=-1)[0] == 400


def test_the_description_names_every_call(ask: Ask) -> None:
    """Programs are generated from it."""
    status, described = ask("openapi.json")
    assert status == 200
    assert described["paths"].keys() == {f"/{path}" for path in calls()}
    assert ask("")[1].keys() == calls().keys()
    schemas = described["components"]["schemas"]
    schema = schemas["TopicsCreate"]
    assert (schema["required"], schema["properties"]["partitions"]["type"]) == (["name"], "integer")
    group = described["paths"]["/groups/wait_for"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert group == {"$ref": "#/components/schemas/Group"}
    assert schemas["Member"]["properties"]["assigned"]["items"] == {"$ref": "#/components/schemas/Partition"}
    assert schemas["StoredRecord"]["properties"]["timestamp_ms"]["format"] == "int64"


def test_answers_have_the_types_of_the_description(broker: EmbeddedBroker, ask: Ask) -> None:
    """A generated client decodes what the port answers, empty or not."""
    broker.produce("orders", "tea")
    table = calls()
    for path, arguments in {
        "groups/committed": {"group_id": "none"},
        "groups/get": {"group_id": "none"},
        "nodes/list": {},
        "records/list": {"topic": "orders"},
        "requests/list": {},
        "topics/offsets": {"name": "orders"},
        "topics/apply_retention": {},
        "transactions/list": {},
        "shares/partitions": {"group_id": "none"},
        "telemetry/list": {},
    }.items():
        status, answer = ask(path, **arguments)
        assert status == 200
        msgspec.convert(answer, table[path].result)


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
        for scheme in ("Bearer", "bearer"):
            assert _asking(port, {"Authorization": f"{scheme} secret"})("topics/list")[0] == 200
        assert _asking(port)("health") == (200, {"serving": True})
