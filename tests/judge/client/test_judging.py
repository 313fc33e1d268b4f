"""The judge of clients over TCP, with our consumer as the client: with a fault in its core, and without one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from msgspec.structs import replace

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.errors import ConfigError, Kip848Error
from kip848_client.member.consumer.heartbeats import Heartbeats
from kip848_client.testing import ClientJudge, FaultProxy
from kip848_client.testing.judge.client.scenarios import SCENARIOS
from kip848_client.testing.judge.verdicts import Outcome
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

Heartbeat = ConsumerGroupHeartbeatRequest


@contextmanager
def reading(bootstrap_servers: str, **settings: object) -> Iterator[Consumer]:
    """A consumer of ``orders`` that polls on a thread of its own, whatever poll() raises."""
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            try:
                consumer.poll(0.05)
            except Kip848Error:
                over.wait(0.05)  # a member with a fault in its core is stopped, and poll() says so each time

    conf = {"bootstrap.servers": bootstrap_servers, "group.id": "g", "auto.commit.interval.ms": 100, **settings}
    consumer = Consumer(conf)
    consumer.subscribe(["orders"])
    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield consumer
    finally:
        over.set()
        reader.join()
        with suppress(Kip848Error):  # the error that stopped it
            consumer.close()


def joins_with_null(request: Heartbeat) -> Heartbeat:
    return request if request.member_epoch else replace(request, topic_partitions=None)


def counts_by_itself(request: Heartbeat) -> Heartbeat:
    return request if request.member_epoch < 1 else replace(request, member_epoch=request.member_epoch + 1)


def owns_more(request: Heartbeat) -> Heartbeat:
    if request.member_epoch < 1 or not request.topic_partitions:
        return request
    (topic,) = request.topic_partitions
    return replace(request, topic_partitions=(replace(topic, partitions=(*topic.partitions, 7)),))


@pytest.mark.parametrize(("fault", "rule"), [(joins_with_null, "R10"), (counts_by_itself, "R36"), (owns_more, "R42")])
def test_a_fault_in_the_core_of_a_consumer_is_named_through_the_proxy(
    fault: Callable[[Heartbeat], Heartbeat], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The author of a client runs it through the proxy, and is told what it did wrong, and when."""
    build = Heartbeats.build
    monkeypatch.setattr(Heartbeats, "build", lambda *args, **kwargs: fault(build(*args, **kwargs)))
    with (
        EmbeddedBroker({"orders": 2}) as broker,
        FaultProxy(broker.bootstrap_servers) as proxy,
        ClientJudge(proxy) as judge,
        reading(proxy.bootstrap_servers),
    ):
        broken = judge.wait_until_broken(60)
        assert broken is not None
        assert broken.rule.name == rule
        assert broken.outcome is Outcome.DIFFERS
        assert broken.exchange[-1].text == broken.asked.partition(": ")[2]
        with pytest.raises(AssertionError, match=f"{rule} is broken"):
            judge.check()


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@pytest.mark.kip848_broker(topics={"orders": 4})
def test_our_member_keeps_every_rule_in_every_scenario(
    kip848_broker: EmbeddedBroker, kip848_judge: ClientJudge, protocol: str
) -> None:
    """The reference must be what it asks of others."""
    kip848_broker.produce_many("orders", [str(number) for number in range(200)])
    settings = {"heartbeat.interval.ms": 200} if protocol == "classic" else {}
    with reading(kip848_broker.bootstrap_servers, **{"group.protocol": protocol}, **settings):
        kip848_judge.play(*SCENARIOS, patience_s=120)
    report = kip848_judge.report()
    assert report.exit_status == 0
    assert {"R36", "R57"} <= {one.rule.name for one in report.of(Outcome.HOLDS)} or protocol == "classic"


def test_a_rule_that_is_left_out_is_not_judged_and_must_exist(broker: EmbeddedBroker) -> None:
    """A client with a known deviation can be judged by the other rules; a typing error must not hide anything."""
    with pytest.raises(ConfigError, match="R1'"):
        ClientJudge(broker, ignore=["R1"])
    with ClientJudge(broker, ignore=["R72"]) as judge:
        assert judge.broken is None
        assert judge.report().exit_status == 3  # nothing was seen


def test_an_unknown_scenario_is_refused(broker: EmbeddedBroker) -> None:
    """Its name is a word of the user's."""
    with ClientJudge(broker) as judge, pytest.raises(ConfigError, match="lost-answers"):
        judge.play("lost_answers")
