"""Fixtures for tests of code that uses Kafka. Loaded by pytest by itself once the package is installed.

`kip848_broker`
    an `EmbeddedBroker` of its own for each test, on a free loopback port::

        def test_orders_are_counted(kip848_broker):
            kip848_broker.topics.create("orders", partitions=6)
            run_my_service(kip848_broker.bootstrap_servers)
            kip848_broker.wait_for_group("billing", state="Stable", members=1)

Its arguments for one test, class or module come from a marker::

        @pytest.mark.kip848_broker(config={"group.consumer.session.timeout.ms": "1000"})
        def test_a_silent_member_is_removed(kip848_broker): ...

        @pytest.mark.kip848_broker(nodes=3)
        def test_the_death_of_a_broker_is_survived(kip848_broker): ...

`kip848_consumer`
    makes consumers of that broker, and closes them when the test ends::

        def test_the_work_is_shared(kip848_broker, kip848_consumer):
            first, second = kip848_consumer(group_id="billing"), kip848_consumer(group_id="billing")

`kip848_session_broker`, `kip848_topic`
    one broker for all tests of a session, and a topic of its own for each test::

        def test_an_order_is_stored(kip848_session_broker, kip848_topic):
            kip848_session_broker.produce(kip848_topic, "tea")

``pytest --kip848-keep DIR`` keeps what the broker of each test wrote in a folder there: ``kip848 broker --data-dir``
serves it again.

When a test fails that has an embedded broker as a fixture, of this name or any other, its report shows the broker's
fault rules and the last requests that it got. A fault rule that went wrong itself (a predicate that raises, an action
that does not fit) fails the test at its end.

`kip848_judge`
    watches the clients of `kip848_broker`, of any language, and fails the test at the first rule of a member of a group
    that one of them breaks, with the rule's number and what was said last::

        def test_my_client_is_a_good_member(kip848_broker, kip848_judge):
            kip848_broker.topics.create("orders", partitions=6)
            with MyClient(kip848_broker.bootstrap_servers, group="billing", topic="orders"):
                kip848_judge.play("fenced")

    ``@pytest.mark.kip848_judge(ignore=["R72"])`` leaves rules out.

`kip848_simulation`
    plays a scenario of ``kip848 simulate`` on a virtual clock, with your listener if you bring one, and fails the test
    if an invariant breaks::

        def test_a_hundred_seeds(kip848_simulation):
            for seed in range(100):
                kip848_simulation(seed=seed, application=lambda name: MyListener(name))

Nothing of Kafka is imported before a fixture is used: pytest starts as fast as without the plugin.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kip848_client.consumer.consumer import Consumer
    from kip848_client.testing.broker.broker import EmbeddedBroker
    from kip848_client.testing.faults import Rule
    from kip848_client.testing.judge.client.judging import ClientJudge
    from kip848_client.testing.simulation import Report

_REQUESTS_SHOWN = 40


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare ``--kip848-keep``."""
    parser.getgroup("kip848").addoption(
        "--kip848-keep", metavar="DIR", type=Path, help="keep the data folder of each test's embedded broker in DIR"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, so that ``--strict-markers`` knows it."""
    config.addinivalue_line(
        "markers",
        "kip848_broker(topics={}, profile='default', config={}, nodes=1): arguments of the EmbeddedBroker of this test",
    )
    config.addinivalue_line(
        "markers", "kip848_judge(ignore=()): rules of docs/protocol.md that kip848_judge leaves out, such as 'R72'"
    )


@pytest.fixture
def kip848_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A fresh embedded broker; it is stopped, and all it kept is gone, when the test ends."""
    from kip848_client.testing.broker.broker import (
        EmbeddedBroker,  # here, so that a run without the fixture does not pay for it
    )

    marker = request.node.get_closest_marker("kip848_broker")
    settings: dict[str, Any] = dict(marker.kwargs) if marker else {}
    kept: Path | None = request.config.getoption("--kip848-keep")
    if kept is not None and "data_dir" not in settings:
        settings["data_dir"] = _empty_folder(kept, request.node.name)
    with EmbeddedBroker(**settings) as broker:
        yield broker
        broker.faults.check()


def _empty_folder(parent: Path, test: str) -> Path:
    """A folder for a test that does not exist yet: a second run of it gets another one."""
    name = re.sub(r"[^\w.-]+", "-", test).strip("-")
    numbered = (parent / (name if number == 1 else f"{name}-{number}") for number in itertools.count(1))
    return next(folder for folder in numbered if not folder.exists())


@pytest.fixture
def kip848_consumer(kip848_broker: EmbeddedBroker) -> Iterator[Callable[..., Consumer]]:
    """A function (*, group_id=None, **settings) that makes a `Consumer` of this test's broker.

    Without *group_id* each has a group of its own. Settings are configuration keys with underscores for dots. Unless
    told otherwise they begin at the earliest record. When the test ends, the broker's fault rules are cleared, and the
    consumers are closed.
    """
    from kip848_client.consumer.consumer import Consumer

    with contextlib.ExitStack() as opened:

        def make(*, group_id: str | None = None, **settings: object) -> Consumer:
            conf: dict[str, object] = {
                "bootstrap.servers": kip848_broker.bootstrap_servers,
                "security.protocol": kip848_broker.security_protocol,
                "group.id": group_id or f"test-{uuid.uuid4().hex[:8]}",
                "auto.offset.reset": "earliest",
            }
            conf |= {key.replace("_", "."): value for key, value in settings.items()}
            return opened.enter_context(Consumer(conf))

        yield make
        kip848_broker.faults.clear()  # with a held heartbeat close() would wait until its time is over


@pytest.fixture(scope="session")
def kip848_session_broker() -> Iterator[EmbeddedBroker]:
    """One embedded broker for all tests of this session; each takes a `kip848_topic` and group ids of its own."""
    from kip848_client.testing.broker.broker import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def kip848_topic(kip848_session_broker: EmbeddedBroker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic with three partitions on `kip848_session_broker`; it is deleted when the test ends."""
    name = re.sub(r"[^\w.-]+", "-", request.node.name)[:200]
    topic = f"{name}-{uuid.uuid4().hex[:8]}"
    kip848_session_broker.topics.create(topic, partitions=3)
    yield topic
    kip848_session_broker.topics.delete(topic)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the requests to the brokers of a failed test."""
    report = yield
    module = sys.modules.get("kip848_client.testing.broker.broker")
    judging = sys.modules.get("kip848_client.testing.judge.client.judging")
    if report.when == "call" and report.failed and module is not None:
        for name, value in getattr(item, "funcargs", {}).items():
            if judging is not None and isinstance(value, judging.ClientJudge) and value.broken is not None:
                report.sections.append((f"{name}: the first broken rule", judging.in_words(value.broken)))
            if isinstance(value, module.EmbeddedBroker):
                report.sections.append((f"{name}: embedded broker", _story_of(value)))
    return report


def _story_of(broker: EmbeddedBroker) -> str:
    requests = tuple(broker.requests)
    hidden = broker.requests.forgotten + max(len(requests) - _REQUESTS_SHOWN, 0)
    return "\n".join(
        [
            *(f"fault rule: {rule}" for rule in broker.faults),
            *([f"... {hidden} requests before"] if hidden else []),
            *map(str, requests[-_REQUESTS_SHOWN:]),
        ]
    )


@pytest.fixture
def kip848_judge(request: pytest.FixtureRequest, kip848_broker: EmbeddedBroker) -> Iterator[ClientJudge]:
    """A `ClientJudge` of the clients of this test's broker; the test fails if one of them breaks a rule."""
    from kip848_client.testing.judge.client.judging import ClientJudge

    marker = request.node.get_closest_marker("kip848_judge")
    with ClientJudge(kip848_broker, **(marker.kwargs if marker else {})) as judge:
        yield judge


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Fail a test whose client broke a rule: here, and not when the fixture ends, so that it counts as failed."""
    yield
    module = sys.modules.get("kip848_client.testing.judge.client.judging")
    if module is not None:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, module.ClientJudge) and (broken := value.broken) is not None:
                pytest.fail(module.in_words(broken), pytrace=False)


@pytest.fixture
def kip848_simulation() -> Callable[..., Report]:
    """A function (scenario, *, seed=0, application=None, rules=()) that plays one run.

    It fails the test if an invariant breaks. The scenario is a name, or a `Scenario` of
    `kip848_client.testing.simulation`; *application* makes your listener for the consumer of a name (`UserCode`, from
    there too); *rules* are `Rule` objects of `kip848_client.testing`. Returns the `Report`.
    """
    from kip848_client.testing.simulation import SCENARIOS, Scenario, UserCode, run

    def play(
        scenario: str | Scenario = "mixed",
        *,
        seed: int = 0,
        application: Callable[[str], UserCode] | None = None,
        rules: Iterable[Rule] = (),
    ) -> Report:
        chosen = SCENARIOS[scenario] if isinstance(scenario, str) else scenario
        rules = tuple(rules)
        report = run(chosen, seed=seed, application=application, rules=rules)
        if report.violation is not None:
            last = "\n".join(report.lines[-20:])
            again = f"play it again: {report.replay_command}"
            if application is not None or rules:
                again = f"play it again: this test with seed {seed}; without its own code: {report.replay_command}"
            pytest.fail(f"{report.violation}\n{last}\n{again}", pytrace=False)
        return report

    return play
