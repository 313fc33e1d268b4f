"""The tests of the synchronous consumer, once with asyncio and once with trio below."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import anyio.from_thread
import pytest

from tests.aio.blocking import BlockingConsumer
from tests.interop.client.conftest import broker, lines, make_consumer, produce

LOOPS = ["asyncio", "trio"]

__all__ = ["broker", "lines", "make_consumer", "produce"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each test that is `Consumer`'s runs on one of the loops, half of them on either."""
    left_out = [item for item in items if _is_for_the_other_loop(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _is_for_the_other_loop(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or item.path.name != "test_same_as_consumer.py":
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
