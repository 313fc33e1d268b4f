"""The tests of the synchronous consumer, once with asyncio and once with trio below."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anyio.from_thread
import pytest

from tests.aio.blocking import BlockingConsumer
from tests.interop.client.conftest import broker, make_consumer, produce, scripted, watch

__all__ = ["broker", "make_consumer", "produce", "scripted", "watch"]


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    """The event loop."""
    return str(request.param)


@pytest.fixture
def consumer_class(backend: str) -> Iterator[Callable[..., Any]]:
    """Makes an AsyncConsumer behind the API of `Consumer`."""
    with anyio.from_thread.start_blocking_portal(backend) as portal:
        yield lambda *args, **kwargs: BlockingConsumer(portal, *args, **kwargs)
