"""``kip848 workers``: which process runs which unit, since when and with which token; drain a process.

::

    kip848 workers describe feeds --bootstrap 127.0.0.1:9092
    kip848 workers describe feeds jobs --json --bootstrap 127.0.0.1:9092
    kip848 workers drain feeds host-7:4711 --bootstrap 127.0.0.1:9092

Works on any Kafka for workers of classic groups, which tell it in the bytes that DescribeGroups shows.
"""

from __future__ import annotations

import argparse
import sys

from kip848_client.admin import Admin
from kip848_client.admin.results import raise_all
from kip848_client.cli.shared.options import request_timeout
from kip848_client.cli.shared.properties import add_client_arguments, read_properties
from kip848_client.common.json_text import to_json
from kip848_client.common.plain_text import counted, printable
from kip848_client.errors import Kip848Error
from kip848_client.tools.shared.worker_tables import describe_workers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    describe = actions.add_parser("describe", help="the workers of groups, and who runs which unit since when")
    describe.add_argument("groups", metavar="GROUP", nargs="+")
    drain = actions.add_parser(
        "drain",
        help="have workers give their units to the others and take none any more; waits until they run nothing",
    )
    drain.add_argument("group", metavar="GROUP")
    drain.add_argument("workers", metavar="WORKER", nargs="+", help="as describe names it")
    for action, default_s in ((describe, 10.0), (drain, 60.0)):
        action.add_argument(
            "--timeout",
            metavar="SECONDS",
            type=request_timeout,
            default=default_s,
            help=f"how long to wait ({default_s:g})",
        )
        action.add_argument("--json", action="store_true", help="print one JSON object")
        add_client_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    """Run the action.

    Raises:
        Kip848Error: no broker answers, or one refuses; a worker still runs units when the time is over.
    """
    with Admin(read_properties(arguments)) as admin:
        return _describe(admin, arguments) if arguments.action == "describe" else _drain(admin, arguments)


def _describe(admin: Admin, arguments: argparse.Namespace) -> int:
    refused: list[Kip848Error] = []
    groups = []
    for group_id in arguments.groups:
        try:
            groups.append(admin.describe_workers(group_id, timeout_s=arguments.timeout))
        except Kip848Error as error:
            refused.append(error)
    if arguments.json:
        print(to_json({"groups": groups}))
    elif groups:
        print("\n\n".join(map(describe_workers, groups)))
    raise_all(refused)
    return 0


def _drain(admin: Admin, arguments: argparse.Namespace) -> int:
    drained = admin.drain_workers(arguments.group, arguments.workers, timeout_s=arguments.timeout)
    if arguments.json:
        print(to_json({"drained": list(drained.values)}))
    else:
        for name in drained.values:
            print(f"{printable(name)} runs no units any more")
    drained.raise_errors()
    group = admin.describe_workers(arguments.group, timeout_s=arguments.timeout)
    idle = sum(unit.deferred for unit in group.units)
    if idle and all(worker.state == "draining" for worker in group.workers):
        print(f"every worker is drained: {counted(idle, 'unit')} run nowhere until one is started", file=sys.stderr)
    return 0
