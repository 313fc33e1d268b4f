"""``kip848 transactions``: open transactions, whom they hold back and for how long; abort them.

::

    kip848 transactions list --bootstrap 127.0.0.1:9092
    kip848 transactions list --open-for 60 --json --bootstrap 127.0.0.1:9092
    kip848 transactions abort billing-7 --bootstrap 127.0.0.1:9092
    kip848 transactions hanging orders payments --bootstrap 127.0.0.1:9092
    kip848 transactions hanging orders --abort --bootstrap 127.0.0.1:9092

Readers of committed records do not get beyond the first record of an open transaction. Brokers do not tell the address
of its producer; its transactional id is all that names it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kip848_client.admin import Admin, HangingTransaction, TransactionDescription
from kip848_client.admin.results import raise_all
from kip848_client.cli.shared.options import add_question_arguments
from kip848_client.cli.shared.properties import read_properties
from kip848_client.cli.shared.tables import table
from kip848_client.common.json_text import to_json
from kip848_client.common.model import NamedPartition
from kip848_client.common.plain_text import printable
from kip848_client.errors import ConfigError, IllegalStateError, Kip848Error
from kip848_client.tools.report.wording import duration

_OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
_HANGING_MS: Final = 900_000


class HeldBack(msgspec.Struct, frozen=True):
    """A partition that an open transaction has written to.

    Args:
        readable: as far as readers of committed records get; None if the leader does not tell, as `end`.
    """

    topic: str
    partition: int
    readable: int | None
    end: int | None

    @property
    def records(self) -> int | None:
        """How many records wait, the transaction's own and markers among them."""
        return None if self.readable is None or self.end is None else self.end - self.readable


