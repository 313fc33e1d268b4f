"""``kip848 assignor``: try a client-side assignor on many groups, and draw its effect on one.

::

    kip848 assignor list                                       # those that come with the library
    kip848 assignor check my_service.assign:ByTenant           # a report; exit status 1 if a required check fails
    kip848 assignor show Weighted --member 'big={"weight":3}' --member small --topic orders:8 --join new --svg out.svg
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from kip848_client.assignors import library
from kip848_client.assignors.client.check import checked
from kip848_client.assignors.client.drawing import draw_svg, draw_text, holding_of
from kip848_client.assignors.client.interface import AssignmentSpec, PartitionAssignor
from kip848_client.assignors.client.loading import load_assignor
from kip848_client.assignors.client.suite import report_lines, run_suite
from kip848_client.assignors.client.suite_groups import held_by, make_group
from kip848_client.common.json_text import to_json
from kip848_client.errors import ConfigError, Kip848Error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    commands = parser.add_subparsers(dest="what", metavar="list | check | show", required=True)
    commands.add_parser("list", help="the assignors of the library, in one line each")

    check = commands.add_parser("check", help="run the property suite")
    check.add_argument("assignor", metavar="MODULE:NAME", help="import path, or the name of one of the library")
    check.add_argument("--seed", metavar="N", type=int, default=0, help="of the random groups (0)")
    check.add_argument("--groups", metavar="N", type=int, default=200, help="random groups for each check (200)")
    check.add_argument(
        "--members", metavar="N", type=int, default=10_000, help="of the large group; 0 for none (10000)"
    )
    check.add_argument("--limit-ms", metavar="MS", type=int, default=30_000, help="for the large group (30000)")
    check.add_argument("--json", action="store_true", help="print one JSON object")

    show = commands.add_parser("show", help="draw an assignment before and after a change")
    show.add_argument("assignor", metavar="MODULE:NAME", help="import path, or the name of one of the library")
    show.add_argument(
        "--member", metavar="ID[=METADATA]", action="append", help="a member, and what it tells (m1, m2 and m3)"
    )
    show.add_argument("--rack", metavar="ID=RACK", action="append", default=[], help="where a member is")
    show.add_argument("--topic", metavar="NAME:COUNT", action="append", help="a topic and its partitions (orders:8)")
    show.add_argument(
        "--hold", metavar="ID=TOPIC:N,..", action="append", default=[], help="what a member holds at first"
    )
    change = show.add_mutually_exclusive_group()
    change.add_argument("--join", metavar="ID[=METADATA]", help="the change: a member joins")
    change.add_argument("--leave", metavar="ID", help="the change: a member leaves")
    change.add_argument("--tell", metavar="ID=METADATA", help="the change: a member tells something else")
    show.add_argument("--svg", metavar="FILE", type=Path, help="write a picture")
    show.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand.

    Raises:
        ConfigError: no such assignor, or an option that makes no sense.
    """
    match arguments.what:
        case "list":
            for name in library.__all__:
                assignor: type[PartitionAssignor] = getattr(library, name)
                print(f"{name:<14} {assignor.name:<15} {(inspect.getdoc(assignor) or '').splitlines()[0]}")
            return 0
        case "check":
            return _check(arguments)
        case _:
            return _show(arguments)


def _factory(path: str) -> Callable[[], PartitionAssignor]:
    if path in library.__all__:
        path = f"kip848_client.assignors.library:{path}"
    elif ":" not in path:
        raise ConfigError(f"{path}: write package.module:Name, or one of {', '.join(library.__all__)}")
    sys.path.insert(0, "")  # as for `python -m`: a module in the folder where one stands
    load_assignor(path, key=path)  # complains now if it is none
    return lambda: load_assignor(path, key=path)


