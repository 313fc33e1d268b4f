"""Processes that end without close(), or fork, at the worst moment; seen by the coordinator and by the clock."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.testing.faults import ALWAYS, close, drop, hold
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.interop.client.drive import HEARTBEAT, Produce, is_our_lookup
from tests.support.marks import crossed
from tests.support.waiting import SOON_S, TIMEOUT_S

pytestmark = pytest.mark.interop

BEGIN = """
import gc, os, signal, sys, threading, time, warnings
from kip848_client import Consumer, ConsumerRebalanceListener
from kip848_client.errors import ForkedProcessError
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of fork() with threads

class Listener(ConsumerRebalanceListener):
    def on_partitions_assigned(self, consumer, partitions):
        during("assigned")
    def on_partitions_revoked(self, consumer, partitions):
        during("revoked")

def during(name):
    pass

def end():
    print("ending", time.monotonic(), flush=True)
    sys.exit(0)

consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0,
                     "error_cb": lambda error: None})
consumer.subscribe(["orders"], Listener())
"""
JOIN = """
records = 0
while not consumer.assignment():
    records += consumer.poll(0.05) is not None
print("joined", flush=True)
"""


class Program:
    """A Python program of its own."""

    def __init__(self, address: str, *parts: str) -> None:
        text = "".join(textwrap.dedent(part) for part in parts)
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", text, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self.watchdog = threading.Timer(240, self.kill)
        self.watchdog.start()

    def kill(self) -> None:
        """End it, with its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        text = self.process.stdout.readline().rstrip("\n")
        self.lines.append(text)
        return text

    def go_on(self) -> None:
        """Let it read a line."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def seconds_to_end(self, *, code: int = 0) -> float:
        """How long it took from its word ``ending`` to its end."""
        while not (text := self.line()).startswith("ending"):
            assert text or self.process.poll() is None, self.errors()
        self.process.wait(TIMEOUT_S)
        took_s = time.monotonic() - float(text.split()[1])
        assert self.process.returncode == code, self.errors()
        return took_s

    def errors(self) -> str:
        """What it complained about."""
        assert self.process.stderr is not None
        return self.process.stderr.read()


Run = Callable[..., Program]


@pytest.fixture
def run(broker: EmbeddedBroker) -> Iterator[Run]:
    """Start a program that joins a group of the broker."""
    started: list[Program] = []

    def start(*parts: str) -> Program:
        program = Program(broker.bootstrap_servers, *parts)
        started.append(program)
        return program

    yield start
    for program in started:
        program.watchdog.cancel()
        program.kill()
        program.process.communicate()


def is_leave(request: ConsumerGroupHeartbeatRequest) -> bool:
    return request.member_epoch < 0


def hears_the_leave(broker: EmbeddedBroker) -> None:
    """Wait until the broker has heard that the member leaves, whatever it does with that."""
    broker.requests.wait_for(HEARTBEAT, when=lambda logged: is_leave(logged.request), timeout_s=TIMEOUT_S)  # type: ignore[arg-type]


def silent(broker: EmbeddedBroker) -> None:
    broker.faults.on(HEARTBEAT, hold(), times=ALWAYS)


def refused(broker: EmbeddedBroker) -> None:
    broker.stop()


def lost(broker: EmbeddedBroker) -> None:
    lookups = broker.faults.on("FindCoordinator", drop(), when=is_our_lookup, times=ALWAYS)
    broker.faults.on(HEARTBEAT, close(), times=ALWAYS)
    lookups.wait()


def well(_: EmbeddedBroker) -> None:
    pass


@pytest.mark.parametrize(
    ("how", "trouble"),
    crossed(["end()", "raise SystemExit(0)", "del consumer; gc.collect()"], [well, silent, refused, lost]),
)
def test_a_program_without_close_ends_soon(
    broker: EmbeddedBroker, run: Run, trouble: Callable[[EmbeddedBroker], None], how: str
) -> None:
    """Whatever the coordinator does. Where it hears anything, it hears the leave."""
    program = run(BEGIN, JOIN, f"sys.stdin.readline()\nprint('ending', time.monotonic(), flush=True)\n{how}\n")
    assert program.line() == "joined", program.errors()
    trouble(broker)
    program.go_on()
    assert program.seconds_to_end() < SOON_S
    if trouble in (well, silent):
        hears_the_leave(broker)


@pytest.mark.parametrize("trouble", [well, silent])
def test_a_program_that_exits_inside_a_listener_ends_within_a_second(
    broker: EmbeddedBroker, run: Run, trouble: Callable[[EmbeddedBroker], None]
) -> None:
    """``sys.exit()`` inside a rebalance callback must not leave a program that hangs."""
    program = run(
        BEGIN,
        """
        def during(name):
            sys.stdin.readline()
            end()
        while True:
            consumer.poll(0.05)
        """,
    )
    broker.requests.wait_for(HEARTBEAT, timeout_s=TIMEOUT_S)
    trouble(broker)
    program.go_on()
    assert program.seconds_to_end() < SOON_S
    hears_the_leave(broker)


def test_a_main_thread_that_ends_while_another_one_is_inside_a_listener(broker: EmbeddedBroker, run: Run) -> None:
    """A daemon thread polls; the program ends when its main thread does."""
    program = run(
        BEGIN,
        """
        def during(name):
            print("inside", flush=True)
            threading.Event().wait()
        def work():
            while True:
                consumer.poll(0.05)
        threading.Thread(target=work, daemon=True).start()
        sys.stdin.readline()
        end()
        """,
    )
    assert program.line() == "inside"
    program.go_on()
    assert program.seconds_to_end() < SOON_S
    hears_the_leave(broker)


def test_a_program_that_never_joined_ends_within_a_second(broker: EmbeddedBroker, run: Run) -> None:
    """A program that found no coordinator must not wait for one when it ends."""
    broker.faults.on("FindCoordinator", drop(), when=is_our_lookup, times=ALWAYS)
    program = run(BEGIN, "consumer.poll(0.2)\nend()\n")
    assert program.seconds_to_end() < SOON_S


CALLS = """
def refused():
    calls = (lambda: consumer.poll(0), lambda: consumer.consume(1, 0), consumer.assignment, consumer.commit,
             consumer.close, consumer.unsubscribe, lambda: consumer.subscribe(["x"]), lambda: consumer.pause([]),
             lambda: consumer.list_topics(timeout=1), lambda: consumer.committed([]), lambda: consumer.position([]))
    count = 0
    for call in calls:
        try:
            call()
        except ForkedProcessError:
            count += 1
    return count == len(calls)
