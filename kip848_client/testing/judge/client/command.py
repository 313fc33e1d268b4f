"""``kip848 judge client``: runs a client against a judged broker, and says which rule it broke first.

::

    kip848 judge client --topic orders:6 --scenario all -- ./my-consumer --bootstrap {bootstrap}
    kip848 judge client --listen :9092 --upstream kafka:9092     # whoever connects, until Ctrl-C
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final

from kip848_client.cli.shared.options import add_cluster_arguments, parse_topics
from kip848_client.cli.shared.signals import stop_on_signal
from kip848_client.common.addresses import parse_listen_address
from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.errors import ConfigError, IllegalStateError
from kip848_client.testing.broker.broker import EmbeddedBroker
from kip848_client.testing.broker.cluster.nodes import Listener
from kip848_client.testing.broker.proxy.fault_proxy import FaultProxy
from kip848_client.testing.judge.client.judging import ClientJudge, in_words
from kip848_client.testing.judge.client.scenarios import SCENARIOS, SceneError, Stage
from kip848_client.testing.judge.output import add_report_arguments, write_report

_SLICE_S: Final = 0.1
_TICK_S: Final = 0.5
"""How often a record is written to each topic of the embedded broker, so that there is something to read and commit."""
_GRACE_S: Final = 15.0
"""How long the client may take to end after SIGTERM."""
_PLACEHOLDER: Final = "{bootstrap}"
COMMAND_FAILED: Final = 4
"""The exit status if all rules were kept, but the command ended with an error."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--listen", metavar="[HOST]:PORT", default=":0", help="loopback address for clients; port 0 takes a free one"
    )
    parser.add_argument(
        "--upstream",
        metavar="HOST:PORT",
        help="judge clients of this cluster, through a proxy; without it they are served by the embedded broker",
    )
    add_cluster_arguments(parser)
    parser.add_argument(
        "--scenario",
        choices=(*SCENARIOS, "all"),
        action="append",
        default=[],
        help="bring the client into such situations, then end it; may be repeated",
    )
    parser.add_argument(
        "--patience", metavar="SECONDS", type=float, default=60.0, help="for each step of a scenario (60)"
    )
    parser.add_argument(
        "--for", metavar="SECONDS", type=float, dest="duration_s", help="end the client after this time"
    )
    parser.add_argument(
        "--ignore", metavar="RULE", action="append", default=[], help="do not judge a rule, as R72; may be repeated"
    )
    parser.add_argument("--keep-going", action="store_true", help="do not end the client at the first broken rule")
    add_report_arguments(parser)
    parser.add_argument(
        "client", nargs="*", metavar="COMMAND", help="after --: the client; {bootstrap} stands for the address"
    )


def run(arguments: argparse.Namespace) -> int:
    """Judge until the client ends, the scenarios are played, the time is over or a signal comes; the exit status.

    Raises:
        ConfigError: an option does not parse, or the command cannot be started.
    """
    host, port = parse_listen_address(arguments.listen)
    host = host or "127.0.0.1"
    facts: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        stopped = stack.enter_context(stop_on_signal())
        target = _target(arguments, host, port)
        stack.enter_context(target)
        judge = stack.enter_context(ClientJudge(target, ignore=arguments.ignore))
        bootstrap = target.bootstrap_servers
        facts["bootstrap servers"] = bootstrap
        if isinstance(target, EmbeddedBroker):
            stack.enter_context(_records(target))
        process = stack.enter_context(_client(arguments.client, bootstrap)) if arguments.client else None
        if process is None and not arguments.json:
            print(f"judging clients of {bootstrap}; Ctrl-C ends it", flush=True)
        stage = Stage(judge, patience_s=arguments.patience, process=process)
        _play(stage, arguments.scenario, facts, judge=judge, keep_going=arguments.keep_going)
        if not arguments.scenario:
            _wait(judge, process, stopped, duration_s=arguments.duration_s, keep_going=arguments.keep_going)
        status = _end(process)
        if status is not None:
            facts["command"] = f"ended with status {status}"
        if judge.broken is not None and not arguments.json:
            print(in_words(judge.broken), end="\n\n")
        subject = " ".join(arguments.client) if arguments.client else f"clients of {bootstrap}"
        result = write_report(judge.report(subject=subject, facts=facts), arguments)
    return COMMAND_FAILED if not result and status else result


def _play(stage: Stage, names: Sequence[str], facts: dict[str, str], *, judge: ClientJudge, keep_going: bool) -> None:
    for name in SCENARIOS if "all" in names else names:
        if judge.broken is not None and not keep_going:
            facts[f"scenario {name}"] = "not played: a rule is broken"
            continue
        try:
            SCENARIOS[name](stage)
        except SceneError as error:
            facts[f"scenario {name}"] = f"not played to its end: {error}"
        else:
            facts[f"scenario {name}"] = "played"


def _wait(
    judge: ClientJudge,
    process: subprocess.Popen[bytes] | None,
    stopped: threading.Event,
    *,
    duration_s: float | None,
    keep_going: bool,
) -> None:
    deadline_s = None if duration_s is None else time.monotonic() + duration_s
    while not stopped.wait(_SLICE_S):
        if process is not None and process.poll() is not None:
            return
        if deadline_s is not None and time.monotonic() > deadline_s:
            return
        if judge.broken is not None and not keep_going:
            return


# --- the broker and the client


def _target(arguments: argparse.Namespace, host: str, port: int) -> EmbeddedBroker | FaultProxy:
    topics = parse_topics(arguments.topic)
    if arguments.upstream is None:
        return EmbeddedBroker(topics, config=dict(arguments.properties), listeners=[Listener(host, port)])
    if topics or arguments.properties:
        raise ConfigError("--topic and --set are for the embedded broker; with --upstream the cluster is another's")
    if host != "127.0.0.1":
        raise ConfigError(f"--listen {arguments.listen}: the proxy listens on 127.0.0.1 only")
    return FaultProxy(arguments.upstream, port=port)


@contextlib.contextmanager
def _records(broker: EmbeddedBroker) -> Iterator[None]:
    """Write to every topic, while the client is judged."""
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.wait(_TICK_S):
            number += 1
            with contextlib.suppress(IllegalStateError, ConfigError):  # the topic is being deleted, or the broker ends
                for topic in tuple(broker.topics):
                    for partition in range(broker.topics[topic]):
                        broker.produce(topic, str(number), partition=partition)

    writer = daemon_thread(write, "kip848-judge-records")
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


@contextlib.contextmanager
def _client(command: Sequence[str], bootstrap: str) -> Iterator[subprocess.Popen[bytes]]:
    words = [word.replace(_PLACEHOLDER, bootstrap) for word in command]
    surroundings = os.environ | {"KIP848_BOOTSTRAP_SERVERS": bootstrap, "KAFKA_BOOTSTRAP_SERVERS": bootstrap}
    try:
        # What it prints must not come between the lines of --json.
        process = subprocess.Popen(  # noqa: S603 - the command is what the caller asks to run
            words, env=surroundings, stdout=sys.stderr.fileno()
        )
    except OSError as error:
        raise ConfigError(f"{words[0]} cannot be started: {error.strerror}") from error
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _end(process: subprocess.Popen[bytes] | None) -> int | None:
    """End the client in good order; its exit status if it ended by itself."""
    if process is None:
        return None
    status = process.poll()
    if status is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    return status
