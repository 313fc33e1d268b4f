"""``kip848 groups``: list, describe and delete groups, and show their lag, as tables or JSON.

::

    kip848 groups list --bootstrap 127.0.0.1:9092
    kip848 groups list --lag --bootstrap 127.0.0.1:9092
    kip848 groups describe billing --bootstrap 127.0.0.1:9092
    kip848 groups list --state Empty --type classic --bootstrap 127.0.0.1:9092
    kip848 groups lag billing --bootstrap 127.0.0.1:9092
    kip848 groups lag --all --bootstrap 127.0.0.1:9092
    kip848 groups delete-offsets billing --topic orders --bootstrap 127.0.0.1:9092
    kip848 groups members billing --bootstrap 127.0.0.1:9092
    kip848 groups reset-offsets billing --to-earliest --execute --bootstrap 127.0.0.1:9092
    kip848 groups validate-regex 'orders-.*'
    kip848 groups delete billing --bootstrap 127.0.0.1:9092
    kip848 groups list --bootstrap kafka.example:9093 -F login.properties
    kip848 groups watch billing --bootstrap 127.0.0.1:9092
    kip848 groups serve --listen 127.0.0.1:9850 --keep 7d --file groups.sqlite --bootstrap 127.0.0.1:9092
    kip848 groups export --listen 127.0.0.1:9848 --bootstrap 127.0.0.1:9092
    kip848 groups record --group 'billing*' --out groups.jsonl --bootstrap 127.0.0.1:9092
"""

from __future__ import annotations

import argparse
import functools
import importlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec

from kip848_client.admin import (
    Admin,
    GroupDescription,
    GroupLag,
    GroupListing,
    OtherGroupDescription,
    WorkerGroupDescription,
)
from kip848_client.admin.groups import shown_elsewhere
from kip848_client.admin.results import raise_all
from kip848_client.cli.shared.options import request_timeout
from kip848_client.cli.shared.parser import declare_when_given
from kip848_client.cli.shared.properties import add_client_arguments, read_properties
from kip848_client.cli.shared.signals import sigterm_interrupts
from kip848_client.cli.shared.tables import name_partitions, number, table
from kip848_client.common.json_text import to_json
from kip848_client.common.model import NamedPartition
from kip848_client.common.patterns import compiled
from kip848_client.common.plain_text import counted, printable
from kip848_client.errors import ConfigError, Kip848Error
from kip848_client.tools.groups.overview import Overview, ask_for_overview, overview_table
from kip848_client.tools.shared.held_back import held_back, held_back_sentence, stable_offsets
from kip848_client.tools.shared.partitions import topics_and_partitions
from kip848_client.tools.shared.worker_tables import describe_workers

_Answer: TypeAlias = GroupListing | GroupDescription | WorkerGroupDescription | GroupLag | Overview | str
_Held: TypeAlias = Mapping[str, Mapping[NamedPartition, int]]

_TYPES: Final = ("consumer", "classic", "share", "streams", "connect")
_STATES: Final = (
    *("Assigning", "CompletingRebalance", "Dead", "Empty"),
    *("NotReady", "PreparingRebalance", "Reconciling", "Stable"),
)

