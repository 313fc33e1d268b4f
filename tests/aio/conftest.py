"""The tests of the synchronous consumer, once with asyncio and once with trio below."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import anyio.from_thread
import pytest

from tests.aio.blocking import BlockingConsumer
from tests.interop.client.conftest import broker, make_consumer, produce, scripted, watch

LOOPS = ["asyncio", "trio"]
BORROWED = ("test_wire_", "test_same_as_consumer")
"""Files whose tests are those of `Consumer`."""

__all__ = ["broker", "make_consumer", "produce", "scripted", "watch"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each borrowed test runs on one of the loops, half of them on either. KIP848_BOTH_LOOPS=1 runs all on both."""
    if os.environ.get("KIP848_BOTH_LOOPS"):
        return
    left_out = [item for item in items if _is_for_the_other_loop(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _is_for_the_other_loop(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or not item.path.name.startswith(BORROWED):
        return False
    callspec = getattr(item, "callspec", None)
    loop = callspec.params.get("backend") if callspec is not None else None
    return loop is not None and loop != LOOPS[zlib.crc32(item.originalname.encode()) % 2]


@pytest.fixture(params=LOOPS)
def backend(request: pytest.FixtureRequest) -> str:
    """The event loop."""
    return str(request.param)


@pytest.fixture
def consumer_class(backend: str) -> Iterator[Callable[..., Any]]:
    """Makes an AsyncConsumer behind the API of `Consumer`."""
    with anyio.from_thread.start_blocking_portal(backend) as portal:
        yield lambda *args, **kwargs: BlockingConsumer(portal, *args, **kwargs)