"""


@pytest.mark.parametrize(
    ("end", "moment"),
    crossed(
        ["sys.exit(0)", "os._exit(0)", "del consumer; gc.collect(); sys.exit(0)"],
        ["idle", "assigned", "revoked", "thread"],
    ),
)
def test_a_child_of_fork_is_refused_and_ends_and_its_parent_goes_on(
    broker: EmbeddedBroker, run: Run, produce: Produce, moment: str, end: str
) -> None:
    """Whenever it happens: between polls, inside a listener, or in another thread while this one polls."""
    produce("orders", 3, partitions=[0])
    program = run(
        BEGIN,
        CALLS,
        f"""
        moment = {moment!r}
        def split():
            global consumer
            child = os.fork()
            if child:
                began = time.monotonic()
                assert os.waitpid(child, 0)[1] == 0, "the child failed"
                print("child took", time.monotonic() - began, flush=True)
                return
            if not refused():
                os._exit(7)
            {end}
        def during(name):
            if name == moment:
                split()
        """,
        JOIN,
        """
        if moment == "idle":
            split()
        if moment == "thread":
            thread = threading.Thread(target=split)
            thread.start()
            while thread.is_alive():
                records += consumer.poll(0.05) is not None
        deadline = time.monotonic() + 60
        while records < 3 and time.monotonic() < deadline:
            records += consumer.poll(0.1) is not None
        print("records", records, consumer.state.name, flush=True)
        consumer.close()
        end()
        """,
    )
    program.seconds_to_end()
    (took,) = [words for words in program.lines if words.startswith("child took")]
    assert float(took.split()[-1]) < SOON_S
    assert "records 3 STABLE" in program.lines
    epochs = [beat.request.member_epoch for beat in broker.requests.of(HEARTBEAT)]  # type: ignore[attr-defined]
    assert (epochs.count(0), epochs[-1]) == (1, -1)


@pytest.mark.parametrize("moment", ["assigned", "revoked"])
def test_a_child_that_returns_from_the_listener_is_refused_there(broker: EmbeddedBroker, run: Run, moment: str) -> None:
    """It is inside poll() of a consumer that is not its own: the call ends with the same error, and touches nothing."""
    program = run(
        BEGIN,
        CALLS,
        f"""
        child = None
        def during(name):
            global child
            if name == {moment!r}:
                child = os.fork()
        def work():
            try:
                while not consumer.assignment():
                    consumer.poll(0.05)
                consumer.unsubscribe()
            except ForkedProcessError:
                os._exit(0 if child == 0 and refused() else 8)
        work()
        if child == 0:
            os._exit(9)
        print("child ended with", os.waitpid(child, 0)[1] >> 8, flush=True)
        end()
        """,
    )
    program.seconds_to_end()
    assert "child ended with 0" in program.lines


def test_a_child_may_have_a_consumer_of_its_own(broker: EmbeddedBroker, run: Run, produce: Produce) -> None:
    """After a fork the child makes a new consumer, and the parent's goes on undisturbed."""
    produce("orders", 3, partitions=[0])
    program = run(
        BEGIN,
        JOIN,
        """
        consumer_id = consumer.member_id
        child = os.fork()
        if child == 0:
            own = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "h", "auto.offset.reset": "earliest",
                            "log_level": 0, "client.id": "child"})
            own.subscribe(["orders"])
            count, deadline = 0, time.monotonic() + 60
            while count < 3 and time.monotonic() < deadline:
                count += own.poll(0.1) is not None
            same = own.member_id == consumer_id
            own.close()
            os._exit(0 if count == 3 and not same else 7)
        assert os.waitpid(child, 0)[1] == 0, "the child failed"
        consumer.close()
        end()
        """,
    )
    program.seconds_to_end()
    assert len({name for beat in broker.requests.of(HEARTBEAT) for name in beat.members}) == 2
