"""``kip848 broker``: runs the embedded broker as a process, and prints one JSON line when it serves. No broker logic.

::

    kip848 broker --listen 127.0.0.1:9092 --topic orders:6 --set group.consumer.session.timeout.ms=6000 \\
        --data-dir ./data --ready-file ready.json
    kip848 broker --nodes 3 --listen 127.0.0.1:9092     # and 9093 and 9094

The ready file is written atomically: once it exists, clients can connect. SIGTERM and SIGINT stop the broker cleanly.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kip848_client.cli.shared.options import add_cluster_arguments, parse_topics
from kip848_client.cli.shared.parser import let_the_last_count
from kip848_client.cli.shared.signals import stop_on_signal
from kip848_client.common.addresses import parse_address, parse_listen_address
from kip848_client.common.clock import ManualClock
from kip848_client.common.json_text import to_json
from kip848_client.errors import ConfigError
from kip848_client.journal import JsonLinesJournal
from kip848_client.testing.serving.broker_security import add_security_arguments, security_options

if TYPE_CHECKING:
    from kip848_client.testing.broker.broker import EmbeddedBroker
    from kip848_client.testing.broker.cluster.nodes import Listener
    from kip848_client.testing.serving.control_port import ControlPort

_NO_REQUESTS: Final = {"kip848.request.log.max.entries": "0"}
"""Without a control port requests cannot be read from outside this process, so they are kept only on demand."""

_SIGNAL_SEEN_S: Final = 0.1
"""The longest time until a signal is noticed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    let_the_last_count(parser)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT[=HOST:PORT]",
        action="append",
        default=[],
        help="loopback address; port 0 takes a free one, and further nodes take the ports after it; after the = what "
        "clients that come here are told to connect to; may be repeated",
    )
    parser.add_argument("--nodes", metavar="N", type=int, default=1, help="how many brokers the cluster has")
    parser.add_argument(
        "--racks", metavar="RACK,RACK,...", default="", help="racks of the nodes, in the order of their ids"
    )
    add_cluster_arguments(parser)
    parser.add_argument("--data-dir", metavar="DIR", type=Path, help="keep topics, groups and offsets in this folder")
    parser.add_argument("--profile", choices=("default", "kafka"), default="default", help="fast, or Kafka's defaults")
    parser.add_argument(
        "--connect-groups", action="store_true", help="serve kip848_client.Worker, which Apache Kafka cannot"
    )
    parser.add_argument("--node-id", metavar="N", type=int, default=1)
    parser.add_argument("--ready-file", metavar="FILE", type=Path, help="write a JSON line here once it serves")
    parser.add_argument("--journal", metavar="FILE", type=Path, help="append the event log here, as JSON lines")
    parser.add_argument("--json", action="store_true", help="print the JSON line instead of a sentence")
    group = parser.add_argument_group("control port")
    group.add_argument(
        "--control",
        metavar="HOST:PORT",
        help="serve the test kit over HTTP and JSON: topics, faults, groups, nodes, requests",
    )
    group.add_argument(
        "--control-token-file", metavar="FILE", type=Path, help="callers must give the token in this file"
    )
    group.add_argument("--manual-clock", action="store_true", help="group timers move only by the call clock/advance")
    add_security_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes.

    Raises:
        ConfigError: an option does not parse, or the broker refuses it.
    """
    from kip848_client.testing.broker.broker import EmbeddedBroker  # here: --help and other commands do not need it

    control = None if arguments.control is None else parse_listen_address(arguments.control, option="--control")
    if control is None and (arguments.manual_clock or arguments.control_token_file is not None):
        raise ConfigError("--manual-clock and --control-token-file need --control")
    topics = parse_topics(arguments.topic)
    with stop_on_signal() as stopped, ExitStack() as stack:
        journal = None
        if arguments.journal is not None:
            journal = open_journal(arguments.journal)
            stack.callback(journal.close)
        broker = stack.enter_context(
            EmbeddedBroker(
                topics,
                profile=arguments.profile,
                config=({} if arguments.control else _NO_REQUESTS) | dict(arguments.properties),
                clock=ManualClock() if arguments.manual_clock else None,
                listeners=[parse_listener(text) for text in arguments.listen],
                data_dir=arguments.data_dir,
                journal=journal,
                node_id=arguments.node_id,
                connect_groups=arguments.connect_groups,
                nodes=arguments.nodes,
                racks=tuple(rack for rack in arguments.racks.split(",") if rack),
                **security_options(arguments),
            )
        )
        for repair in broker.repairs:
            print(f"kip848 broker: repaired: {repair}", file=sys.stderr)
        told = {
            "bootstrap_servers": broker.bootstrap_servers,
            "brokers": broker.bootstrap_servers.split(","),
            "listeners": broker.all_bootstrap_servers,
            "security_protocol": broker.security_protocol,
            "node_id": arguments.node_id,
            "pid": os.getpid(),
        }
        if control is not None:
            told["control"] = stack.enter_context(_control_port(broker, control, arguments)).url
        ready = to_json(told)
        if arguments.ready_file is not None:
            write_whole(arguments.ready_file, ready + "\n")
        also = f", control on {told['control']}" if control is not None else ""
        where = " and ".join(broker.all_bootstrap_servers)
        print(ready if arguments.json else f"serving on {where}{also}; Ctrl-C stops", flush=True)
        while not stopped.wait(_SIGNAL_SEEN_S):
            pass
    if not arguments.json:
        print("stopped", file=sys.stderr)
    return 0


def open_journal(path: Path) -> JsonLinesJournal:
    """Open the event log for appending.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        return JsonLinesJournal.open(path)
    except OSError as error:
        raise ConfigError(f"--journal {path}: {error.strerror}; its folder must be there and writable") from error


def _control_port(broker: EmbeddedBroker, address: tuple[str, int], arguments: argparse.Namespace) -> ControlPort:
    from kip848_client.testing.serving.control_port import ControlPort  # here: few need the HTTP server

    path, token = arguments.control_token_file, None
    if path is not None:
        try:
            token = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--control-token-file {path}: {error}") from error
        if not token:
            raise ConfigError(f"--control-token-file {path}: it is empty")
    return ControlPort(broker, *address, token=token)


def parse_listener(text: str) -> Listener:
    """Read ``HOST:PORT`` or ``HOST:PORT=ADVERTISED_HOST:PORT``.

    Raises:
        ConfigError: an address is wrong.
    """
    from kip848_client.testing.broker.cluster.nodes import Listener  # here: as EmbeddedBroker

    address, equals, advertised = text.partition("=")
    host, port = parse_listen_address(address)
    if not equals:
        return Listener(host, port)
    told = parse_address(advertised, what="--listen: the advertised address", default_port=0)
    return Listener(host, port, told.host, told.port)


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or nothing: write another file beside it, then rename that.

    A pipe or a device, such as ``/dev/stdout``, is written to: for root the rename would replace it.

    Raises:
        ConfigError: the folder is not there or not writable.
    """
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.write_text(text, encoding="utf-8")
            return
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"--ready-file {path}: {error.strerror}; its folder must be there and writable") from error