_MODULES: Final = {
    "export": "groups.export",
    "record": "groups.record",
    "reset-offsets": "groups.reset",
    "serve": "page.groups_serve",
    "watch": "groups.watch",
}
"""Actions that are modules of `kip848_client.tools`. The others start without what these import."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, help_text in (
        ("list", "every group of the cluster"),
        ("describe", "members, partitions and lag of groups"),
        ("members", "the members of groups: who speaks which protocol and owns what"),
        ("lag", "the lag of groups of any protocol, by partition"),
        ("delete", "delete groups that have no members, with their offsets"),
        ("delete-offsets", "delete committed offsets of topics that the group does not subscribe to"),
        ("reset-offsets", "move the committed offsets, or a share group's start offsets, of a group without members"),
        ("validate-regex", "check a pattern for subscribe() as coordinators read it (RE2), without a broker"),
        ("watch", "watch one group: who owns what, who waits for whom, since when, epochs, lag"),
        ("serve", "serve a page that shows all groups, live, and what went wrong with them"),
        ("export", "serve metrics of the groups to Prometheus: rebalances, unread partitions, lag"),
        ("record", "write the event log of any cluster's groups, for kip848 report"),
    ):
        declare_when_given(actions.add_parser(name, help=help_text), functools.partial(_declare, name))


def _declare(name: str, action: argparse.ArgumentParser) -> None:
    if name in _MODULES:
        _module(name).add_arguments(action)
    elif name == "validate-regex":
        action.add_argument("pattern", metavar="PATTERN")
        action.add_argument("topics", metavar="TOPIC", nargs="*", help="say which of these names it matches")
        return
    elif name == "list":
        action.add_argument(
            "--state",
            metavar="STATE",
            type=functools.partial(_as_written, known=_STATES),
            choices=_STATES,
            action="append",
            default=[],
            help="in this state only, such as Stable or Empty; may be repeated",
        )
        action.add_argument(
            "--type",
            metavar="TYPE",
            type=functools.partial(_as_written, known=_TYPES),
            choices=_TYPES,
            action="append",
            default=[],
            help="consumer, classic, share, streams or connect; may be repeated",
        )
        action.add_argument(
            "--lag",
            action="store_true",
            help="members and lag, too, and partitions that wait for an owner or a transaction; most lag first",
        )
    elif name in {"describe", "members", "lag"}:
        action.add_argument("groups", metavar="GROUP", nargs="*")
        action.add_argument("--all", action="store_true", help="all groups of the cluster")
    elif name == "delete-offsets":
        action.add_argument("groups", metavar="GROUP", nargs=1)
        action.add_argument("--topic", metavar="NAME[:0,1]", action="append", required=True, help="may be repeated")
    else:
        action.add_argument("groups", metavar="GROUP", nargs="+")
    action.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=request_timeout,
        default=10.0,
        help="for each question, with its retries (10)",
    )
    if name not in {"record", "watch", "export", "serve"}:
        action.add_argument("--json", action="store_true", help="print one JSON object")
    add_client_arguments(action)


def _as_written(text: str, known: Sequence[str]) -> str:
    """The one of *known* that *text* means, whatever its case; else *text*, which is refused."""
    return next((one for one in known if one.lower() == text.lower()), text)


def _module(action: str) -> Any:
    return importlib.import_module(f"kip848_client.tools.{_MODULES[action]}")


def run(arguments: argparse.Namespace) -> int:
    """Run the action.

    Raises:
        ConfigError: an option is out of range.
        Kip848Error: no broker answers, or one refuses.
    """
    if arguments.action == "validate-regex":
        return _validate(arguments.pattern, arguments.topics)
    if arguments.action in _MODULES:
        with sigterm_interrupts():
            return int(_module(arguments.action).run(arguments))

    with Admin(read_properties(arguments)) as admin:
        answer, refused = _ask(admin, arguments)
        held = _ask_who_is_held_back(admin, arguments, answer)
    if arguments.json:
        key = "deleted" if arguments.action.startswith("delete") else "groups"
        print(to_json({key: [_plain(item, held) for item in answer]}))
    elif answer:
        blocks = _members(answer) if arguments.action == "members" else _blocks(answer, held)
        print(("\n" if arguments.action.startswith("delete") else "\n\n").join(blocks))
    elif not refused:
        print("no groups")
    raise_all(refused)
    return 0


def _ask(admin: Admin, arguments: argparse.Namespace) -> tuple[Sequence[_Answer], Sequence[Kip848Error]]:
    """The answers of the cluster, and the refusals."""
    timeout_s = arguments.timeout
    if arguments.action == "list":
        listing = admin.list_groups(types=arguments.type, states=arguments.state, timeout_s=timeout_s)
        refused = list(listing.errors.values())
        if not arguments.lag:
            return listing.found, refused
        rows, unknown = ask_for_overview(admin, listing.found, timeout_s=timeout_s)
        return rows, [*refused, *unknown]
    if arguments.action == "delete-offsets":
        gone = admin.delete_offsets(arguments.groups[0], _named(admin, arguments), timeout_s=timeout_s)
        return [str(one) for one in gone.values], list(gone.errors.values())
    if arguments.action in {"describe", "members", "lag"}:
        if arguments.all == bool(arguments.groups):
            raise ConfigError(f"which groups? kip848 groups {arguments.action} GROUP ..., or --all")
        if arguments.all:
            arguments.groups = _all_groups(admin, arguments)
    if arguments.action == "delete":
        deleted = admin.delete_groups(arguments.groups, timeout_s=timeout_s)
        return list(deleted.values), list(deleted.errors.values())
    if arguments.action == "lag":
        lags = admin.lag(arguments.groups, timeout_s=timeout_s)
        return list(lags.values.values()), list(lags.errors.values())
    described = admin.describe_groups(arguments.groups, with_progress=True, timeout_s=timeout_s)
    answers: list[_Answer] = []
    refused = list(described.errors.values())
    for group in described.values.values():
        if isinstance(group, OtherGroupDescription):
            refused.append(shown_elsewhere(group))
        else:
            answers.append(group)
    return answers, refused


def _ask_who_is_held_back(admin: Admin, arguments: argparse.Namespace, answer: Sequence[_Answer]) -> _Held:
    if arguments.action not in {"describe", "lag"}:
        return {}
    shown = {item.group_id: item.progress for item in answer if isinstance(item, GroupDescription | GroupLag)}
    stable = stable_offsets(admin, chain.from_iterable(shown.values()), timeout_s=arguments.timeout)
    return {group_id: held_back(progress, stable) for group_id, progress in shown.items()}


def _all_groups(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    """The groups that have members to describe or offsets to compare."""
    found = admin.list_groups(timeout_s=arguments.timeout)
    raise_all(found.errors.values())
    types = (
        {"consumer", "classic", "share"} if arguments.action == "lag" else {"consumer", "classic", "share", "connect"}
    )
    return [group.group_id for group in found.found if group.type in types]


def _named(admin: Admin, arguments: argparse.Namespace) -> list[tuple[str, int]]:
    """The partitions that ``--topic`` names."""
    named = list(topics_and_partitions(arguments.topic))
    topics = admin.list_topics([one for one in named if isinstance(one, str)], timeout_s=arguments.timeout)
    raise_all(topics.errors.values())
    whole = [(one.topic, number) for one in topics.values.values() for number in range(one.partitions)]
    return [*whole, *(one for one in named if isinstance(one, tuple))]


def _validate(pattern: str, topics: Sequence[str]) -> int:
    """Say whether *pattern* is RE2, and which of *topics* it matches as a whole.

    Raises:
        ConfigError: it is not.
    """
    try:
        matcher = compiled(pattern)
    except ValueError as error:
        raise ConfigError(f"{pattern!r} is not a pattern that coordinators take: {error}") from error
    print(f"{pattern!r} is valid")
    for topic in topics:
        print(f"{'matches' if matcher.fullmatch(topic) else 'differs'}  {topic}")
    return 0


def _members(answer: Sequence[_Answer]) -> Iterable[str]:
    for item in answer:
        if isinstance(item, GroupDescription):
            yield f"group {printable(item.group_id)}\n\n{_member_table(item) or 'no members'}"


def _blocks(answer: Sequence[_Answer], held: _Held) -> Iterable[str]:
    if isinstance(answer[0], GroupListing):
        rows = [(item.group_id, item.type, item.state) for item in answer if isinstance(item, GroupListing)]
        yield table(("GROUP", "TYPE", "STATE"), rows)
    if isinstance(answer[0], Overview):
        yield overview_table(item for item in answer if isinstance(item, Overview))
    for item in answer:
        if isinstance(item, GroupDescription):
            yield describe(item) + _held(held, item.group_id)
        elif isinstance(item, WorkerGroupDescription):
            yield describe_workers(item)
        elif isinstance(item, GroupLag):
            yield f"group {printable(item.group_id)}\n\n{_progress(item)}{_held(held, item.group_id)}"
        elif isinstance(item, str):
            yield f"deleted {printable(item)}"


def describe(group: GroupDescription) -> str:
    """Write one group as two tables under a headline."""
    if group.type == "classic":
        headline = f"classic group {group.group_id}: {group.state}"
    else:
        what = "group" if group.type == "consumer" else f"{group.type} group"
        headline = f"{what} {group.group_id}: {group.state}, epoch {group.group_epoch}"
        if group.assignment_epoch != group.group_epoch:
            headline += f" (assignment of epoch {group.assignment_epoch})"
    blocks = [printable(f"{headline}, assignor {group.assignor}" if group.assignor else headline)]
    if members := _member_table(group):
        blocks.append(members)
    if group.progress:
        blocks.append(_progress(GroupLag(group.group_id, group.progress)))
    return "\n\n".join(blocks)


def _member_table(group: GroupDescription) -> str:
    """The members of a group; empty if it has none."""
    is_mixed = any(member.protocol == "classic" for member in group.members)
    members = [
        (
            member.client_id,
            member.client_host.removeprefix("/"),
            "" if member.member_epoch is None else str(member.member_epoch),
            member.protocol if is_mixed else "",
            name_partitions(member.assigned),
            "" if member.target == member.assigned else name_partitions(member.target),
            member.member_id,
        )
        for member in group.members
    ]
    header = ("CLIENT", "HOST", "EPOCH", "PROTOCOL", "PARTITIONS", "TARGET", "MEMBER ID")
    return table(header, members) if members else ""


def _progress(group: GroupLag) -> str:
    rows = [
        (
            item.partition.topic,
            str(item.partition.partition),
            number(item.committed),
            number(item.end),
            number(item.lag),
            item.owner or "-",
        )
        for item in group.progress
    ]
    position = "START" if any(item.is_shared for item in group.progress) else "COMMITTED"
    shown = table(("TOPIC", "PARTITION", position, "END", "LAG", "CLIENT"), rows)
    return f"{shown}\n\n{_lag(group)}"


def _lag(group: GroupLag) -> str:
    if group.lag is not None:
        return f"lag {group.lag:,}"
    of_how_many = f"{group.unknown:,} of {counted(len(group.progress), 'partition')}"
    known = f"; {group.known_lag:,} in the others" if group.unknown < len(group.progress) else ""
    return f"lag unknown: nothing is committed, or no end is known, for {of_how_many}{known}"


def _held(held: _Held, group_id: str) -> str:
    places = held.get(group_id)
    return f"\n{printable(held_back_sentence(places))}" if places else ""


def _plain(item: _Answer, held: _Held) -> object:
    if isinstance(item, str):
        return item
    plain: dict[str, Any] = msgspec.to_builtins(item)
    if isinstance(item, Overview):
        named = {name: list(map(str, getattr(item, name))) for name in ("without_owner", "held_back")}
        return plain | named
    if isinstance(item, GroupDescription):
        for member in plain["members"]:
            member["assigned"] = [NamedPartition(*pair)._asdict() for pair in member["assigned"]]
            member["target"] = [NamedPartition(*pair)._asdict() for pair in member["target"]]
    if isinstance(item, GroupDescription | GroupLag):
        plain["progress"] = [
            {
                **progress.partition._asdict(),
                "committed": progress.committed,
                "end": progress.end,
                "owner": progress.owner,
                "lag": progress.lag,
                "held_back": progress.partition in held.get(item.group_id, {}),
            }
            for progress in item.progress
        ]
    if isinstance(item, GroupLag):
        plain |= {"lag": item.lag, "known_lag": item.known_lag, "unknown": item.unknown}
    return plain
