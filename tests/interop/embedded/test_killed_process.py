"""The process ``kip848 broker --data-dir`` is killed under load: what was acknowledged is there afterwards."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from kip848_client.common.model import NamedPartition
from tests.interop.embedded.clients import MemberThread, place_of, read_committed
from tests.interop.embedded.writing import TransactionThread
from tests.interop.real.administrator import Administrator
from tests.interop.real.fleet import Stream
from tests.support.ports import free_ports
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.interop

PARTITIONS: Final = 3
KILLS: Final = 3


class BrokerProcess:
    """``kip848 broker`` on a fixed port and folder, to be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder
        (self.port,) = free_ports(1)
        self.address: Final = f"127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        self.process = process = subprocess.Popen(
            [
                *(sys.executable, "-m", "kip848_client", "broker", "--listen", self.address),
                *("--topic", f"orders:{PARTITIONS}", "--data-dir", str(self.folder / "data")),
                *("--ready-file", str(ready), "--json"),
            ],
            stdout=subprocess.DEVNULL,
        )
        wait_until(lambda: ready.exists() or process.poll() is not None, TIMEOUT_S, "the broker process")
        assert json.loads(ready.read_text())["bootstrap_servers"] == self.address

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path)
    process.start()
    yield process
    process.kill()


def has_read(member: MemberThread, count: int) -> bool:
    """Whether the member was given so many records."""
    return len(member.delivered) >= count


def committed(bootstrap_servers: str, group_id: str = "g") -> dict[int, int]:
    """Committed offset of each partition of the group."""
    places = [NamedPartition("orders", number) for number in range(PARTITIONS)]
    found = Administrator(bootstrap_servers, group_id).committed(places)
    return {place.partition: offset for place, offset in found.items()}


def values_in(bootstrap_servers: str) -> list[list[int]]:
    """The numbers in each partition, in order, but for those of open and aborted transactions."""
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    for message in read_committed(bootstrap_servers, "orders", partitions=PARTITIONS):
        found[place_of(message)[0]].append(int(message.value() or b""))
    return found


@pytest.mark.slow
def test_kill_9_loses_no_acknowledged_record_and_no_committed_offset_and_the_group_goes_on(
    broker: BrokerProcess,
) -> None:
    """The promise of --data-dir: a broker that dies and comes back looks to its clients like a short silence."""
    stream = Stream(broker.address, "orders", partitions=PARTITIONS, records_per_second=1_000)
    with stream, MemberThread(broker.address, ["orders"], client_id="member") as member:
        for _ in range(KILLS):
            wait_until(partial(has_read, member, len(member.delivered) + 300), TIMEOUT_S, "records between two kills")
            before = committed(broker.address)
            broker.kill()
            broker.start()
            after = committed(broker.address)
            assert all(after[n] >= before[n] for n in before), (before, after)
        wait_until(partial(has_read, member, len(member.delivered) + 300), TIMEOUT_S, "records after the last kill")
        assert not member.errors
        stream.stop()
        acknowledged = {(*place, number) for place, count in stream.written.items() for number in range(count)}
        wait_until(lambda: member.keys() >= acknowledged, TIMEOUT_S, "every acknowledged record")
    # Each number is there once, at its place: the idempotent producer sent again what it did not know to be written.
    stored = values_in(broker.address)
    assert stored == [list(range(count)) for _, count in sorted(stream.written.items())]
    assert len(member.delivered) == len(set(member.delivered)), "a record was delivered twice to a member that lived on"
    assert sum(committed(broker.address).values()) == len(acknowledged)


@pytest.mark.slow
def test_kill_9_leaves_transactions_whole(broker: BrokerProcess) -> None:
    """A reader of committed records would see half of a transaction, or a consumer would read its input again."""
    writer = TransactionThread(broker.address, partitions=PARTITIONS)
    moments = random.Random()
    try:
        for _ in range(2 * KILLS):
            writer.wait_for_steps(moments.randint(5, 40))
            broker.kill()
            broker.start()
        writer.wait_for_steps(10)
    finally:
        writer.stop()
    assert not writer.failures
    assert values_in(broker.address) == [writer.committed] * PARTITIONS
    assert committed(broker.address, TransactionThread.GROUP)[0] == writer.committed[-1]
