"""Ctrl-C at each step of a wait: the background thread is not held up, and the next wait hears of what it did."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import pytest

from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.network.queues import Latch
from kip848_client.share.core import Changes
from kip848_client.worker.election import LeaderElection
from kip848_client.worker.worker import Worker
from tests.support.work import traced

MODULES = {
    "kip848_client.network.queues",
    "kip848_client.share.core",
    "kip848_client.worker.election",
    "kip848_client.worker.worker",
    "threading",
}
CONF = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


class Case(NamedTuple):
    """What the application's thread does, and what the background thread does."""

    wait: Callable[[], object]
    wake: Callable[[], object]


def latch() -> Case:
    one = Latch()
    return Case(lambda: one.wait(0.001), one.set)


def share_consumer() -> Case:
    changes = Changes()
    return Case(lambda: changes.wait(changes.version, time.monotonic() + 0.001), changes.changed)


def worker() -> Case:
    one = Worker(CONF, units=["a"])
    return Case(lambda: one._wait_for(lambda _: False, 0.001), one._tell_waiters)


def election() -> Case:
    one = LeaderElection(CONF)
    call = one.leader_only(lambda: None)
    return Case(call, one._end)


def interrupted(case: Callable[[], Case]) -> Iterator[Case]:
    """The case after a key press before each instruction of its wait."""
    step = 0
    while True:
        step += 1
        left, made = step, case()

        def count() -> None:
            nonlocal left
            left -= 1
            if not left:
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt), traced(count, *MODULES, event="opcode"):
            made.wait()
        if left > 0:
            return
        yield made


@pytest.mark.parametrize("case", [latch, share_consumer, worker, election])
def test_a_key_press_in_a_wait_holds_up_no_other_thread(case: Callable[[], Case]) -> None:
    """close() waited for the background thread for 36 s, which waited for a lock that nobody would release."""
    for made in interrupted(case):
        background = daemon_thread(made.wake, "background")
        background.start()
        background.join(20)
        assert not background.is_alive()
