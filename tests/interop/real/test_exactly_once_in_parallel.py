"""``examples/exactly_once_parallel.py`` in processes that are killed and joined: each result is there once."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from kip848_client.common.model import NamedPartition
from tests.interop.embedded.clients import read_committed
from tests.interop.real.group import Group
from tests.interop.real.test_exactly_once_under_fire import ASK_EVERY_S, workers_of
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = [pytest.mark.interop, pytest.mark.slow]

RECORDS: Final = 8_000
PARTITIONS: Final = 6
STEPS: Final = ("kill", "join", "kill", "kill")
"""What happens, one step after each equal part of the records."""
EXAMPLE: Final = Path(__file__).parents[3] / "examples" / "exactly_once_parallel.py"


@pytest.mark.timeout(4 * TIMEOUT_S)
def test_each_result_is_there_once_while_processes_with_many_handlers_are_killed(group: Group, tmp_path: Path) -> None:
    """Money depends on it: a record that was in hand or in an open transaction is neither lost nor booked twice."""
    source, sink = group.topic(partitions=PARTITIONS), group.topic()
    group.configure(consumer_session_timeout_ms=2_000)
    places = [NamedPartition(source, partition) for partition in range(PARTITIONS)]

    def reached(count: int) -> bool:
        workers.check()
        return sum(group.committed(places).values()) >= count

    with workers_of(group, source, sink, tmp_path, EXAMPLE) as workers:
        for _ in range(2):
            workers.join()
        group.write(source, RECORDS // PARTITIONS, partitions=PARTITIONS)
        written = sum(group.written.values())
        for number, step in enumerate(STEPS, 1):
            part = written * number // (len(STEPS) + 1)
            wait_until(partial(reached, part), what=f"{part} records before {step}", every_s=ASK_EVERY_S)
            getattr(workers, step)()
        wait_until(partial(reached, written), what="all records", every_s=ASK_EVERY_S)
        while workers.running:
            workers.leave()

    found = Counter(one.value() for one in read_committed(group.bootstrap_servers, sink))
    assert sum(found.values()) == written
    assert set(found.values()) == {PARTITIONS}, "each partition has the same numbers"
