"""What a wrong argument raises: an exception of this library, whatever it is."""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import Any
from unittest.mock import AsyncMock

import pytest

from kip848_client import (
    ConfigError,
    Consumer,
    ConsumerRebalanceListener,
    EmbeddedBroker,
    IllegalStateError,
    Kip848Error,
    ListenerError,
    TopicPartition,
)
from kip848_client.errors import ArgumentTypeError
from kip848_client.testing.faults import drop
from tests.support.driving import QUIET, settings
from tests.support.waiting import wait_until
from tests.support.wrong_arguments import never_awaited, wrong_calls

pytestmark = pytest.mark.interop

NEVER_RUN = "is an async function, which would never run here"


def test_every_wrong_argument_gets_an_exception_of_this_library(broker: EmbeddedBroker) -> None:
    """A program that handles `Kip848Error`, as docs/reference/errors.md says, must not die of a TypeError."""
    with contextlib.suppress(Kip848Error), Consumer({**QUIET, **settings(broker.bootstrap_servers)}) as consumer:
        for name, arguments in wrong_calls(Consumer):
            with contextlib.suppress(Kip848Error):
                result = getattr(consumer, name)(**arguments)
                if inspect.isgenerator(result):
                    next(result)


def test_a_wrong_argument_is_also_what_python_calls_it(broker: EmbeddedBroker) -> None:
    """Tests of ported programs expect confluent-kafka's ValueError and TypeError."""
    with Consumer({**QUIET, **settings(broker.bootstrap_servers)}) as consumer:
        with pytest.raises(ConfigError, match="0 to 1,000,000 are allowed"):
            consumer.consume(-1)
        with pytest.raises(ArgumentTypeError, match="put brackets around it"):
            consumer.pause(TopicPartition("orders", 0))  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"takes a list of topics, got 'orders'; write"):
            consumer.subscribe("orders", "payments")  # type: ignore[arg-type]
        consumer.assign([TopicPartition("orders", 0)])
    assert consumer.assignment() == [], "it is closed"
    assert issubclass(ConfigError, ValueError)
    assert issubclass(ArgumentTypeError, TypeError)


def test_a_question_without_a_time_says_so(broker: EmbeddedBroker) -> None:
    """The broker calls it an unsupported version, which reads as if it lacked the group protocol."""
    with Consumer({**QUIET, **settings(broker.bootstrap_servers)}) as consumer:
        with pytest.raises(IllegalStateError, match="orders-0 has none"):
            consumer.offsets_for_times([TopicPartition("orders", 0)])
        assert consumer.offsets_for_times([]) == []


class AsyncCallable:
    """Called like a function."""

    async def __call__(self, *_: object) -> None:
        """Never runs."""


class AsyncListener(ConsumerRebalanceListener):
    """Written for the AsyncConsumer."""

    async def on_partitions_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:  # type: ignore[override]
        """Never runs."""


@pytest.mark.parametrize(
    "callback",
    [never_awaited, functools.partial(never_awaited, 1), AsyncCallable(), AsyncMock()],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("place", ["on_assign", "on_revoke", "on_lost", "listener", "on_commit"])
def test_an_async_callback_is_refused(broker: EmbeddedBroker, callback: Any, place: str) -> None:
    """It would be called, and never run: partitions are given up without the commit that it makes."""
    with Consumer({**QUIET, **settings(broker.bootstrap_servers)}) as consumer:
        call = consumer.commit if place == "on_commit" else functools.partial(consumer.subscribe, ["orders"])
        with pytest.raises(ConfigError, match=NEVER_RUN):
            call(**{place: callback})


def test_an_async_method_of_a_listener_is_refused(broker: EmbeddedBroker) -> None:
    """Nothing awaits a coroutine method in `Consumer`, so its revocations would never be handled."""
    with Consumer({**QUIET, **settings(broker.bootstrap_servers)}) as consumer:
        with pytest.raises(ConfigError, match=rf"AsyncListener.on_partitions_revoked {NEVER_RUN}.*AsyncConsumer"):
            consumer.subscribe(["orders"], AsyncListener())


@pytest.mark.parametrize(
    "key",
    [
        "on_commit",
        "error_cb",
        "stats_cb",
        "throttle_cb",
        "key.deserializer",
        "value.deserializer",
        "on_deserialization_error",
    ],
)
def test_an_async_callback_of_the_configuration_is_refused(broker: EmbeddedBroker, key: str) -> None:
    """Values would be coroutines, and errors and refused commits would go unheard."""
    with pytest.raises(ConfigError, match=f"{key} {NEVER_RUN}"):
        Consumer({**settings(broker.bootstrap_servers), key: never_awaited})


@pytest.mark.filterwarnings("error")
def test_a_coroutine_that_a_function_returns_is_refused(broker: EmbeddedBroker) -> None:
    """``lambda: save()`` of an async function looks like a plain function until it is called."""
    with Consumer({**QUIET, **settings(broker.bootstrap_servers)}) as consumer:
        consumer.subscribe(["orders"], on_assign=lambda *_: never_awaited())
        with pytest.raises(ListenerError, match="on_assign returned a coroutine"):
            wait_until(lambda: consumer.poll(0.01), what="the listener")
        consumer.subscribe(["orders"])


def test_a_negative_time_out_waits_for_the_answer(broker: EmbeddedBroker) -> None:
    """-1 is no limit in every call, as in confluent-kafka, and not the default of one call and an error of another."""
    at = [TopicPartition("orders", 0, 1)]
    conf = settings(
        broker.bootstrap_servers, default_api_timeout_ms=50, request_timeout_ms=200, enable_auto_commit=False
    )
    with Consumer({**QUIET, **conf}) as consumer:
        consumer.subscribe(["orders"])
        wait_until(lambda: consumer.poll(0.01) or consumer.assignment(), what="an assignment")
        broker.faults.on("OffsetCommit", drop())
        assert consumer.commit(offsets=at, asynchronous=False, timeout_s=-1) == at
        broker.faults.on("OffsetFetch", drop())
        assert consumer.committed(at, -1) == at
        assert consumer.lag(-1) is not None
        consumer.hand_over(-1)
        consumer.close(-1)
