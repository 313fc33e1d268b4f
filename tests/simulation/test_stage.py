"""What the simulation itself must get right, or its verdicts are about something that Kafka does not do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.simulation.checkers.members import BoundedWork
from kip848_client.testing.simulation.consumer_environment import ConsumerEnvironment
from kip848_client.testing.simulation.run import RunPhases
from kip848_client.testing.simulation.virtual.cluster import VirtualCluster
from kip848_client.testing.simulation.virtual.environment import GROUP
from kip848_client.testing.simulation.virtual.scenario import QUIET
from kip848_client.testing.simulation.virtual.scheduler import Scheduler
from kip848_client.testing.simulation.virtual.violation import InvariantViolation
from kip848_client.wire.schema import Response
from tests.simulation.probes.logs import join


def deposed(*, durable: bool) -> list[Response]:
    """What a coordinator answers that knows of a member, and not that another node has taken over."""
    scheduler = Scheduler(1)
    cluster = VirtualCluster(scheduler, CoordinatorConfig(), replace(QUIET, replication_ms=0 if durable else 1_000))
    cluster.topics.create("orders", partitions=1)
    answers: list[Response] = []
    cluster.serve(0, join(GROUP, member_id="one"), api_version=1, client_id="one", reply=answers.append)
    assert len(answers) == int(durable)
    cluster.fail_over(believes_for_ms=1_000, load_ms=0, rumour_ms=0)
    answers.clear()
    again = replace(join(GROUP, member_id="one"), member_epoch=1)
    cluster.serve(0, again, api_version=1, client_id="one", reply=answers.append)
    scheduler.run_until(2_000)
    return answers


def test_a_deposed_coordinator_answers_while_all_that_it_knows_is_durable() -> None:
    """It has nothing to write, so no broker tells it that it is no leader any more."""
    (answer,) = deposed(durable=True)
    assert answer.error_code == 0  # type: ignore[attr-defined]


def test_a_deposed_coordinator_that_knows_more_than_is_durable_says_nothing() -> None:
    """As in Kafka, an answer waits until what was written before it is replicated, and that will never be."""
    assert deposed(durable=False) == []


def test_a_commit_is_forgotten_when_nothing_is_heard_in_time_though_there_is_a_coordinator() -> None:
    """One that waits for a coordinator is sent once there is one, and then has the time of a request."""
    environment = ConsumerEnvironment(QUIET, seed=1, keep_history=False)
    RunPhases(environment).safety()
    consumer = environment.living()[0]
    checker = BoundedWork(environment.run_state)
    late_ms = environment.scheduler.now_ms - consumer.config.request_timeout_ms - 2_001
    consumer.commits_asked[1_000] = late_ms
    consumer.connected_ms = environment.scheduler.now_ms - consumer.config.request_timeout_ms
    checker.converged()
    consumer.connected_ms = late_ms
    with pytest.raises(InvariantViolation, match="C8"):
        checker.converged()


def test_a_group_is_not_at_rest_while_an_assignor_that_hangs_keeps_a_wish_for_another_target() -> None:
    """The wish moves the group epoch when the call returns, and L6 would take that for a rebalance without a cause."""
    environment = ConsumerEnvironment(replace(QUIET, assignors=1.0), seed=1, keep_history=False)
    play = RunPhases(environment)
    play.safety()
    play.heal()
    environment.living()[0].assignor.request_reassignment()
    assert any(consumer.assignor.asks for consumer in environment.living())
    assert play.wait_for_rest(60_000)
    assert not any(consumer.assignor.asks for consumer in environment.living())
    environment.living()[0].assignor.request_reassignment()
    assert not environment.rests()
    assert play.wait_for_rest(60_000)
