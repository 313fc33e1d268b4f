"""Fixtures for tests of code that uses Kafka. Loaded by pytest by itself once the package is installed.

`kip848_broker`
    an `EmbeddedBroker` of its own for each test, on a free loopback port::

        def test_orders_are_counted(kip848_broker):
            kip848_broker.create_topic("orders", partitions=6)
            run_my_service(kip848_broker.bootstrap_servers)
            kip848_broker.wait_for_group("billing", state="Stable", members=1)

Broker properties for one test, class or module come from a marker::

        @pytest.mark.kip848_broker(config={"group.consumer.session.timeout.ms": "1000"})
        def test_a_silent_member_is_removed(kip848_broker): ...

Nothing of Kafka is imported before a fixture is used: pytest starts as fast as without the plugin.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kip848_client.broker import EmbeddedBroker

__all__ = ["kip848_broker", "pytest_configure"]


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, so that ``--strict-markers`` knows it."""
    config.addinivalue_line(
        "markers",
        "kip848_broker(topics={}, profile='default', config={}): arguments of the EmbeddedBroker of this test",
    )


@pytest.fixture
def kip848_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A fresh embedded broker; it is stopped, and all it kept is gone, when the test ends."""
    from kip848_client.broker import EmbeddedBroker  # here, so that a run without the fixture does not pay for it

    marker = request.node.get_closest_marker("kip848_broker")
    with EmbeddedBroker(**(marker.kwargs if marker else {})) as broker:
        yield broker