def _check(arguments: argparse.Namespace) -> int:
    make = _factory(arguments.assignor)
    if arguments.groups < 1 or arguments.members < 0:
        raise ConfigError("--groups is at least 1 and --members at least 0")

    def begun(name: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{name} ...", end="", file=sys.stderr, flush=True)

    report = run_suite(
        make,
        seed=arguments.seed,
        groups=arguments.groups,
        members=arguments.members,
        now_ms=lambda: time.perf_counter() * 1_000,
        limit_ms=arguments.limit_ms,
        on_check=begun,
    )
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    if arguments.json:
        print(to_json(msgspec.structs.asdict(report) | {"passed": report.passed}))
    else:
        print("\n".join(report_lines(report)))
    return 0 if report.passed else 1


def _show(arguments: argparse.Namespace) -> int:
    make = _factory(arguments.assignor)
    members = dict(_named(text) for text in arguments.member or ["m1", "m2", "m3"])
    topics = dict(_topic(text) for text in arguments.topic or ["orders:8"])
    racks = {name: told.decode() for name, told in map(_named, arguments.rack)}
    spec = _holding(_group(members, topics, racks), arguments.hold)
    before = spec if arguments.hold else _assigned(make(), spec)
    change = "nothing changed"
    if arguments.join is not None:
        name, told = _named(arguments.join)
        members[name] = told
        change = f"{name} joined"
    elif arguments.leave is not None:
        if members.pop(arguments.leave, None) is None or not members:
            raise ConfigError(f"--leave {arguments.leave}: no such member, or the only one")
        change = f"{arguments.leave} left"
    elif arguments.tell is not None:
        name, told = _named(arguments.tell)
        if name not in members:
            raise ConfigError(f"--tell {name}: no such member")
        members[name] = told
        change = f"{name} told {told.decode()}"
    elif arguments.hold:
        change = "it assigned"
    fresh = _group(members, topics, racks)
    merged = {
        m: replace(member, target=before.members[m].target) if m in before.members else member
        for m, member in fresh.members.items()
    }
    after = _assigned(make(), replace(fresh, members=merged))
    was, became = holding_of(before), holding_of(after)
    if arguments.svg is not None:
        try:
            arguments.svg.write_text(draw_svg(was, became, title=make().name, change=change), encoding="utf-8")
        except OSError as error:
            raise Kip848Error(f"the picture cannot be written: {error}") from error
    if arguments.json:
        print(to_json({"assignor": make().name, "change": change, "before": was, "after": became}))
    else:
        print("\n".join(draw_text(was, became, change=change)))
    return 0


def _group(members: dict[str, bytes], topics: dict[str, int], racks: dict[str, str]) -> AssignmentSpec:
    return make_group(dict.fromkeys(members, sorted(topics)), topics, metadata=members, racks=racks)


def _holding(spec: AssignmentSpec, texts: list[str]) -> AssignmentSpec:
    members = dict(spec.members)
    for text in texts:
        name, listed = _named(text)
        if name not in members:
            raise ConfigError(f"--hold {text}: no such member")
        partitions = []
        for part in listed.decode().split(","):
            topic, _, index = part.rpartition(":")
            if topic not in spec.topics or not index.isdecimal() or int(index) >= spec.topics[topic].partition_count:
                raise ConfigError(f"--hold {text}: {part!r} is not a TOPIC:NUMBER of this group")
            partitions.append(spec.topics[topic].partitions[int(index)])
        members[name] = replace(members[name], target=tuple(sorted(partitions)))
    return replace(spec, members=members)


def _assigned(assignor: PartitionAssignor, spec: AssignmentSpec) -> AssignmentSpec:
    try:
        found = checked(spec, assignor.assign(spec), assignor=assignor.name)
    except ValueError as error:
        raise Kip848Error(f"{assignor.name} refuses this group: {error}") from error
    return held_by(spec, found)


def _named(text: str) -> tuple[str, bytes]:
    name, _, told = text.partition("=")
    if not name:
        raise ConfigError(f"{text!r}: write ID or ID=VALUE")
    return name, told.encode()


def _topic(text: str) -> tuple[str, int]:
    name, _, count = text.rpartition(":")
    if not name or not count.isdecimal():
        raise ConfigError(f"--topic {text!r}: write NAME:COUNT, such as orders:8")
    return name, int(count)
