"""What a worker says that may not, or can't, do its part: at once, and with the way out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kip848_client import Consumer, EmbeddedBroker, LeaderElection, OwnedUnit, Unit, Worker
from kip848_client.errors import BrokerError, CatalogConflictError, ErrorCode, GroupAuthorizationError
from kip848_client.testing.faults import ALWAYS, error
from tests.support.waiting import SOON_S, wait_until

QUICK = {"session.timeout.ms": 600, "heartbeat.interval.ms": 50, "group.protocol": "classic"}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"t": 1}, acls=True, config={"allow.everyone.if.no.acl.found": "true"}) as running:
        yield running


@pytest.fixture
def conf(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings of a worker, in a group of the test's own."""
    group = f"{request.node.name}"
    return {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, **QUICK}


def run(owned: OwnedUnit, stop: threading.Event) -> None:
    """A runner."""
    stop.wait()


@pytest.mark.parametrize(("describes", "refused"), [(False, "FindCoordinator"), (True, "InitProducerId")])
def test_a_worker_without_rights_on_its_transactional_ids_ends(
    broker: EmbeddedBroker, conf: dict[str, Any], *, describes: bool, refused: str
) -> None:
    """The ACL that is forgotten: such a worker was given units for ever, called itself ready, and started none."""
    name = f"kip848-worker/{conf['group.id']}/a"
    broker.acls.allow("somebody", "WRITE", transactional_id=name)
    if describes:
        broker.acls.allow("*", "DESCRIBE", transactional_id=name)
    worker = Worker(conf, units=["a"])
    worker.runner(run)
    with worker, pytest.raises(BrokerError, match="grant Describe and Write on the transactional ids") as caught:
        worker.wait(SOON_S)
    assert caught.value.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert refused in str(caught.value)
    assert not worker.health().live


def test_a_worker_without_rights_on_its_group_ends(broker: EmbeddedBroker, conf: dict[str, Any]) -> None:
    """The text names the request and the permission, and nothing that would come later."""
    broker.acls.allow("somebody", "READ", group=conf["group.id"])
    worker = Worker(conf, units=["a"], on_assigned=lambda *_: None)
    refused = r"FindCoordinator of group .*; grant Read on the group"
    with worker, pytest.raises(GroupAuthorizationError, match=refused) as caught:
        worker.wait(SOON_S)
    assert "yet" not in str(caught.value)


def test_a_unit_that_never_starts_is_not_ready(broker: EmbeddedBroker, conf: dict[str, Any]) -> None:
    """A probe must see that units rest: nothing else tells it but the log."""
    broker.faults.on("InitProducerId", error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), times=ALWAYS, client_id="late")
    worker = Worker(conf | {"client.id": "late"}, units=["a", "b"])
    worker.runner(run)
    with worker:
        wait_until(lambda: worker.health().waiting == (Unit("a"), Unit("b")))
        wait_until(lambda: worker.health().member_epoch > 0 and not worker.health().ready)
        wait_until(lambda: "COORDINATOR_LOAD_IN_PROGRESS" in (worker.health().last_error or ""))
        assert worker.health().live
        broker.faults.clear()
        wait_until(lambda: worker.health().ready and not worker.health().waiting)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_worker_in_a_group_of_consumers_hears_who_they_are(
    broker: EmbeddedBroker, conf: dict[str, Any], protocol: str
) -> None:
    """A group.id that was copied from another service."""
    shared = {key: conf[key] for key in ("bootstrap.servers", "group.id")}
    with Consumer({**shared, "group.protocol": protocol, "client.id": "billing"}) as consumer:
        consumer.subscribe(["t"])
        wait_until(lambda: bool(consumer.poll(0.05) or consumer.assignment()))
        worker = Worker(conf, units=["a"], on_assigned=lambda *_: None)
        who = "type 'consumer', whose members have the client ids 'billing'"
        with worker, pytest.raises(BrokerError, match=who if protocol == "classic" else "consumers with") as caught:
            worker.wait(SOON_S)
        assert "give the workers a group.id of their own" in str(caught.value)


def test_a_worker_that_reaches_no_broker_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """With a wrong address it waited for ever, and programs that show warnings showed nothing."""

    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    conf = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "session.timeout.ms": 300, "heartbeat.interval.ms": 50}
    with Worker(conf, units=["a"], on_assigned=lambda *_: None):
        wait_until(lambda: len(warnings()) == 2)
    assert all("request_failed" in text and "127.0.0.1:1" in text for text in warnings())


def test_two_elections_in_one_group_are_told_to_take_two_groups(conf: dict[str, Any]) -> None:
    """Raising units.version, as a list of units would need, takes the other program's group over."""
    with LeaderElection(conf, name="scheduler") as first:
        assert first.wait_for_leadership(SOON_S)
        with LeaderElection(conf, name="invoices") as second, pytest.raises(CatalogConflictError) as caught:
            second.wait_for_leadership(SOON_S)
    text = str(caught.value)
    assert "this worker lacks 'scheduler'; only this worker has 'invoices'; all processes of a group elect" in text
    assert "give each election a group.id of its own" in text
    assert "units.version" not in text
