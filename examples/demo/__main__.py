"""``make demo``: 336,776 real flights counted by a group of consumers that join, leave and crash meanwhile.

Everything runs on this machine: an embedded broker in this process, a producer, and workers that are processes of their
own, so that one can be killed as by ``kill -9``. At the end the counts are compared with the data set. The exit status
is 0 if they are exact, 1 if they are not. This module has the options and the order of steps.
"""

from __future__ import annotations

import argparse
import queue
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from demo.flights import FLIGHTS_IN_2013, flights_by_carrier, load_flights
from demo.ledger import Verdict
from demo.page import page_of
from demo.processes import Workers
from demo.producer import FlightProducer, make_producer
from demo.scene import Scene
from demo.story import Story, story_s
from demo.table import Screen, describe_result, open_screen, result_object
from demo.workers import show_workers
from kip848_client import EmbeddedBroker
from kip848_client.errors import ConfigError, Kip848Error
from kip848_client.journal import Journal, JournalEvent, JsonLinesJournal, tee

TOPIC: Final = "flights"
GROUP: Final = "counters"
PARTITIONS: Final = 12
BROKER_CONFIG: Final = {"group.consumer.session.timeout.ms": 3_000}


def main() -> int:
    """Run the command line and return the exit status; an expected error is shown in one line."""
    parser = argparse.ArgumentParser(prog="demo", description="Consumers count flights while their group rebalances.")
    add_arguments(parser)
    try:
        return run(parser.parse_args())
    except Kip848Error as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--flights", metavar="N", type=int, help=f"only the first N of {FLIGHTS_IN_2013:,} flights")
    parser.add_argument("--dwell", metavar="SECONDS", type=float, default=2.5, help="how long each act stands (2.5)")
    parser.add_argument("--journal", metavar="FILE", help="append the coordinator's event log to FILE, as JSON lines")
    parser.add_argument(
        "--workers", action="store_true", help="show workers in place of consumers: 3 processes share 12 feeds"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> int:
    """Run the demo and return its exit status.

    Raises:
        ConfigError: an option is out of range.
        FlightsMissingError: the data set is not installed.
        StoryStuckError: the group did not get where it should.
    """
    if arguments.workers:
        return show_workers(as_json=arguments.json)
    if arguments.flights is not None and arguments.flights < 1:
        raise ConfigError(f"--flights {arguments.flights}: at least one flight is needed")
    if not 0 <= arguments.dwell <= 60:
        raise ConfigError(f"--dwell {arguments.dwell}: seconds from 0 to 60")
    screen, hint = open_screen(sys.stdout, json=arguments.json)
    try:
        scene, verdict, duration_ms = count_flights(
            screen,
            limit=arguments.flights,
            dwell_s=arguments.dwell,
            journal_file=arguments.journal,
            with_page=not arguments.json,
        )
    finally:
        screen.close()
    if arguments.json:
        print(msgspec.json.encode(result_object(scene, verdict, duration_ms=duration_ms)).decode())
    else:
        print(f"\n{describe_result(scene, verdict)}")
        if hint is not None:
            print(f"\n({hint})")
    return 0 if verdict.ok else 1


def count_flights(
    screen: Screen, *, limit: int | None, dwell_s: float, journal_file: str | None = None, with_page: bool = False
) -> tuple[Scene, Verdict, int]:
    """Produce, count and compare.

    Args:
        with_page: also show the group on a page, if what that needs is installed.

    Returns:
        What happened, the verdict, and how long the story took in ms.
    """
    flights = load_flights(limit)
    events: queue.SimpleQueue[JournalEvent] = queue.SimpleQueue()
    with ExitStack() as stack:
        journal: Journal = QueueJournal(events)
        if journal_file is not None:
            file_journal = JsonLinesJournal.open(Path(journal_file))
            stack.callback(file_journal.close)
            journal = tee([journal, file_journal])
        broker = stack.enter_context(EmbeddedBroker({TOPIC: PARTITIONS}, config=BROKER_CONFIG, journal=journal))
        workers = stack.enter_context(Workers(broker.bootstrap_servers, TOPIC, GROUP))
        page = stack.enter_context(page_of(broker.bootstrap_servers)) if with_page else ""
        scene = Scene(TOPIC, PARTITIONS, len(flights), started_ms=int(time.time() * 1000), page=page)
        if page:
            scene.say("demo", f"the group on a page: {page}", now_ms=scene.started_ms)
        producer = stack.enter_context(
            FlightProducer(make_producer(broker.bootstrap_servers), TOPIC, flights, duration_s=story_s(dwell_s))
        )
        story = Story(scene, screen, workers, producer, events, dwell_s=dwell_s)
        story.tell()
        verdict = scene.ledger.verdict(
            expected=flights_by_carrier(flights), produced=producer.delivered, committed=scene.committed
        )
        return scene, verdict, story.elapsed_ms


class QueueJournal:
    """Hands the coordinator's events to the thread that shows them."""

    def __init__(self, events: queue.SimpleQueue[JournalEvent]) -> None:
        self._events = events

    def write(self, event: JournalEvent) -> None:
        """Put *event* on the queue."""
        self._events.put(event)


if __name__ == "__main__":
    sys.exit(main())