class OpenFor(msgspec.Struct, frozen=True):
    """A transaction that is open. `open_ms` is None if its coordinator does not say since when."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    open_ms: int | None
    timeout_ms: int
    partitions: Sequence[HeldBack]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, help_text in (
        ("list", "open transactions, the oldest first, and the records that their readers wait for"),
        ("abort", "abort open transactions in place of their producers"),
        ("hanging", "find transactions that no coordinator will end, in topics"),
    ):
        action = actions.add_parser(name, help=help_text)
        if name == "list":
            action.add_argument(
                "--open-for",
                metavar="SECONDS",
                type=float,
                default=0.0,
                help="only those that are open for so long (0)",
            )
        elif name == "abort":
            action.add_argument("ids", metavar="TRANSACTIONAL_ID", nargs="+")
        else:
            action.add_argument("topics", metavar="TOPIC", nargs="+")
            action.add_argument("--abort", action="store_true", help="abort them; needs ALTER on the cluster")
            action.add_argument(
                "--older-than",
                metavar="SECONDS",
                type=float,
                default=_HANGING_MS / 1000,
                help="whose producers have written nothing for so long (900)",
            )
        add_question_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    """Run the action.

    Raises:
        ConfigError: an option is out of range.
        Kip848Error: no broker answers, or one refuses.
    """
    with Admin(read_properties(arguments)) as admin:
        if arguments.action == "list":
            return _list(admin, arguments)
        if arguments.action == "abort":
            return _abort(admin, arguments)
        return _hanging(admin, arguments)


def _list(admin: Admin, arguments: argparse.Namespace) -> int:
    if arguments.open_for < 0:
        raise ConfigError(f"--open-for {arguments.open_for:g}: seconds from 0")
    found, failures = open_transactions(admin, timeout_s=arguments.timeout)
    shown = [each for each in found if (each.open_ms or 0) >= arguments.open_for * 1000]
    if arguments.json:
        print(to_json({"transactions": shown}))
    elif shown:
        header = ("TRANSACTION", "STATE", "PRODUCER", "OPEN FOR", "TIME-OUT", "PARTITION", "READABLE", "END", "WAITING")
        print(table(header, [row for each in shown for row in _rows(each)]))
    else:
        print("no open transactions")
    raise_all(failures)
    return 0


def open_transactions(admin: Admin, *, timeout_s: float) -> tuple[list[OpenFor], list[Kip848Error]]:
    """Open transactions, the oldest first, and what could not be asked.

    Raises:
        Kip848Error: no broker answers.
    """
    listing = admin.list_transactions(states=_OPEN, timeout_s=timeout_s)
    described = admin.describe_transactions([one.transactional_id for one in listing.found], timeout_s=timeout_s)
    still = [one for one in described.values.values() if one.state in _OPEN]  # others have ended meanwhile
    partitions = sorted({partition for one in still for partition in one.partitions})
    readable: Mapping[NamedPartition, int | None] = {}
    ends: Mapping[NamedPartition, int | None] = {}
    if partitions:
        readable = admin.list_offsets(partitions, isolation_level="read_committed", timeout_s=timeout_s).values
        ends = admin.list_offsets(partitions, timeout_s=timeout_s).values
    now_ms = time.time_ns() // 1_000_000
    found = [_open_for(one, readable, ends, now_ms=now_ms) for one in still]
    found.sort(key=lambda each: (-(each.open_ms or 0), each.transactional_id))
    return found, [*listing.errors.values(), *described.errors.values()]


def _open_for(
    one: TransactionDescription,
    readable: Mapping[NamedPartition, int | None],
    ends: Mapping[NamedPartition, int | None],
    *,
    now_ms: int,
) -> OpenFor:
    return OpenFor(
        transactional_id=one.transactional_id,
        state=one.state,
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        open_ms=None if one.started_ms is None else max(0, now_ms - one.started_ms),
        timeout_ms=one.timeout_ms,
        partitions=[
            HeldBack(partition.topic, partition.partition, readable.get(partition), ends.get(partition))
            for partition in sorted(one.partitions)
        ],
    )


def _rows(each: OpenFor) -> Iterable[tuple[str, ...]]:
    first = (
        each.transactional_id,
        each.state,
        f"{each.producer_id}, epoch {each.producer_epoch}",
        "-" if each.open_ms is None else duration(each.open_ms),
        duration(each.timeout_ms),
    )
    if not each.partitions:
        yield (*first, "", "", "", "")
    for index, held in enumerate(each.partitions):
        name = f"{held.topic}-{held.partition}"
        yield (
            *(first if index == 0 else ("",) * len(first)),
            name,
            *map(_number, (held.readable, held.end, held.records)),
        )


def _abort(admin: Admin, arguments: argparse.Namespace) -> int:
    described = admin.describe_transactions(arguments.ids, timeout_s=arguments.timeout)
    at_rest = [one for one in described.values.values() if one.state not in _OPEN]
    failures: list[Kip848Error] = list(described.errors.values())
    failures += [
        IllegalStateError(f"transaction {one.transactional_id!r} is not open: its state is {one.state}")
        for one in at_rest
    ]
    wanted = [one.opened for one in described.values.values() if one.state in _OPEN]
    ended = admin.end_transactions(wanted, commit=False, timeout_s=arguments.timeout)
    _tell_aborted(list(ended.values), json=arguments.json)
    raise_all([*failures, *ended.errors.values()])
    return 0


def _hanging(admin: Admin, arguments: argparse.Namespace) -> int:
    found = admin.find_hanging_transactions(
        arguments.topics, older_than_ms=int(arguments.older_than * 1000), timeout_s=arguments.timeout
    )
    hanging = [one for several in found.values.values() for one in several]
    failures: list[Kip848Error] = list(found.errors.values())
    if arguments.abort:
        aborted = []
        for one in hanging:
            try:
                admin.abort_hanging_transaction(one, timeout_s=arguments.timeout)
                aborted.append(_name(one))
            except Kip848Error as error:
                failures.append(error)
        _tell_aborted(aborted, json=arguments.json)
    elif arguments.json:
        print(
            to_json(
                {"hanging": [{**msgspec.to_builtins(one), "partition": one.partition._asdict()} for one in hanging]}
            )
        )
    elif hanging:
        now_ms = time.time_ns() // 1_000_000
        rows = [
            (
                str(one.partition),
                f"{one.producer_id}, epoch {one.producer_epoch}",
                f"{one.first_offset:,}",
                duration(max(0, now_ms - one.last_record_ms)),
            )
            for one in hanging
        ]
        print(table(("PARTITION", "PRODUCER", "READABLE", "SILENT FOR"), rows))
    else:
        print("no hanging transactions")
    raise_all(failures)
    return 0


def _name(one: HangingTransaction) -> str:
    return f"producer {one.producer_id} in {one.partition}"


def _tell_aborted(names: Sequence[str], *, json: bool) -> None:
    if json:
        print(to_json({"aborted": names}))
    for name in () if json else names:
        print(f"aborted {printable(name)}")


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
